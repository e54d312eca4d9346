"""The field's own numbers for a target of a table of scores: TOFU's forget quality and MUSE's privleak."""

from typing import Any

import numpy as np
from jaxtyping import Float

from jaxaudit.audits.ks.result import Retrained
from jaxaudit.data.scores.table import ScoredModel, ScoreTable, asked
from jaxaudit.json_types import number
from jaxaudit.metrics.tofu import NOMINAL, between_retrained, forget_quality, mia_auc, privleak

TRUTH_RATIO, MIN_K = "truth_ratio", "min_k"


def field_numbers(table: ScoreTable, target: ScoredModel) -> dict[str, Any]:
    """Forget quality and privleak of a target beside the first retrained model, and both between retrained models.

    Returns:
        The fields `forget_quality`, `privleak` and `retrained` of a `TargetResult`, as far as the table has truth
        ratios, or Min-K% of both sets, of the target and of a model without the query set.
    """
    query = table.rows("query")
    retrained = table.of("unused")
    ratios = [_ratios(each, query) for each in (target, *retrained)]
    areas = [_area(table, each) for each in (target, *retrained)]
    of_ratios = [each for each in ratios[1:] if each is not None]
    of_areas = [each for each in areas[1:] if each is not None]
    found: dict[str, Any] = {}
    qualities: tuple[float, ...] = ()
    if ratios[0] is not None and of_ratios:
        qualities = tuple(forget_quality(ratios[0], each) for each in of_ratios)
        found["forget_quality"] = number(qualities[0])
    if areas[0] is not None and of_areas:
        found["privleak"] = number(privleak(areas[0], of_areas[0]))
    several = len(of_ratios) > 1, len(of_areas) > 1
    if found and any(several):
        between = between_retrained(
            np.stack(of_ratios) if several[0] else None, np.array(of_areas) if several[1] else None
        )
        found["retrained"] = Retrained(
            len(retrained),
            tuple(map(number, qualities)),
            tuple(map(number, between.p_values)),
            number(between.share_below),
            tuple(map(number, between.privleak)),
            NOMINAL,
        )
    return found


def _ratios(model: ScoredModel, rows: np.ndarray) -> Float[np.ndarray, " n"] | None:
    values = model.scores.get(TRUTH_RATIO)
    return values[rows] if values is not None and asked(values, rows) else None


def _area(table: ScoreTable, model: ScoredModel) -> float | None:
    values, query, holdout = model.scores.get(MIN_K), table.rows("query"), table.rows("holdout")
    if values is None or not asked(values, query) or not asked(values, holdout):
        return None
    return mia_auc(values[query], values[holdout])
