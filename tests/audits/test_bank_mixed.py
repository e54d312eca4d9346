"""Banks that are not all of one piece: files of several resolutions, sets of several sizes, a stranger's leftovers."""

from contextlib import suppress
from pathlib import Path

import jax
import numpy as np
import pytest
from support.banks import CLASSES, bank_of, softmax
from support.simulated_shadows import evidence_of

from jaxaudit.audits.ks.judge import leave_one_out
from jaxaudit.audits.ks.tests_of_use import HoldoutTest
from jaxaudit.audits.open_bank import open_bank
from jaxaudit.cli.shadows.train import MODELS, unfinished_models
from jaxaudit.data.bank.bank import Bank
from jaxaudit.errors import InputError


def made(folder: Path, membership: np.ndarray, query: int, kind: str, *, coarse: range = range(0)) -> Bank:
    """Models that remember their records, those in `coarse` printed with two decimals; all columns are dealt."""
    random = np.random.default_rng(4)
    records = membership.shape[1]
    level, values = random.normal(1, 1, records), []
    for model, row in enumerate(membership):
        outputs = random.normal(size=(records, CLASSES))
        outputs[np.arange(records), np.arange(records) % CLASSES] += level + 4 * row
        outputs = softmax(outputs) if kind == "probabilities" else outputs
        values.append(np.round(outputs, 2) if model in coarse else outputs)
    counts = {"query": query, "holdout": records - query, "calibration": 0}
    return bank_of(folder, values, membership, kind, counts=counts)


def dealt(models: int, query: int, records: int) -> np.ndarray:
    random = np.random.default_rng(9)
    return np.argsort(np.argsort(random.random((models, records)), axis=1), axis=1) < query


@pytest.mark.parametrize("coarse", [range(0), range(1, 6), range(6)])
def test_outputs_are_compared_at_the_coarsest_resolution_of_any_file(tmp_path: Path, coarse: range):
    bank = made(tmp_path / "bank", dealt(6, 40, 80), 40, "probabilities", coarse=coarse)
    stored = open_bank(bank, range(6)).resolutions
    fine, printed = ([None], ["model 0"]) if len(coarse) < 6 else ([], [])
    assert [each.decimals for each in stored] == [*fine, *([2] if coarse else [])]
    # The first model of a resolution stands for it, whichever file was read first.
    assert [each.name for each in stored] == [*printed, *([f"model {coarse[0]}"] if coarse else [])]


@pytest.mark.parametrize("records", [pytest.param(60, marks=pytest.mark.outer), 30])
def test_rates_are_measured_where_the_holdout_has_another_size(tmp_path: Path, records: int):
    """The query set has 20 records, and the holdout 40 or 10; models remember them well."""
    evidence = evidence_of(made(tmp_path / "bank", dealt(20, 20, records), 20, "logits"), range(20))
    told: list[tuple[int, int]] = []
    rates = leave_one_out(jax.random.key(2), evidence, [HoldoutTest()], progress=lambda *done: told.append(done))
    assert told == [(done, 60) for done in range(1, 61)]
    assert [(rate.used, rate.targets) for rate in rates] == [(0.0, 20), (0.5, 20), (1.0, 20)]
    assert {rate.records for rate in rates} == {int(20 / records * (records - 20))}


def test_a_damaged_file_is_named_with_its_model(tmp_path: Path):
    bank = made(tmp_path / "bank", dealt(6, 40, 80), 40, "logits")
    path = tmp_path / "bank" / "outputs" / "00004.npy"
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(InputError, match=r"bank, model 4 of 6: .*00004\.npy"):
        open_bank(bank, range(6))


HERE, OTHERS = {"jax": "0.10.2", "numpy": "2.4.0"}, {"jax": "0.10.3", "numpy": "2.4.0"}


@pytest.mark.parametrize("there", [[0, 99_999], [-1, 0], [0, 0], [3, 1], [], [[0]]])
def test_what_a_stranger_left_in_a_bank_is_no_work_of_ours(tmp_path: Path, there: list):
    folder = tmp_path / "unfinished"
    folder.mkdir()
    np.save(folder / MODELS, np.array(there, int))
    missing = np.array([0, 2, 3])
    with unfinished_models(tmp_path, missing, 4, HERE) as (models, _):
        assert models.tolist() == [0, 2, 3]
    assert not folder.exists()


def left_by(bank: Path, missing: list[int], versions: dict[str, str]) -> tuple[list[int], bool]:
    """The models of a call that is stopped, and whether it found what one before it left."""
    found = [], False
    with suppress(KeyboardInterrupt), unfinished_models(bank, np.array(missing), 5, versions) as (models, folder):
        found = models.tolist(), (folder / "left").exists()
        (folder / "left").touch()
        raise KeyboardInterrupt
    return found


def test_a_stopped_call_is_taken_up_but_not_by_other_versions_nor_by_the_first_after_these(tmp_path: Path):
    assert left_by(tmp_path, [0, 2, 3], HERE) == ([0, 2, 3], False)
    assert left_by(tmp_path, [3, 4], HERE) == ([0, 2, 3], True)
    found = [left_by(tmp_path, [0, 2, 3], versions)[1] for versions in (OTHERS, OTHERS, HERE, HERE)]
    assert found == [False, True, False, True]
