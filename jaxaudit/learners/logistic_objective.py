"""The penalised loss of multinomial logistic regression for many models, and its minimum by preconditioned L-BFGS.

Models share the records and differ in the records' weights, in whose precision all is computed. A model's parameters
are one row per class, or for two classes a single row, for the log-odds of class 1. The last column of a row is its
intercept, which is not penalised; the last column of `inputs` is all ones. L-BFGS: Liu & Nocedal (1989), with one
evaluation of each function in every turn. The axis over functions is explicit, since `jax.vmap` would copy the history
of all steps several times per turn.
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
    """A ring buffer of the last steps, the newest in row `(turn - 1) % memory`; a turn without a step leaves zeros."""

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
    """Minimises each smooth convex function from its start, one row per function, until the Euclidean norm of its
    gradient is at most `tolerance`, or `evaluations` are used up; `memory` steps are remembered. `precondition`
    multiplies by symmetric, positive definite approximations of the inverse second derivatives.
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
    """Minus the approximate inverse second derivatives times the gradients, by the two-loop recursion."""
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


EVALUATIONS, MEMORY = 2000, 10

INTERCEPT_RIDGE = 1e-3
"""Share of the penalty that intercepts get, in preconditioners only: else a shift common to all classes is singular."""


class Objectives(NamedTuple):
    """The objectives of models: sum over records of weight * -log p(label | record), plus the penalty.

    Attributes:
        targets: 1 for the class of a record, 0 for other classes.
        weights: 1 for members, 0 for other records.
        present: the classes with members (all classes if none has any); other classes have probability 0.
        penalty: the factor of half the square of each parameter of a row.
    """

    inputs: Float[Array, "n columns"]
    targets: Float[Array, "classes n"]
    weights: Float[Array, "models n"]
    present: Bool[Array, "models classes"]
    penalty: Float[Array, " columns"]


class Inverse(NamedTuple):
    """A symmetric, positive definite matrix: a block per row of parameters, or one for all rows, plus a term of rank n
    if there is a `coupling` of records; `chances` are the factors by which each record couples the rows.
    """

    blocks: Float[Array, "blocks columns columns"]
    chances: Float[Array, "classes n"] | None = None
    coupling: Float[Array, "n n"] | None = None


def objectives(
    inputs: Float[Array, "n inputs"],
    labels: Int[Array, " n"],
    weights: Float[Array, "models n"],
    classes: int,
    l2: Float[Array, ""] | float,
) -> Objectives:
    """The objectives of models with these weights of the records; `l2` is the penalty factor of all but intercepts."""
    dtype = weights.dtype
    extended = jnp.concatenate([inputs.astype(dtype), jnp.ones((len(inputs), 1), dtype)], axis=1)
    targets = jax.nn.one_hot(labels, classes, dtype=dtype).T
    penalty = jnp.full(extended.shape[1], l2, dtype).at[-1].set(0)
    return weighted(Objectives(extended, targets, weights, jnp.zeros((0, classes), bool), penalty), weights)


def weighted(of: Objectives, weights: Float[Array, "models n"]) -> Objectives:
    present = weights @ of.targets.T > 0
    return of._replace(weights=weights, present=present | ~jnp.any(present, axis=1, keepdims=True))


def start_of(of: Objectives) -> Points:
    """Starting points: all parameters 0, so that all classes are equally likely."""
    classes, columns = len(of.targets), of.inputs.shape[1]
    return jnp.zeros((len(of.weights), (1 if classes == 2 else classes) * columns), of.weights.dtype)


def logits(of: Objectives, points: Points, inputs: Float[Array, "k columns"]) -> Float[Array, "models classes k"]:
    """The logits of every class at `inputs` (with a last column of ones); -inf for classes without members."""
    scores = points.reshape(len(points), -1, inputs.shape[1]) @ inputs.T
    if len(of.targets) == 2:
        scores = jnp.concatenate([jnp.zeros_like(scores), scores], axis=1)
    return jnp.where(of.present[:, :, None], scores, -jnp.inf)


def value_and_gradient(of: Objectives, points: Points) -> tuple[Float[Array, " models"], Points]:
    parameters = points.reshape(len(points), -1, of.inputs.shape[1])
    scores = logits(of, points, of.inputs)
    largest = jnp.max(scores, axis=1)
    powers = jnp.exp(scores - largest[:, None])
    total = jnp.sum(powers, axis=1)
    of_label = jnp.sum(jnp.where(of.targets > 0, scores, 0), axis=1)
    losses = jnp.where(of.weights > 0, of.weights * (jnp.log(total) + largest - of_label), 0)
    errors = of.weights[:, None] * (powers / total[:, None] - of.targets)
    gradient = errors[:, -parameters.shape[1] :] @ of.inputs + of.penalty * parameters
    values = jnp.sum(losses, axis=1) + 0.5 * jnp.sum(of.penalty * parameters**2, axis=(1, 2))
    return values, gradient.reshape(points.shape)


def optima(of: Objectives, starts: Points, inverse: Inverse, tolerance: Float[Array, ""] | float) -> Minimum:
    return minimise(
        lambda points: value_and_gradient(of, points),
        starts,
        lambda vectors: precondition(of, inverse, vectors),
        tolerance=tolerance,
        evaluations=EVALUATIONS,
        memory=MEMORY,
    )


def inverse_at_zero(of: Objectives) -> Inverse:
    """The approximate inverse of the first model's second derivative at parameters 0, a preconditioner. All rows of
    parameters share one block.
    """
    classes = len(of.targets)
    return Inverse(_blocks(of, of.weights[:1] * (1 / 4 if classes == 2 else 1 / classes)))


def inverse_at(of: Objectives, points: Points, *, coupled: bool) -> Inverse:
    """The inverse of the first model's second derivative at its point, where all its weights are 1.

    With p_i the probabilities of record i and (x) the Kronecker product, that derivative is

        sum_i (diag(p_i) - p_i p_i^T) (x) x_i x_i^T + penalty = B - U U^T,    column i of U: p_i (x) x_i

    and B is block-diagonal. By Woodbury's identity the inverse is B^-1 + B^-1 U (1 - U^T B^-1 U)^-1 U^T B^-1. Where not
    `coupled`, it is the inverse of the derivative's own blocks alone, which is rougher.
    """
    chances = jax.nn.softmax(logits(of, points, of.inputs)[0], axis=0)
    if len(chances) == 2:
        return Inverse(_blocks(of, chances[:1] * chances[1:]))
    if not coupled:
        return Inverse(_blocks(of, chances * (1 - chances)))
    blocks = _blocks(of, chances)

    def subtract(left: Array, of_class: tuple[Array, Array]) -> tuple[Array, None]:
        block, chance = of_class
        columns = chance[:, None] * of.inputs
        return left - columns @ block @ columns.T, None

    left = jax.lax.scan(subtract, jnp.eye(chances.shape[1], dtype=blocks.dtype), (blocks, chances))[0]
    # In float32: it is applied in every step and need not be exact, and half as much memory is read.
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), Inverse(blocks, chances, _inverse(left)))


def precondition(of: Objectives, inverse: Inverse, vectors: Points) -> Points:
    blocks, exact = inverse.blocks, jax.lax.Precision.HIGHEST

    def by_blocks(rows: Float[Array, "models rows columns"]) -> Float[Array, "models rows columns"]:
        return rows @ blocks[0] if len(blocks) == 1 else jnp.einsum("mrc,rcd->mrd", rows, blocks, precision=exact)

    rows = by_blocks(vectors.astype(blocks.dtype).reshape(len(vectors), -1, of.inputs.shape[1]))
    if inverse.chances is not None and inverse.coupling is not None:
        inputs = of.inputs.astype(blocks.dtype)
        pull = jnp.sum(inverse.chances * jnp.matmul(rows, inputs.T, precision=exact), axis=1)
        push = jnp.matmul(pull, inverse.coupling, precision=exact)
        rows = rows + by_blocks(jnp.matmul(inverse.chances * push[:, None], inputs, precision=exact))
    return rows.reshape(vectors.shape).astype(vectors.dtype)


def _blocks(of: Objectives, weights: Float[Array, "rows n"]) -> Float[Array, "rows columns columns"]:
    """Inverses of the weighted sums of outer products of the inputs, plus the penalty; one per row of weights."""
    ridge = jnp.diag(of.penalty.at[-1].set(INTERCEPT_RIDGE * of.penalty[0]))
    return jax.lax.map(lambda one: _inverse((of.inputs.T * one) @ of.inputs + ridge), weights)


def _inverse(matrix: Float[Array, "size size"]) -> Float[Array, "size size"]:
    identity = jnp.eye(len(matrix), dtype=matrix.dtype)
    return jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(matrix), True), identity)
