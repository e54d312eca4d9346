"""What a stranger's description of a bank claims: many models cost little time, many classes little memory."""

import json
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from support.banks import RECORDS, describe, write_bank

from jaxaudit.audits.ks.bank.state import OTHER, WITHOUT, kinds_of
from jaxaudit.data.bank.bank import load_bank
from jaxaudit.errors import InputError
from jaxaudit.metrics.row_fit import dealt_records, row_fits

MANY = 10**6


def zeros(path: Path, dtype: str, shape: tuple[int, ...]) -> np.memmap:
    """A .npy of zeros that takes no room, mapped to be written."""
    return np.lib.format.open_memmap(path, "w+", np.dtype(dtype), shape)


def test_a_million_models_are_looked_at_in_a_moment(tmp_path: Path):
    """Row by row they took 13 s on one core."""
    folder = write_bank(tmp_path / "bank", 0)
    (folder / "bank.json").write_text(json.dumps(describe(models=MANY)))
    rows = zeros(folder / "membership.npy", "bool", (MANY, RECORDS))
    rows[-1] = True
    rows.flush()
    began = time.process_time()
    kinds = kinds_of(load_bank(folder))
    assert time.process_time() - began < 6
    assert (kinds[0], kinds[-2], kinds[-1], len(kinds)) == (WITHOUT, WITHOUT, OTHER, MANY)


def test_outputs_are_held_against_a_hundred_thousand_rows_in_a_moment():
    """Row by row it took 4 s on one core."""
    rows = np.zeros((10**5, RECORDS), bool)
    rows[:, ::2] = True
    began = time.process_time()
    fits = row_fits(np.linspace(-1, 1, RECORDS), rows, [dealt_records(np.arange(RECORDS))])
    assert time.process_time() - began < 1.5
    assert (fits == fits[0]).all()


def test_a_million_classes_take_little_more_memory_than_their_file(tmp_path: Path):
    classes, records = MANY, 25
    folder = write_bank(tmp_path / "bank", 0)
    counts = {"query": 20, "holdout": 0, "calibration": 5}
    (folder / "bank.json").write_text(json.dumps(describe(classes=classes, records=records, counts=counts)))
    np.save(folder / "labels.npy", np.arange(records))
    np.save(folder / "membership.npy", np.arange(6)[:, None] > np.arange(records) % 5)
    zeros(folder / "outputs" / "00000.npy", "float32", (records, classes)).flush()
    bank = load_bank(folder)
    tracemalloc.start()
    found = bank.outputs(0)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.shape == (records, 1, classes)
    assert most < 3 * found.nbytes


def test_a_bank_of_holes_is_refused_by_whatever_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """But not where the file system does not tell what it holds: then all of it seems to be holes."""
    monkeypatch.setattr("jaxaudit.data.bank.holes.SMALL", 1 << 20)
    folder = write_bank(tmp_path / "bank", 2)
    assert len(load_bank(folder)) == 6
    classes = 1 << 18
    (folder / "bank.json").write_text(json.dumps(describe(classes=classes)))
    zeros(folder / "outputs" / "00000.npy", "float32", (RECORDS, classes))
    with pytest.raises(InputError, match="holes in place of numbers"):
        load_bank(folder)
    monkeypatch.setattr("jaxaudit.data.bank.holes.BLOCK", 0)
    assert len(load_bank(folder)) == 6
