"""`jaxaudit shadows import`: what other tools left becomes a bank, whole or not at all, and what is refused."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from support.cli_runs import Done, content, jaxaudit, refused
from support.other_tools import CLASSES, POOL, pool, write_lira, write_lira_pytorch

from jaxaudit import Bank, load_bank

EACH = 60
MIXED = np.random.default_rng(1).permutation(POOL)
QUERY, HOLDOUT, REST = MIXED[:EACH], MIXED[EACH : 2 * EACH], np.sort(MIXED[2 * EACH :])
ROWS = ("--query-rows", "q.npy", "--holdout-rows", "h.npy")
LABELS = ("--labels", "labels.npy")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with rows of a query set and a holdout."""
    monkeypatch.chdir(tmp_path)
    np.save("q.npy", QUERY)
    np.save("h.npy", HOLDOUT)
    return tmp_path


def imported(tool: str, *words: str, out: str = "bank") -> Done:
    return jaxaudit("shadows", "import", tool, "--out", out, *words)


def good(tool: str, *words: str, out: str = "bank") -> Bank:
    done = imported(tool, *words, out=out)
    assert done.code == 0, done.err
    return load_bank(out)


def targets(said: Callable[[np.ndarray], np.ndarray]) -> tuple[str, ...]:
    """Files of a target that used the query set and one that did not, in the form of the bank; their options."""
    words: list[str] = []
    for place, used in enumerate((True, False)):
        members = np.isin(np.arange(POOL), QUERY) & used
        members[REST[::2]] = True
        outputs = said(pool().logits(900 + place, members))
        Path(f"target{place}").mkdir()
        for role, rows in (("query", QUERY), ("holdout", HOLDOUT)):
            np.save(f"target{place}/{role}.npy", outputs[rows])
        words += ["--target", f"target{place}"]
    return tuple(words)


FORMS: dict[str, tuple[Callable[[Path], np.ndarray], Callable[[np.ndarray], np.ndarray], tuple[str, ...]]] = {
    "LiRA, logits": (lambda path: write_lira(path, 22), lambda views: views, ()),
    "lira-pytorch": (lambda path: write_lira_pytorch(path, 22), lambda views: views, LABELS),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_a_tool_left_is_imported_shown_and_judges_targets(folder: Path, form: str):
    """A used target is found at p = 0.05 and an unused one is not: with this much memory, but for 1 key in 20."""
    write, said, words = FORMS[form]
    rows = write(folder / "tool")
    before = content(folder / "tool")
    done = imported("tool", *ROWS, *words)
    assert (done.code, "22 of them finished" in done.out) == (0, True), done.err
    assert content(folder / "tool") == before
    bank, order = load_bank("bank"), np.concatenate([QUERY, HOLDOUT, REST])
    np.testing.assert_array_equal(bank.membership, rows[:, order])
    np.testing.assert_array_equal(bank.labels, pool().labels[order])
    shown = jaxaudit("shadows", "show", "bank", "--json").result
    assert msgspec.structs.astuple(bank.description.sizes) == (EACH, EACH, POOL - 2 * EACH)
    assert (shown["finished"], shown["refused"], shown["tests"]["holdout"]["possible"]) == (22, {}, True)
    assert min(shown["training_accuracy"].values()) > 0.9
    judged = jaxaudit("ks", "--shadows", "bank", *targets(said), "--json").result["targets"]
    assert [each["finding"]["verdict"] for each in judged] == ["not forgotten", "forgotten"]


def test_outputs_are_those_of_the_last_epoch_in_the_order_of_the_bank(folder: Path):
    rows = write_lira(folder / "exp", 12, finished=10)
    bank = good("exp", *ROWS)
    assert (bank.finished().tolist(), bank.missing().tolist()) == ([*range(10)], [10, 11])
    said = bank.description
    assert (said.outputs, said.queries, said.classes, said.seed) == ("logits", 2, CLASSES, None)
    for part in ("arch=wrn28-2", "epochs=100", "after epoch 100"):
        assert part in said.recipe
    assert "seed" not in said.recipe
    # Experiment 10 comes after experiment 9.
    logits = np.load("exp/experiment-9_12/logits/0000000100.npy")[:, 0]
    np.testing.assert_array_equal(bank.outputs(9), logits[np.concatenate([QUERY, HOLDOUT, REST])])
    np.testing.assert_array_equal(bank.membership[11, :EACH], rows[11, QUERY])
    assert {path.stat().st_mode & 0o777 for path in Path("bank").rglob("*.*")} == {0o600}
    assert {path.name for path in Path("bank").iterdir()} == {"bank.json", "labels.npy", "membership.npy", "outputs"}


def test_without_rows_the_pool_is_the_query_set_and_ks_says_what_is_missing(folder: Path):
    write_lira(folder / "exp")
    good("exp")
    assert msgspec.structs.astuple(load_bank("bank").description.sizes) == (POOL, 0, 0)
    np.save("target.npy", pool().logits(1, np.ones(POOL, bool)))
    said = ("holdout", "0 of at least 19 models without the query set")
    refused(("ks", "--shadows", "bank", "--target", "target.npy"), said)


def test_rows_are_numbers_or_a_boolean_for_each_record(folder: Path):
    """The records that one of the models was trained on, for instance."""
    rows = write_lira(folder / "exp")
    np.save("numbers.npy", np.flatnonzero(rows[0]))
    files = {"mask": "exp/experiment-0_24/keep.npy", "numbers": "numbers.npy"}
    one, two = (good("exp", "--holdout-rows", file, out=out) for out, file in files.items())
    assert msgspec.structs.astuple(one.description.sizes) == (int((~rows[0]).sum()), int(rows[0].sum()), 0)
    assert content(one.directory) == content(two.directory)


# What is refused, each by its cause


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


def hyperparameters(text: str) -> Callable[[Path], None]:
    """Those of one experiment are these, and of another none."""

    def write(folder: Path) -> None:
        (folder / "experiment-3_6/hparams.json").write_text(text)
        (folder / "experiment-4_6/hparams.json").unlink()

    return write


KEEP, LOGITS, FIRST = "experiment-3_6/keep.npy", "experiment-3_6/logits/0000000100.npy", "experiment-0_6/keep.npy"
LIRA: dict[str, tuple[Callable[[Path], Any], str]] = {
    "rows of other records": (replaced(KEEP, lambda row: row[:50]), "as many records as the first experiment"),
    "rows that are no booleans": (replaced(KEEP, lambda row: row.astype(int)), "int64"),
    "rows of all records": (
        lambda folder: [replaced(f"experiment-{m}_6/keep.npy", np.ones_like)(folder) for m in range(6)],
        "all records",
    ),
    "rows as a pickle": (renamed(KEEP, "keep.pkl"), r"numpy.save\('FILE.npy'"),
    "huge rows": (sparse(FIRST, (1 << 40,), "|b1"), "1,099,511,627,776 records"),
    "an experiment behind a link": (link("experiment-3_6"), "experiment-3_6: is a link"),
    "logits of other records": (replaced(LOGITS, lambda each: each[:50]), r"\(50, 2, 4\).*\(160, 2, 4\)"),
    "logits that are NaN": (replaced(LOGITS, lambda each: each * np.nan), "NaN"),
    "probabilities": (replaced(LOGITS, lambda each: np.full_like(each, 0.25)), "probabilities"),
    "no logits": (lambda folder: [path.unlink() for path in folder.rglob("logits/*")], "inference.py"),
    "no labels": (lambda folder: (folder / "y_train.npy").unlink(), "--labels"),
    "fewer labels": (replaced("y_train.npy", lambda each: each[:50]), r"\(50,\).*160 records"),
    "a hyperparameter twice": (hyperparameters('{"lr": 1, "lr": 2}'), "twice"),
    "huge hyperparameters": (hyperparameters(" " * 70_000), "65,536 bytes"),
    "models of several networks": (hyperparameters('{"arch": "cnn"}'), "wrn28-2, cnn, unknown"),
}


def not_imported(tool: str, *words: str, cause: str) -> None:
    """The import is refused, for this cause, and leaves nothing."""
    before = sizes()
    done = imported(tool, *words)
    assert (done.code, done.out) == (2, ""), done.out
    assert re.search(cause, done.err), done.err
    assert sizes() == before


def sizes() -> dict[Path, int]:
    """What is here, without reading it: some files say that they are larger than any disk."""
    return {path: path.lstat().st_size for path in Path(".").rglob("*")}


@pytest.mark.parametrize("name", LIRA)
def test_directories_that_are_refused(folder: Path, name: str):
    change, cause = LIRA[name]
    write_lira(folder / "exp", 6)
    change(folder / "exp")
    not_imported("exp", *ROWS, cause=cause)


OPTIONS: dict[str, tuple[Callable[[], Any], tuple[str, ...], str]] = {
    "rows of both": (lambda: np.save("h.npy", QUERY[:5]), ROWS, "5 records in common"),
    "rows twice": (lambda: np.save("q.npy", [1, 1, 2]), ROWS, "each once"),
    "rows beyond the pool": (lambda: np.save("q.npy", [1, POOL]), ROWS, "0 to 159"),
    "every record held out": (lambda: np.save("h.npy", np.arange(POOL)), ROWS[2:], "all 160"),
    "rows as a pickle": (lambda: Path("q.npy").rename("q.pkl"), ("--query-rows", "q.pkl"), "numpy.save"),
    "a place that is taken": (lambda: (Path("bank").mkdir(), Path("bank/mine").touch()), (), "other files"),
    "nothing known": (lambda: Path("none").mkdir(), (), "keep.npy.*such as Privacy Meter, write its arrays"),
    "pickles alone": (lambda: (Path("none").mkdir(), Path("none/shadows.pkl").touch()), (), "numpy.save"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_that_are_refused(folder: Path, name: str):
    change, words, cause = OPTIONS[name]
    write_lira(folder / "exp", 6)
    change()
    not_imported("none" if Path("none").exists() else "exp", *words, cause=cause)
