"""From the command line to records in the form that a network needs."""

import re
from dataclasses import replace

import numpy as np

from jaxaudit.cli.groups import Images
from jaxaudit.cli.progress import say
from jaxaudit.cli.words import parse_image_size
from jaxaudit.data import Examples, is_image, load, prepare_images
from jaxaudit.data.labels import MOST_CLASSES
from jaxaudit.errors import InputError

_NUMBER = re.compile(r"-?\d{1,18}")


def read_inputs(name: str, options: Images) -> Examples:
    """The records that `name` names, as float32.

    Integer images become floats in [0, 1] with an axis of channels. Floats are not changed, because a network may need
    them on its own scale, unless a size or grayscale is requested.

    Raises:
        InputError: see `load` and `prepare_images`.
    """
    size, gray = parse_image_size(options.image_size or "none"), options.gray
    examples = load(name, data_dir=options.data_dir, image_size=size, gray=gray)
    floats = np.issubdtype(examples.inputs.dtype, np.floating)
    if not is_image(examples) or (floats and size is None and not gray):
        return replace(examples, inputs=np.asarray(examples.inputs, np.float32))
    height, width = size or examples.inputs.shape[1:3]
    prepared = prepare_images(examples, (height, width), gray)
    shape = "x".join(map(str, prepared.inputs.shape[1:]))
    say(f"{name}: {len(examples):,} images, converted to {shape} in [0, 1]")
    return prepared


def outputs_for(largest: int, name: str) -> int:
    """How many outputs a network has whose labels go up to this one.

    Raises:
        InputError: more than any: what one record claims would be made for all.
    """
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

    Args:
        examples: the records.
        classes: number of outputs; by default the largest label plus 1, or the number of names.

    Raises:
        InputError: a label is outside the outputs, or text names fewer or more classes than there are outputs.

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
