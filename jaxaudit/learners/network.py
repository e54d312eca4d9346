"""A Flax network trained by Optax, as a learner; its augmentations and learning rate schedules.

An augmentation is drawn anew in every step and for each image. Schedules are in epochs, as PyTorch's schedulers that
are stepped once per epoch: every model runs through the whole schedule, whatever its number of steps per epoch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Real

from jaxaudit.errors import InputError, check_among, check_ranges, first_line
from jaxaudit.kernels.convolutions import Convolution, convolutions_of, parsed_form, with_form
from jaxaudit.kernels.likelihoods import precise_log_softmax
from jaxaudit.learners.learner import Inputs, Labels, TrainsBySteps, TrainState, Weights
from jaxaudit.models.bridge import ModuleFactory, PureModule, pure_module
from jaxaudit.models.module import WithState, abstract_key
from jaxaudit.randomness import OneKey

ImageRows = Float[Array, "n h w c"]
OneNumber = Float[Array, ""]

Augmentation = Callable[[OneKey, Float[Array, "batch ..."]], Float[Array, "batch ..."]]
"""`augmentation(key, inputs) -> inputs` of the same shape: a pure function that changes each record independently."""

PADDING = 1 / 8
"""Padding of `crop` as a share of the side: 4 pixels of 32, as for CIFAR (He et al. 2016, section 4.2)."""


def flip(key: OneKey, inputs: ImageRows) -> ImageRows:
    """Mirrors each image with probability 1/2, exchanging left and right."""
    mirrored = jax.random.bernoulli(key, 0.5, (len(inputs),))
    return jnp.where(mirrored[:, None, None, None], inputs[:, :, ::-1], inputs)


def crop(key: OneKey, inputs: ImageRows) -> ImageRows:
    """Pads each image with zeros by an eighth of its side (at least 1) and cuts out a random window of its old size."""
    high, wide = (max(1, round(PADDING * side)) for side in inputs.shape[1:3])
    return shifted(key, inputs, high, wide)


def shifted(key: OneKey, inputs: ImageRows, high: int, wide: int) -> ImageRows:
    """Moves each image by up to so many pixels up or down and to a side, at random; what comes in is 0."""
    padded = jnp.pad(inputs, ((0, 0), (high, high), (wide, wide), (0, 0)))
    corners = jax.random.randint(key, (len(inputs), 2), 0, 2 * jnp.array([high, wide]) + 1)

    def window(image: Array, corner: Array) -> Array:
        return jax.lax.dynamic_slice(image, (corner[0], corner[1], 0), inputs.shape[1:])

    return jax.vmap(window)(padded, corners)


AUGMENTATIONS: dict[str, Augmentation] = {"flip": flip, "crop": crop}
"""The augmentations by name, for images `[n, height, width, channels]` with pixels in [0, 1]."""


def augmented(augment: tuple[Augmentation, ...], key: OneKey, inputs: Any) -> Any:
    """Applies all augmentations in order, each with a random key of its own."""
    for number, one in enumerate(augment):
        inputs = one(jax.random.fold_in(key, number), inputs)
    return inputs


def check_augmentations(augment: tuple[Augmentation, ...], input_shape: tuple[int, ...]) -> None:
    """Refuses an augmentation of images where records are none, or one that changes their shape or type."""
    images = set(AUGMENTATIONS.values())
    batch = jax.ShapeDtypeStruct((2, *input_shape), jnp.float32)
    key = abstract_key()
    for one in augment:
        name = getattr(one, "__name__", repr(one))
        if one in images and len(input_shape) != 3:
            raise InputError(
                f"the augmentation {name} changes images, but the records are of shape {input_shape}, not height x "
                "width x channels; leave `augment` out, or name a function of your own."
            )
        try:
            augmented = jax.eval_shape(one, key, batch)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise InputError(
                f"the augmentation {name} failed on 2 records of shape {input_shape}: {first_line(error)}; it is "
                f"called as {name}(key, inputs)."
            ) from error
        if (getattr(augmented, "shape", None), getattr(augmented, "dtype", None)) != (batch.shape, batch.dtype):
            raise InputError(
                f"the augmentation {name} makes {_said(augmented)} of {_said(batch)}; it must return inputs of the "
                "same shape and type."
            )


def _said(shape_struct: Any) -> str:
    shape, dtype = getattr(shape_struct, "shape", None), getattr(shape_struct, "dtype", None)
    return f"a {type(shape_struct).__name__}" if shape is None else f"{dtype} of shape {shape}"


Schedule = Callable[[Int[Array, ""]], OneNumber]
"""The learning rate of an epoch, counted from 0."""

DROP, MILESTONES = 0.1, (0.5, 0.75)
"""The factor of the schedule `step`, and after which shares of training it applies (He et al. 2016, section 4.2)."""


def _step(share: OneNumber) -> OneNumber:
    # The share is a rounded quotient; without tolerance, a drop could come one epoch late.
    passed = sum((share >= milestone - 1e-6).astype(jnp.float32) for milestone in MILESTONES)
    return jnp.power(DROP, passed)


SHAPES: dict[str, Callable[[OneNumber], OneNumber]] = {
    "constant": jnp.ones_like,
    "cosine": lambda share: (1 + jnp.cos(jnp.pi * share)) / 2,
    "linear": lambda share: 1 - share,
    "step": _step,
}
"""The schedules by name: the learning rate's factor as a function of the share of epochs since the warm-up."""


def schedule(name: str, rate: float, epochs: int, warmup: int = 0) -> Schedule:
    """The learning rate of each epoch of a training, by the name of its shape (`SHAPES`).

    In the w epochs of the warm-up the rate is `rate` times 1/(w+1), 2/(w+1), ..., w/(w+1). Let s be the share of the
    other epochs that has passed at the start of an epoch, from 0. Then it is `rate` times 1 (`constant`), (1 + cos(pi
    s)) / 2 (`cosine`), 1 - s (`linear`), or 0.1 to the power of how many of 1/2 and 3/4 are at most s (`step`). In
    PyTorch: `SequentialLR` of `LinearLR(start_factor=1/(w+1))` and `CosineAnnealingLR`, `LinearLR` to 0, or
    `MultiStepLR`, each stepped once an epoch. `epochs` include the warm-up.

    >>> [round(float(schedule("cosine", 0.1, 4)(jnp.int32(epoch))), 4) for epoch in range(4)]
    [0.1, 0.0854, 0.05, 0.0146]
    """
    check_among(SHAPES, schedule=name)
    check_ranges(f"[0, {epochs})", warmup=warmup)
    return partial(_rate, name, rate, epochs, warmup)


def _rate(name: str, rate: float, epochs: int, warmup: int, epoch: Int[Array, ""]) -> OneNumber:
    share = jnp.maximum(epoch - warmup, 0) / (epochs - warmup)
    return rate * jnp.where(epoch < warmup, (epoch + 1) / (warmup + 1), SHAPES[name](share))


def by_epoch(rule: Callable[[Any], optax.GradientTransformation], rate: Schedule) -> optax.GradientTransformation:
    """The optimiser `rule(learning rate)`, such as `optax.adamw`, with a rate that follows a schedule in epochs.

    Its `update` needs the epoch as an argument, which `NetworkLearner` passes, also within `optax.chain`. Its state is
    that of the rule, which must not depend on the rate.

    >>> optimizer = by_epoch(optax.sgd, schedule("linear", 1.0, 2))
    >>> state = optimizer.init(jnp.ones(1))
    >>> optimizer.update(jnp.ones(1), state, epoch=jnp.int32(1))[0]
    Array([-0.5], dtype=float32)
    """

    def init(params: Any) -> Any:
        return rule(rate(jnp.int32(0))).init(params)

    def update(updates: Any, state: Any, params: Any = None, **extras: Any) -> Any:
        return rule(rate(extras["epoch"])).update(updates, state, params)

    return optax.GradientTransformationExtraArgs(init, update)


FLOAT32 = "float32"
PRECISIONS = (FLOAT32, "bfloat16")


class NetworkParams(NamedTuple):
    """A trained network: its parameters and the module's other state (running statistics)."""

    params: Any
    state: Any


@dataclass(frozen=True)
class NetworkLearner(TrainsBySteps):
    """A `SteppedLearner` for a network, with an optimiser and a training recipe; made by `network`."""

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

    def with_form(self, form: str | None) -> "NetworkLearner":
        if form is not None:
            parsed_form(form, self.convolutions())
        return replace(self, form=form)

    def convolutions(self) -> list[Convolution]:
        if not self.convolves or not self.net.arguments:
            return []
        learner = replace(self, form=None)
        inputs = jax.ShapeDtypeStruct((self.batch_size, *self.net.arguments[1]), jnp.float32)
        params, state = jax.eval_shape(self.net.init, abstract_key())
        return convolutions_of(learner._logits, params, state, inputs)

    def init(self, key: OneKey) -> TrainState:
        params, state = self.net.init(key)
        return TrainState(params, state, self.optimizer.init(params))

    def gradient(self, state: TrainState, inputs: Inputs, labels: Labels, weights: Weights) -> WithState:
        """The gradient of the weighted mean loss, and the module's state after the batch."""

        if self.augment:
            assert state.moment is not None, "what drives training tells the moment of each step"
            inputs = augmented(self.augment, state.moment.key, inputs)

        def loss(params: Any) -> tuple[OneNumber, Any]:
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

    def _outputs(self, params: Any, state: Any, inputs: Any, training: bool) -> WithState:
        if not training or self.form is None:
            return self.net.apply(params, state, inputs, training)
        return with_form(lambda params, state, inputs: self.net.apply(params, state, inputs, True), self.form)(
            params, state, inputs
        )

    def _logits(self, params: Any, state: Any, inputs: Any) -> WithState:
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
        optimizer: an Optax transformation, for example `optax.adam(1e-3, b1=0.5)`; with a learning rate that changes
            from epoch to epoch, `by_epoch(optax.adamw, schedule("cosine", 1e-3, epochs))`.
        batch_size: records per step; the last step of an epoch has the remaining records.
        label_smoothing: the share e of the loss that is the cross-entropy with the uniform distribution over classes:
            the label's target is 1 - e + e / classes, any other's e / classes (Szegedy et al. 2016, section 7).
        augment: random changes of the inputs of a step, in order, such as `AUGMENTATIONS["flip"]`; never in evaluation.
        precision: `float32`, or `bfloat16` for mixed precision: in training the network computes in bfloat16, from
            parameters that are kept in float32 as the optimiser's state is; the loss and evaluation are in float32.
    """
    refuse_recipe(epochs, batch_size, precision)
    check_ranges("[0, 1)", label_smoothing=label_smoothing)
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
    check_ranges("[1, inf)", epochs=epochs, batch_size=batch_size)
    check_among(PRECISIONS, precision=precision)


def cast(tree: Any, dtype: Any) -> Any:
    """The tree with its floating-point arrays in this type."""

    def of(leaf: Any) -> Any:
        return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(of, tree)


def convolves(net: PureModule, input_shape: tuple[int, ...], dtype: Any = jnp.float32) -> bool:
    def forward(key: OneKey, inputs: Array) -> Array:
        return net.apply(*net.init(key), inputs, True)[0]

    inputs = jax.ShapeDtypeStruct((2, *input_shape), dtype)
    jaxpr = jax.make_jaxpr(forward)(abstract_key(), inputs)
    return "conv_general_dilated" in str(jaxpr)
