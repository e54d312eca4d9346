"""From the words on the command line to data, preprocessed and matched."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from jaxaudit.audits.pool import Part, SimulatedTarget
from jaxaudit.cli.progress import say
from jaxaudit.cli.repeat import Options
from jaxaudit.data import Examples, align_classes, align_target_data, drop_unshared, is_image, load, prepare_images
from jaxaudit.data.outputs import Outputs
from jaxaudit.data.overlap import drop_overlap, find_overlap, refuse_overlap
from jaxaudit.errors import InputError

ACDC = "acdc:"
LARGEST_SIDE = 4096


def parse_image_size(text: str) -> tuple[int, int] | None:
    """(height, width) from `28x28`; None from `none`."""
    if text == "none":
        return None
    height, _, width = text.lower().partition("x")
    if not (height.isdecimal() and width.isdecimal() and int(height) and int(width)):
        raise InputError(f"--image-size {text} must be HEIGHTxWIDTH, such as 28x28, or none to keep the size.")
    return int(height), int(width)


def parse_target_data(text: str) -> tuple[str, float]:
    """A data set's name and the fraction of it, from `NAME[:FRACTION]`; without a fraction, all of it.

    >>> parse_target_data("mnist:0.1"), parse_target_data("mnist@train[:100]"), parse_target_data("mnist:3.0.1")
    (('mnist', 0.1), ('mnist@train[:100]', 1.0), ('mnist:3.0.1', 1.0))
    """
    name, _, last = text.rpartition(":")
    try:
        fraction = float(last)
    except ValueError:
        return text, 1.0
    if not name:
        return text, 1.0
    if not 0 < fraction <= 1:
        raise InputError(f"--target-data {text}: the fraction must be above 0 and at most 1, such as {name}:0.5.")
    return name, fraction


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
    from jaxaudit.data.acdc import load_acdc

    folder, _, strength = name.removeprefix(ACDC).rpartition("@")
    try:
        tesla = float(strength)
    except ValueError:
        tesla = float("nan")
    if not folder or not tesla > 0:
        raise InputError(f"{name} must be acdc:FOLDER@STRENGTH, the strength in tesla, such as acdc:ACDC@3.0.")
    table = field_strength or Path(folder) / "field_strength.csv"
    return replace(load_acdc(folder, table, tesla).examples, name=name)


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
    count = find_overlap(query, aligned).count
    if count:
        say(f"{count} query records are also in the calibration set; they were dropped from it")
    return drop_overlap(query, aligned)


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


def match_holdout(query: Examples, calibration: Examples, holdout: Examples) -> Examples:
    """The holdout with the query's classes in the query's order.

    Raises:
        InputError: where a record of it is in the query or the calibration set.
    """
    aligned = align_target_data(query, holdout)
    for other, name in ((query, "query"), (calibration, "calibration")):
        shared = find_overlap(other, aligned).count
        if shared:
            raise InputError(
                f"{shared} of the {len(aligned)} records of --holdout {holdout.name} are also in the {name} set "
                f"({other.name}): a holdout is records of the query set's provider that nobody was given; take them "
                "out of one of the two."
            )
    return aligned


def default_targets(query: Examples, calibration: Examples) -> list[SimulatedTarget]:
    """Three targets of known truth: trained on all of the query set, on none and on half of it.

    Besides, each is trained on two thirds of the calibration set, as the shadow models are.
    """
    rest = Part(calibration, 0.67)
    return [simulate([rest, Part(query, 1.0)]), simulate([rest]), simulate([rest, Part(query, 0.5)])]


def name_apart(outputs: list[Outputs], paths: list[Path]) -> list[Outputs]:
    """Files of one name in different folders get their paths for names."""
    names = [file.name for file in outputs]
    return [
        replace(file, name=str(path)) if names.count(file.name) > 1 else file
        for file, path in zip(outputs, paths, strict=True)
    ]


def simulate(parts: list[Part]) -> SimulatedTarget:
    """One target trained on the union of these parts, and named after them."""
    shares = [f"{100 * part.fraction:g}% of " if part.fraction < 1 else "" for part in parts]
    names = [share + part.examples.name for share, part in zip(shares, parts, strict=True)]
    return SimulatedTarget(" + ".join(names), tuple(parts))
