"""`jaxaudit shadows import`: what is refused, each by its cause, and that nothing is left of it."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.other_tools import POOL, write_lira, write_privacy_meter
from test_cli_shadows_import import LABELS, QUERY, ROWS, folder, imported

from jaxaudit.data.bank import writing
from jaxaudit.data.bank.bank import load_bank

__all__ = ["folder"]


def replaced(path: str, change: Callable[[np.ndarray], Any]) -> Callable[[Path], None]:
    """Writes something else into a file of an array."""
    return lambda folder: np.save(folder / path, change(np.load(folder / path)))


def sparse(path: str, shape: tuple[int, ...], dtype: str) -> Callable[[Path], None]:
    """A file that is as long as it says, and takes no room on the disk."""

    def write(folder: Path) -> None:
        with (folder / path).open("wb") as file:
            header = {"descr": dtype, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            file.truncate(file.tell() + int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize)

    return write


def link(path: str) -> Callable[[Path], None]:
    """Moves something away and leaves a link to it."""

    def move(folder: Path) -> None:
        (folder / path).rename(folder.parent / "moved")
        (folder / path).symlink_to(folder.parent / "moved")

    return move


def renamed(path: str, name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / path).rename((folder / path).with_name(name)) and None


def short(path: str) -> Callable[[Path], None]:
    """What is still being written."""
    return lambda folder: os.truncate(folder / path, (folder / path).stat().st_size - 40)


KEEP, LOGITS, FIRST = "experiment-3_6/keep.npy", "experiment-3_6/logits/0000000100.npy", "experiment-0_6/keep.npy"
LIRA: dict[str, tuple[Callable[[Path], Any], str]] = {
    "rows of other records": (replaced(KEEP, lambda row: row[:50]), "50 records, the first of 160"),
    "rows that are no booleans": (replaced(KEEP, lambda row: row.astype(int)), "int64"),
    "rows with bytes of 2": (replaced(KEEP, lambda row: np.full(POOL, 2, np.uint8).view(bool)), "true or false"),
    "rows of two axes": (replaced(FIRST, lambda row: row[None]), r"\(1, 160\)"),
    "rows of all records": (
        lambda folder: [replaced(f"experiment-{m}_6/keep.npy", np.ones_like)(folder) for m in range(6)],
        "all records",
    ),
    "rows as objects": (replaced(KEEP, lambda row: row.astype(object)), "pickled objects"),
    "rows as a pickle": (renamed(KEEP, "keep.pkl"), r"numpy.save\('FILE.npy'"),
    "rows cut short": (short(KEEP), "cut short"),
    "rows behind a link": (link(KEEP), "link"),
    "huge rows": (sparse(FIRST, (1 << 40,), "|b1"), "1,099,511,627,776 records"),
    "an experiment behind a link": (link("experiment-3_6"), "experiment-3_6: is a link"),
    "logits behind a link": (link("experiment-3_6/logits"), "logits: is a link"),
    "a file of logits behind a link": (link(LOGITS), "it is a link"),
    "logits as a folder": (lambda folder: ((folder / LOGITS).unlink(), (folder / LOGITS).mkdir()), "it is a folder"),
    "logits being written": (short(LOGITS), "cut short"),
    "logits of other records": (replaced(LOGITS, lambda each: each[:50]), r"\(50, 2, 4\).*\(160, 2, 4\)"),
    "logits of one view": (replaced(LOGITS, lambda each: each[:, :, :1]), r"\(160, 1, 4\).*\(160, 2, 4\)"),
    "logits of other classes": (replaced(LOGITS, lambda each: each[..., :3]), r"\(160, 2, 3\).*\(160, 2, 4\)"),
    "logits of one axis": (replaced(LOGITS, lambda each: each.ravel()), r"\(1280,\)"),
    "logits that are NaN": (replaced(LOGITS, lambda each: each * np.nan), "NaN"),
    "probabilities": (replaced(LOGITS, lambda each: np.full_like(each, 0.25)), "probabilities"),
    "logits of more classes": (sparse(LOGITS, (POOL, 2, 4096), "<f4"), "model 3.*4096"),
    "all logits huge": (
        lambda folder: [
            sparse(f"experiment-{m}_6/logits/0000000100.npy", (POOL, 1000, 10**6), "<f4")(folder) for m in range(6)
        ],
        "experiment-0_6/logits/0000000100.npy: has .* GiB, more than the allowed",
    ),
    "no logits": (lambda folder: [path.unlink() for path in folder.rglob("logits/*")], "inference.py"),
    "no labels": (lambda folder: (folder / "y_train.npy").unlink(), "--labels"),
    "labels as a pickle": (renamed("y_train.npy", "y_train.pkl"), r"numpy.save\('FILE.npy'"),
    "fewer labels": (replaced("y_train.npy", lambda each: each[:50]), r"\(50,\).*160 records"),
    "labels that are no classes": (replaced("y_train.npy", lambda each: each + 1), "outside the 4"),
    "hyperparameters that are no JSON": (
        lambda folder: (folder / "experiment-3_6/hparams.json").write_text("["),
        "one JSON object",
    ),
    "huge hyperparameters": (
        lambda folder: (folder / "experiment-3_6/hparams.json").write_text(" " * 70_000),
        "65536 bytes",
    ),
}
ROWS_FILE = "models/memberships.npy"
SIGNALS = "signals/rmia_signals.npy"
PRIVACY_METER: dict[str, tuple[Callable[[Path], Any], str]] = {
    "signals of other records": (replaced(SIGNALS, lambda each: each[:50]), r"\(50, 6\).*6 models and 160"),
    "more signals than models": (replaced(SIGNALS, lambda each: np.tile(each, 2)), r"\(160, 12\)"),
    "losses": (replaced(SIGNALS, lambda each: -40 * np.log(each / 2)), r"numpy.exp\(-signals\)"),
    "signals that are NaN": (replaced(SIGNALS, lambda each: each * np.nan), "NaN|nan"),
    "signals as a pickle": (renamed(SIGNALS, "rmia_signals.pkl"), r"numpy.save\('FILE.npy'"),
    "no signals": (lambda folder: (folder / SIGNALS).unlink(), "none"),
    "signals of two algorithms": (
        lambda folder: np.save(folder / "signals/loss_signals.npy", np.zeros(1)),
        "loss_signals.npy, rmia_signals.npy",
    ),
    "signals behind a link": (link(SIGNALS), "it is a link"),
    "the folder of signals behind a link": (link("signals"), "signals: is a link"),
    "the folder of models behind a link": (link("models"), "models: is a link"),
    "memberships of one axis": (replaced(ROWS_FILE, lambda each: each[0]), r"\(160,\)"),
    "memberships as a pickle": (renamed(ROWS_FILE, "memberships.pkl"), r"numpy.save\('FILE.npy'"),
    "memberships as objects": (replaced(ROWS_FILE, lambda each: each.astype(object)), "pickled objects"),
    "memberships that are no booleans": (replaced(ROWS_FILE, lambda each: each.astype(float)), "float64"),
    "huge memberships": (sparse(ROWS_FILE, (16, 1 << 36), "|b1"), "68,719,476,736 records"),
}


def refused(tool: str, *words: str, cause: str) -> None:
    """The import is refused, for this cause, and leaves nothing."""
    before = sizes()
    done = imported(tool, *words)
    assert (done.code, done.out) == (2, ""), done.out
    assert re.search(cause, done.err), done.err
    assert sizes() == before


def sizes() -> dict[Path, int]:
    """What is here, without reading it: some files say that they are larger than any disk."""
    return {path: path.lstat().st_size for path in Path(".").rglob("*")}


TOOLS = {"exp": (write_lira, ROWS, LIRA), "audit": (write_privacy_meter, LABELS, PRIVACY_METER)}


@pytest.mark.parametrize(("tool", "name"), [(tool, name) for tool, (*_, table) in TOOLS.items() for name in table])
def test_directories_that_are_refused(folder: Path, tool: str, name: str):
    write, words, table = TOOLS[tool]
    change, cause = table[name]
    write(folder / tool, 6)
    change(folder / tool)
    refused(tool, *words, cause=cause)


OPTIONS: dict[str, tuple[Callable[[], Any], tuple[str, ...], str]] = {
    "rows of both": (lambda: np.save("h.npy", QUERY[:5]), ROWS, "5 records in common"),
    "rows twice": (lambda: np.save("q.npy", [1, 1, 2]), ROWS, "1 records twice"),
    "rows beyond the pool": (lambda: np.save("q.npy", [1, POOL]), ROWS, "0 to 159"),
    "rows below 0": (lambda: np.save("q.npy", [1, -1]), ROWS, "0 to 159"),
    "rows of fractions": (lambda: np.save("q.npy", [1.0, 2.0]), ROWS, "float64"),
    "rows as a mask of another pool": (lambda: np.save("q.npy", np.ones(50, bool)), ROWS, r"bool of shape \(50,\)"),
    "no row": (lambda: np.save("q.npy", np.zeros(POOL, bool)), ROWS, "shape"),
    "more rows than the pool": (lambda: np.save("q.npy", np.arange(20_000)), ROWS, "GiB"),
    "every record held out": (lambda: np.save("h.npy", np.arange(POOL)), ROWS[2:], "all 160"),
    "rows as a pickle": (lambda: Path("q.npy").rename("q.pkl"), ("--query-rows", "q.pkl"), "numpy.save"),
    "no file of rows": (lambda: None, ("--query-rows", "nowhere.npy"), "nowhere.npy"),
    "a place that is taken": (lambda: (Path("bank").mkdir(), Path("bank/mine").touch()), (), "other files"),
    "a directory of nothing known": (
        lambda: Path("exp").rename("old") and Path("exp").mkdir(),
        (),
        "keep.npy.*memberships",
    ),
    "pickles alone": (
        lambda: (Path("exp").rename("old"), Path("exp").mkdir(), Path("exp/shadows.pkl").touch()),
        (),
        "numpy.save",
    ),
    "no directory": (lambda: Path("exp").rename("old"), (), "no such directory"),
    "a long recipe": (lambda: None, ("--recipe", "x" * 10_001), "10001"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_that_are_refused(folder: Path, name: str):
    change, words, cause = OPTIONS[name]
    write_lira(folder / "exp", 6)
    change()
    refused("exp", *words, cause=cause)


def test_a_full_disk_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch):
    write_lira(folder / "exp", 6)
    written, write = [], np.lib.format.write_array

    def full(file: Any, array: np.ndarray, **words: Any) -> None:
        written.append(array.shape)
        if len(written) == 6:
            raise OSError(28, "No space left on device")
        write(file, array, **words)

    monkeypatch.setattr(writing.np.lib.format, "write_array", full)
    refused("exp", *ROWS, cause="No space left")
    assert len(written) == 6
    monkeypatch.undo()
    os.chdir(folder)
    assert imported("exp", *ROWS).code == 0
    assert len(load_bank("bank").finished()) == 6


def test_names_that_are_no_directories(folder: Path):
    for name in ("x" * 5000, "q.npy", "q.npy/x"):
        refused(name, cause="no such directory")
