"""Pure noise is called something at most at the stated rate, however the levels of intervals are set.

Noise that a bank or rho judges is in `test_noise.py`.
"""

from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats
from support.saved_runs.attack import FixedScores, attack_audit, split_models

from jaxaudit import AttackAudit
from jaxaudit.audits import attack_splits
from jaxaudit.metrics import better_than_guessing, holdout_test, members_test, residual_scores

LEVELS = (0.1, 0.5, 0.95, 0.999)
KEY = jax.random.key(20)
SMALL = attack_audit(8)


def most(runs: int) -> int:
    """Of runs at a stated rate of 5%, the number that is exceeded with probability 1 in 1,000."""
    return int(stats.binom.ppf(0.999, runs, 0.05))


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
def test_tests_of_use_on_noise_keep_their_rate_at_every_level():
    """As above: the holdout test and the members test of targets and shadow models that remember nothing."""
    runs, found = 200, {"holdout": 0, "members": 0}
    for place in range(runs):
        random, key = np.random.default_rng(place), jax.random.fold_in(KEY, place)
        odds, shadows = random.normal(size=180), random.normal(size=(8, 120))
        membership = random.permuted(np.tile(np.arange(120) < 60, (8, 1)), axis=1)
        holdout, members = set(), set()
        for level in LEVELS:
            how = {"permutations": 199, "level": level}
            holdout.add(holdout_test(key, odds[:60], odds[60:120], shadows, membership, **how).verdict)
            answer = members_test(key, residual_scores(odds, np.ones((180, 1))), (60, 60, 60), **how)
            members.add(answer.usage.verdict)
        assert len(holdout) == len(members) == 1
        found["holdout"] += holdout != {"inconclusive"}
        found["members"] += members != {"inconclusive"}
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
