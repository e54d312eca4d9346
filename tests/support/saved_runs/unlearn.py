"""A small `unlearn` audit and its run: one method that differs from retraining, and one that does not."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxaudit.audits.unlearn.result import COMPARED, MethodResult, Scores, UnlearnAudit
from jaxaudit.metrics import ChallengeScore, Estimate, ULira
from jaxaudit.metrics.retrained_band import place
from jaxaudit.report.run import Run
from jaxaudit.report.unlearn.record import UnlearnRecord, unlearn_record
from support.saved_runs.provenance import provenance

SEEDS = 10
SPREAD = np.linspace(0.5, 0.6, SEEDS)
CHALLENGE = ChallengeScore(
    np.array([0.25, 50.0]), Estimate(0.1875, 0.125, 0.25), 1.0, 0.9375, Estimate(0.1758, 0.11, 0.24)
)
U_LIRA = ULira(Estimate(0.5625, 0.5, 0.625), np.array([0.5, 0.625]))
Factors = Mapping[str, float]
"""What some scores are multiplied with; the others are those of retrained models, but for alternating crumbs."""


def scores(factors: Factors, crumbs: float = 1e-6) -> Scores:
    """Scores of one set to forget."""
    # Ranks differ where nothing else does, and the signs of the differences alternate.
    rest = SPREAD + crumbs * (-1.0) ** np.arange(SEEDS)
    columns = {name: (SPREAD * factors[name] if name in factors else rest)[None] for name in Scores._fields}
    return Scores(**columns)


def unlearn_audit(
    original: Factors,
    methods: Mapping[str, Factors],
    seeds: int = SEEDS,
    *,
    attacked: bool = True,
    told: bool = False,
    sets: int = 1,
) -> UnlearnAudit:
    """An audit whose retrained models score 0.5 to 0.6 everywhere; the sets to forget are all alike.

    `told`: whether models were told from retrained ones, as if there were seeds enough.
    """
    retrained = scores({}, crumbs=0)

    def cut(found: Scores) -> Scores:
        columns = {name: np.repeat(values[:, :seeds], sets, axis=0) for name, values in found._asdict().items()}
        return Scores(**columns)

    def result(name: str, found: Scores) -> MethodResult:
        unattacked = not attacked or name == "untrained"
        if unattacked:
            found = found._replace(attack=np.full((1, SEEDS), np.nan))
        compared = [each for each in COMPARED if not (unattacked and each == "attack")]
        pairs = {each: (getattr(found, each)[0, :seeds], getattr(retrained, each)[0, :seeds]) for each in compared}
        places = {} if name == "retraining" else {each: (place(*pair),) * sets for each, pair in pairs.items()}
        apart = ((CHALLENGE,) * sets, (U_LIRA,) * sets) if told and name != "untrained" else ((), ())
        information = cut(found).information
        layers = {f"dense/{number}": information * share for number, share in enumerate((0.5, 0.375, 0.125))}
        return MethodResult(name, cut(found), places, None, *apart, layers=layers)

    return UnlearnAudit(
        methods=(
            result("untrained", scores({"efficacy": 0.1, "bound": 0.1})),
            result("original", scores(original)),
            result("retraining", retrained),
            *(result(name, scores(factors)) for name, factors in methods.items()),
        ),
        forget=np.tile([True, True, False, False], (sets, 1)),
        forgotten=np.full(sets, 2),
        seeds=seeds,
        examples=4,
        test_examples=3,
        nonmembers=2 if attacked else 0,
        members_share=4 / 6,
        level=0.95,
        models_per_batch=2,
    )


def unlearn_run(
    name: str = "people.csv", audit: UnlearnAudit | None = None, notes: tuple[str, ...] = ()
) -> Run[UnlearnRecord]:
    """A run of `unlearn`: a method of this name that forgot too much, and one as good as retraining."""
    if audit is None:
        audit = unlearn_audit(
            {"efficacy": 1e6, "bound": np.inf}, {name: {"efficacy": 1e-4, "bound": 2.0}, "fisher": {}}
        )
    data: dict[str, Any] = {"name": name, "records": 4, "content_hash": "blake2b:aa"}
    result = unlearn_record(audit, name, notes, provenance("unlearn", name, {"train": data, "test": data}))
    return Run("e run", "unlearn", result, {})
