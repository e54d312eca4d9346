"""Files that somebody writes while they are read: an answer or one error, and never the end of the process."""

import json
import os
import resource
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from support.banks import describe, rows, save, write_bank

from jaxaudit.audits.ks.bank.evidence import bank_evidence
from jaxaudit.data.bank.bank import load_bank
from jaxaudit.data.formats.arrays import StoredArray
from jaxaudit.data.formats.stored import stored_arrays
from jaxaudit.data.records import open_records
from jaxaudit.errors import InputError

MANY = 100


def large_bank(folder: Path, records: int) -> Path:
    """A bank of 6 models, whose files are longer than a page of memory."""
    write_bank(folder, 0)
    counts = {"query": records // 2, "holdout": records // 4, "calibration": records // 4}
    (folder / "bank.json").write_text(json.dumps(describe(records=records, counts=counts)))
    np.save(folder / "labels.npy", np.arange(records) % 3)
    np.save(folder / "membership.npy", np.random.default_rng(1).random((6, records)) < 0.5)
    for model in range(3):
        save(folder, model, np.random.default_rng(model).normal(size=(records, 3)).astype(np.float32))
    return folder


@pytest.mark.parametrize("what", ["membership.npy", "labels.npy", "outputs/00001.npy", "x.npy"])
def test_a_file_that_is_cut_short_after_it_was_opened_ends_no_process(tmp_path: Path, what: str):
    """If it were mapped, a signal would end this one."""
    if what == "x.npy":
        np.save(tmp_path / "x.npy", np.zeros((10_000, 4), np.float32))
        np.save(tmp_path / "y.npy", np.zeros(10_000, int))
        opened = open_records(tmp_path)
        assert opened is not None
        read = lambda: opened.inputs[5000:5004]  # noqa: E731
    else:
        bank = load_bank(large_bank(tmp_path, 40_000))
        read = lambda: bank_evidence(bank, bank.finished().tolist())  # noqa: E731
    os.truncate(tmp_path / what, 200)
    # What was read when the bank was opened is read no more.
    read_later = what in ("outputs/00001.npy", "x.npy")
    with pytest.raises(InputError, match="short") if read_later else nullcontext():
        read()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("near", [1, 1 << 20])
def test_rows_are_read_as_numpy_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, near: int):
    """Row by row or column by column; with columns of one piece, and with many columns together."""
    monkeypatch.setattr("jaxaudit.data.formats.arrays.NEAR", near)
    for shape in ((7,), (7, 3), (7, 2, 5), (0, 3), (7, 2, 3, 4)):
        array = np.asarray(np.random.default_rng(2).normal(size=shape).astype(">f4"), order=order)  # pyright: ignore
        np.save(tmp_path / "a.npy", array)
        stored = StoredArray(tmp_path / "a.npy")
        assert (stored.shape, stored.dtype, stored.nbytes) == (array.shape, array.dtype, array.nbytes)
        for span in (slice(None), slice(2, 5), slice(6, 7), slice(5, 90), slice(3, 3), slice(5, 2), slice(-2, None)):
            np.testing.assert_array_equal(stored[span], array[span])


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_was_written_since_it_was_opened_is_not_mixed(tmp_path: Path, replaced: bool):
    """Nor one that another replaced, even of the same size and time."""
    path, other = tmp_path / "a.npy", tmp_path / "b.npy"
    np.save(path, rows())
    stored = StoredArray(path)
    np.testing.assert_array_equal(stored[1:2], rows()[1:2])
    np.save(other, ~rows())
    if replaced:
        os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
        other.replace(path)
    else:
        path.write_bytes(other.read_bytes())
        os.utime(path, ns=(0, 0))
    with pytest.raises(InputError, match="was written while it was read"):
        stored[:]


def test_a_folder_may_hold_more_arrays_than_files_may_be_open(tmp_path: Path):
    for place in range(MANY):
        np.save(tmp_path / f"{place:04}.npy", np.arange(3) + place)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 20, limits[1]))
    try:
        assert [int(each[:1][0]) for each in stored_arrays(tmp_path).values()] == list(range(MANY))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
