"""`attack` on a bank that deals whole groups: each group is one unit, with the scores of its records together."""

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from support.banks import bank_of

from jaxaudit import Bank, attack, load_bank
from jaxaudit.attacks.records import BASE, LiRA
from jaxaudit.audits import RecordTarget, attack_finding
from jaxaudit.errors import InputError
from jaxaudit.metrics import Estimate, attack_rates

MODELS, GROUPS, SIZES = 16, 120, (1, 2, 5)
OF_RECORD = np.repeat(np.random.default_rng(1).permutation(GROUPS), np.resize(SIZES, GROUPS))
"""The group of each record; the numbers are those of a file, and first occur in this order."""
ORDER = OF_RECORD[np.sort(np.unique(OF_RECORD, return_index=True)[1])]


def grouped(
    folder: Path, odds: np.ndarray, masks: np.ndarray, of_record: np.ndarray = OF_RECORD, calibration: int = 0
) -> Bank:
    """A bank of these log-odds that deals whole groups."""
    bank_of(folder, odds, masks, "log_odds", 2, counts={"query": len(of_record), "calibration": calibration})
    about = json.loads((folder / "bank.json").read_text())
    (folder / "bank.json").write_text(json.dumps({**about, "groups": True}))
    np.save(folder / "groups.npy", of_record)
    np.save(folder / "labels.npy", np.zeros(odds.shape[1], int))
    return load_bank(folder)


def world(seed: int, memory: float = 1.5, alike: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds of models, nearly the same for all records of a group, and the masks of a coin for each group."""
    random = np.random.default_rng(seed)
    coins = random.random((MODELS, GROUPS)) < 0.5
    level = np.random.default_rng(2).normal(0, 2, len(OF_RECORD))
    noise = alike * random.normal(size=(MODELS, GROUPS))[:, OF_RECORD]
    noise += np.sqrt(1 - alike**2) * random.normal(size=(MODELS, len(OF_RECORD)))
    return level + noise + memory * coins[:, OF_RECORD], coins[:, OF_RECORD]


def together(scores: np.ndarray) -> np.ndarray:
    """The slow twin: group by group, in the order of their first records."""
    parts = [scores[..., group == OF_RECORD] for group in ORDER]
    return np.stack([part.sum(axis=-1) / np.sqrt(part.shape[-1]) for part in parts], axis=-1)


def used_groups(masks: np.ndarray) -> np.ndarray:
    return np.stack([masks[:, group == OF_RECORD].all(axis=1) for group in ORDER], axis=1)


def test_the_score_of_a_group_is_made_of_those_of_its_records(tmp_path: Path):
    """By every attack, for shadow models and for a target."""
    odds, masks = world(3)
    by_group: Any = attack(grouped(tmp_path / "groups", odds, masks))
    bank = bank_of(tmp_path / "records", odds, masks, "log_odds", 2)
    by_record = attack(load_bank(bank.directory))
    assert (by_group.result.groups, by_group.result.records) == (GROUPS, len(OF_RECORD))
    assert by_record.result.groups is None
    assert by_group.result.decided_by == by_record.result.decided_by
    assert by_group.finding.verdict == by_record.finding.verdict == "gives some away"
    for name, scores in by_record.scores.items():
        np.testing.assert_allclose(by_group.scores[name], together(scores), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(by_group.truth, used_groups(by_record.truth))
    for outcome in by_group.result.attacks:
        rates = attack_rates(by_group.scores[outcome.name], by_group.truth)
        assert outcome.auc == rates.auc
        assert str(outcome.tpr_at_fpr) == str(rates.tpr_at_fpr)
    target = RecordTarget("mine", odds[:1], masks[0])
    two = [attack(load_bank(tmp_path / of), [target], attacks=[LiRA()]) for of in ("groups", "records")]
    np.testing.assert_allclose(two[0].scores["lira"], together(two[1].scores["lira"]), rtol=1e-9, atol=1e-9)
    # The way home: the group of each record, and the first record of each group.
    np.testing.assert_array_equal(ORDER[by_group.unit_of_record], OF_RECORD)
    np.testing.assert_array_equal(OF_RECORD[by_group.records], ORDER)
    exposure: Any = by_group.result.exposure
    first = exposure.riskiest[0]
    assert first.records == (OF_RECORD[first.place] == OF_RECORD).sum()


def test_records_whose_outputs_vary_most_do_not_hide_the_others(tmp_path: Path):
    """In groups of five one record's outputs vary by 30 nats, and the mean output tells hardly anything; those of one
    are all equal but for rounding, and their inverse standard deviation would outweigh every other record.
    """
    random = np.random.default_rng(12)
    groups = np.repeat(np.arange(GROUPS), 5)
    masks = (random.random((MODELS, GROUPS)) < 0.5)[:, groups]
    odds = np.resize([30.0, 1.0, 1.0, 1.0, 1.0], len(groups)) * random.normal(size=masks.shape) + 1.5 * masks
    odds[:, 4::5], firsts = 0.1, slice(None, None, 5)
    audit: Any = attack(grouped(tmp_path / "groups", odds, masks, groups), attacks=[LiRA()])
    by_mean = bank_of(tmp_path / "means", odds.reshape(MODELS, GROUPS, 5).mean(2), masks[:, firsts], "log_odds", 2)
    assert audit.result.deciding.auc.value > 0.85
    assert attack(by_mean, attacks=[LiRA()]).result.deciding.auc.value < 0.6
    assert np.nanmean(audit.by_record.vulnerability.separation) > 0.85


@pytest.mark.outer
def test_intervals_of_rates_hold_over_groups_and_not_over_records_that_are_alike(tmp_path: Path):
    """True positive rates of models that remember nothing: 10% at 10%, by thresholds of five times as many."""
    missed = np.zeros(2)
    for seed in range(120):
        random = np.random.default_rng(seed)
        coins = random.random((6, 60)) < 1 / 6
        odds = np.repeat(random.normal(size=(6, 60)), 10, axis=1)
        groups = np.repeat(np.arange(60), 10)
        masks = coins[:, groups]
        folder = tmp_path / str(seed)
        banks = (
            grouped(folder / "groups", odds, masks, groups),
            bank_of(folder / "records", odds, masks, "log_odds", 2),
        )
        for place, bank in enumerate(banks):
            rate = attack(bank, attacks=[BASE()]).result.deciding.tpr_at_fpr[0]
            missed[place] += not rate.low <= 0.1 <= rate.high
    # 5%, and with what thresholds vary by about 8%: P(more than 18 of 120) < .01
    assert missed[0] <= 18
    assert missed[1] > 40


def test_a_mask_with_a_part_of_a_group_is_refused(tmp_path: Path):
    odds, masks = world(4)
    of_two = int(np.flatnonzero(np.bincount(OF_RECORD)[OF_RECORD] == 2)[0])
    split = masks.copy()
    split[0, of_two] ^= True
    # A model that was trained on a part of a group is left out.
    left = attack(grouped(tmp_path / "split", odds, split), attacks=[BASE()])
    np.testing.assert_array_equal(left.truth, masks[1:][:, left.records])
    split[:-3, of_two] ^= split[:-3, of_two] == masks[:-3, of_two]
    with pytest.raises(InputError, match="has 3 finished shadow models on whole groups"):
        attack(load_bank(grouped(tmp_path / "few", odds, split).directory), attacks=[BASE()])
    bank = grouped(tmp_path / "whole", odds, masks)
    used = np.zeros(len(OF_RECORD), bool)
    used[of_two] = True
    with pytest.raises(InputError, match=r"mine.*1 of 120 groups"):
        attack(bank, [RecordTarget("mine", odds[:1], used)], attacks=[BASE()])


def test_a_target_is_judged_by_groups(tmp_path: Path):
    """Its records are called by group; of a half that it used most are called, and of the other hardly any."""
    odds, masks = world(5, memory=4.0)
    bank = grouped(tmp_path / "bank", odds[1:], masks[1:])
    audit: Any = attack(bank, [RecordTarget("mine", odds[:1], masks[0])], attacks=[LiRA()])
    (judged,) = audit.result.targets
    assert judged.finding.verdict == "gives some away"
    assert " groups are called members" in judged.finding.sentence
    used = masks[0][audit.records]
    called = audit.by_record.called[0]
    assert called.shape == (GROUPS,)
    assert called[used].mean() > 0.8
    assert called[~used].mean() < 0.25
    assert audit.result.deciding.of_targets is not None


def test_records_of_the_calibration_set_are_no_groups(tmp_path: Path):
    """They have coins of their own, and no rate is over them; with them or without them all numbers are the same."""
    odds, masks = world(7)
    more, random = 40, np.random.default_rng(8)
    wider = np.concatenate([odds, random.normal(size=(MODELS, more))], axis=1)
    coins = np.concatenate([masks, random.random((MODELS, more)) < 0.5], axis=1)
    without = attack(grouped(tmp_path / "without", odds, masks))
    beside = attack(grouped(tmp_path / "beside", wider, coins, calibration=more))
    assert (beside.result.groups, beside.result.records) == (GROUPS, len(OF_RECORD))
    assert str(beside.result) == str(without.result)
    target = RecordTarget("mine", wider[:1], coins[0])
    (judged,) = attack(load_bank(tmp_path / "beside"), [target], attacks=[LiRA()]).result.targets
    assert judged.named[0].count <= GROUPS


def test_few_groups_make_a_weak_answer_whatever_it_is(tmp_path: Path):
    """Of the same numbers, over 49 groups and over 50: that the attack fails is no firmer than that it succeeds."""
    odds, masks = world(10, memory=0.0)
    result = attack(grouped(tmp_path / "bank", odds, masks)).result
    first = result.deciding
    at = {rate.fpr: dict.fromkeys(("value", "low", "high"), rate.fpr) for rate in first.tpr_at_fpr}
    calm = tuple(
        msgspec.structs.replace(rate, **at[rate.fpr], realised=Estimate(**at[rate.fpr]), resolvable=True, holds=True)
        for rate in first.tpr_at_fpr
    )
    areas = tuple(0.5 + 0.01 * (number % 2) for number in range(MODELS))
    numbers = {"members": 10**6, "non_members": 10**6, "tied": 0.0, "auc_of_models": areas}
    deciding = msgspec.structs.replace(first, tpr_at_fpr=calm, **numbers)
    said = {}
    for groups in (49, 50):
        finding = attack_finding(msgspec.structs.replace(result, attacks=(deciding,), groups=groups, exposure=None))
        said[groups] = (finding.verdict, finding.confidence.word)
    assert said == {49: ("no better than guessing", "weak"), 50: ("no better than guessing", "fair")}
