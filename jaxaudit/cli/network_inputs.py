"""From the words on the command line to records as a network takes them."""

from dataclasses import replace

import numpy as np

from jaxaudit.cli.groups import Images
from jaxaudit.cli.progress import say
from jaxaudit.cli.words import parse_image_size
from jaxaudit.data import Examples, is_image, load, prepare_images
from jaxaudit.errors import InputError


def read_inputs(name: str, options: Images) -> Examples:
    """The records that `name` means, as float32.

    Images of whole numbers become floats in [0, 1] with an axis of channels. Floats are taken as they are, since a
    network may want them on a scale of its own, unless a size or gray is asked for.

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
    say(f"{name}: {len(examples):,} images, made {shape} in [0, 1]")
    return prepared


def label_outputs(examples: Examples, classes: int | None) -> Examples:
    """The same records with labels that count a network's outputs from 0.

    Whole numbers mean outputs as they are, though the records may be of few classes; text means the places of all
    class names in order, so there must be as many as outputs.

    Args:
        examples: the records.
        classes: outputs of the network; by default the largest label and 1, or the number of names.

    Raises:
        InputError: a label is outside the outputs, or text names fewer or more classes than there are outputs.

    >>> threes = Examples(np.zeros((2, 1), np.float32), np.array([0, 0]), ("3",), "threes")
    >>> label_outputs(threes, 10).labels
    array([3, 3], dtype=int32)
    """
    names = examples.class_names
    if len(names) == classes:
        return examples
    if not all(name.lstrip("-").isdecimal() for name in names):
        if classes is None:
            return examples
        raise InputError(
            f"{examples.name} names {len(names)} classes, but --classes says {classes} outputs; label the records with "
            "the outputs' numbers, from 0, or name all of them in an array class_names."
        )
    numbers = np.array([int(name) for name in names])
    outputs = int(numbers.max()) + 1 if classes is None else classes
    labels = numbers[examples.labels]
    outside = np.flatnonzero((labels < 0) | (labels >= outputs))
    if len(outside):
        raise InputError(
            f"{examples.name}: record {outside[0]} has label {labels[outside[0]]}, which is none of the {outputs} "
            "outputs that count from 0; is --classes right?"
        )
    return replace(examples, labels=labels, class_names=tuple(map(str, range(outputs))))
