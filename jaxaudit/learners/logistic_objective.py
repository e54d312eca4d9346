"""The penalised loss of multinomial logistic regression for many models, its gradient, and approximate inverses of its
second derivative.

Models share the records and differ in the records' weights. All functions compute in the precision of the weights. A
model's parameters are one row per class, or for two classes a single row, for the log-odds of class 1. The last column
of a row is its intercept, which is not penalised; the last column of `inputs` is all ones.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxaudit.learners.lbfgs import Minimum, Points, minimise

EVALUATIONS, MEMORY = 2000, 10

INTERCEPT_RIDGE = 1e-3
"""Share of the penalty that intercepts get, in preconditioners only: else a shift common to all classes is singular."""


class Objectives(NamedTuple):
    """The objectives of models: sum over records of weight * -log p(label | record), plus the penalty.

    Attributes:
        inputs: the records' features, and a last column of ones.
        targets: 1 for the class of a record, 0 for other classes.
        weights: 1 for members, 0 for other records.
        present: the classes with members (all classes if none has any); other classes have probability 0.
        penalty: the penalty factor of each parameter of a row, for half of its square.
    """

    inputs: Float[Array, "n columns"]
    targets: Float[Array, "classes n"]
    weights: Float[Array, "models n"]
    present: Bool[Array, "models classes"]
    penalty: Float[Array, " columns"]


class Inverse(NamedTuple):
    """A symmetric, positive definite matrix: block-diagonal, plus a term of rank n if there is a `coupling`.

    One block per row of parameters, or one for all rows; `chances` are the factors by which each record couples the
    rows, and `coupling` the matrix that couples records with one another.
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
    """The objectives of models that share records and differ in the records' weights, in the precision of the weights.

    Args:
        inputs, labels: the records' features and classes.
        weights: for each model, 1 for members and 0 for other records.
        classes: the number of classes.
        l2: the penalty factor of parameters other than intercepts.
    """
    dtype = weights.dtype
    extended = jnp.concatenate([inputs.astype(dtype), jnp.ones((len(inputs), 1), dtype)], axis=1)
    targets = jax.nn.one_hot(labels, classes, dtype=dtype).T
    penalty = jnp.full(extended.shape[1], l2, dtype).at[-1].set(0)
    return weighted(Objectives(extended, targets, weights, jnp.zeros((0, classes), bool), penalty), weights)


def weighted(of: Objectives, weights: Float[Array, "models n"]) -> Objectives:
    """The objectives of models with other weights."""
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
    """Each model's objective and its gradient."""
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
    """The minimum of each objective."""
    return minimise(
        lambda points: value_and_gradient(of, points),
        starts,
        lambda vectors: precondition(of, inverse, vectors),
        tolerance=tolerance,
        evaluations=EVALUATIONS,
        memory=MEMORY,
    )


def inverse_at_zero(of: Objectives) -> Inverse:
    """The inverse of the second derivative of the first model's objective at parameters 0: all classes equally likely.

    All rows of parameters share one block. The inverse is an approximation, for use as a preconditioner.
    """
    classes = len(of.targets)
    return Inverse(_blocks(of, of.weights[:1] * (1 / 4 if classes == 2 else 1 / classes)))


def inverse_at(of: Objectives, points: Points, *, coupled: bool) -> Inverse:
    """The inverse of the first model's second derivative at its point, where all its weights are 1.

    With p_i the probabilities of record i and (x) the Kronecker product, that derivative is

        sum_i (diag(p_i) - p_i p_i^T) (x) x_i x_i^T + penalty = B - U U^T,    column i of U: p_i (x) x_i

    and B is block-diagonal. By Woodbury's identity the inverse is B^-1 + B^-1 U (1 - U^T B^-1 U)^-1 U^T B^-1: one
    matrix a class and one of records by records, none of all parameters. Where not `coupled`, it is the inverse of
    the derivative's own blocks alone, which is rougher.
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
    """The products with `inverse`."""
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
