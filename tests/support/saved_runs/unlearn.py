"""A small `unlearn` audit and its run: one method that differs from retraining, and one that does not."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxaudit.audits import (
    COMPARED,
    RETRAINING,
    MethodScores,
    Score,
    UnlearnAudit,
    UnlearnResult,
    compare_with_retrained,
    concluded_result,
    protocol_of,
    score_spreads,
)
from jaxaudit.metrics import ChallengeScore, Estimate, ULira
from jaxaudit.report import Run, recorded
from support.saved_runs.provenance import provenance

SEEDS = 10
SPREAD = np.linspace(0.5, 0.6, SEEDS)
CHALLENGE = ChallengeScore((0.25, 50.0), Estimate(0.1875, 0.125, 0.25), 1.0, 0.9375, Estimate(0.1758, 0.11, 0.24))
U_LIRA = ULira(Estimate(0.5625, 0.5, 0.625), np.array([0.5, 0.625]))
Factors = Mapping[str, float]
"""What some scores are multiplied with; the others are those of retrained models, but for alternating crumbs."""


def unlearn_audit(
    original: Factors,
    methods: Mapping[str, Factors],
    seeds: int = SEEDS,
    *,
    attacked: bool = True,
    told: ChallengeScore | None = None,
    forgotten: str = "records",
    notes: tuple[str, ...] = (),
) -> UnlearnAudit:
    """An audit whose retrained models score 0.5 to 0.6 everywhere.

    `told`: how models were told from retrained ones, as if there were seeds enough.
    """

    def scores(name: str, factors: Factors, crumbs: float = 1e-6) -> MethodScores:
        # Ranks differ where nothing else does, and the signs of the differences alternate.
        rest = SPREAD + crumbs * (-1.0) ** np.arange(SEEDS)
        columns: dict[Score, np.ndarray] = {
            each: SPREAD * factors[each] if each in factors else rest for each in ("information", *COMPARED)
        }
        if not attacked or name == "untrained":
            columns["attack"] = np.full(SEEDS, np.nan)
        return score_spreads({each: values[:seeds] for each, values in columns.items()})

    made = {
        "untrained": scores("untrained", {"efficacy": 0.1, "bound": 0.1}),
        "original": scores("original", original),
        RETRAINING: scores(RETRAINING, {}, crumbs=0),
        **{name: scores(name, factors) for name, factors in methods.items()},
    }
    protocol = protocol_of(2, 4, 3, 2 if attacked else 0, seeds)
    apart = {} if told is None else {name: (told, U_LIRA) for name in made if name != "untrained"}
    found = compare_with_retrained(protocol, made, apart)
    result = concluded_result(forgotten, protocol, found, notes)
    return UnlearnAudit(result, np.array([True, True, False, False]), dict.fromkeys(made), {})


def unlearn_run(
    name: str = "people.csv", audit: UnlearnAudit | None = None, notes: tuple[str, ...] = ()
) -> Run[UnlearnResult]:
    """A run of `unlearn`: a method of this name that forgot too much, and one as good as retraining."""
    if audit is None:
        methods: dict[str, Factors] = {name: {"efficacy": 1e-4, "bound": 2.0}, "fisher": {}}
        audit = unlearn_audit({"efficacy": 1e6, "bound": np.inf}, methods, forgotten=name, notes=notes)
    data: dict[str, Any] = {"name": name, "records": 4, "content_hash": "blake2b:aa"}
    said = provenance("unlearn", name, {"train": data, "test": data})
    return Run("e run", "unlearn", recorded("unlearn", audit.result, ["Becker & Liebig 2022"], said), {})
