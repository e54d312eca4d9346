"""Attacks on records by a bank: honest rates, one that decides, one hash; how finely a target is compared."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special
from support.banks import bank_of, planned, save, softmax, train
from support.findings import check_of
from support.record_attacks import target_of

from jaxaudit import Bank, attack, load_bank
from jaxaudit.attacks.records import BASE, RMIA, AttackP, LiRA, Stacked
from jaxaudit.audits import AttackAudit, RecordTarget, detail_of, log_odds_of, open_bank, open_for_attacks
from jaxaudit.data import Outputs

CLASSES, MODELS, RECORDS = 3, 24, 300


def sure(models: int, members: np.ndarray, seed: int = 0, memory: float = 3.0) -> np.ndarray:
    """Logits of models that are so sure of most records that a float32 probability of their class is 1."""
    random = np.random.default_rng(seed)
    level = np.random.default_rng(1).normal(17, 6, RECORDS)
    width = np.exp(np.random.default_rng(2).normal(0, 0.4, RECORDS))
    found = random.normal(size=(models, RECORDS, CLASSES))
    own = np.arange(RECORDS) % CLASSES
    found[:, np.arange(RECORDS), own] += level + width * random.normal(size=(models, RECORDS)) + memory * members
    return found.astype(np.float32)


@pytest.fixture(scope="module")
def banks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bank]:
    """The same models, as float32 logits and as their float32 softmax."""
    folder, random = tmp_path_factory.mktemp("banks"), np.random.default_rng(3)
    rows = np.stack([random.permutation(MODELS) < MODELS // 2 for _ in range(RECORDS)], axis=1)
    values = sure(MODELS, rows)
    assert (softmax(values).max(axis=2) == 1).mean() > 0.3
    return {
        "logits": bank_of(folder / "logits", values, rows, "logits"),
        "probabilities": bank_of(folder / "probabilities", softmax(values), rows, "probabilities"),
    }


def test_a_coarse_target_moves_nothing_of_another(banks: dict[str, Bank], tmp_path: Path):
    """Nor the rates over shadow models."""
    bank = banks["logits"]
    (values,) = sure(1, (np.arange(RECORDS) < 150)[None], seed=9)
    fine = target_of(tmp_path / "fine.npy", values, bank)
    coarse = target_of(tmp_path / "coarse.npy", softmax(values).round(2).astype(np.float32), bank)
    alone, beside = (attack(bank, each, attacks=[LiRA()]) for each in ([fine], [fine, coarse]))
    np.testing.assert_array_equal(alone.scores["lira"][0], beside.scores["lira"][0])
    one, other = (each.result.targets[0].named[0] for each in (alone, beside))
    assert (one.fpr, one.count, one.by_chance) == (other.fpr, other.count, other.by_chance)
    assert str(alone.result.attacks) == str(beside.result.attacks)
    without = attack(bank, attacks=[LiRA()])
    assert str(without.result.attacks) == str(alone.result.attacks)
    assert str(without.finding) == str(alone.finding)


@pytest.fixture(scope="module")
def lumpy(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    """Models that remember nothing and are wrong of a few records: most of RMIA's scores of a model are equal."""
    random, rows = np.random.default_rng(5), np.random.default_rng(6).random((32, 3000)) < 0.5
    odds = random.normal(14, 6, 3000) + random.normal(0, 2, rows.shape) + random.normal(0, 1, (32, 1))
    return bank_of(tmp_path_factory.mktemp("lumpy") / "bank", odds.astype(np.float32), rows, "log_odds")


def test_no_rate_is_given_at_a_limit_that_its_thresholds_do_not_keep(lumpy: Bank):
    """A rate that is given has a realised false positive rate like the stated one; the check names the others."""
    found = attack(lumpy, attacks=[RMIA(), RMIA(False), AttackP(), BASE()])
    broken = [
        (each.name, rate) for each in found.result.attacks for rate in each.tpr_at_fpr if rate.resolvable > rate.holds
    ]
    assert broken
    for each in found.result.attacks:
        for rate in each.tpr_at_fpr:
            assert np.isfinite(rate.value) == (rate.resolvable and rate.holds)
            assert not rate.holds or not rate.realised.value > 1.5 * rate.fpr
    said = check_of(found.finding, "thresholds hold on other models")
    assert said.state == "failed"
    assert all(f"{100 * rate.fpr:g}% stated" in said.message and name in said.message for name, rate in broken)
    # It does not decide, but is named.
    beside = check_of(attack(lumpy, attacks=[BASE(), RMIA()]).finding, "thresholds hold on other models")
    assert (beside.state, "rmia" in beside.message) == ("warning", True)
    assert check_of(attack(lumpy, attacks=[BASE()]).finding, "thresholds hold on other models").state == "passed"


@pytest.fixture(scope="module")
def weak(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    """Models that remember nothing."""
    random, rows = np.random.default_rng(7), np.random.default_rng(8).random((24, 2000)) < 0.5
    return bank_of(tmp_path_factory.mktemp("weak") / "bank", random.normal(size=rows.shape), rows, "log_odds")


def decided(found: AttackAudit) -> tuple[Any, ...]:
    return found.finding.verdict, found.finding.sentence, found.finding.confidence, found.finding.would_change


def test_only_the_first_attack_decides_and_the_sentence_says_so(weak: Bank, banks: dict[str, Bank]):
    """Attacks that tie or are weak beside it move nothing; chosen to decide, they cannot show that attacks fail."""
    alone, beside = (attack(weak, attacks=[Stacked(), *others]) for others in ([], [AttackP(), RMIA(gamma=1e6)]))
    assert alone.finding.verdict == "no better than guessing"
    assert decided(beside) == decided(alone)
    assert "stacked decides" in beside.finding.sentence
    for first in (AttackP(), LiRA()):
        chosen = attack(weak, attacks=[first, BASE()])
        assert chosen.finding.verdict == "inconclusive"
        assert f"{first.name} decides" in chosen.finding.sentence
    found = attack(banks["logits"], attacks=[BASE(), AttackP()])
    assert found.finding.verdict == "gives some away"
    assert "base decides" in found.finding.sentence


def test_a_bank_has_one_hash_whoever_reads_it(tmp_path: Path):
    """Of its labels, training sets and outputs."""
    folder = planned(tmp_path / "bank", 20, 0, holdout=True)
    bank = load_bank(folder)
    train(bank, range(20))
    models = bank.finished().tolist()
    whole = open_bank(bank, models).content_hash
    assert whole == open_for_attacks(bank, 1).content_hash == open_for_attacks(bank, 1, records=30).content_hash
    assert whole == open_bank(bank, models[::-1]).content_hash
    changed = np.load(folder / "outputs" / "00003.npy")
    changed[5, 1] += 0.5
    save(folder, 3, changed)
    assert open_for_attacks(bank, 1).content_hash == open_bank(bank, models).content_hash != whole


def both_forms(used: int, bank: Bank, folder: Path) -> list[RecordTarget]:
    """One model's outputs, as logits and as their softmax."""
    (values,) = sure(1, (np.arange(RECORDS) < used)[None], seed=9)
    forms = {"logits": values, "softmax": softmax(values)}
    return [target_of(folder / f"{name} of {used}.npy", each, bank) for name, each in forms.items()]


def test_a_target_is_judged_alike_as_logits_and_as_their_softmax(banks: dict[str, Bank], tmp_path: Path):
    """By a bank of probabilities, beside each other and alone; and one that used nothing."""
    bank = banks["probabilities"]
    targets = [target for used in (0, 150) for target in both_forms(used, bank, tmp_path)]
    for first, verdicts in ((Stacked(), ["inconclusive", "gives some away"]), (LiRA(), None)):
        found = attack(bank, targets, attacks=[first])
        for (one, other), scores in zip(
            (found.result.targets[:2], found.result.targets[2:]), np.split(found.scores[first.name], 2), strict=True
        ):
            assert (one.finding, one.named) == (other.finding, other.named)
            assert check_of(one.finding, "trained as the shadow models").state == "passed"
            np.testing.assert_allclose(*scores, rtol=1e-3, atol=1e-3)
        judged = [each.finding.verdict for each in found.result.targets[::2]]
        assert judged == (verdicts or judged)
    alone = [attack(bank, [each], attacks=[LiRA()]).result.targets[0].finding.verdict for each in targets[2:]]
    assert alone == [judged[1]] * 2


COMPARED, COUNT = 24, 600
USED = np.arange(COUNT) < 300
LABELS = np.arange(COUNT) % 2
ROWS = np.stack([np.random.default_rng(each).permutation(COMPARED) < COMPARED // 2 for each in range(COUNT)], axis=1)


def well_known(members: np.ndarray, seed: int) -> np.ndarray:
    """Log-odds of 15 to 17 nats, of models that remember their records well."""
    return 15.5 + 1.2 * members + np.random.default_rng(seed).normal(0, 0.3, members.shape)


def logits(odds: np.ndarray) -> np.ndarray:
    """Of two classes."""
    made = np.zeros((*odds.shape, 2))
    np.put_along_axis(made, np.broadcast_to(LABELS, odds.shape)[..., None], odds[..., None], axis=-1)
    return made


def probabilities(odds: np.ndarray) -> np.ndarray:
    return special.softmax(logits(odds), axis=-1)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_files_of_one_kind_are_compared_as_they_are(dtype: str, tmp_path: Path):
    """Log-odds beyond 14.5 nats are no less known for being probabilities; and logits of the target say the same."""
    bank = bank_of(tmp_path / "bank", probabilities(well_known(ROWS, 1)).astype(dtype), ROWS, "probabilities", 2)
    odds = well_known(USED, 2)
    same = target_of(tmp_path / "same.npy", probabilities(odds).astype(dtype), bank)
    targets = [same, target_of(tmp_path / "logits.npy", logits(odds), bank), same._replace(name="bare", stored=None)]
    found = attack(bank, targets, attacks=[LiRA()])
    one, other, bare = found.result.targets
    assert [each.finding.verdict for each in (found, one, other)] == ["gives records away"] * 3
    assert one.named == other.named == bare.named
    assert next(each for each in one.named if each.fpr == 0.1).count > 150


def digits(values: np.ndarray) -> np.ndarray:
    return np.vectorize(lambda each: float(f"{each:.2e}"))(values)


FORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "two decimals": lambda values: values.round(2),
    "three digits": digits,
    "float16": lambda values: values.astype(np.float16),
    "float32": lambda values: values.astype(np.float32),
    "float64": lambda values: values,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_finer_bank_is_brought_to_what_the_coarser_file_would_say(form: str, tmp_path: Path):
    """Up to the last bits, whatever made it coarse."""
    values = probabilities(np.random.default_rng(4).normal(0, 9, (COMPARED + 1, COUNT)))
    coarse, said = FORMS[form](values), []
    for name, of_models in (("fine", values), ("coarse", coarse)):
        bank = bank_of(tmp_path / name, of_models[1:], ROWS, "probabilities", 2)
        target = target_of(tmp_path / f"{name}.npy", coarse[0], bank)
        said.append(attack(bank, [target], attacks=[LiRA()]).scores["lira"])
    np.testing.assert_allclose(*said, rtol=1e-6, atol=1e-6)


def test_a_class_that_is_what_the_other_leaves_to_1_is_as_coarse_as_that():
    """About 6e-8 in float32, in one column or in two."""
    odds = np.random.default_rng(5).normal(0, 9, COUNT)
    # What a sigmoid in float32 leaves to the other class.
    second = probabilities(odds)[:, 1].astype(np.float32)
    values = np.stack([np.float32(1) - second, second], axis=1)
    for each in (values, values[:, 1:].astype(np.float64)):
        assert detail_of(Outputs(each, "probabilities", None, "float32", "some")).step == 2**-24
    said = log_odds_of("probabilities", values[:, None], np.ones(COUNT, int))[0]
    detail = detail_of(Outputs(values, "probabilities", None, "float32", "some"))
    sure_of_second = said > 0
    signed = np.where(LABELS == 1, odds, -odds)
    np.testing.assert_allclose(detail.round(signed)[sure_of_second], said[sure_of_second], rtol=1e-9, atol=1e-9)
