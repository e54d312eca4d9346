"""Normalisation of a network's maps: of groups of channels, or over the batch."""

import math
from typing import Any

from flax import nnx

from jaxaudit.errors import InputError
from jaxaudit.models.liu_cnn import BATCH_NORM_MOMENTUM

NORMS = ("group", "batch")
GROUPS = 8
"""At most; fewer where the channels cannot be split into as many."""
EPSILON = 1e-5
"""PyTorch's."""


def make_norm(name: str, channels: int, rngs: nnx.Rngs) -> Any:
    """The normalisation of maps with this many channels.

    Raises:
        InputError: it is neither `group` nor `batch`.
    """
    if name == "group":
        return nnx.GroupNorm(channels, num_groups=math.gcd(channels, GROUPS), epsilon=EPSILON, rngs=rngs)
    if name == "batch":
        return nnx.BatchNorm(channels, momentum=BATCH_NORM_MOMENTUM, epsilon=EPSILON, rngs=rngs)
    raise InputError(f"there is no normalisation {name!r}; known ones are {', '.join(NORMS)}.")
