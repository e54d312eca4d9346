"""A Flax network trained by Optax, as a learner."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key, Real

from jaxaudit.errors import InputError
from jaxaudit.kernels.convolutions import Convolution, convolutions_of, in_form, parsed_form
from jaxaudit.kernels.likelihoods import precise_log_softmax
from jaxaudit.learners.augmentations import Augmentation, augmented, check_augmentations
from jaxaudit.learners.learner import Inputs, Labels, TrainState, Weights
from jaxaudit.learners.stepped import TrainsBySteps
from jaxaudit.models.bridge import ModuleFactory, PureModule, pure_module

FLOAT32 = "float32"
PRECISIONS = (FLOAT32, "bfloat16")


class NetworkParams(NamedTuple):
    """A trained network: its parameters and the module's other state (running statistics)."""

    params: Any
    state: Any


@dataclass(frozen=True)
class NetworkLearner(TrainsBySteps):
    """A `SteppedLearner` for a network, with an optimiser and a training recipe.

    Training minimises the cross-entropy of minibatches. Made by `network`, whose arguments describe the fields.
    """

    net: PureModule
    optimizer: optax.GradientTransformation
    epochs: int
    batch_size: int
    convolves: bool
    label_smoothing: float = 0.0
    augment: tuple[Augmentation, ...] = ()
    precision: str = FLOAT32
    form: str | None = None

    @property
    def batch_coupled(self) -> bool:
        return self.net.batch_coupled

    @property
    def shared(self) -> Any:
        return None if self.net.shared is None else self.net.shared.arrays

    def having(self, shared: Any) -> Any:
        return replace(self, net=self.net.having(shared))

    def in_form(self, form: str | None) -> "NetworkLearner":
        if form is not None:
            parsed_form(form, self.convolutions())
        return replace(self, form=form)

    def in_batches_of(self, records: int) -> "NetworkLearner":
        return replace(self, batch_size=records)

    def at_once(self) -> "NetworkLearner":
        return self

    def convolutions(self) -> list[Convolution]:
        if not self.convolves or not self.net.arguments:
            return []
        learner = replace(self, form=None)
        inputs = jax.ShapeDtypeStruct((self.batch_size, *self.net.arguments[1]), jnp.float32)
        params, state = jax.eval_shape(self.net.init, jax.eval_shape(jax.random.key, 1))
        return convolutions_of(learner._logits, params, state, inputs)

    def init(self, key: Key[Array, ""]) -> TrainState:
        params, state = self.net.init(key)
        return TrainState(params, state, self.optimizer.init(params))

    def gradient(self, state: TrainState, inputs: Inputs, labels: Labels, weights: Weights) -> tuple[Any, Any]:
        """The gradient of the weighted mean loss, and the module's state after the batch."""

        if self.augment:
            assert state.moment is not None, "what drives training tells the moment of each step"
            inputs = augmented(self.augment, state.moment.key, inputs)

        def loss(params: Any) -> tuple[Float[Array, ""], Any]:
            logits, new_state = self._logits(params, state.state, inputs)
            losses = self._losses(logits, inputs, labels)
            return jnp.sum(weights * losses) / jnp.maximum(jnp.sum(weights), 1.0), new_state

        return jax.grad(loss, has_aux=True)(state.params)

    def _losses(self, logits: Float[Array, "batch classes"], inputs: Any, labels: Labels) -> Float[Array, " batch"]:
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        if self.label_smoothing:
            # The cross-entropy with the uniform distribution over classes, for label smoothing.
            uniform = jax.nn.logsumexp(logits, axis=1) - jnp.mean(logits, axis=1)
            losses = (1 - self.label_smoothing) * losses + self.label_smoothing * uniform
        return losses

    def _outputs(self, params: Any, state: Any, inputs: Any, training: bool) -> tuple[Any, Any]:
        if not training or self.form is None:
            return self.net.apply(params, state, inputs, training)
        return in_form(lambda params, state, inputs: self.net.apply(params, state, inputs, True), self.form)(
            params, state, inputs
        )

    def _logits(self, params: Any, state: Any, inputs: Any) -> tuple[Any, Any]:
        """The logits in training mode, in float32, and the module's new state."""
        if self.precision == FLOAT32:
            return self._outputs(params, state, inputs, True)
        logits, new_state = self._outputs(cast(params, jnp.bfloat16), state, cast(inputs, jnp.bfloat16), True)
        kept = jax.tree.map(lambda old, new: new if new.dtype == old.dtype else new.astype(old.dtype), state, new_state)
        return logits.astype(jnp.float32), kept

    def update(self, state: TrainState, gradient: Any, module_state: Any) -> TrainState:
        """The training state after an optimiser step along `gradient`."""
        extras = {} if state.moment is None else {"epoch": state.moment.epoch}
        step = optax.with_extra_args_support(self.optimizer).update
        updates, optimizer = step(gradient, state.optimizer, state.params, **extras)
        return TrainState(optax.apply_updates(state.params, updates), module_state, optimizer)

    def finish(self, state: TrainState) -> NetworkParams:
        return NetworkParams(state.params, state.state)

    def log_probs(self, params: NetworkParams, inputs: Real[Array, "n ..."]) -> Float[Array, "n classes"]:
        logits, _ = self._outputs(params.params, params.state, inputs, False)
        return precise_log_softmax(logits)


def network(
    factory: ModuleFactory,
    input_shape: tuple[int, ...],
    classes: int,
    *,
    optimizer: optax.GradientTransformation,
    epochs: int,
    batch_size: int,
    label_smoothing: float = 0.0,
    augment: Sequence[Augmentation] = (),
    precision: str = FLOAT32,
) -> NetworkLearner:
    """The learner that trains `factory(input_shape, classes, rngs=...)` with `optimizer`.

    Args:
        factory: an NNX module class or a function that builds one, mapping records to logits.
        input_shape: the shape of one record.
        classes: the number of classes.
        optimizer: an Optax transformation, for example `optax.adam(1e-3, b1=0.5)`; with a learning rate that changes
            from epoch to epoch, `by_epoch(optax.adamw, schedule("cosine", 1e-3, epochs))`.
        epochs: training epochs.
        batch_size: records per step; the last step of an epoch has the remaining records.
        label_smoothing: the share e of the loss that is the cross-entropy with the uniform distribution over classes:
            the label's target is 1 - e + e / classes, any other's e / classes (Szegedy et al. 2016, section 7).
        augment: random changes of the inputs of a step, in this order, such as `AUGMENTATIONS["flip"]`; never in
            evaluation.
        precision: `float32`, or `bfloat16` for mixed precision: in training the network computes in bfloat16, from
            parameters that are kept in float32 as the optimiser's state is; the loss and evaluation are in float32.

    Raises:
        InputError: the module does not fit (see `pure_module`), `epochs` or `batch_size` is below 1, the label
            smoothing is not in [0, 1), the precision is unknown, or an augmentation does not fit the records.
    """
    refuse_recipe(epochs, batch_size, precision)
    if not 0 <= label_smoothing < 1:
        raise InputError(f"label smoothing must be at least 0 and below 1, got {label_smoothing:g}.")
    check_augmentations(tuple(augment), input_shape)
    net = pure_module(factory, input_shape, classes)
    return NetworkLearner(
        net,
        optimizer,
        epochs,
        batch_size,
        convolves=convolves(net, input_shape),
        label_smoothing=label_smoothing,
        augment=tuple(augment),
        precision=precision,
    )


def refuse_recipe(epochs: int, batch_size: int, precision: str) -> None:
    """Rejects a recipe of no epoch, of empty batches, or of an unknown precision."""
    if epochs < 1 or batch_size < 1:
        raise InputError(f"epochs and batch size must be at least 1, got {epochs} and {batch_size}.")
    if precision not in PRECISIONS:
        raise InputError(f"there is no precision {precision!r}; known ones are {', '.join(PRECISIONS)}.")


def cast(tree: Any, dtype: Any) -> Any:
    """The tree with its floating-point arrays in this type."""

    def of(leaf: Any) -> Any:
        return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(of, tree)


def convolves(net: PureModule, input_shape: tuple[int, ...], dtype: Any = jnp.float32) -> bool:
    """Whether a network convolves its records, which are of this shape and type."""

    def forward(key: Key[Array, ""], inputs: Array) -> Array:
        return net.apply(*net.init(key), inputs, True)[0]

    inputs = jax.ShapeDtypeStruct((2, *input_shape), dtype)
    jaxpr = jax.make_jaxpr(forward)(jax.eval_shape(jax.random.key, 1), inputs)
    return "conv_general_dilated" in str(jaxpr)
