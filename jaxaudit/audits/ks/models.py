"""The models of a `ks` audit: who is trained on what, and what each of them says."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jaxaudit.audits.pool import (
    Pool,
    SimulatedTarget,
    calibration_row,
    control_row,
    query_row,
    shadow_row,
    target_row,
)
from jaxaudit.ensemble import Progress, fit_many, kept_width, log_probs_many, measure_width
from jaxaudit.learners import Learner
from jaxaudit.metrics.ema import Signals, signals
from jaxaudit.metrics.scores import log_odds
from jaxaudit.metrics.shadow import SHARE
from jaxaudit.randomness import generator_of, stream

Row = Bool[np.ndarray, "1 examples"]
Roles = dict[str, list[Row]]


class Shadows(NamedTuple):
    """How many shadow models are trained on a share of the calibration set, drawn anew for each, and besides on

    Attributes:
        never: nothing of the query set.
        half: half of the query set, drawn anew for each.
        fully: all of it.
        mixed: as many records as the query set has, drawn from it and the holdout together.
    """

    never: int = 0
    half: int = 0
    fully: int = 0
    mixed: int = 0


class Trained(NamedTuple):
    """The models of one role.

    Attributes:
        confidences: probability of the ground-truth class of every query record.
        log_odds: log-odds (nats) of it, of every query and then every holdout record; not rounded through float32
            probabilities.
        own_accuracy: accuracy on the model's own training records.
        query_accuracy: accuracy on the query set.
        signals: what EMA asks of query and calibration records; of no record where EMA is not asked for.
    """

    confidences: Float[np.ndarray, "models n"]
    log_odds: Float[np.ndarray, "models asked"]
    own_accuracy: Float[np.ndarray, " models"]
    query_accuracy: Float[np.ndarray, " models"]
    signals: Signals


def draw_roles(
    key: Key[Array, ""],
    pool: Pool,
    simulated: tuple[SimulatedTarget, ...],
    replicates: int,
    controls: int,
    subsample: float,
    shadows: Shadows,
) -> Roles:
    """The training set of every model, by the part it plays: each drawn by its role, its number, and the key alone."""
    query = np.arange(pool.query.start, pool.query.stop)
    both = np.concatenate([query, np.arange(pool.holdout.start, pool.holdout.stop)])

    def draws(role: str, models: int) -> Iterator[np.random.Generator]:
        return (generator_of(stream(key, role, model)) for model in range(models))

    def given(role: str, records: Int[np.ndarray, " records"], count: int, models: int) -> list[Row]:
        """Rows of a share of the calibration set and besides on `count` of these records."""
        return [
            shadow_row(
                own, pool, records if count == len(records) else own.choice(records, count, replace=False), SHARE
            )
            for own in draws(role, models)
        ]

    return {
        "query": [query_row(pool) for _ in range(replicates)],
        "calibration": [calibration_row(own, pool, subsample) for own in draws("calibration", replicates)],
        "control": [control_row(pool) for _ in range(controls)],
        **{
            f"target {index}": [target_row(own, pool, target) for own in draws(f"target {index}", 1)]
            for index, target in enumerate(simulated)
        },
        "never": given("never", query[:0], 0, shadows.never),
        "half": given("half", query, max(1, len(query) // 2), shadows.half),
        "fully": given("fully", query, len(query), shadows.fully),
        "mixed": given("mixed", both, len(query), shadows.mixed),
    }


def train_roles(
    key: Key[Array, ""],
    roles: Roles,
    pool: Pool,
    learner: Learner,
    *,
    with_signals: bool,
    width: int | None,
    progress: Progress | None,
    checkpoints: Path | None,
) -> tuple[dict[str, Trained], int]:
    """All models at once, each with the seed of its role and number, and how many were trained side by side."""
    membership = np.concatenate([row for rows in roles.values() for row in rows])
    keys = jnp.concatenate([jax.random.split(stream(key, role), len(rows)) for role, rows in roles.items() if rows])
    inputs, labels = pool.examples.inputs, pool.examples.labels
    asked = np.r_[pool.query, pool.holdout]
    watched = np.r_[pool.query, pool.calibration] if with_signals else np.zeros(0, int)
    if checkpoints is not None:
        width = kept_width(keys, membership, inputs, labels, checkpoints) or width
    if width is None:
        width = measure_width(keys, membership, inputs, labels, learner).width

    def score(params: Any, rows: Int[np.ndarray, " models"]) -> tuple[np.ndarray, ...]:
        log_probs = log_probs_many(learner, params, inputs)
        of_label = np.take_along_axis(log_probs, labels[None, :, None], axis=2)[:, :, 0]
        # Through float64, so that a confidence near 1 is rounded once and not twice.
        confidences = np.exp(of_label[:, pool.query].astype(np.float64)).astype(np.float32)
        odds = log_odds(log_probs[:, asked].astype(np.float64), labels[asked]).astype(np.float32)
        seen = [signals(np.exp(each[watched].astype(np.float64)), labels[watched]) for each in log_probs]
        return confidences, odds, log_probs.argmax(axis=2) == labels, *map(np.stack, zip(*seen, strict=True))

    # Else a set that is added to the pool would change the minibatches of models that hold nearly all of the others.
    how: dict[str, Any] = {"width": width, "members_only": True, "progress": progress, "checkpoints": checkpoints}
    confidences, odds, hits, *seen = fit_many(keys, membership, inputs, labels, learner, then=score, **how)
    own = (hits & membership).sum(axis=1) / membership.sum(axis=1)
    everyone = confidences, odds, own, hits[:, pool.query].mean(axis=1)
    ends = np.cumsum([len(rows) for rows in roles.values()])
    spans = [slice(end - len(rows), end) for rows, end in zip(roles.values(), ends, strict=True)]
    trained = {
        role: Trained(*(array[span] for array in everyone), signals=Signals(*(array[span] for array in seen)))
        for role, span in zip(roles, spans, strict=True)
    }
    return trained, width
