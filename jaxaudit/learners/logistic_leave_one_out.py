"""Logistic regression without each record: many optimisations in float64 that start next to their optimum.

The model of all records is trained once, the inverse of its second derivative made once. Every other model starts from
its parameters with that inverse as preconditioner, so that the first step is Newton's, and goes on to the same
gradient norm. Records that the model misses by much need more steps: records alike in that share a chunk.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxaudit.errors import InputError
from jaxaudit.kernels.log_softmax import precise_log_softmax
from jaxaudit.learners.column_checks import check_columns, check_finite
from jaxaudit.learners.learner import LeftOut, Progress
from jaxaudit.learners.left_out import check_left_out, in_chunks, tell
from jaxaudit.learners.logistic_objective import (
    Inverse,
    Objectives,
    inverse_at,
    inverse_at_zero,
    logits,
    objectives,
    optima,
    start_of,
    weighted,
)

CHUNK_CELLS = 2**20
"""Probabilities of all models of a chunk (8 MB)."""

MOST_COUPLED = 4096
"""Records up to which the inverse couples classes: it then holds a matrix of records by records (128 MB)."""


def leave_one_out(
    columns: int,
    classes: int,
    l2: float,
    tolerance: float,
    inputs: Float[np.ndarray, "n columns"],
    labels: Int[np.ndarray, " n"],
    records: Int[np.ndarray, " k"],
    progress: Progress | None = None,
) -> LeftOut:
    """Log-probabilities at each of `records` of the model of all records and of the model of all others.

    Memory: classes * columns^2 numbers for the preconditioner, at most `MOST_COUPLED`^2 more, and a chunk of models.

    Raises:
        InputError: see `LogisticRegression.leave_one_out`.
    """
    check_columns(inputs, columns)
    check_finite(inputs, np.arange(columns))
    check_left_out(inputs, labels, records, classes)
    with jax.enable_x64(True):
        of = _objectives(jnp.asarray(inputs), jnp.asarray(labels), jnp.ones((1, len(labels))), classes, l2)
        point, norm, with_record, pulls = _fit_all(of, tolerance)
        inverse = _invert(of, point, coupled=len(labels) <= MOST_COUPLED)
        order = records[np.argsort(-np.asarray(pulls)[records], kind="stable")]
        said, norms = [np.zeros((0, classes))], [np.asarray(norm)]
        for chunk in in_chunks(order, max(1, CHUNK_CELLS // (classes * len(labels)))):
            log_probs, chunk_norms = _fit_without(of, point, inverse, jnp.asarray(chunk), tolerance)
            said.append(np.asarray(log_probs))
            norms.append(np.asarray(chunk_norms))
            tell(progress, sum(map(len, said)), len(order))
    _check_converged(np.concatenate(norms), tolerance)
    without_record = np.empty((len(labels), classes))
    without_record[order] = np.concatenate(said)[: len(order)]
    return LeftOut(np.asarray(with_record)[records], without_record[records])


@jax.jit
def _fit_all(
    of: Objectives, tolerance: Float[Array, ""] | float
) -> tuple[Float[Array, "1 parameters"], Float[Array, " 1"], Float[Array, "n classes"], Float[Array, " n"]]:
    """The optimum, its gradient norm, its log-probabilities, and how strongly each record pulls at it."""
    found = optima(of, start_of(of), inverse_at_zero(of), tolerance)
    log_probs = precise_log_softmax(logits(of, found.point, of.inputs)[0].T)
    errors = jnp.linalg.norm(jnp.exp(log_probs) - of.targets.T, axis=1)
    return found.point, found.gradient_norm, log_probs, errors * jnp.linalg.norm(of.inputs, axis=1)


_objectives = jax.jit(objectives, static_argnames="classes")
_invert = jax.jit(inverse_at, static_argnames="coupled")


@jax.jit
def _fit_without(
    of: Objectives,
    point: Float[Array, "1 parameters"],
    inverse: Inverse,
    records: Int[Array, " models"],
    tolerance: Float[Array, ""] | float,
) -> tuple[Float[Array, "models classes"], Float[Array, " models"]]:
    """Outputs on each record of the model without it, and gradient norms."""
    models = jnp.arange(len(records))
    others = weighted(of, jnp.repeat(of.weights, len(records), axis=0).at[models, records].set(0))
    found = optima(others, jnp.repeat(point, len(records), axis=0), inverse, tolerance)
    scores = logits(others, found.point, of.inputs[records])[models, :, models]
    return precise_log_softmax(scores), found.gradient_norm


def _check_converged(norms: Float[np.ndarray, " models"], tolerance: float) -> None:
    short = int((~(norms <= tolerance)).sum())
    if short:
        raise InputError(
            f"{short} of {len(norms)} models stopped at a gradient norm of up to {norms.max():.2g}, above the "
            f"tolerance of {tolerance:g}: are the inputs far outside [0, 1]? Scale them, or give a larger l2 or "
            "tolerance."
        )
