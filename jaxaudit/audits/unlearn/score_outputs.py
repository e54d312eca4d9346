"""Scores unlearned models of your own by their outputs: as the `unlearn` audit does with the models that it trains."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace

from jaxaudit.audits.unlearn.evaluate import challenge_and_u_lira, end, score_spreads
from jaxaudit.audits.unlearn.outputs_result import (
    AGAIN,
    FALSE_POSITIVE_RATE,
    FORGET,
    RETRAINED,
    GivenModels,
    UnlearnOutputsAudit,
    UnlearnOutputsResult,
    check_names,
    check_together,
    checked_classes,
    models_compared,
    read_models_of,
    scored_finding,
    shortfalls_of,
)
from jaxaudit.audits.unlearn.result import ORIGINAL, RETRAINING, MethodResult, MethodScores, Score, together
from jaxaudit.data.outputs.kinds import Kind
from jaxaudit.data.outputs.model_copies import refuse_odd_models, same_models
from jaxaudit.ensemble import DEFAULT_EXECUTION, Execution
from jaxaudit.errors import InputError
from jaxaudit.metrics import Answers, ChallengeScore, Estimate, ULira, u_lira_rate
from jaxaudit.metrics.arrays import Numbers, OneKey, PerModel
from jaxaudit.metrics.forgetting_quality import SOURCE as CHALLENGE
from jaxaudit.metrics.over_models import SOURCE as U_LIRA
from jaxaudit.metrics.over_models import mean_of_models
from jaxaudit.metrics.usage import LEVEL
from jaxaudit.randomness import stream

OutputsOfModels = Mapping[str, Any] | GivenModels
"""Arrays by name, or what was read of them."""


def score_unlearning(
    key: OneKey,
    methods: Mapping[str, OutputsOfModels],
    retrained: OutputsOfModels,
    labels: Any = None,
    *,
    original: OutputsOfModels | None = None,
    kind: Kind = "auto",
    execution: Execution = DEFAULT_EXECUTION,
) -> UnlearnOutputsAudit:
    """How well do these unlearned models forget, judged by their outputs and those of retrained models?

    No model is trained. Of R retrained models the first n are scored as if retraining were a method (`retrained
    again`), and all others are what methods are compared with. n is as many as the smallest method has, at most R / 2.
    Of each method the first n models are compared: F of other numbers of models would not be comparable. So a model may
    share its seed with the retrained model of the same row, but with no other one.

    The numbers are U-LiRA's accuracy (Hayes et al. 2024) and its true positive rate at a false positive rate of 1%, and
    forgetting quality F and the score of the NeurIPS 2023 challenge (Triantafillou et al. 2024); see
    `jaxaudit.metrics.u_lira`, `u_lira_rate` and `challenge_score`. A method with fewer than 4 models, or all methods
    with fewer than 8 retrained ones, get accuracies alone; see `shortfalls`.

    Args:
        methods: the outputs of each method's models, by its name; or what was read of them (`GivenModels`), which needs
            no labels. A mapping has under `forget` the outputs `[models, records, classes]` on the records to forget:
            logits, log-probabilities in nats, or probabilities. Under `retain` and `test` it may have each model's
            accuracy, `[models]`, from 0 to 1, on remaining training and test records. The challenge's score needs both.
        retrained: the same of models that were trained without the records to forget.
        labels: the class of each record to forget, from 0, `[records]`.
        original: the same of models before unlearning, one per seed.
        kind: what the outputs are; by default it is detected.

    Returns:
        The numbers of `retrained again`, `original` and each method, and a verdict on each method (`scored_finding`):
            `distinguishable` (from retraining), `not distinguishable` or `inconclusive`.

    Raises:
        InputError: numbers of records, models or classes disagree; outputs are NaN or infinite (but logarithms of 0),
            neither probabilities nor logits, or predicted labels; two models of a file are equal, or a method's model
            is one of those that it is compared with.

    >>> import jax
    >>> random, labels = np.random.default_rng(2), np.arange(40) % 3
    >>> own = 6.0 * (np.arange(3) == labels[:, None])
    >>> retrained = {"forget": random.normal(size=(16, 40, 3))}
    >>> methods = {"remembers": {"forget": random.normal(size=(8, 40, 3)) + own}}
    >>> audit = score_unlearning(jax.random.key(1), methods, retrained, labels)
    >>> audit.finding.verdict, [round(method.u_lira.value, 2) for method in audit.result.methods]
    ('distinguishable', [0.49, 0.98])
    """

    def given_models(name: str, arrays: OutputsOfModels) -> GivenModels:
        if isinstance(arrays, GivenModels):
            return arrays
        return read_models_of(name, arrays, checked_classes(labels), kind)

    if not methods:
        raise InputError("there is no method to score; give the outputs of unlearned models under a name.")
    check_names(methods)
    unread = {**({} if original is None else {ORIGINAL: original}), **methods}
    sides = {name: given_models(name, arrays) for name, arrays in unread.items()}
    retrained = given_models(RETRAINED, retrained)
    check_together(sides, retrained)
    compared = models_compared(sides, retrained)
    shortfalls = shortfalls_of(sides, retrained, compared)
    refuse_odd_models(retrained.log_odds, range(len(retrained)), f"{RETRAINED}[{FORGET}]")
    _refuse_shared(sides, retrained, compared)
    sides = {AGAIN: retrained, **sides}
    # As many as models of a method: F takes the best attack of all, which more references would make another one.
    references = _answers(retrained, slice(compared, 2 * compared))
    parts = execution.split(*[1.0] * len(sides))
    scored: dict[str, MethodResult] = {}
    per_record: dict[str, Numbers] = {}
    for (name, side), part in zip(sides.items(), parts, strict=True):
        challenge = lira = rate = None
        if compared and len(side) >= compared:
            challenge, lira, rate = _numbers(key, name, _answers(side, slice(compared)), references)
            per_record[name] = lira.per_record
        scored[name] = MethodResult(
            name=name,
            models=len(side),
            scores=_over_models(side),
            challenge=challenge,
            u_lira=lira and lira.accuracy,
            true_positive_rate=rate,
        )
        end(part)
    of_original = scored[ORIGINAL].u_lira if ORIGINAL in scored else None
    findings = {
        name: scored_finding(name, sides[name], retrained, compared, scored[name].u_lira, of_original)
        for name in methods
    }
    result = UnlearnOutputsResult(
        finding=together(findings),
        records=retrained.log_odds.shape[1],
        classes=retrained.classes,
        compared=compared,
        level=LEVEL,
        false_positive_rate=FALSE_POSITIVE_RATE,
        shortfalls=shortfalls,
        methods=tuple(replace(method, finding=findings.get(name)) for name, method in scored.items()),
    )
    return UnlearnOutputsAudit(result, per_record, (CHALLENGE, U_LIRA) if compared else ())


def _numbers(
    key: OneKey, name: str, method: Answers, references: Answers
) -> tuple[ChallengeScore, ULira, Estimate | None]:
    """The challenge's score, U-LiRA and its true positive rate, of a method's models against retrained ones."""
    # As `compare_unlearning` has them: equal outputs get equal intervals.
    key, name = stream(key, "against retrained"), RETRAINING if name == AGAIN else name
    challenge, lira = challenge_and_u_lira(key, name, method, references)
    bootstrap = stream(key, "u-lira rate", name, 0)
    odds = method.log_odds, references.log_odds
    rate = u_lira_rate(bootstrap, *odds, false_positive_rate=FALSE_POSITIVE_RATE)
    return challenge, lira, rate if np.isfinite(rate.value) else None


def _answers(side: GivenModels, rows: slice) -> Answers:
    return Answers(side.log_odds[rows], side.remaining_accuracy[rows], side.test_accuracy[rows])


def _over_models(side: GivenModels) -> MethodScores:
    """The accuracies over independent models, as far as they are known."""
    shares: dict[Score, PerModel] = {
        "remaining_accuracy": side.remaining_accuracy,
        "forgotten_accuracy": side.forgotten_accuracy,
        "test_accuracy": side.test_accuracy,
    }
    means = {name: mean_of_models(values) for name, values in shares.items()}
    spreads = score_spreads(shares).items()
    return {name: replace(spread, interval=(means[name].low, means[name].high)) for name, spread in spreads}


def _refuse_shared(sides: Mapping[str, GivenModels], retrained: GivenModels, compared: int) -> None:
    """Refuses a model that is compared with itself."""
    rows = {digest: row for row, digest in enumerate(retrained.digests) if row >= compared}
    references = retrained.log_odds[compared : 2 * compared]
    for name, side in sides.items():
        refuse_odd_models(side.log_odds, range(len(side)), f"{name}[{FORGET}]")
        pairs = [(row, rows[digest]) for row, digest in enumerate(side.digests[:compared]) if digest in rows]
        sides_odds = np.concatenate([side.log_odds[:compared], references])
        first = min(compared, len(side))
        near = same_models(sides_odds, np.arange(len(sides_odds)) >= first)
        pairs += [(i, compared + j - first) for i, j in near if i < first <= j]
        for row, other in pairs:
            raise InputError(
                f"{name}: model {row} has the outputs of model {other} of `{RETRAINED}`, with which it would be "
                "compared, or nearly so; was a file named twice? Give the outputs of other models."
            )
