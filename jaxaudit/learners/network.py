"""A Flax network trained by Optax, as a learner."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from jaxaudit.errors import InputError
from jaxaudit.kernels.log_softmax import precise_log_softmax
from jaxaudit.learners.learner import TrainState
from jaxaudit.learners.stepped import train_by_steps
from jaxaudit.models.bridge import ModuleFactory, PureModule, pure_module


class NetworkParams(NamedTuple):
    """A trained network: its parameters and the module's other state (running statistics)."""

    params: Any
    state: Any


@dataclass(frozen=True)
class NetworkLearner:
    """A network, an optimiser and a training recipe, as the pure functions of a `SteppedLearner`.

    Training minimises the cross-entropy of minibatches; made by `network`.
    """

    net: PureModule
    optimizer: optax.GradientTransformation
    epochs: int
    batch_size: int
    convolves: bool

    @property
    def batch_coupled(self) -> bool:
        return self.net.batch_coupled

    def init(self, key: Key[Array, ""]) -> TrainState:
        params, state = self.net.init(key)
        return TrainState(params, state, self.optimizer.init(params))

    def gradient(
        self,
        state: TrainState,
        inputs: Float[Array, "batch ..."],
        labels: Int[Array, " batch"],
        weights: Float[Array, " batch"],
    ) -> tuple[Any, Any]:
        """The gradient of the weighted mean loss, and the module's state after the batch."""

        def loss(params: Any) -> tuple[Float[Array, ""], Any]:
            logits, new_state = self.net.apply(params, state.state, inputs, True)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
            return jnp.sum(weights * losses) / jnp.maximum(jnp.sum(weights), 1.0), new_state

        return jax.grad(loss, has_aux=True)(state.params)

    def update(self, state: TrainState, gradient: Any, module_state: Any) -> TrainState:
        """The training state after an optimiser step along `gradient`."""
        updates, optimizer = self.optimizer.update(gradient, state.optimizer, state.params)
        return TrainState(optax.apply_updates(state.params, updates), module_state, optimizer)

    def step(
        self,
        state: TrainState,
        inputs: Float[Array, "batch ..."],
        labels: Int[Array, " batch"],
        weights: Float[Array, " batch"],
    ) -> TrainState:
        return self.update(state, *self.gradient(state, inputs, labels, weights))

    def finish(self, state: TrainState) -> NetworkParams:
        return NetworkParams(state.params, state.state)

    def log_probs(self, params: NetworkParams, inputs: Float[Array, "n ..."]) -> Float[Array, "n classes"]:
        logits, _ = self.net.apply(params.params, params.state, inputs, False)
        return precise_log_softmax(logits)

    def fit(
        self,
        key: Key[Array, ""],
        inputs: Float[Array, "n ..."],
        labels: Int[Array, " n"],
        weights: Float[Array, " n"],
    ) -> NetworkParams:
        return self.finish(train_by_steps(self, key, inputs, labels, weights))


def network(
    factory: ModuleFactory,
    input_shape: tuple[int, ...],
    classes: int,
    *,
    optimizer: optax.GradientTransformation,
    epochs: int,
    batch_size: int,
) -> NetworkLearner:
    """The learner that trains `factory(input_shape, classes, rngs=...)` with `optimizer`.

    Args:
        factory: an NNX module class or a function that builds one, mapping records to logits.
        input_shape: the shape of one record.
        classes: the number of classes.
        optimizer: an Optax transformation, for example `optax.adam(1e-3, b1=0.5)`.
        epochs: training epochs.
        batch_size: records per step; the last step of an epoch has the remaining records.

    Raises:
        InputError: the module does not fit (see `pure_module`), or `epochs` or `batch_size` is below 1.
    """
    if epochs < 1 or batch_size < 1:
        raise InputError(f"epochs and batch size must be at least 1, got {epochs} and {batch_size}.")
    net = pure_module(factory, input_shape, classes)
    return NetworkLearner(net, optimizer, epochs, batch_size, convolves=_convolves(net, input_shape))


def _convolves(net: PureModule, input_shape: tuple[int, ...]) -> bool:
    def forward(key: Key[Array, ""], inputs: Array) -> Array:
        return net.apply(*net.init(key), inputs, True)[0]

    inputs = jax.ShapeDtypeStruct((2, *input_shape), jnp.float32)
    jaxpr = jax.make_jaxpr(forward)(jax.eval_shape(jax.random.key, 1), inputs)
    return "conv_general_dilated" in str(jaxpr)
