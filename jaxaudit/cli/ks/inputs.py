"""From the words on the command line to data, preprocessed and matched."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxaudit.audits.pool import Part, SimulatedTarget
from jaxaudit.cli.progress import say
from jaxaudit.cli.repeat import Options
from jaxaudit.cli.words import ACDC, parse_acdc
from jaxaudit.data import Examples, align_classes, align_target_data, drop_unshared, is_image, load, prepare_images
from jaxaudit.data.outputs.outputs import Outputs, load_outputs
from jaxaudit.data.overlap import drop_overlap, find_overlap, refuse_held, refuse_overlap, without_copies
from jaxaudit.places import without_folders


def read_examples(
    name: str, data_dir: Path | None, size: tuple[int, int] | None, gray: bool, field_strength: Path | None
) -> Examples:
    """The records that `name` means, images brought to `size` and [0, 1], tables to float32."""
    acdc = name.startswith(ACDC)
    examples = _read_acdc(name, field_strength) if acdc else load(name, data_dir=data_dir, image_size=size, gray=gray)
    if not is_image(examples):
        return replace(examples, inputs=np.asarray(examples.inputs, np.float32))
    height, width = size or examples.inputs.shape[1:3]
    prepared = prepare_images(examples, (height, width), gray)
    say(f"{name}: {len(examples):,} images of {_shape(examples)}, made {_shape(prepared)} in [0, 1]")
    return prepared


def _read_acdc(name: str, field_strength: Path | None) -> Examples:
    """`acdc:FOLDER@STRENGTH`: the slices of the patients scanned at this field strength."""
    from jaxaudit.data.sets.acdc import load_acdc

    folder, tesla = parse_acdc(name)
    table = field_strength or Path(folder) / "field_strength.csv"
    return replace(load_acdc(folder, table, tesla).examples, name=without_folders(name))


def _shape(examples: Examples) -> str:
    return "x".join(map(str, examples.inputs.shape[1:]))


def match(query: Examples, calibration: Examples, *, drop_shared: bool, drop_classes: bool) -> Examples:
    """The calibration set with the query's classes in the query's order and none of its records.

    Raises:
        InputError: where they differ and no option says what to drop.
    """
    aligned = drop_unshared(query, calibration) if drop_classes else align_classes(query, calibration)
    if not drop_shared:
        refuse_overlap(query, aligned)
        return aligned
    return _drop_from_calibration(query, aligned, "query")


def reader(options: Options, size: tuple[int, int] | None) -> Callable[[str], Examples]:
    """What reads a set by its name, as these options say."""

    def read(name: str) -> Examples:
        return read_examples(name, options["data_dir"], size, options["gray"], options["field_strength"])

    return read


def read_sets(options: Options, read: Callable[[str], Examples]) -> tuple[Examples, Examples]:
    """The query set, and the calibration set matched to it."""
    query = read(options["query"])
    calibration = match(
        query,
        read(options["calibration"]),
        drop_shared=options["drop_overlap"],
        drop_classes=options["drop_unshared"],
    )
    return query, calibration


class Given(NamedTuple):
    """What a person has, matched record by record.

    Attributes:
        query: the data in question.
        calibration: the query's classes in the query's order, and none of its or the holdout's records.
        holdout: records of the same provider that nobody was given; None where there is none.
        outputs: targets' outputs on the query set, in its order.
        on_holdout: the same targets' outputs on the holdout, in its order.
        simulated: targets of known truth, to be trained.
    """

    query: Examples
    calibration: Examples
    holdout: Examples | None
    outputs: list[Outputs]
    on_holdout: list[Outputs]
    simulated: tuple[SimulatedTarget, ...] = ()


def read_given(options: Options, read: Callable[[str], Examples]) -> Given:
    """The sets and the outputs that these options name; with `--drop-overlap`, without what they share.

    Files of outputs have a row for each record as the sets were read; what is dropped of a set is dropped of them.

    Raises:
        InputError: where records are shared and may not be dropped, and where files of outputs do not fit.
    """
    query, calibration = read_sets(options, read)
    if not options["holdout"]:
        return Given(query, calibration, None, _read_outputs(options, "target", query, "query set"), [])
    holdout = align_target_data(query, read(options["holdout"]))
    if not options["drop_overlap"]:
        refuse_held(query, holdout, "query set")
        refuse_held(calibration, holdout, "calibration set")
    given = Given(
        query,
        calibration,
        holdout,
        _read_outputs(options, "target", query, "query set"),
        _read_outputs(options, "holdout_target", holdout, "holdout"),
    )
    return _apart(given, holdout) if options["drop_overlap"] else given


def _read_outputs(options: Options, option: str, examples: Examples, of: str) -> list[Outputs]:
    """The files that this option names, as outputs on these records; messages call them `of`."""
    paths, kind = options[option], options["target_kind"]
    files = [load_outputs(path, examples.class_names, len(examples), kind, of=of) for path in paths]
    return name_apart(files, paths)


def _apart(given: Given, holdout: Examples) -> Given:
    """The same without what the three sets share."""
    calibration = _drop_from_calibration(holdout, given.calibration, "holdout")
    kept = without_copies(given.query, holdout)
    left, theirs = len(given.query) - len(kept.query), len(holdout) - len(kept.holdout)
    if left:
        say(
            f"{find_overlap(given.query, holdout).count} holdout records are also in the query set; every record with "
            f"a copy was dropped, {left} of the query set and {theirs} of the holdout, with their rows of the outputs"
        )
    return Given(
        given.query.take(kept.query),
        calibration,
        holdout.take(kept.holdout),
        [file.take(kept.query) for file in given.outputs],
        [file.take(kept.holdout) for file in given.on_holdout],
    )


def _drop_from_calibration(other: Examples, calibration: Examples, role: str) -> Examples:
    count = find_overlap(other, calibration).count
    if count:
        say(f"{count} {role} records are also in the calibration set; they were dropped from it")
    return drop_overlap(other, calibration)


def default_targets(query: Examples, calibration: Examples) -> list[SimulatedTarget]:
    """Three targets of known truth: trained on all of the query set, on none and on half of it.

    Besides, each is trained on two thirds of the calibration set, as the shadow models are.
    """
    rest = Part(calibration, 0.67)
    return [simulate([rest, Part(query, 1.0)]), simulate([rest]), simulate([rest, Part(query, 0.5)])]


def name_apart(outputs: list[Outputs], paths: list[Path]) -> list[Outputs]:
    """Files of one name in different folders get their paths for names, and numbers where those cannot be told."""
    names = [file.name for file in outputs]
    told = [without_folders(str(path)) for path in paths]
    return [
        replace(file, name=path if told.count(path) == 1 else f"{path} ({place})")
        if names.count(file.name) > 1
        else file
        for place, (file, path) in enumerate(zip(outputs, told, strict=True), 1)
    ]


def simulate(parts: list[Part]) -> SimulatedTarget:
    """One target trained on the union of these parts, and named after them."""
    shares = [f"{100 * part.fraction:g}% of " if part.fraction < 1 else "" for part in parts]
    names = [share + part.examples.name for share, part in zip(shares, parts, strict=True)]
    return SimulatedTarget(" + ".join(names), tuple(parts))
