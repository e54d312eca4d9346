"""Audits by a bank: what models say against a slow twin, and how often verdicts are wrong on targets of known truth."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from msgspec.structs import astuple
from scipy import stats
from support.banks import HOLDOUT, QUERY, RECORDS, planned, target, train
from support.simulated_shadows import evidence_of

from jaxaudit import Bank, FileTarget, KSAudit, Sets, ShadowTest, judge, load_bank, load_outputs
from jaxaudit.audits import FRACTIONS, leave_one_out, open_bank, possible_tests, power_of_models
from jaxaudit.data import OutputsPlace
from jaxaudit.errors import InputError
from jaxaudit.metrics import detection_probability, difficulty, separation

KEY = jax.random.key(8)
MODELS, MEMORY = 21, 6.0
ALPHA = 0.05
SURE = 1e-3
"""How often a binomial bound here is exceeded though the rate is as stated; keys are fixed, so it is once or never."""


def bank_of(folder: Path, memory: float, models: int = MODELS, *, holdout: bool = True) -> Bank:
    bank = load_bank(planned(folder, models, 0, holdout=holdout))
    train(bank, range(models), memory)
    return bank


@pytest.fixture(scope="module")
def remembering(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    """Models of the holdout test that remember their records well."""
    return bank_of(tmp_path_factory.mktemp("remembering") / "bank", MEMORY)


@pytest.fixture(scope="module")
def without_holdout(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    """40 models without, 20 with half and 20 with all of the query set, which they remember well."""
    return bank_of(tmp_path_factory.mktemp("without") / "bank", MEMORY, 80, holdout=False)


def most(trials: int, rate: float = ALPHA) -> int:
    """The number of trials of an event of this rate that happens more often only with probability `SURE`."""
    return int(stats.binom.ppf(1 - SURE, trials, rate))


def slow_evidence(bank: Bank) -> dict[str, list[dict[str, Any]]]:
    """Model by model and record by record, from the files themselves."""
    n = bank.description.sizes.query
    members, labels = np.load(bank.directory / "membership.npy"), np.load(bank.directory / "labels.npy")
    found: dict[str, list[dict[str, Any]]] = {"mixed": [], "never": [], "half": [], "fully": []}
    for model in range(len(members)):
        path = bank.directory / "outputs" / f"{model:05}.npy"
        if not path.exists():
            continue
        used, of_holdout = int(members[model, :n].sum()), int(members[model, bank.holdout].sum())
        role = "mixed" if of_holdout else {0: "never", n: "fully"}.get(used, "half")
        odds, hits = [], []
        for values, label in zip(np.load(path), labels, strict=True):
            shares = np.exp(values.astype(np.longdouble))
            odds.append(float(np.log(shares[label] / (shares.sum() - shares[label]))))
            hits.append(values.argmax() == label)
        right = np.array(hits)
        own, query = right[members[model]].mean(), right[:n].mean()
        found[role].append({"row": members[model], "odds": np.array(odds), "own": own, "query": query})
    return found


@pytest.mark.parametrize("holdout", [True, False])
def test_evidence_is_what_a_loop_over_the_files_finds(
    holdout: bool, remembering: Bank, without_holdout: Bank, tmp_path: Path
):
    """Of a bank of every kind: roles, training sets, log-odds, accuracy, in the order of the models."""
    bank, numbers = (remembering, (MODELS, 0, 0, 0)) if holdout else (without_holdout, (0, 40, 20, 20))
    slow, found = slow_evidence(bank), evidence_of(bank)
    assert tuple(len(models) for models in slow.values()) == numbers
    asked = np.r_[bank.query, bank.holdout]
    for role, models in slow.items():
        trained = found.models.take(found.models.of(role))
        assert len(models) == len(trained) == found.count(role)
        for place, model in enumerate(models):
            np.testing.assert_array_equal(trained.membership[place], model["row"])
            np.testing.assert_array_equal(found.members(role)[place], model["row"][asked])
            np.testing.assert_array_equal(found.log_odds(role)[place], trained.log_odds[place][asked])
            np.testing.assert_allclose(trained.log_odds[place], model["odds"], rtol=1e-5, atol=1e-5)
            probability = 1 / (1 + np.exp(-model["odds"][bank.query]))
            np.testing.assert_allclose(trained.confidences[place, bank.query], probability, rtol=1e-5)
            assert trained.own_accuracy[place] == pytest.approx(model["own"])
            assert trained.query_accuracy[place] == pytest.approx(model["query"])


def targets_of(bank: Bank, used: np.ndarray, count: int) -> list[FileTarget]:
    """Targets that were trained like the models of the bank, on these records."""
    found = []
    for number in range(count):
        target(bank.directory, "target", used, MEMORY, model=20_000 + number)
        on_query, on_holdout = (
            load_outputs(OutputsPlace(bank.directory.parent / "target.npz", role), 3, rows, of=role)
            for role, rows in (("query", QUERY), ("holdout", HOLDOUT))
        )
        found.append(FileTarget(Sets(query=on_query, holdout=on_holdout), allow_unrelated=True))
    return found


def counted(audit: KSAudit, verdict: str) -> int:
    return sum(each.verdict == verdict for each in audit.targets)


@pytest.mark.outer
def test_unused_targets_are_called_used_at_most_at_the_stated_rate(remembering: Bank):
    """At most 5% of 50 targets, but for once in 1,000 keys; used ones are found."""
    unused = judge(KEY, open_bank(remembering), targets_of(remembering, np.zeros(RECORDS, bool), 50))
    assert sum(each.usage[0].p_never <= ALPHA for each in unused.targets) <= most(50)
    adjusted = [each.usage[0].p_never_adjusted or 0 for each in unused.targets]
    assert counted(unused, "not forgotten") == sum(p_value <= ALPHA for p_value in adjusted) <= 1
    assert counted(unused, "forgotten") == 0
    assert [each.method for each in unused.targets] == ["holdout"] * 50
    used = judge(KEY, open_bank(remembering), targets_of(remembering, np.arange(RECORDS) < QUERY, 5))
    assert counted(used, "not forgotten") == 5


def test_rates_need_a_model_more_than_the_test(tmp_path: Path, without_holdout: Bank):
    """In every kind, since the one that is the target judges no other."""
    bank = bank_of(tmp_path / "bank", MEMORY, 19)
    tests = possible_tests(open_bank(bank), targets_of(bank, np.zeros(RECORDS, bool), 1))
    assert [test.name for test in tests] == ["holdout"]
    with pytest.raises(InputError, match=r"query and holdout.*there are 19"):
        leave_one_out(KEY, evidence_of(bank), tests)
    few = evidence_of(without_holdout, range(77))
    with pytest.raises(InputError, match=r"with all of the query.*there are 19"):
        leave_one_out(KEY, few, (ShadowTest(never=39, half=19, fully=19),))


def test_power_is_that_of_the_log_odds_in_the_files(remembering: Bank):
    """`separation` of what a loop reads; float32 log-odds determine it to 1e-4."""
    models = slow_evidence(remembering)["mixed"]
    asked = np.r_[remembering.query, remembering.holdout]
    odds = np.array([model["odds"][asked] for model in models])
    predictors = difficulty(None, remembering.labels[asked])
    wanted = separation(odds, np.array([model["row"][asked] for model in models]), predictors=predictors)
    found = power_of_models(open_bank(remembering), holdout_size=200, fraction=0.2).result
    np.testing.assert_allclose(astuple(found.separation), astuple(wanted), rtol=1e-4, atol=1e-6)
    given = found.given
    assert (given.query, given.holdout, found.fraction) == (QUERY, 200, 0.2)
    chances = [detection_probability(wanted, QUERY, 200, share) for share in FRACTIONS]
    np.testing.assert_allclose(given.chances, chances, atol=1e-4)
    assert power_of_models(open_bank(remembering)).result.given.holdout == HOLDOUT


def test_power_needs_records_a_fraction_and_models_of_the_holdout_test(
    tmp_path: Path, remembering: Bank, without_holdout: Bank
):
    for records, fraction in ((1, 0.1), (None, 0.0)):
        with pytest.raises(InputError):
            power_of_models(open_bank(remembering), holdout_size=records, fraction=fraction)
    for each, there in ((bank_of(tmp_path / "bank", MEMORY, 3), 3), (without_holdout, 0)):
        with pytest.raises(InputError, match=f"`mixed_models` must be at least 4; got {there}"):
            power_of_models(open_bank(each))
