"""Trains one model with a call per step from the host, for convolutional networks on a CPU.

On a CPU, XLA compiles a convolution inside a loop to code that is 15 to 25 times slower than outside (jax issue 12868).
Each step is three programs (gradient, parameters, optimiser state). A single program would copy the optimiser's arrays
before overwriting them, which takes almost twice as long for a network of a few million parameters.

Measured on two CPU cores with jax 0.10.2, for Liu's 6.4M parameters: three programs take 29 ms a step, one program 51
ms.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Key

from jaxaudit.ensemble.batches import blocks_after
from jaxaudit.ensemble.concurrency import NeighbourFailed
from jaxaudit.ensemble.plan import ChunkGroup
from jaxaudit.ensemble.program import DISPATCH, When, init_chunk
from jaxaudit.ensemble.training_state import StateKeeper, UnderWay
from jaxaudit.ensemble.validation import EpochEnd
from jaxaudit.learners.learner import SteppedLearner, TrainState
from jaxaudit.learners.stepped import moment_of


def steps_from_host(learner: SteppedLearner) -> bool:
    """Whether this process trains the learner with one call per step."""
    return learner.convolves and jax.default_backend() == "cpu" and len(jax.local_devices()) == 1


def train_from_host(
    learner: SteppedLearner,
    group: ChunkGroup,
    keys: Key[Array, " one"],
    rows: Bool[np.ndarray, "one examples"],
    pool: tuple[Array, Array],
    advance: Callable[[int], None],
    keeper: StateKeeper,
    end: EpochEnd | None = None,
) -> TrainState:
    """Trains one model to the end, step by step from the host. The state returned has a leading axis of one.

    Args:
        learner: trains the model.
        group: the group of the model's chunk.
        keys, rows: the key and the membership mask of the model.
        pool: the inputs and labels of all records, on the device.
        advance: called with the number of steps done since the last call.
        keeper: restores a saved state, and saves the newest.
        end: called after each epoch; returns the state and whether training is over. None: not called.
    """
    add_axis, drop_axis = partial(jax.tree.map, lambda leaf: leaf[None]), partial(jax.tree.map, lambda leaf: leaf[0])
    with DISPATCH:
        now = keeper.begin(drop_axis(init_chunk(learner, keys)))
    if now.taken:
        advance(now.taken)
    key, gradient = keys[0], jax.tree.map(jnp.zeros_like, now.states.params)
    update = _update_at_once if _optimizer_reads_params(learner, now.states, key) else _update_in_parts
    try:
        for block, start in blocks_after(learner, group, keys, rows, now.taken):
            indices = block.indices if group.shared else block.indices[:, 0]
            for step in range(start, block.steps):
                state, weight = now.states, block.weights[step, 0]
                if weight.any():
                    batch = jnp.asarray(indices[step]), jnp.asarray(weight)
                    when = key, block.epoch, block.before + step
                    with DISPATCH:
                        gradient, module_state = _gradient(learner, state, gradient, *pool, *batch, when)
                        state = update(learner, state, gradient, module_state, when)
                    jax.block_until_ready(state)
                over = False
                if end is not None and block.before + step + 1 == group.steps:
                    states, over = end(add_axis(state))
                    state = drop_axis(states)
                now = UnderWay(state, now.taken + 1)
                advance(1)
                if over:
                    advance(learner.epochs * group.steps - now.taken)
                    return add_axis(now.states)
                keeper.passing(now)
    except (KeyboardInterrupt, NeighbourFailed):
        keeper.stopping(now)
        raise
    return add_axis(now.states)


@partial(jax.jit, static_argnames="learner", donate_argnames="last", keep_unused=True)
def _gradient(
    learner: SteppedLearner,
    state: TrainState,
    last: Any,
    inputs: Array,
    labels: Array,
    chosen: Array,
    weight: Array,
    when: When,
) -> tuple[Any, Any]:
    """The gradient, written into the memory of the `last` one: new memory in every step would take 1/6 of its time."""
    state = state._replace(moment=moment_of(*when))
    return learner.gradient(state, inputs[chosen], labels[chosen], weight)


def _update_in_parts(
    learner: SteppedLearner, state: TrainState, gradient: Any, module_state: Any, when: When
) -> TrainState:
    optimizer = state.optimizer
    # Parameters are updated first: their update reads the old optimiser state, which may be overwritten afterwards.
    params = _update_params(learner, state.params, optimizer, gradient, when)
    return TrainState(params, module_state, _update_optimizer(learner, params, optimizer, gradient, when))


@partial(jax.jit, static_argnames="learner", donate_argnames="state")
def _update_at_once(
    learner: SteppedLearner, state: TrainState, gradient: Any, module_state: Any, when: When
) -> TrainState:
    state = state._replace(moment=moment_of(*when))
    return learner.update(state, gradient, module_state)._replace(moment=None)


@partial(jax.jit, static_argnames="learner", donate_argnames="params")
def _update_params(learner: SteppedLearner, params: Any, optimizer: Any, gradient: Any, when: When) -> Any:
    return learner.update(TrainState(params, None, optimizer, moment_of(*when)), gradient, None).params


@partial(jax.jit, static_argnames="learner", donate_argnames="optimizer")
def _update_optimizer(learner: SteppedLearner, params: Any, optimizer: Any, gradient: Any, when: When) -> Any:
    return learner.update(TrainState(params, None, optimizer, moment_of(*when)), gradient, None).optimizer


def _optimizer_reads_params(learner: SteppedLearner, state: TrainState, key: Key[Array, ""]) -> bool:
    """Whether the new optimiser state depends on the parameters, found by tracing the update's program backwards."""
    state = state._replace(moment=moment_of(key, 0, 0))
    traced = jax.make_jaxpr(lambda state, gradient: learner.update(state, gradient, None).optimizer)
    jaxpr = traced(state, state.params).jaxpr
    live = {id(variable) for variable in jaxpr.outvars}
    for equation in reversed(jaxpr.eqns):
        if any(id(variable) in live for variable in equation.outvars):
            live.update(id(variable) for variable in equation.invars)
    params = len(jax.tree.leaves(state.params))
    return any(id(variable) in live for variable in jaxpr.invars[:params])
