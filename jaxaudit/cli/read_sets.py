"""From the options of `ks`, `power` and `shadows` to sets of records, preprocessed and matched."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from jaxaudit.cli.progress import say
from jaxaudit.cli.sets import Held, Sets
from jaxaudit.cli.words import ACDC, parse_acdc, parse_image_size
from jaxaudit.data import Examples, align_classes, drop_unshared, is_image, load, prepare_images
from jaxaudit.data.groups import groups_file
from jaxaudit.data.overlap import drop_overlap, find_overlap, refuse_overlap
from jaxaudit.places import without_folders

DENSE, LARGE = "mlp", 100
"""Numbers beyond this, with the usual learning rates, are too large to learn from."""


def read_examples(
    name: str,
    data_dir: Path | None,
    size: tuple[int, int] | None,
    gray: bool,
    field_strength: Path | None,
    drop: Sequence[str] = (),
) -> Examples:
    """The records that `name` names; images are resized to `size` and scaled to [0, 1], tables become float32."""
    if name.startswith(ACDC):
        examples = _read_acdc(name, field_strength)
    else:
        examples = load(name, data_dir=data_dir, image_size=size, gray=gray, drop=drop)
    if not is_image(examples):
        return replace(examples, inputs=np.asarray(examples.inputs, np.float32))
    height, width = size or examples.inputs.shape[1:3]
    prepared = prepare_images(examples, (height, width), gray)
    say(f"{name}: {len(examples):,} images of {_shape(examples)}, converted to {_shape(prepared)} in [0, 1]")
    return prepared


def tell_of_large_numbers(model: str | None, inputs: Iterable[np.ndarray]) -> None:
    """Says on stderr that columns should be scaled, where a dense network would hardly learn from them."""
    largest = max(float(np.abs(each).max(initial=0)) for each in inputs) if model == DENSE else 0
    if largest > LARGE:
        say(
            f"the columns have numbers up to {largest:,.0f}, on which networks train badly or not at all: scale each, "
            "in all sets alike, such as to mean 0 and standard deviation 1"
        )


def _read_acdc(name: str, field_strength: Path | None) -> Examples:
    """`acdc:FOLDER@STRENGTH`: the slices of the patients scanned at this field strength."""
    from jaxaudit.data.sets.acdc import load_acdc

    folder, tesla = parse_acdc(name)
    table = field_strength or Path(folder) / "field_strength.csv"
    return replace(load_acdc(folder, table, tesla).examples, name=without_folders(name))


def _shape(examples: Examples) -> str:
    return "x".join(map(str, examples.inputs.shape[1:]))


def match(query: Examples, calibration: Examples, *, drop_shared: bool, drop_classes: bool) -> Examples:
    """The calibration set with the query set's classes in its order and none of its records.

    Raises:
        InputError: they differ, and no option tells what to drop.
    """
    aligned = drop_unshared(query, calibration) if drop_classes else align_classes(query, calibration)
    if not drop_shared:
        refuse_overlap(query, aligned)
        return aligned
    return drop_from(aligned, query, "query")


def group_columns(data: Held) -> tuple[str, ...]:
    """Columns with groups: they are no inputs, whichever set they are in."""
    groups = (data.groups, data.holdout_groups, getattr(data, "members_groups", None))
    return tuple(dict.fromkeys(each for each in groups if each is not None and groups_file(each) is None))


def reader(data: Sets, drop: Sequence[str] = ()) -> Callable[[str], Examples]:
    """A function that reads a set by its name, with these options; without these columns of a CSV."""
    size = parse_image_size(data.image_size or "none")

    def read(name: str) -> Examples:
        return read_examples(name, data.data_dir, size, data.gray, data.field_strength, drop)

    return read


def read_sets(data: Sets, read: Callable[[str], Examples]) -> tuple[Examples, Examples, Examples]:
    """The query set, the calibration set matched to it, and the same as it was read."""
    query, whole = read(data.query or ""), read(data.calibration or "")
    return query, match(query, whole, drop_shared=data.drop_overlap, drop_classes=data.drop_unshared), whole


def drop_from(examples: Examples, other: Examples, role: str, of: str = "calibration set") -> Examples:
    """The records that are not in the other set, which has this role; `of` is their own."""
    count = find_overlap(other, examples).count
    if count:
        say(f"dropped {count} {of.removesuffix(' set')} records that are also in the {role}")
    return drop_overlap(other, examples, of)
