"""A plain multilayer perceptron."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod

import jax
from flax import nnx
from jaxtyping import Array, Float

from jaxaudit.models.layers import dropout_layer


class MLP(nnx.Module):
    """Dense layers with a nonlinearity between them; the input is flattened, the output is logits.

    The default widths are the network N-512-256-128-classes of Becker & Liebig (2022); Long et al. (2017) use
    `hidden=(64,), activation=jax.numpy.tanh`. `dropout` is the share of each hidden layer's units that is dropped.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        *,
        rngs: nnx.Rngs,
        hidden: Sequence[int] = (512, 256, 128),
        activation: Callable[[Array], Array] = jax.nn.relu,
        dropout: float = 0.0,
    ) -> None:
        widths = (prod(input_shape), *hidden, classes)
        self.layers = nnx.List([nnx.Linear(a, b, rngs=rngs) for a, b in pairwise(widths)])
        self.activation = activation
        self.drop = dropout_layer(dropout, rngs)

    def __call__(self, inputs: Float[Array, "n ..."]) -> Float[Array, "n classes"]:
        hidden = inputs.reshape(inputs.shape[0], -1)
        for layer in self.layers[:-1]:
            hidden = self.drop(self.activation(layer(hidden)))
        return self.layers[-1](hidden)
