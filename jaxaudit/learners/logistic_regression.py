"""Multinomial logistic regression, trained to its optimum.

Every leave-one-out model starts from the parameters of the model of all records, preconditioned by the inverse of that
model's second derivative, so that the first step is Newton's. Records with a large gradient need more steps, so records
are sorted by it before they are put into chunks.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from jaxaudit.errors import InputError, check_ranges
from jaxaudit.kernels.likelihoods import precise_log_softmax
from jaxaudit.learners import logistic_objective as objective
from jaxaudit.learners.learner import (
    PIECE,
    Indices,
    Labels,
    LeftOut,
    Pool,
    PoolLabels,
    Progress,
    Rows,
    Weights,
    check_columns,
    check_finite,
    check_left_out,
    in_chunks,
    tell,
)

CHUNK_CELLS = 2**20
"""The largest number of probabilities in a chunk of models (8 MB)."""

MOST_COUPLED = 4096
"""Up to this many records, the inverse couples classes, which needs a matrix of records by records (128 MB)."""


class LogisticRegressionParams(NamedTuple):
    """A trained model: log p(class | x) = weights[class] . x + intercepts[class], minus the normalisation.

    Attributes:
        weights: for two classes, those of class 0 are zero; for more, weights sum to zero over classes.
        intercepts: normalised in the same way; -inf for a class without members.
        gradient_norm: the norm of the objective's gradient at the end; above the tolerance, training did not converge.
    """

    weights: Float[Array, "classes inputs"]
    intercepts: Float[Array, " classes"]
    gradient_norm: Float[Array, ""]


@dataclass(frozen=True)
class LogisticRegression:
    """Multinomial logistic regression as a `LeavesOneOut` learner; fields: the arguments of `logistic_regression`."""

    inputs: int
    classes: int
    l2: float
    tolerance: float
    kind = "logistic regression"
    piece = PIECE
    """The largest number of left-out records in a piece: see `ReadsAllForEach`."""

    def fit(self, key: Key[Array, ""], inputs: Rows, labels: Labels, weights: Weights) -> LogisticRegressionParams:
        """The optimum for the records whose weight is 1, computed in float64 (for any JAX default) and returned in
        float32. The key is not used.
        """
        with jax.enable_x64(True):
            of = objective.objectives(inputs, labels, weights.astype(jnp.float64)[None], self.classes, self.l2)
            fit_result = objective.optima(of, objective.start_of(of), objective.inverse_at_zero(of), self.tolerance)
            rows, present = fit_result.point.reshape(-1, self.inputs + 1), of.present[0]
            if self.classes == 2:
                rows = jnp.concatenate([jnp.zeros_like(rows), rows])
            else:
                rows -= jnp.mean(rows, axis=0, where=present[:, None])
            intercepts = jnp.where(present, rows[:, -1], -jnp.inf)
            fit_result = LogisticRegressionParams(rows[:, :-1], intercepts, fit_result.gradient_norm[0])
            return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), fit_result)

    def log_probs(
        self, params: LogisticRegressionParams, inputs: Float[Array, "n inputs"]
    ) -> Float[Array, "n classes"]:
        """The log-probabilities, in nats; -inf for a class without members."""
        scores = jnp.matmul(inputs, params.weights.T, precision=jax.lax.Precision.HIGHEST)
        return precise_log_softmax(scores + params.intercepts)

    def leave_one_out(
        self, key: Key[Array, ""], inputs: Pool, labels: PoolLabels, records: Indices, progress: Progress | None = None
    ) -> LeftOut:
        """Outputs (nats) on each of `records`, of the model with the record and of one without it; see `LeavesOneOut`.

        All is computed in float64, to the same tolerance as `fit`; the key is not used. Memory: classes * columns^2
        numbers for the preconditioner, up to `MOST_COUPLED` squared more, and a chunk of models.

        Raises:
            InputError: shapes disagree, an input is not finite, a label or a record is out of range, or a model does
                not converge.
        """
        check_columns(inputs, self.inputs)
        check_finite(inputs, np.arange(self.inputs))
        check_left_out(inputs, labels, records, self.classes)
        with jax.enable_x64(True):
            of = _objectives(
                jnp.asarray(inputs), jnp.asarray(labels), jnp.ones((1, len(labels))), self.classes, self.l2
            )
            point, norm, with_record, pulls = _fit_all(of, self.tolerance)
            inverse = _invert(of, point, coupled=len(labels) <= MOST_COUPLED)
            order = records[np.argsort(-np.asarray(pulls)[records], kind="stable")]
            parts, norms = [np.zeros((0, self.classes))], [np.asarray(norm)]
            for chunk in in_chunks(order, max(1, CHUNK_CELLS // (self.classes * len(labels)))):
                log_probs, chunk_norms = _fit_without(of, point, inverse, jnp.asarray(chunk), self.tolerance)
                parts.append(np.asarray(log_probs))
                norms.append(np.asarray(chunk_norms))
                tell(progress, sum(map(len, parts)), len(order))
        every = np.concatenate(norms)
        short = int((~(every <= self.tolerance)).sum())
        if short:
            raise InputError(
                f"{short} of {len(every)} models stopped at a gradient norm of up to {every.max():.2g}, above the "
                f"tolerance of {self.tolerance:g}: are the inputs far outside [0, 1]? Scale them, or give a larger l2 "
                "or tolerance."
            )
        without_record = np.empty((len(labels), self.classes))
        without_record[order] = np.concatenate(parts)[: len(order)]
        return LeftOut(np.asarray(with_record)[records], without_record[records])


def logistic_regression(inputs: int, classes: int, *, l2: float = 1.0, tolerance: float = 1e-7) -> LogisticRegression:
    """The learner that minimises the penalised cross-entropy, to a stated norm of its gradient:

        sum over members of -log p(label | record)  +  l2 / 2 * (sum of squared weights)

    Records are `one_hot` or `ordinal` numbers, roughly in [0, 1]. The penalty is that of scikit-learn: l2 = 1 / C, with
    default C = 1. The loss is a *sum* over members, so the penalty weighs less with more records; intercepts are not
    penalised. Two classes have one row of weights, the log-odds of class 1 (as in scikit-learn); more classes have one
    row each, and the rows sum to zero. The optimum is unique, and reached in float64 from any start. In float32 it was
    up to 0.01 nats off on real records (0.2 at l2 = 0.01), as much as leaving out a record moves many others.

    A class without members (including one that lost its last) has probability 0, log-probability -inf: the limit of the
    optimum. The rows of the others stay as for `classes`, even if two are left. Without any member, all classes are
    equally likely. Nothing is NaN.

    Args:
        l2: the penalty; above 0.
        tolerance: Euclidean norm of the objective's gradient at which training ends. A log-probability is then at most
            about |record| * tolerance / l2 off. The norm is reported as `gradient_norm`; it is larger if rounding or
            2,000 evaluations end training earlier: then scale the inputs, or give a larger l2.

    >>> import jax, numpy as np
    >>> learner = logistic_regression(1, 2)
    >>> inputs, labels = np.array([[0.0], [1.0], [2.0], [3.0]], np.float32), np.array([0, 0, 1, 1])
    >>> left_out = learner.leave_one_out(jax.random.key(3), inputs, labels, np.array([1]))
    >>> np.exp(left_out.with_record).round(3), np.exp(left_out.without_record).round(3)
    (array([[0.618, 0.382]]), array([[0.428, 0.572]]))

    Long, Bindschaedler & Gunter (2017), section 3, use Weka's logistic model trees instead.
    """
    check_ranges("[1, inf)", inputs=inputs, classes=classes)
    check_ranges("(0, inf]", l2=l2, tolerance=tolerance)
    return LogisticRegression(inputs, classes, float(l2), float(tolerance))


@jax.jit
def _fit_all(
    of: objective.Objectives, tolerance: Float[Array, ""] | float
) -> tuple[Float[Array, "1 parameters"], Float[Array, " 1"], Float[Array, "n classes"], Float[Array, " n"]]:
    """The optimum, its gradient norm, its log-probabilities, and the size of each record's own gradient."""
    fit_result = objective.optima(of, objective.start_of(of), objective.inverse_at_zero(of), tolerance)
    log_probs = precise_log_softmax(objective.logits(of, fit_result.point, of.inputs)[0].T)
    errors = jnp.linalg.norm(jnp.exp(log_probs) - of.targets.T, axis=1)
    return fit_result.point, fit_result.gradient_norm, log_probs, errors * jnp.linalg.norm(of.inputs, axis=1)


_objectives = jax.jit(objective.objectives, static_argnames="classes")
_invert = jax.jit(objective.inverse_at, static_argnames="coupled")


@jax.jit
def _fit_without(
    of: objective.Objectives,
    point: Float[Array, "1 parameters"],
    inverse: objective.Inverse,
    records: Int[Array, " models"],
    tolerance: Float[Array, ""] | float,
) -> tuple[Float[Array, "models classes"], Float[Array, " models"]]:
    """The outputs on each record of the model trained without it, and the models' gradient norms."""
    models = jnp.arange(len(records))
    objective_without = objective.weighted(of, jnp.repeat(of.weights, len(records), axis=0).at[models, records].set(0))
    fit_result = objective.optima(objective_without, jnp.repeat(point, len(records), axis=0), inverse, tolerance)
    scores = objective.logits(objective_without, fit_result.point, of.inputs[records])[models, :, models]
    return precise_log_softmax(scores), fit_result.gradient_norm
