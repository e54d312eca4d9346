"""The `attack` audit end to end: what it finds of learners that memorise or do not, its draws, and going on."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier
from support.tiny_learners import CLASSES, Diverged, NearestCentroid, learner, records

from jaxaudit import attack
from jaxaudit.attacks import Distance, Untargeted
from jaxaudit.audits import AttackAudit, RecordTarget, SplitAttacks, SplitModels, leave_out, train_splits
from jaxaudit.audits.attack.attack import draw
from jaxaudit.data import Examples
from jaxaudit.ensemble import Execution, fit_many, log_probs_many
from jaxaudit.errors import InputError
from jaxaudit.learners import EstimatorLearner
from jaxaudit.metrics import pdtp

KEY = jax.random.key(5)
SIX_SIGMA = 6.1  # a standard normal lies further out once in 1e9
SMALL: dict[str, Any] = {
    "iterations": 3,
    "targets": 8,
    "shadow_pairs": 2,
    "pooled_shadows": 3,
    "measured": 2,
    "execution": Execution(4),
}


CANDIDATES = Examples(*records(60, 4), tuple(f"class {i}" for i in range(CLASSES)), "candidates")


@pytest.fixture(scope="module")
def audit() -> AttackAudit:
    seen: list[tuple[int, int]] = []
    execution = Execution(4, lambda done, total: seen.append((done, total)))
    found = attack(train_splits(KEY, CANDIDATES, learner(), **{**SMALL, "execution": execution}))
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]
    return found


def splits_of(audit: AttackAudit) -> SplitAttacks:
    assert audit.result.splits is not None
    return audit.result.splits


def test_a_learner_that_memorises_is_found_out():
    """The nearest neighbour of random labels: right of a member, and of others with one label in 20."""
    random = np.random.default_rng(8)
    inputs, labels = random.random((120, 6), np.float32), random.integers(0, 20, 120)
    examples = Examples(inputs, labels, tuple(map(str, range(20))), "noise")
    one = EstimatorLearner(KNeighborsClassifier(1), 20)
    found = attack(
        train_splits(KEY, examples, one, iterations=2, targets=40, shadow_pairs=2, pooled_shadows=0, measured=1)
    )
    # Wrong only of non-members whose neighbour has their label: 1/40 of 160 attacks, up to 6.1 deviations.
    least = 1 - 1 / 40 - SIX_SIGMA * np.sqrt(1 / 40 / 160)
    for each in found.result.attacks:
        assert each.metrics is not None
        assert each.metrics.accuracy.value > least
        assert each.metrics.recall.value == 1
    splits = splits_of(found)
    assert splits.train_accuracy == 1
    assert splits.test_accuracy < 0.3
    # Every record moves what is said of it as far as it can, but where its neighbour has its label.
    assert np.median([record.pdtp for record in splits.records]) == pytest.approx(np.log(0.995 / 0.005))


def test_every_target_is_attacked_in_and_out_in_every_iteration(audit: AttackAudit):
    """And numbers follow from scores."""
    assert audit.truth.shape == (6, 8)
    assert np.array_equal(audit.truth[::2], ~audit.truth[1::2])
    drawn = draw(KEY, CANDIDATES, 3, 8)
    assert (drawn.membership.sum(axis=1) == 30).all()
    assert len(np.unique(drawn.targets)) == 8
    assert np.array_equal(drawn.targets, audit.records)
    assert np.array_equal(audit.truth, drawn.membership[:, drawn.targets])
    splits, names = splits_of(audit), ["untargeted", "distance", "frequency"]
    assert [each.name for each in audit.result.attacks] == list(audit.scores) == names
    for each in audit.result.attacks:
        right = (audit.scores[each.name] > 0) == audit.truth
        assert [record.accuracy[each.name] for record in splits.records] == right.mean(axis=0).tolist()
        assert each.metrics is not None
        assert each.metrics.accuracy.value == pytest.approx(right.mean())
        assert each.metrics.accuracy.low <= each.metrics.accuracy.value <= each.metrics.accuracy.high
        assert each.auc == each.metrics.auc
    assert audit.measurements is not None
    assert audit.measurements.shape == (2, 8)
    assert [record.pdtp for record in splits.records] == audit.measurements.mean(axis=0).tolist()
    assert 0 < splits.test_accuracy <= 1


@pytest.fixture(scope="module")
def paired() -> SplitModels:
    how: dict[str, Any] = {**SMALL, "pooled_shadows": 0}
    return train_splits(KEY, CANDIDATES, NearestCentroid(), **how)


@jax.jit
def centroids(inputs: Any, labels: Any, weights: Any) -> Any:
    return NearestCentroid().log_probs(NearestCentroid().fit(KEY, inputs, labels, weights), inputs)


def outputs_of(row: np.ndarray) -> np.ndarray:
    """On all records, of a model that was trained on some."""
    return np.asarray(centroids(CANDIDATES.inputs, CANDIDATES.labels, row.astype(np.float32)))


def test_pdtp_is_measured_in_the_half_that_holds_the_target(paired: SplitModels):
    """Against models that were trained on the records themselves, one by one."""
    drawn = draw(KEY, CANDIDATES, 3, 8)
    for i in range(2):
        for place, target in enumerate(drawn.targets):
            half = next(row for row in drawn.membership[2 * i : 2 * i + 2] if row[target])
            rows = half, half & (np.arange(60) != target)
            value = pdtp(*(outputs_of(row)[[target]] for row in rows)).values[0]
            # A probability at an edge of its bin may fall on either side by its rounding.
            assert paired.measurements[i, place] == pytest.approx(value, abs=1e-6)


def test_the_measured_model_is_the_attacked_one():
    """One key, and the same walk through the half in the pool and by itself."""
    row = draw(KEY, CANDIDATES, 1, 4).membership[:1]
    members = np.flatnonzero(row[0])
    keys = jax.random.split(KEY, 1)
    params = fit_many(keys, row, CANDIDATES.inputs, CANDIDATES.labels, learner(), execution=Execution(1))
    attacked = log_probs_many(learner(), params, CANDIDATES.inputs[members])[0]
    left = leave_out(keys[0], CANDIDATES.take(members), learner(), np.arange(len(members)), execution=Execution(4))
    np.testing.assert_allclose(left.with_record, attacked, rtol=0, atol=1e-4)


@dataclass(frozen=True)
class Recall:
    """Says of a record whether it was trained on it, by its first number."""

    def fit(self, key: Any, inputs: Any, labels: Any, weights: Any) -> Any:
        return jnp.where(weights > 0, inputs[:, 0], jnp.inf)

    def log_probs(self, params: Any, inputs: Any) -> Any:
        knows = (params == inputs[:, :1]).any(axis=1)
        return jnp.log(jnp.where(knows[:, None], jnp.array([0.1, 0.9]), jnp.array([0.9, 0.1])))


def test_one_shadow_model_of_a_pair_was_trained_on_the_target_and_the_attacked_ones_as_they_say():
    inputs = np.arange(60, dtype=np.float32)[:, None]
    examples = Examples(inputs, np.arange(60) % 2, ("no", "yes"), "numbers")
    found = train_splits(KEY, examples, Recall(), **{**SMALL, "targets": 45, "shadow_pairs": 3, "pooled_shadows": 0})
    pairs: Any = found.shadows["paired"]
    inside, outside = pairs
    assert inside.shape == outside.shape == (3, 45, 2)
    assert (inside[..., 1] > np.log(0.5)).all()
    assert (outside[..., 1] < np.log(0.5)).all()
    assert np.array_equal(found.inputs.outputs[..., 1] > np.log(0.5), found.truth)


# What is refused.


@pytest.mark.parametrize(
    ("options", "words"),
    [
        *(({name: 0}, rf"{name}.* 0\.$") for name in ("iterations", "measured")),
        *(({name: -1}, rf"{name}.* -1\.$") for name in ("shadow_pairs", "pooled_shadows")),
        ({"targets": 61}, "`targets` .* at most 60; got 61"),
        ({"examples": CANDIDATES.take(slice(59))}, "59 candidates"),
        ({"examples": CANDIDATES.take(slice(2)), "targets": 2}, "2 candidates"),
        ({"targets": 2, "iterations": 1, "key": jax.random.key(2)}, "all of the 2 targets in one half"),
        ({"examples": replace(CANDIDATES, labels=np.zeros(60, int))}, r"^candidates: .*\(class 0\)"),
    ],
)
def test_options_out_of_range_and_candidates_that_cannot_be_split_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        train_splits(**{"key": KEY, "examples": CANDIDATES, "learner": learner(), **SMALL, **options})


def test_models_that_diverge_end_the_audit():
    with pytest.raises(InputError, match="did training diverge"):
        attack(train_splits(KEY, CANDIDATES, Diverged(), **{**SMALL, "pooled_shadows": 0}))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"attacks": []}, r"attack.*none"),
        ({"attacks": [Distance(), Distance()]}, r"attack.*'distance' twice"),
        ({"attacks": [Untargeted()]}, r"untargeted attack.*pooled"),
        ({"targets": [RecordTarget("t", np.zeros((1, 2)))]}, "of a bank"),
    ],
)
def test_attacks_that_lack_what_they_need_are_refused(options, words, paired: SplitModels):
    with pytest.raises(InputError, match=words):
        attack(paired, **options)
