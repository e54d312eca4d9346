"""Preconditioned L-BFGS: minimises many smooth convex functions at once, to a stated gradient norm.

Liu & Nocedal (1989). In every turn each function is evaluated once, with its gradient, whether its step is accepted or
shortened. The axis over functions is explicit, since `jax.vmap` would copy the history of all steps several times per
turn.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

DECREASE, CURVATURE = 1e-4, 0.9
"""Shares of the promised decrease that a step must keep, and of its slope that it may leave (Wolfe)."""
NOISE = 1e-12  # of the value, that a step may seem to lose by rounding alone

Points = Float[Array, "models parameters"]
Numbers = Float[Array, " models"]
History = Float[Array, "memory models parameters"]


class Minimum(NamedTuple):
    """The last point of each function, the Euclidean norm of the gradient there, and the number of evaluations."""

    point: Points
    gradient_norm: Numbers
    evaluations: Int[Array, " models"]


class _Steps(NamedTuple):
    """The last steps: the moves, the changes of the gradient along them, and these changes after preconditioning.

    A ring buffer: the newest step is in row `(turn - 1) % memory`. A turn without a step leaves zeros.
    """

    moves: History
    changes: History
    preconditioned: History


class _State(NamedTuple):
    point: Points
    value: Numbers
    gradient: Points
    preconditioned: Points
    direction: Points
    step: Numbers
    too_short: Numbers
    too_long: Numbers
    evaluations: Int[Array, " models"]
    stuck: Bool[Array, " models"]


def minimise(
    value_and_gradient: Callable[[Points], tuple[Numbers, Points]],
    start: Points,
    precondition: Callable[[Points], Points],
    *,
    tolerance: Float[Array, ""] | float,
    evaluations: int,
    memory: int,
) -> Minimum:
    """Minimises each function from its start until the norm of its gradient is at most `tolerance`.

    If that is not reached, because of rounding or the limit on evaluations, `gradient_norm` is larger. Computes in the
    precision of `start`.

    Args:
        value_and_gradient: the values and gradients of smooth convex functions, each at its row of the points.
        start: the starting points, one row per function.
        precondition: multiplies by symmetric, positive definite approximations of the inverse second derivatives.
        tolerance: the bound on the Euclidean norm of the gradient.
        evaluations: the largest number of evaluations.
        memory: the number of steps that are remembered.

    >>> bowl = jax.vmap(jax.value_and_grad(lambda x: (x[0] - 3) ** 2 + 10 * (x[1] + 1) ** 2))
    >>> found = minimise(bowl, jnp.zeros((1, 2)), lambda x: x, tolerance=1e-3, evaluations=50, memory=5)
    >>> [round(float(number), 3) for number in found.point[0]]
    [3.0, -1.0]
    """

    def unfinished(state: _State) -> Bool[Array, " models"]:
        return ~(_norm(state.gradient) <= tolerance) & ~state.stuck & (state.evaluations < evaluations)

    def turn(loop: tuple[_State, _Steps, Array]) -> tuple[_State, _Steps, Array]:
        state, steps, turns = loop
        state, steps = _turn(state, steps, turns, unfinished(state), value_and_gradient, precondition)
        return state, steps, turns + 1

    value, gradient = value_and_gradient(start)
    preconditioned = precondition(gradient)
    state = _State(
        point=start,
        value=value,
        gradient=gradient,
        preconditioned=preconditioned,
        direction=-preconditioned,
        step=jnp.ones_like(value),
        too_short=jnp.zeros_like(value),
        too_long=jnp.full_like(value, jnp.inf),
        evaluations=jnp.ones(value.shape, jnp.int32),
        stuck=jnp.zeros(value.shape, bool),
    )
    nothing = jnp.zeros((memory, *start.shape), start.dtype)
    loop = state, _Steps(nothing, nothing, nothing), jnp.zeros((), jnp.int32)
    state, _, _ = jax.lax.while_loop(lambda loop: jnp.any(unfinished(loop[0])), turn, loop)
    return Minimum(state.point, _norm(state.gradient), state.evaluations)


def _turn(
    state: _State,
    steps: _Steps,
    turns: Int[Array, ""],
    active: Bool[Array, " models"],
    value_and_gradient: Callable[[Points], tuple[Numbers, Points]],
    precondition: Callable[[Points], Points],
) -> tuple[_State, _Steps]:
    """Tries a step along each direction, and accepts, lengthens or shortens it."""
    move = state.step[:, None] * state.direction
    value, gradient = value_and_gradient(state.point + move)
    slope, slope_after = _dot(state.gradient, state.direction), _dot(gradient, state.direction)
    allowed = state.value + DECREASE * state.step * slope + NOISE * jnp.abs(state.value)
    # A convex function's slope increases along a line, so its sign shows on which side of the minimum a step ends.
    long = ~(value <= allowed) | ~(slope_after <= -CURVATURE * slope)
    short = ~long & (slope_after < CURVATURE * slope)
    taken = active & ~(long | short)

    preconditioned = precondition(gradient)
    last = move, gradient - state.gradient, preconditioned - state.preconditioned
    row, is_taken = turns % len(steps.moves), taken[:, None]
    steps = _Steps(*(old.at[row].set(jnp.where(is_taken, new, 0)) for old, new in zip(steps, last, strict=True)))
    too_short = jnp.where(short, state.step, state.too_short)
    too_long = jnp.where(long, state.step, state.too_long)
    step = jnp.where(jnp.isfinite(too_long), 0.5 * (too_short + too_long), 4 * too_short)
    hopeless = (too_long - too_short <= 1e-12 * too_short) | (step < 1e-12)
    new = _State(
        point=jnp.where(is_taken, state.point + move, state.point),
        value=jnp.where(taken, value, state.value),
        gradient=jnp.where(is_taken, gradient, state.gradient),
        preconditioned=jnp.where(is_taken, preconditioned, state.preconditioned),
        direction=jnp.where(is_taken, _direction(gradient, preconditioned, steps, row), state.direction),
        step=jnp.where(taken, 1, step),
        too_short=jnp.where(taken, 0, too_short),
        too_long=jnp.where(taken, jnp.inf, too_long),
        evaluations=state.evaluations + active,
        stuck=state.stuck | (active & ~taken & hopeless),
    )
    return new, steps


def _direction(gradient: Points, preconditioned: Points, steps: _Steps, newest: Int[Array, ""]) -> Points:
    """Minus the approximate inverse second derivatives times the gradients, by the two-loop recursion.

    The preconditioner is linear, so its product with the vector between the loops follows from its products with the
    gradients, and it is applied only once per turn.
    """
    memory, models = steps.moves.shape[:2]
    zeros = jnp.zeros((memory, models), gradient.dtype)

    def back(age: Int[Array, ""], loop: tuple[Points, Points, Array, Array, Numbers]) -> tuple:
        vector, inner, weights, shares, scale = loop
        move, change, changed = (rows[(newest - age) % memory] for rows in steps)
        curvature = _dot(move, change)
        positive = curvature > 0
        weight = jnp.where(positive, 1 / jnp.where(positive, curvature, 1), 0)
        share = weight * _dot(move, vector)
        vector, inner = vector - share[:, None] * change, inner - share[:, None] * changed
        first = positive & (scale == 0)
        scale = jnp.where(first, curvature / jnp.where(first, _dot(change, changed), 1), scale)
        return vector, inner, weights.at[age].set(weight), shares.at[age].set(share), scale

    def forth(step: Int[Array, ""], inner: Points) -> Points:
        age = memory - 1 - step
        move, change = (rows[(newest - age) % memory] for rows in steps[:2])
        return inner + (shares[age] - weights[age] * _dot(change, inner))[:, None] * move

    start = gradient, preconditioned, zeros, zeros, zeros[0]
    _, inner, weights, shares, scale = jax.lax.fori_loop(0, memory, back, start)
    return -jax.lax.fori_loop(0, memory, forth, inner * jnp.where(scale > 0, scale, 1)[:, None])


def _dot(first: Points, second: Points) -> Numbers:
    return jnp.sum(first * second, axis=1)


def _norm(points: Points) -> Numbers:
    return jnp.sqrt(_dot(points, points))
