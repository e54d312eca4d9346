"""The data and the network of Becker & Liebig (2022), section 4.1."""

from typing import Any

import jax
import numpy as np
import optax
from flax import nnx

from jaxaudit import load, models, network, prepare_images
from jaxaudit.data import Examples
from jaxaudit.learners import NetworkLearner

PER_CLASS = 100
COUNTS = (1, 10, 25, 50, 80, 100)
SETS = {
    "mnist": ("mnist@train", "mnist@test"),
    "cifar10": ("cifar10/cifar10_gray28_lossless_first4000.npz", "cifar10/cifar10_gray28_jpeg.npz@test"),
}
FORGET = {"mnist": 3, "cifar10": 8}
RECIPES = {"mnist": (50, 32), "cifar10": (200, 64)}
"""Epochs and records a minibatch."""
LUMA = (0.2989, 0.587, 0.114)
"""Weights of red, green and blue in PyTorch's gray."""


def read(data: str) -> tuple[Examples, Examples]:
    """The first 100 records of each class, class by class, and the whole test set; gray, 28x28, [0, 1]."""
    base, _, variant = data.partition("-")
    train, test = (prepare_images(load(name)) for name in SETS[base])
    first = [np.flatnonzero(train.labels == label)[:PER_CLASS] for label in range(10)]
    train = train.take(np.concatenate(first))
    if variant == "scrambled":
        return _scrambled(train), _scrambled(test)
    return train, test


def forget_sets(train: Examples, data: str) -> np.ndarray:
    """A row for each count: that many records of the class, the first ones."""
    of_class = np.flatnonzero(train.labels == FORGET[data.partition("-")[0]])
    rows = np.zeros((len(COUNTS), len(train)), bool)
    for row, count in zip(rows, COUNTS, strict=True):
        row[of_class[:count]] = True
    return rows


def make_learner(data: str, train: Examples, epochs: int | None = None) -> NetworkLearner:
    """N-512-256-128-10, ReLU, plain gradient descent at 0.1."""
    own, batch_size = RECIPES[data.partition("-")[0]]
    return network(
        torch_mlp,
        train.inputs.shape[1:],
        len(train.class_names),
        optimizer=optax.sgd(0.1),
        epochs=epochs or own,
        batch_size=batch_size,
    )


def torch_mlp(input_shape: tuple[int, ...], classes: int, *, rngs: nnx.Rngs) -> models.MLP:
    """The paper's network as PyTorch starts it: all weights and biases uniform within 1 / sqrt(inputs)."""
    net = models.MLP(input_shape, classes, rngs=rngs)
    for layer in net.layers:
        bound = layer.in_features**-0.5
        parameters: tuple[Any, Any] = layer.kernel, layer.bias
        for parameter in parameters:
            parameter[...] = jax.random.uniform(rngs.params(), parameter.shape, minval=-bound, maxval=bound)
    return net


def _scrambled(images: Examples) -> Examples:
    """What the authors' code makes of an image: rows of pixels with three colours each are read as three planes.

    Their gray is then a blend of the image's three thirds, each stretched to three times its width. Here the three
    colours are the gray of the file, for want of coloured originals.
    """
    count, height, width, _ = images.inputs.shape
    colours = np.repeat(images.inputs, 3, axis=3).reshape(count, 3, height, width)
    gray: Any = sum(weight * colours[:, plane] for plane, weight in enumerate(LUMA))
    return Examples(gray[..., None].astype(np.float32), images.labels, images.class_names, f"{images.name}, scrambled")
