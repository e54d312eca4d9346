"""How finely a target and the shadow models are compared: as finely as the coarser file knows, and no more coarsely."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special
from support.banks import bank_of
from support.record_attacks import target_of

from jaxaudit import attack
from jaxaudit.attacks.records import BASE, LiRA
from jaxaudit.audits.attack.exposure import attack_units
from jaxaudit.audits.attack.records import attack_memory, open_for_attacks, shadow_scores
from jaxaudit.audits.attack.targets import compare_targets
from jaxaudit.audits.bank_odds import detail_of, log_odds_of
from jaxaudit.data.outputs.outputs import Outputs, load_outputs
from jaxaudit.errors import InputError

MODELS, RECORDS = 24, 600
USED = np.arange(RECORDS) < 300
LABELS = np.arange(RECORDS) % 2
ROWS = np.stack([np.random.default_rng(each).permutation(MODELS) < MODELS // 2 for each in range(RECORDS)], axis=1)


def sure(members: np.ndarray, seed: int) -> np.ndarray:
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
    bank = bank_of(tmp_path / "bank", probabilities(sure(ROWS, 1)).astype(dtype), ROWS, "probabilities", 2)
    odds = sure(USED, 2)
    same = target_of(tmp_path / "same.npy", probabilities(odds).astype(dtype), bank)
    targets = [same, target_of(tmp_path / "logits.npy", logits(odds), bank), same._replace(name="bare", stored=None)]
    known: Any = open_for_attacks(bank, 1)
    units = attack_units(known.pool)
    compared = compare_targets(targets, known, shadow_scores(known, units), units, 1)
    assert all(np.shares_memory(each.shadowed.models, known.views) for each in compared)
    found = attack(bank, targets, attacks=[LiRA()])
    one, other, bare = found.result.targets
    assert [each.finding.verdict for each in (found, one, other)] == ["attack succeeds"] * 3
    assert one.named == other.named == bare.named
    assert next(each for each in one.named if each.fpr == 0.1).count > 150


def digits(values: np.ndarray) -> np.ndarray:
    return np.vectorize(lambda each: float(f"{each:.2e}"))(values)


FORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "two decimals": lambda values: values.round(2),
    "four decimals": lambda values: values.round(4),
    "eight decimals": lambda values: values.round(8),
    "three digits": digits,
    "float16": lambda values: values.astype(np.float16),
    "float32": lambda values: values.astype(np.float32),
    "float64": lambda values: values,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_finer_file_is_brought_to_what_the_coarser_would_say(form: str, tmp_path: Path):
    """Bit for bit but for the last ones, whatever made it coarse; and once more it moves no further."""
    odds = np.random.default_rng(4).normal(0, 9, RECORDS)
    values = FORMS[form](probabilities(odds))
    np.save(tmp_path / "coarse.npy", values)
    detail = detail_of(load_outputs(tmp_path / "coarse.npy", 2, RECORDS, "probabilities"))
    said = log_odds_of("probabilities", values[:, None], LABELS)[0]
    np.testing.assert_allclose(detail.round(odds), said, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(detail.round(said), said, rtol=1e-3, atol=1e-3)


def test_a_class_that_is_what_the_other_leaves_to_1_is_as_coarse_as_that():
    """About 6e-8 in float32, in one column or in two."""
    odds = np.random.default_rng(5).normal(0, 9, RECORDS)
    # What a sigmoid in float32 leaves to the other class.
    second = probabilities(odds)[:, 1].astype(np.float32)
    values = np.stack([np.float32(1) - second, second], axis=1)
    for each in (values, values[:, 1:].astype(np.float64)):
        assert detail_of(Outputs(each, "probabilities", None, "float32", "some")).step == 2**-24
    said = log_odds_of("probabilities", values[:, None], np.ones(RECORDS, int))[0]
    detail = detail_of(Outputs(values, "probabilities", None, "float32", "some"))
    sure_of_second = said > 0
    signed = np.where(LABELS == 1, odds, -odds)
    np.testing.assert_allclose(detail.round(signed)[sure_of_second], said[sure_of_second], rtol=1e-9, atol=1e-9)


def test_logits_are_as_coarse_as_the_coarser_file_in_float64(tmp_path: Path):
    fine, coarse = (Outputs(logits(sure(USED, 6)), "logits", None, dtype, "some") for dtype in ("float64", "float16"))
    assert detail_of(coarse).coarsens(detail_of(fine))
    assert not detail_of(fine).coarsens(detail_of(coarse))
    found = detail_of(coarse).round(np.array([15.3, 1e3]))
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found * 64, np.rint(found * 64))


def test_copies_of_the_shadow_models_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each further resolution takes one; files that are no coarser take none."""
    bank = bank_of(tmp_path / "bank", logits(sure(ROWS, 1)), ROWS, "logits", 2)
    odds = sure(USED, 2) / 4
    forms = {
        "logits": logits(odds),
        **{each: FORMS[each](probabilities(odds)) for each in ("four decimals", "float16")},
    }
    targets = [target_of(tmp_path / f"{name}.npy", values, bank) for name, values in forms.items()]
    monkeypatch.setattr(
        "jaxaudit.audits.attack.targets.MAX_BYTES", attack_memory(MODELS, 1, RECORDS, attacks=1, further_targets=1)
    )
    assert len(attack(bank, [*targets[:2], targets[0]], attacks=[BASE()]).result.targets) == 3
    with pytest.raises(InputError, match=r"2 other resolutions.*attack targets of one kind"):
        attack(bank, targets, attacks=[BASE()])
