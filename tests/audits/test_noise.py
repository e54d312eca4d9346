"""Pure noise, judged by a bank and by rho: called something at most at the stated rate, however the options are set.

Models remember nothing. Every bound fails with probability 1 in 1,000 where the rate is as stated; keys are fixed.
"""

from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy import stats
from support.banks import planned, train
from support.saved_runs.ks import check

from jaxaudit import RhoTest, load_bank
from jaxaudit.attacks.records import BASE, RMIA, AttackP, LiRA, RecordAttack, Stacked
from jaxaudit.audits import SURELY, RecordTarget, attack_records, open_for_attacks
from jaxaudit.metrics import distances_apart, noise_floor, rho
from jaxaudit.shadow_models import ShadowModels

KEY = jax.random.key(21)
ALPHA = 0.05
LEVELS = (0.1, 0.5, 0.999)


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
        tones = set[str]()
        for level in LEVELS if place < 3 else LEVELS[:1]:
            ratio = rho(jax.random.fold_in(KEY, place), query, calibration, target, level=level, bootstrap=40)
            apart = distances_apart(np.array(ratio.calibration_distances), noise_floor(query))
            judgement = RhoTest(replicates=replicates).decide(ratio, (), (apart,), (check("common"),))
            tones.add(judgement.finding.verdict if apart.passed else "inconclusive")
        assert len(tones) == 1
        found += tones != {"inconclusive"}
    assert found <= most(runs)


def confidences(random: np.random.Generator, models: int, records: int) -> np.ndarray:
    """Of models that agree on which records are hard."""
    hard = random.normal(size=records)
    return stats.norm.cdf(np.sqrt(0.5) * (hard + random.normal(size=(models, records)))).astype(np.float32)
