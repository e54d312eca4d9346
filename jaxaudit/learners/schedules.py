"""Learning rate schedules in epochs, like PyTorch's schedulers that are stepped once per epoch.

Every model runs through the whole schedule, although models with more members have more steps per epoch.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from jaxaudit.errors import InputError

Schedule = Callable[[Int[Array, ""]], Float[Array, ""]]
"""The learning rate of an epoch, counted from 0."""

DROP, MILESTONES = 0.1, (0.5, 0.75)
"""The factor of the schedule `step`, and after which shares of training it applies (He et al. 2016, section 4.2)."""


def _step(share: Float[Array, ""]) -> Float[Array, ""]:
    # The share is a rounded quotient; without tolerance, a drop could come one epoch late.
    passed = sum((share >= milestone - 1e-6).astype(jnp.float32) for milestone in MILESTONES)
    return jnp.power(DROP, passed)


SHAPES: dict[str, Callable[[Float[Array, ""]], Float[Array, ""]]] = {
    "constant": jnp.ones_like,
    "cosine": lambda share: (1 + jnp.cos(jnp.pi * share)) / 2,
    "linear": lambda share: 1 - share,
    "step": _step,
}
"""The schedules by name: the learning rate's factor as a function of the share of epochs since the warm-up."""


def schedule(name: str, rate: float, epochs: int, warmup: int = 0) -> Schedule:
    """The learning rate of each epoch of a training.

    In the w epochs of the warm-up the rate is `rate` times 1/(w+1), 2/(w+1), ..., w/(w+1). Let s be the share of the
    other epochs that has passed at the start of an epoch, from 0. Then it is `rate` times 1 (`constant`),
    (1 + cos(pi s)) / 2 (`cosine`), 1 - s (`linear`), or 0.1 to the power of how many of 1/2 and 3/4 are at most s
    (`step`). In PyTorch: `SequentialLR` of `LinearLR(start_factor=1/(w+1))` and `CosineAnnealingLR`, `LinearLR` to 0,
    or `MultiStepLR`, each stepped once an epoch.

    Args:
        name: the name of the schedule, of `SHAPES`.
        rate: the largest learning rate.
        epochs: epochs of the training, including the warm-up.
        warmup: epochs of the warm-up; fewer than `epochs`.

    Raises:
        InputError: the name is unknown, or the warm-up does not end.

    >>> [round(float(schedule("cosine", 0.1, 4)(jnp.int32(epoch))), 4) for epoch in range(4)]
    [0.1, 0.0854, 0.05, 0.0146]
    """
    if name not in SHAPES:
        raise InputError(f"there is no schedule {name!r}; known ones are {', '.join(SHAPES)}.")
    if not 0 <= warmup < epochs:
        raise InputError(
            f"a warm-up of {warmup} epochs leaves none of {epochs} for the learning rate itself; give fewer."
        )
    return partial(_rate, name, rate, epochs, warmup)


def _rate(name: str, rate: float, epochs: int, warmup: int, epoch: Int[Array, ""]) -> Float[Array, ""]:
    share = jnp.maximum(epoch - warmup, 0) / (epochs - warmup)
    return rate * jnp.where(epoch < warmup, (epoch + 1) / (warmup + 1), SHAPES[name](share))


def by_epoch(rule: Callable[[Any], optax.GradientTransformation], rate: Schedule) -> optax.GradientTransformation:
    """The optimiser `rule(learning rate)`, with a learning rate that follows a schedule in epochs.

    Its `update` needs the epoch as an argument, which `NetworkLearner` passes, also within `optax.chain`. The state is
    that of the rule.

    Args:
        rule: a function of the learning rate, such as `optax.adamw`. The state must not depend on the rate.
        rate: the schedule, such as one of `schedule`.

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
