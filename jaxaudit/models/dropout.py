"""Dropout that is not there where nothing is dropped."""

from collections.abc import Callable

from flax import nnx
from jaxtyping import Array


def dropout_layer(share: float, rngs: nnx.Rngs) -> Callable[[Array], Array]:
    """`nnx.Dropout` of this share of the units; for 0 the identity, which has no random state.

    Make it after the layers with weights: these are then drawn as they are without dropout.
    """
    return nnx.Dropout(share, rngs=rngs) if share else _unchanged


def _unchanged(inputs: Array) -> Array:
    return inputs
