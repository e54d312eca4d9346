"""Pure noise is called something at most at the stated rate, however the options are set.

Models remember nothing. Every bound fails with probability 1 in 1,000 where the rate is as stated; keys are fixed.
"""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats
from support.banks import planned, train
from support.saved_runs.attack import FixedScores, attack_audit, split_models
from support.saved_runs.ks import check

from jaxaudit import AttackAudit, RhoTest, load_bank
from jaxaudit.attacks.records import BASE, RMIA, AttackP, LiRA, RecordAttack, Stacked
from jaxaudit.audits import SURELY, RecordTarget, attack_records, attack_splits, open_for_attacks
from jaxaudit.metrics import (
    better_than_guessing,
    distances_apart,
    holdout_test,
    members_test,
    noise_floor,
    residual_scores,
    rho,
)
from jaxaudit.shadow_models import ShadowModels

KEY = jax.random.key(21)
ALPHA = 0.05


def most(runs: int, rate: float = ALPHA) -> int:
    """The number of runs that an event of this rate exceeds with probability 1 in 1,000."""
    return int(stats.binom.ppf(0.999, runs, rate))


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> ShadowModels:
    """A bank of the holdout test, whose outputs are drawn again for every run."""
    bank = load_bank(planned(tmp_path_factory.mktemp("empty") / "bank", 16, 0, holdout=True))
    train(bank, range(16), 0.0)
    return open_for_attacks(bank, 1)


def noise(known: ShadowModels, place: int) -> tuple[ShadowModels, RecordTarget]:
    """Log-odds of models and of a target that differ by record, and by nothing that the records' use tells."""
    random = np.random.default_rng([3, place])
    assert known.views is not None
    shape = known.views.shape
    level, width = random.normal(2, 2, shape[2]), np.exp(random.normal(0, 0.4, shape[2]))
    models, target = (level + width * random.normal(size=(count, *shape[1:])) for count in (len(known), 1))
    return replace(known, views=models), RecordTarget("target", target[0])


@pytest.mark.outer
@pytest.mark.parametrize(
    ("attacks", "runs"),
    [
        ([BASE(), LiRA()], 60),
        ([LiRA(), BASE(), AttackP()], 60),
        ([RMIA()], 60),
        ([Stacked(), BASE()], 8),
    ],
    ids=lambda each: "-".join(one.name for one in each) if isinstance(each, list) else str(each),
)
def test_attacks_by_a_bank_succeed_on_noise_at_most_at_5_percent(
    attacks: list[RecordAttack], runs: int, empty: ShadowModels
):
    """Over models by their 95% intervals; over a target at 1%. The attacks beside move neither."""
    found = {"models": 0, "target": 0}
    for place in range(runs):
        known, target = noise(empty, place)
        audit = attack_records(known, [target], attacks=attacks)
        tones = audit.finding.tone, audit.result.targets[0].finding.tone
        found["models"] += tones[0] == "bad"
        found["target"] += tones[1] == "bad"
        if place < 3:
            other = attack_records(known, [target], attacks=attacks[:1])
            assert (other.finding.tone, other.result.targets[0].finding.tone) == tones
    assert found["models"] <= most(runs)
    assert found["target"] <= most(runs, SURELY)


@pytest.mark.outer
@pytest.mark.parametrize("replicates", [3, 5])
def test_rho_concludes_nothing_where_query_and_calibration_models_are_alike(replicates: int):
    """Its denominator is noise: the check of it fails, and what the interval alone would say is taken back."""
    runs, records, found = 40, 120, 0
    for place in range(runs):
        random = np.random.default_rng([5, place])
        said = confidences(random, 2 * replicates + 1, records)
        query, calibration, target = said[:replicates], said[replicates:-1], said[-1:]
        ratio = rho(jax.random.fold_in(KEY, place), query, calibration, target, bootstrap=40)
        apart = distances_apart(np.array(ratio.calibration_distances), noise_floor(query))
        judgement = RhoTest(replicates=replicates).decide(ratio, (), (apart,), (check("common"),))
        found += apart.passed and judgement.finding.verdict != "inconclusive"
    assert found <= most(runs)


def confidences(random: np.random.Generator, models: int, records: int) -> np.ndarray:
    """Of models that agree on which records are hard."""
    hard = random.normal(size=records)
    return stats.norm.cdf(np.sqrt(0.5) * (hard + random.normal(size=(models, records)))).astype(np.float32)


SMALL = attack_audit(8)


def noise_audit(place: int, attacks: int) -> AttackAudit:
    """One of `attack` without any memory: answers that know nothing of the halves."""
    random = np.random.default_rng([place, attacks])
    truth = SMALL.truth
    assert SMALL.measurements is not None
    models = split_models(truth, SMALL.measurements, key=jax.random.fold_in(KEY, place))
    noise: list[Any] = [FixedScores(f"noise-{each}", random.normal(size=truth.shape)) for each in range(attacks)]
    return attack_splits(models, attacks=noise)


@pytest.mark.outer
@pytest.mark.parametrize("attacks", [1, 10])
def test_attacks_on_noise_succeed_at_most_at_the_stated_rate_however_many_there_are(attacks: int):
    """False with probability 1 in 1,000 where 5% is true; the key is fixed."""
    runs, found = 200, 0
    for place in range(runs):
        audit = noise_audit(place, attacks)
        found += audit.finding.tone == "bad"
    assert found <= most(runs)


@pytest.mark.outer
def test_tests_of_use_on_noise_keep_their_rate():
    """As above: the holdout test and the members test of targets and shadow models that remember nothing."""
    runs, found = 200, {"holdout": 0, "members": 0}
    for place in range(runs):
        random, key = np.random.default_rng(place), jax.random.fold_in(KEY, place)
        odds, shadows = random.normal(size=180), random.normal(size=(8, 120))
        membership = random.permuted(np.tile(np.arange(120) < 60, (8, 1)), axis=1)
        holdout = holdout_test(key, odds[:60], odds[60:120], shadows, membership, permutations=199)
        members = members_test(key, residual_scores(odds, np.ones((180, 1))), (60, 60, 60), permutations=199)
        found["holdout"] += holdout.verdict != "inconclusive"
        found["members"] += members.usage.verdict != "inconclusive"
    assert max(found.values()) <= most(runs)


def test_the_p_value_of_attacks_is_that_of_a_loop_and_membership_is_found():
    random = np.random.default_rng(3)
    halves = random.permuted(np.tile(np.arange(6) < 3, (4, 1)), axis=1)
    truth = np.stack([halves, ~halves], axis=1).reshape(8, 6)
    called = (random.normal(size=(2, 8, 6)) + 1.0 * truth) > 0
    found = better_than_guessing(KEY, called, truth, permutations=4999)

    def statistic(of: np.ndarray) -> float:
        best = -np.inf
        for attack in called:
            right = (attack == of).sum() - of.size / 2
            undecided = sum(attack[2 * k, t] == attack[2 * k + 1, t] for k in range(4) for t in range(6))
            best = max(best, right / np.sqrt(max(24 - undecided, 1)))
        return best

    larger = 0
    for _ in range(4000):
        dealt = []
        for row in halves:
            first = row[random.permutation(6)]
            first = first if random.random() < 0.5 else ~first
            dealt += [first, ~first]
        larger += statistic(np.stack(dealt)) >= statistic(truth) - 1e-9
    assert found == pytest.approx(larger / 4000, abs=0.03)
    splits = attack_audit(30).result.splits
    assert splits is not None
    assert splits.p_value < 0.05
