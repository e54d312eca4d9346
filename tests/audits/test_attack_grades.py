"""What a bank's rates are called, and what its models would give away if they published less."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.banks import bank_of

from jaxaudit import Bank, attack
from jaxaudit.attacks.records import LiRA, Stacked
from jaxaudit.audits import AttackResult, grade_of
from jaxaudit.metrics import attack_rates

MODELS, RECORDS = 40, 400


def rates_of(named: float, shift: float = 0.0, records: int = RECORDS, models: int = MODELS) -> Any:
    """Rates of scores without memory, but for this share of members, of whom everybody can be sure, and a shift."""
    random = np.random.default_rng(4)
    truth = random.random((models, records)) < 0.5
    scores = random.normal(size=truth.shape) + shift * truth
    return attack_rates(np.where(truth & (random.random(truth.shape) < named), 9.0, scores), truth)


@pytest.mark.parametrize(
    ("named", "shift", "grade"),
    [
        # At 1% false positives a share `named` and 1% of the others are found: ten times 1% needs a little more.
        (0.13, 0.0, "gives records away"),
        (0.07, 0.0, "gives some away"),
        (0.005, 0.0, "no better than guessing"),
        (0.0, 0.1, "gives some away"),
        (0.0, 0.02, "no better than guessing"),
        (0.0, 0.0, "no better than guessing"),
    ],
)
def test_grades_are_of_right_calls_for_each_wrong_one(named: float, shift: float, grade: str):
    rates = rates_of(named, shift)
    assert grade_of(rates) == grade
    ratios = [of.low / max(of.fpr, of.realised.high) for of in rates.tpr_at_fpr if of.resolvable and of.holds]
    assert [of.resolvable for of in rates.tpr_at_fpr] == [True, True, False, False]
    assert (max(ratios[1:]) >= 10) == (grade == "gives records away")


def test_the_rate_at_a_thousandth_names_records_where_that_at_a_hundredth_does_not():
    rates = rates_of(0.03, records=2000)
    one, tenth = rates.tpr_at_fpr[1].low, rates.tpr_at_fpr[2].low
    assert (one < 0.1, tenth > 0.01, grade_of(rates)) == (True, True, "gives records away")


def test_without_a_rate_at_a_hundredth_nobody_is_named():
    rates = rates_of(0.9, records=40, models=16)
    assert not rates.tpr_at_fpr[1].resolvable
    assert grade_of(rates) == "gives some away"
    assert grade_of(rates_of(0.0, records=40, models=16)) is None


def softmax_of(seed: int, classes: int, truth: np.ndarray, memory: float) -> np.ndarray:
    random = np.random.default_rng(seed)
    logits = np.random.default_rng(1).normal(0, 1.5, (truth.shape[1], classes)) + random.normal(
        0, 0.7, (*truth.shape, classes)
    )
    logits[..., np.arange(truth.shape[1]), np.arange(truth.shape[1]) % classes] += memory * truth
    grown = np.exp(logits)
    return (grown / grown.sum(axis=2, keepdims=True)).astype(np.float32)


def masks(models: int = 24, records: int = 300) -> np.ndarray:
    return np.random.default_rng(3).random((models, records)) < 0.5


def result_of(bank: Bank) -> AttackResult:
    return attack(bank, attacks=[LiRA()]).result


def test_digits_that_are_not_published_are_attacked_as_if_files_had_none(tmp_path: Path):
    """The slow twin: the same bank, with probabilities of so many digits in its files."""
    truth = masks()
    outputs = softmax_of(1, 2, truth, 2.0)
    result = result_of(bank_of(tmp_path / "whole", outputs, truth, "probabilities", 2))
    assert [row.outputs for row in result.published] == [
        "probabilities with 2 digits",
        "probabilities with 1 digit",
        "the first class alone",
    ]
    for row, digits in zip(result.published, (2, 1), strict=False):
        shares = outputs[..., 0].astype(float).round(digits)
        rounded = np.stack([shares, (1 - shares).round(digits)], axis=2)
        twin = result_of(bank_of(tmp_path / f"{digits}", rounded.astype(np.float32), truth, "probabilities", 2))
        assert (row.auc.value, row.verdict) == (pytest.approx(twin.deciding.auc.value, abs=2e-3), twin.finding.verdict)
    # Whole digits are published already, so that no row says what more of them would change.
    coarse = result_of(bank_of(tmp_path / "coarse", rounded.astype(np.float32), truth, "probabilities", 2))
    assert [row.outputs for row in coarse.published] == ["the first class alone"]


@pytest.mark.parametrize("kind", ["probabilities", "logits"])
def test_the_first_class_tells_no_more_than_its_probability(tmp_path: Path, kind: str):
    """The slow twin: log-odds of what follows from the first class, as a bank of log-odds."""
    truth = masks()
    outputs = softmax_of(2, 4, truth, 2.0)
    stored = np.log(outputs) + 3 if kind == "logits" else outputs
    published = {row.outputs: row for row in result_of(bank_of(tmp_path / "bank", stored, truth, kind, 4)).published}
    labels = np.arange(truth.shape[1]) % 4
    own, right = outputs[..., np.arange(len(labels)), labels].astype(float), outputs.argmax(axis=2) == labels
    share = np.where(right, own, (1 - outputs.max(axis=2).astype(float)) / 3)
    for words, odds in (
        ("the first class with its probability", np.log(share / (1 - share))),
        ("the first class alone", np.where(right, 1.0, -1.0)),
    ):
        twin = result_of(bank_of(tmp_path / words, odds, truth, "log_odds", 4))
        assert published[words].auc.value == pytest.approx(twin.deciding.auc.value, abs=1e-4)
    assert published["the first class alone"].auc.high < published["the first class with its probability"].auc.low


def test_outputs_that_never_differ_tell_nothing(tmp_path: Path):
    """Models that are right of every record, whatever they were trained on, and sure of some for having seen them."""
    truth = masks(8)
    outputs = softmax_of(5, 2, truth, 0.0)
    own = 0.75 + 0.2 * truth + 0.01 * np.random.default_rng(6).random(truth.shape)
    labels = np.arange(truth.shape[1]) % 2
    outputs[..., 0], outputs[..., 1] = np.where(labels, 1 - own, own), np.where(labels, own, 1 - own)
    result = attack(bank_of(tmp_path / "bank", outputs, truth, "probabilities", 2), attacks=[Stacked()]).result
    assert result.published[-1].outputs == "the first class alone"
    assert (result.published[-1].verdict, result.published[-1].auc.value) == ("no better than guessing", 0.5)


def test_nothing_would_help_where_nothing_is_given_away(tmp_path: Path):
    truth = masks(records=1200)
    assert result_of(bank_of(tmp_path / "none", softmax_of(3, 3, truth, 0.0), truth, "probabilities")).published == ()
    odds = np.random.default_rng(2).normal(size=truth.shape) + 3 * truth
    result = result_of(bank_of(tmp_path / "odds", odds, truth, "log_odds"))
    assert (result.finding.verdict, result.published) == ("gives records away", ())
    assert "larger leaves" in json.dumps(result.finding.would_change)
