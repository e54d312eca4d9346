"""Before any audit: how small a used part of a query set could the holdout test notice, and what would it take?"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Array, Key

from jaxaudit.audits.ks.models import shadow_rows, train_roles
from jaxaudit.audits.pool import make_pool
from jaxaudit.data.examples import Examples
from jaxaudit.data.overlap import refuse_overlap
from jaxaudit.ensemble import DEFAULT_EXECUTION, Execution
from jaxaudit.errors import InputError
from jaxaudit.learners import Learner
from jaxaudit.metrics.power import Separation, chance_noticed, least_noticed, records_needed, separation
from jaxaudit.randomness import stream

FRACTIONS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0)
MODELS = (19, 31, 64, 128)
LEAST_MODELS = 4
SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Row:
    """What an audit of this size would notice.

    Attributes:
        query, holdout: numbers of records.
        chances: for each of `FRACTIONS`, the probability that its use is noticed at the 5% level.
        least: the smallest fraction noticed with 95% probability; None where not even all.
    """

    query: int
    holdout: int
    chances: tuple[float, ...]
    least: float | None


@dataclass(frozen=True)
class Power:
    """What can be noticed, and what it takes.

    Attributes:
        told: what the membership scores make of query records, measured.
        rows: for the sizes given (`given`, its index) and for smaller and larger ones in proportion.
        given: index of the sizes given among `rows`.
        by_models: the smallest fraction an audit of the sizes given would promise, for numbers of shadow models.
        fraction: the fraction asked about, and
        needed: how many query records, with as many in the holdout, notice it with 95% probability; None: no number.
        models_per_batch: how many models were trained side by side.
    """

    told: Separation
    rows: tuple[Row, ...]
    given: int
    by_models: tuple[tuple[int, float | None], ...]
    fraction: float
    needed: int | None
    models_per_batch: int


def audit_power(
    key: Key[Array, ""],
    query: Examples,
    calibration: Examples,
    learner: Learner,
    *,
    holdout_size: int | None = None,
    fraction: float = 0.1,
    models: int = 31,
    execution: Execution = DEFAULT_EXECUTION,
) -> Power:
    """Trains `models` models, each on a share of the calibration set and a random half of the query set.

    To each of them one half of the query set is what a query set is to a target, and the other what a holdout is. How
    far their membership scores tell the halves apart is what a target's would, built and trained like them and trained
    on about as much. From there on it is a normal approximation (`jaxaudit.metrics.power`).

    Args:
        key: random key; everything follows from it.
        query: the data in question; `calibration` data of the same domain with none of its records.
        learner: the target's design and recipe, as far as it is known.
        holdout_size: records that the provider could keep back; by default as many as the query set has.
        fraction: a used fraction to notice.
        models: shadow models of the measurement, and of the audit.
        execution: as for `audit_ks`.

    Raises:
        InputError: where the sets overlap or an option is out of range.
    """
    holdout = len(query) if holdout_size is None else holdout_size
    if holdout < 2 or len(query) < 4 or not 0 < fraction <= 1 or models < LEAST_MODELS:
        raise InputError(
            f"power takes at least 4 query records (got {len(query)}), 2 in the holdout (got {holdout}), "
            f"{LEAST_MODELS} shadow models (got {models}), and a fraction above 0 and at most 1 (got {fraction:g})."
        )
    refuse_overlap(query, calibration)
    pool = make_pool(query, calibration, ())
    records = np.arange(pool.query.start, pool.query.stop)
    roles = {"half": shadow_rows(stream(key, "draw"), pool, "half", records, max(1, len(query) // 2), models)}
    trained, models_per_batch = train_roles(
        stream(key, "train"), roles, pool, learner, with_signals=False, execution=execution
    )
    told = separation(trained["half"].log_odds, np.concatenate(roles["half"])[:, pool.query])
    sizes = [(max(2, round(scale * len(query))), max(2, round(scale * holdout))) for scale in SCALES]
    rows = tuple(
        Row(n, m, tuple(chance_noticed(told, n, m, f) for f in FRACTIONS), least_noticed(told, n, m, models))
        for n, m in sizes
    )
    by_models = tuple((count, least_noticed(told, len(query), holdout, count)) for count in MODELS)
    needed = records_needed(told, fraction)
    return Power(told, rows, SCALES.index(1.0), by_models, fraction, needed, models_per_batch)
