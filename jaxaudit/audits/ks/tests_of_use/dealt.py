"""What the tests with a holdout share: whether the sets are alike, and what tells them apart."""

import numpy as np
from jaxtyping import Array, Bool, Float, Key

from jaxaudit.audits.finding import Confidence
from jaxaudit.audits.ks.target import Evidence
from jaxaudit.audits.ks.taught import TaughtDifficulty, taught_difficulty
from jaxaudit.data.examples import Examples
from jaxaudit.metrics.arrays import Indices
from jaxaudit.metrics.checks import (
    HOLDOUT_LIKE_QUERY,
    HOLDOUT_OUTPUTS,
    OUTPUTS_ON_ONE_SCALE,
    TARGET_OUTPUTS,
    Check,
)
from jaxaudit.metrics.difficulty import difficulty
from jaxaudit.metrics.exchangeability import NOT_MEASURED, Alike, alike, holdout_apart, holdout_like_query
from jaxaudit.metrics.scores import cut, profile
from jaxaudit.randomness import stream
from jaxaudit.shadow_models import Kind

OF_P = frozenset({HOLDOUT_LIKE_QUERY, TARGET_OUTPUTS, HOLDOUT_OUTPUTS, OUTPUTS_ON_ONE_SCALE})
TAUGHT = "taught"
"""The name under which evidence keeps what its records teach."""
EXACT = Confidence("strong", "The test is exact if the provider sampled query set and holdout alike.")


def predictors_of(
    key: Key[Array, ""],
    evidence: Evidence,
    indices: slice | Indices,
) -> Float[np.ndarray, "some kinds"]:
    """Predictors of the difficulty of query set and holdout, or of these and the known members, for all targets: class,
    neighbours, and what the records themselves teach; shadow models come beside them.
    """
    examples, records = evidence.pool.examples, evidence.pool.compared[indices]
    lesson, groups = taught_by_records(key, evidence), evidence.groups(indices)
    # Where neighbours are as near, the first is taken: the order must not be that of the sets.
    order = lesson.order[lesson.order < len(records)]

    def predict() -> Float[np.ndarray, "some kinds"]:
        predictors = difficulty(
            stream(key, "difficulty"),
            examples.labels[records][order],
            # Of records without classes, neighbours have none that could tell.
            examples.inputs[records][order] if examples.inputs.size and not evidence.pool.classless else None,
            None if groups is None else groups[order],
            None if lesson.odds is None else lesson.odds[:, order],
        )
        return predictors[np.argsort(order)]

    return evidence.once(f"predictors {len(records)}", predict)


def taught_by_records(key: Key[Array, ""], evidence: Evidence) -> TaughtDifficulty:
    """What query set, holdout and known members teach about the difficulty of each of their records, in this order. All
    tests and targets share it, and no output enters it.
    """
    pool, indices = evidence.pool, np.r_[evidence.dealt_records, evidence.known_members]

    def teach() -> TaughtDifficulty:
        records = pool.examples.take(pool.compared[indices])
        return taught_difficulty(stream(key, "taught difficulty"), records, evidence.progress)

    return evidence.once(TAUGHT, teach)


def exchangeable(key: Key[Array, ""], evidence: Evidence) -> Alike:
    """Whether there is evidence that query set and holdout are not exchangeable, as far as it can be measured."""

    def measure() -> Alike:
        measured_anew = sets_alike(stream(key, "exchangeability"), evidence, evidence.dealt_records, evidence.queries)
        before = evidence.pool.sampled_alike
        # Labels that were compared when a bank was planned are no classes if records have none.
        labels = measured_anew.labels if before is None or evidence.pool.classless else before.labels
        return measured_anew if before is None else before._replace(difficulty=measured_anew.difficulty, labels=labels)

    return evidence.once("dealt", measure)


def checks_of_sets(key: Key[Array, ""], evidence: Evidence) -> tuple[Check, Check]:
    """Whether query set and holdout are alike, and whether copies lie in both."""
    alikeness = exchangeable(key, evidence)
    return holdout_like_query(alikeness), holdout_apart(alikeness)


def sets_alike(
    key: Key[Array, ""],
    evidence: Evidence,
    indices: slice | Indices,
    size: int,
    at_hand: Examples | None = None,
) -> Alike:
    """Whether there is evidence that the first `size` of these compared records are not exchangeable with the others;
    `at_hand` has the records with their inputs, if those of the pool have none.
    """
    examples = evidence.pool.examples.take(evidence.pool.compared[indices])
    at_hand = examples if examples.inputs.size else at_hand
    inputs, copies = (at_hand.inputs, at_hand.record_hashes.view("S16")) if at_hand else (None, None)
    outside = next((profile(cut(odds), rows).outside for odds, rows in models_on(evidence, indices)), None)
    alikeness = alike(key, inputs, examples.labels, outside, copies, size, groups=examples.groups)
    return alikeness._replace(labels=NOT_MEASURED) if evidence.pool.classless else alikeness


def models_on(
    evidence: Evidence, indices: slice | Indices
) -> list[tuple[Float[np.ndarray, "models some"], Bool[np.ndarray, "models some"]]]:
    """Log-odds and training sets of the test's models on these records, one pair; or none, as on a bank's members."""
    odds = evidence.log_odds(Kind.MIXED)[:, indices]
    has_odds = len(odds) and not np.isnan(odds[0]).any()
    return [(odds, evidence.members(Kind.MIXED)[:, indices])] if has_odds else []
