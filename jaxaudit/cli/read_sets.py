"""Reads the sets that a command line names: preprocessed, matched, and in the form that a network needs."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxaudit.cli.groups import Columns, Images, TextNetwork
from jaxaudit.cli.parsers import ACDC, TEXTS, is_texts, parse_acdc, parse_image_size, parse_template, parse_tokens
from jaxaudit.cli.progress import say
from jaxaudit.cli.sets import SetsFlags
from jaxaudit.cli.texts import read_told, tell_of_chats
from jaxaudit.data import Examples, align_classes, drop_unshared, is_image, load, prepare_images
from jaxaudit.data.labels import MOST_CLASSES
from jaxaudit.data.outputs.outputs import Outputs
from jaxaudit.data.overlap import drop_overlap, find_overlap, refuse_overlap
from jaxaudit.data.sequences import BYTES, padded, sequences, word_tokenizer
from jaxaudit.errors import InputError, without_folders

if TYPE_CHECKING:
    from jaxaudit.models.adapters import Adapters

DENSE, LARGE = "mlp", 100
"""Numbers above this are too large to learn from with the usual learning rates."""
MOST_NAMES = 4
"""Files that a line names."""
DARK = 2**14
"""Levels of 16 bits below this are a quarter of the scale, as those of 12 bits are."""
_NUMBER = re.compile(r"-?\d{1,18}")


def read_examples(name: str, data: SetsFlags, groups: Sequence[str] = ()) -> Examples:
    """The records of the set `name`, without the columns in `groups`: images scaled to [0, 1], tables as float32."""
    if is_texts(name):
        raise InputError(
            f"{name}: texts are not read again for a bank, which has their numbers; leave the sets out. Without "
            "--shadows, `ks` trains language models on texts."
        )
    size = parse_image_size(data.image_size or "none")
    if name.startswith(ACDC):
        from jaxaudit.data.sets.acdc import load_acdc

        folder, tesla = parse_acdc(name)
        table = data.field_strength or Path(folder) / "field_strength.csv"
        examples = replace(load_acdc(folder, table, tesla), name=without_folders(name))
    else:
        examples = load_told(name, data, image_size=size, gray=data.gray, groups=groups)
    if not is_image(examples):
        return replace(examples, inputs=np.asarray(examples.inputs, np.float32))
    return _prepared(name, examples, size, data.gray)


def load_told(name: str, data: Columns, **how: Any) -> Examples:
    """`load`, with what was guessed or left out said on stderr."""
    examples = load(name, data_dir=data.data_dir, label=data.label, drop=data.drop, **how)
    for note in examples.notes:
        say(f"{examples.name}: {note}")
    return examples


def _prepared(name: str, examples: Examples, size: tuple[int, int] | None, gray: bool) -> Examples:
    height, width = size or examples.inputs.shape[1:3]
    if examples.inputs.dtype == np.uint16 and (brightest := int(examples.inputs.max())) < DARK:
        say(
            f"{name}: its 16-bit images have levels up to {brightest:,} of 65,535, so they are dark in [0, 1]; if "
            "networks learn badly from them, multiply those of all sets alike"
        )
    prepared = prepare_images(examples, (height, width), gray)
    before, after = ("x".join(map(str, images.inputs.shape[1:])) for images in (examples, prepared))
    say(f"{name}: {len(examples):,} images of {before}, read as {after} in [0, 1]")
    return prepared


def tell_of_large_numbers(model: str | None, inputs: Iterable[np.ndarray]) -> None:
    """Prints on stderr that columns should be scaled, if a dense network would hardly learn from them."""
    largest = max(float(np.abs(array).max(initial=0)) for array in inputs) if model == DENSE else 0
    if largest > LARGE:
        say(
            f"the columns have numbers up to {largest:,.0f}, on which networks train badly or not at all: scale each, "
            "in all sets alike, such as to mean 0 and standard deviation 1"
        )


def tell_of_readings(files: Iterable[Outputs]) -> None:
    """Prints on stderr what files of outputs were taken for: a line for all that were taken for the same."""
    names: dict[tuple[str, ...], dict[str, None]] = {}
    for file in files:
        names.setdefault(file.reading, {})[file.name] = None
    for reading, file_names in names.items():
        shown = [
            *list(file_names)[:MOST_NAMES],
            *([f"{len(file_names) - MOST_NAMES} more"] if len(file_names) > MOST_NAMES else []),
        ]
        if reading:
            say(f"{', '.join(shown)}: read as {'; '.join(reading)}")


def match(query: Examples, calibration: Examples, *, drop_shared: bool, drop_classes: bool) -> Examples:
    """The calibration set with the query set's classes in the same order, and without records of the query set."""
    aligned = drop_unshared(query, calibration) if drop_classes else align_classes(query, calibration)
    if not drop_shared:
        refuse_overlap(query, aligned)
        return aligned
    return drop_from(aligned, query, "query")


def reader(data: SetsFlags, groups: Sequence[str] = ()) -> Callable[[str], Examples]:
    """A function that reads a set by its name, with these options; see `read_examples`."""
    return partial(read_examples, data=data, groups=groups)


def read_sets(data: SetsFlags, read: Callable[[str], Examples]) -> tuple[Examples, Examples, Examples]:
    """The query set, the calibration set matched to it, and the calibration set as it was read."""
    query, whole = read(data.query or ""), read(data.calibration or "")
    return query, match(query, whole, drop_shared=data.drop_overlap, drop_classes=data.drop_unshared), whole


def drop_from(examples: Examples, other: Examples, role: str, of: str = "calibration set") -> Examples:
    """The records of a set (called `of`) that are not in the other set, which has this role."""
    count = len(find_overlap(other, examples)[0])
    if count:
        say(f"dropped {count} {of.removesuffix(' set')} records that are also in the {role}")
    return drop_overlap(other, examples, of)


def read_inputs(name: str, options: Images) -> Examples:
    """The records of the set `name`, as float32.

    Integer images become floats in [0, 1] with an axis of channels. Floats are not changed, because a network may need
    them on its own scale, unless a size or grayscale is requested.
    """
    size, gray = parse_image_size(options.image_size or "none"), options.gray
    examples = load_told(name, options, image_size=size, gray=gray)
    floats = np.issubdtype(examples.inputs.dtype, np.floating)
    if not is_image(examples) or (floats and size is None and not gray):
        return replace(examples, inputs=np.asarray(examples.inputs, np.float32))
    return _prepared(name, examples, size, gray)


def outputs_for(largest: int, name: str) -> int:
    """The number of outputs of a network whose largest label is this one."""
    if largest >= MOST_CLASSES:
        raise InputError(
            f"{name}: labels are {MOST_CLASSES:,} or more; they look like identifiers, not classes. If they are "
            "classes, say how many outputs the network has (--classes)."
        )
    return largest + 1


def label_outputs(examples: Examples, classes: int | None) -> Examples:
    """The same records with labels that are output indices, from 0.

    Integer labels are output indices already, even if the records have few classes. Text labels are indices into the
    sorted class names, so there must be as many names as outputs.

    >>> threes = Examples(np.zeros((2, 1), np.float32), np.array([0, 0]), ("3",), "threes")
    >>> label_outputs(threes, 10).labels
    array([3, 3], dtype=int32)
    """
    names = examples.class_names
    if len(names) == classes:
        return examples
    if not all(_NUMBER.fullmatch(name) for name in names):
        if classes is None:
            return examples
        raise InputError(
            f"{examples.name} has {len(names)} class names, but --classes is {classes}; label the records with output "
            "indices, from 0, or give all names in an array class_names."
        )
    numbers = np.array([int(name) for name in names])
    outputs = outputs_for(int(numbers.max()), examples.name) if classes is None else classes
    labels = numbers[examples.labels]
    outside = np.flatnonzero((labels < 0) | (labels >= outputs))
    if len(outside):
        raise InputError(
            f"{examples.name}: record {outside[0]} has label {labels[outside[0]]}, but the network has {outputs} "
            "outputs, numbered from 0; is --classes right?"
        )
    return replace(examples, labels=labels, class_names=tuple(map(str, range(outputs))))


def text_reader(
    names: Sequence[str], network: TextNetwork, adapters: "Adapters | None" = None
) -> Callable[[str], Examples] | None:
    """A function that returns the texts of a file as sequences of one length; None if the sets are no texts.

    The word vocabulary and the length are of all sets; with adapters, the tokenizer is that of the base model.
    """
    if not any(map(is_texts, names)):
        text_flags = {"--tokens": network.tokens, "--template": network.template, "--lora": adapters}
        flag = next((name for name, value in text_flags.items() if value is not None), None)
        if flag is not None:
            raise InputError(f"{flag} is for texts, and --query {names[0]} is none ({', '.join(TEXTS)}).")
        return None
    other = next((name for name in names if not is_texts(name)), None)
    if other is not None:
        raise InputError(
            f"{other}: is no file of texts ({', '.join(TEXTS)}), as another set is; give all sets as texts."
        )
    sets = [read_told(name) for name in names]
    template = None if network.template is None else parse_template(network.template)
    if adapters is None:
        words = parse_tokens(network.tokens or "bytes")
        tell_of_chats(sets, template)
        examples_of_sets = sequences(
            sets, BYTES if words is None else word_tokenizer(sets, words, template), template=template
        )
    else:
        from jaxaudit.models.language_model import LanguageModel

        base = LanguageModel(Path(adapters.folder))
        for note in base.notes:
            say(note)
        tell_of_chats(sets, template, [base])
        encoded = [base.encode_texts(texts, template) for texts in sets]
        examples_of_sets = padded(sets, encoded, base.end, base.positions)
    return dict(zip(names, examples_of_sets, strict=True)).__getitem__
