"""Files that somebody writes while they are read: an answer or one error, and never the end of the process."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support.banks import RECORDS, describe, rows, save, write_bank

from jaxaudit.data.formats.arrays import StoredArray
from jaxaudit.errors import InputError

CUT = """
import os, sys
import numpy as np
from pathlib import Path
from jaxaudit.audits.ks.bank.evidence import bank_evidence
from jaxaudit.data.bank.bank import load_bank
from jaxaudit.data.records import open_records
from jaxaudit.errors import InputError

folder, what = Path(sys.argv[1]), sys.argv[2]
opened = load_bank(folder) if (folder / "bank.json").exists() else open_records(folder)
os.truncate(folder / what, 200)
try:
    if what == "x.npy":
        print(opened.inputs[5000:5004].shape)
    else:
        print(len(bank_evidence(opened, opened.finished().tolist()).roles))
except InputError as error:
    print("Error:", error)
"""
READS = """
import sys, time
from jaxaudit.audits.bank_odds import model_outputs
from jaxaudit.data.bank.bank import load_bank
from jaxaudit.errors import InputError

bank, until, answers = load_bank(sys.argv[1]), time.monotonic() + 4, 0
print("ready", flush=True)
while time.monotonic() < until:
    try:
        answers += len(model_outputs(bank, 0).log_odds) > 0
    except InputError as error:
        assert "00000.npy" in str(error), error
print("through")
"""
MANY = 1500
LIMITED = """
import resource, sys
from pathlib import Path
from jaxaudit.data.formats.stored import stored_arrays

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
arrays = stored_arrays(Path(sys.argv[1]))
print(len(arrays), sum(int(each[:1][0]) for each in arrays.values()))
"""


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
    folder = tmp_path / "data"
    if what == "x.npy":
        folder.mkdir()
        np.save(folder / "x.npy", np.zeros((10_000, 4), np.float32))
        np.save(folder / "y.npy", np.zeros(10_000, int))
    else:
        large_bank(folder, 40_000)
    done = subprocess.run([sys.executable, "-c", CUT, folder, what], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    # What was read when the bank was opened is read no more.
    wrong = what in ("outputs/00001.npy", "x.npy")
    assert done.stdout.startswith("Error:") == wrong, done.stdout
    assert ("short" in done.stdout) == wrong


def test_outputs_that_are_saved_again_and_again_end_no_process(tmp_path: Path):
    folder = large_bank(tmp_path / "bank", 300_000)
    values = np.load(folder / "outputs" / "00000.npy")
    with subprocess.Popen([sys.executable, "-c", READS, folder], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        until = time.monotonic() + 60
        while child.poll() is None and time.monotonic() < until:
            np.save(folder / "outputs" / "00000.npy", values)
        assert child.stdout.read() == "through\n"
    assert child.returncode == 0


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


def test_a_file_that_was_written_since_it_was_opened_is_not_mixed(tmp_path: Path):
    path = tmp_path / "a.npy"
    np.save(path, rows())
    stored = StoredArray(path)
    np.testing.assert_array_equal(stored[1:2], rows()[1:2])
    with path.open("r+b") as file:
        file.seek(-RECORDS, os.SEEK_END)
        file.write(bytes(RECORDS))
    os.utime(path, ns=(0, 0))
    with pytest.raises(InputError, match="was written while it was read"):
        stored[:]


def test_a_file_that_another_replaced_is_not_mixed(tmp_path: Path):
    """Even one of the same size and time."""
    path, other = tmp_path / "a.npy", tmp_path / "b.npy"
    np.save(path, rows())
    stored = StoredArray(path)
    np.save(other, ~rows())
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.replace(path)
    with pytest.raises(InputError, match="was written while it was read"):
        stored[:]


def test_a_folder_may_hold_more_arrays_than_files_may_be_open(tmp_path: Path):
    for place in range(MANY):
        np.save(tmp_path / f"{place:04}.npy", np.arange(3) + place)
    done = subprocess.run([sys.executable, "-c", LIMITED, tmp_path], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, f"{MANY} {sum(range(MANY))}\n"), done.stderr
