"""The `power` audit: the minimum detectable fraction of the holdout test, before there is a target."""

import numpy as np
from jaxtyping import Array, Key

from jaxaudit.audits.ks.models import shadow_rows, train_roles
from jaxaudit.audits.pool import make_pool
from jaxaudit.audits.power.result import FRACTIONS, Power, Size
from jaxaudit.data.examples import Examples
from jaxaudit.data.overlap import refuse_overlap
from jaxaudit.ensemble import DEFAULT_EXECUTION, Execution
from jaxaudit.errors import InputError
from jaxaudit.learners import Learner
from jaxaudit.metrics.power import detection_probability, min_detectable_fraction, records_needed, separation
from jaxaudit.randomness import stream

MODELS = (19, 31, 64, 128)
LEAST_MODELS = 4
SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)


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
    """How small a used fraction of a query set would the holdout test detect?

    Trains `models` models, each on a share of the calibration set and a random half of the query set. For each model,
    one half of the query set acts as query set and the other as holdout. A target built and trained like these models,
    on about as many records, separates the two equally well. The rest is a normal approximation
    (`jaxaudit.metrics.power`).

    Args:
        key: random key; everything follows from it.
        query: the query set.
        calibration: data of the same domain with no query record.
        learner: the model and training recipe of the target, as far as they are known.
        holdout_size: number of holdout records; by default as many as the query set has.
        fraction: the used fraction to detect.
        models: shadow models of the measurement, and of the audit.
        execution: as for `audit_ks`.

    Raises:
        InputError: the sets overlap, or an option is out of range.
    """
    holdout = len(query) if holdout_size is None else holdout_size
    if holdout < 2 or len(query) < 4 or not 0 < fraction <= 1 or models < LEAST_MODELS:
        raise InputError(
            f"power needs at least 4 query records (got {len(query)}), 2 in the holdout (got {holdout}), "
            f"{LEAST_MODELS} shadow models (got {models}), and a fraction above 0 and at most 1 (got {fraction:g})."
        )
    refuse_overlap(query, calibration)
    pool = make_pool(query, calibration, ())
    records = np.arange(pool.query.start, pool.query.stop)
    roles = {"half": shadow_rows(stream(key, "draw"), pool, "half", records, max(1, len(query) // 2), models)}
    trained, models_per_batch = train_roles(
        stream(key, "train"), roles, pool, (learner,), {}, with_signals=False, execution=execution
    )
    measured = separation(trained["half"].log_odds, np.concatenate(roles["half"])[:, pool.query])
    numbers = [(max(2, round(scale * len(query))), max(2, round(scale * holdout))) for scale in SCALES]
    sizes = tuple(
        Size(
            n,
            m,
            tuple(detection_probability(measured, n, m, f) for f in FRACTIONS),
            min_detectable_fraction(measured, n, m, models),
        )
        for n, m in numbers
    )
    by_models = tuple((count, min_detectable_fraction(measured, len(query), holdout, count)) for count in MODELS)
    needed = records_needed(measured, fraction)
    return Power(measured, sizes, SCALES.index(1.0), by_models, fraction, needed, models_per_batch)
