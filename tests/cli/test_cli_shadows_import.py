"""`jaxaudit shadows import`: what other tools left becomes a bank, whole or not at all."""

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.cli_runs import Done, content, jaxaudit, refused
from support.other_tools import CLASSES, POOL, pool, probabilities, score, write_lira, write_privacy_meter

from jaxaudit.data.bank.bank import Bank, load_bank

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
        for option, rows in (("--target", QUERY), ("--holdout-target", HOLDOUT)):
            np.save(f"{option[2:]}{place}.npy", outputs[rows])
            words += [option, f"{option[2:]}{place}.npy"]
    return tuple(words)


FORMS: dict[str, tuple[Callable[[Path], np.ndarray], Callable[[np.ndarray], np.ndarray], tuple[str, ...]]] = {
    "LiRA, logits": (lambda path: write_lira(path, 22), lambda views: views, ()),
    "LiRA, scores": (
        lambda path: write_lira(path, 22, scores=True),
        lambda views: score(views[:, None], pool().labels),
        (),
    ),
    "Privacy Meter": (lambda path: write_privacy_meter(path, 22), lambda views: views[:, 0], LABELS),
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
    assert shown["records"] == {"query": EACH, "holdout": EACH, "calibration": POOL - 2 * EACH, "dropped": 0}
    assert (shown["finished"], shown["refused"], shown["tests"]["holdout"]["possible"]) == (22, {}, True)
    assert min(shown["training_accuracy"].values()) > 0.9
    judged = jaxaudit("ks", "--shadows", "bank", *targets(said), "--json").result["targets"]
    assert [each["finding"]["verdict"] for each in judged] == ["not forgotten", "forgotten"]


def test_outputs_are_those_of_the_last_epoch_in_the_order_of_the_bank(folder: Path):
    rows = write_lira(folder / "exp", 12, finished=10)
    bank = good("exp", *ROWS)
    assert (bank.finished().tolist(), bank.missing().tolist()) == ([*range(10)], [10, 11])
    said = bank.description
    assert (said.outputs, said.queries, said.classes, said.seed, said.designs) == ("logits", 2, CLASSES, None, ())
    for part in ("arch=wrn28-2", "epochs=100", "after epoch 100"):
        assert part in said.recipe
    assert "seed" not in said.recipe
    # Experiment 10 comes after experiment 9.
    logits = np.load("exp/experiment-9_12/logits/0000000100.npy")[:, 0]
    np.testing.assert_array_equal(bank.outputs(9), logits[np.concatenate([QUERY, HOLDOUT, REST])])
    np.testing.assert_array_equal(bank.membership[11, :EACH], rows[11, QUERY])
    assert {path.stat().st_mode & 0o777 for path in Path("bank").rglob("*.*")} == {0o600}
    assert {path.name for path in Path("bank").iterdir()} == {"bank.json", "labels.npy", "membership.npy", "outputs"}


def test_signals_are_log_odds_and_later_models_missing(folder: Path):
    rows = write_privacy_meter(folder / "audit", 12, finished=8)
    bank = good("audit", *LABELS)
    assert (bank.finished().tolist(), bank.description.sizes) == ([*range(8)], (POOL, 0, 0))
    share = probabilities(pool().logits(3, rows[3], 1)).astype(np.float64)
    np.testing.assert_allclose(bank.outputs(3)[:, 0, 0], np.log(share / (1 - share)), rtol=1e-4)


def test_without_rows_the_pool_is_the_query_set_and_ks_says_what_is_missing(folder: Path):
    write_lira(folder / "exp")
    assert "holdout" in imported("exp").out
    assert load_bank("bank").description.sizes == (POOL, 0, 0)
    np.save("target.npy", pool().logits(1, np.ones(POOL, bool)))
    said = ("holdout", "0 of at least 19 models without query")
    refused(("ks", "--shadows", "bank", "--target", "target.npy"), said)
    # Nor are models of the holdout test where sets have sizes that they are not trained on.
    np.save("most.npy", QUERY[:8])
    done = imported("exp", "--query-rows", "most.npy", "--holdout-rows", "h.npy", out="other")
    assert "24 of the models are not of the holdout test" in done.out


def test_rows_are_numbers_or_a_boolean_for_each_record(folder: Path):
    """The records that one of the models was trained on, for instance: that model is then none of the holdout test."""
    rows = write_lira(folder / "exp")
    numbers = good("exp", "--holdout-rows", "h.npy")
    assert numbers.description.sizes == (POOL - EACH, EACH, 0)
    np.save("mask.npy", np.isin(np.arange(POOL), HOLDOUT))
    np.save("sorted.npy", np.sort(HOLDOUT))
    one, two = (good("exp", "--holdout-rows", f"{name}.npy", out=name) for name in ("mask", "sorted"))
    assert content(one.directory) == content(two.directory)
    np.save("rest.npy", ~rows[0])
    done = imported("exp", "--query-rows", "exp/experiment-0_24/keep.npy", "--holdout-rows", "rest.npy", out="own")
    found = jaxaudit("shadows", "show", "own", "--json").result["tests"]["holdout"]
    assert 19 <= found["planned"]["query_and_holdout"] <= 23
    assert f"{24 - found['planned']['query_and_holdout']} of the models are not of the holdout test" in done.out


def test_architectures_are_designs(folder: Path):
    write_lira(folder / "exp", 4)
    (folder / "exp/experiment-1_4/hparams.json").write_text(json.dumps({"arch": "cnn", "lr": 0.1}))
    (folder / "exp/experiment-2_4/hparams.json").unlink()
    bank = good("exp", "--recipe", "mine")
    assert (bank.description.designs, bank.designs.tolist()) == (("wrn28-2", "cnn", "unknown"), [0, 1, 2, 0])
    assert bank.description.recipe == "mine"


def test_models_are_copied_one_by_one(folder: Path):
    """Four further models of 2 MB each take no more memory than one of them."""
    most = {}
    for models in (2, 4, 8):  # the first of them imports what the others need
        write_lira(folder / f"exp{models}", models)
        for path in folder.glob(f"exp{models}/*/logits/0000000100.npy"):
            np.save(path, np.tile(np.load(path), (1, 1, 400, 1)))
        tracemalloc.start()
        try:
            bank = good(f"exp{models}", *ROWS, out=f"{models}")
            most[models] = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert len(bank.finished()) == models
        size = bank.outputs(0).nbytes
    assert size == POOL * 800 * CLASSES * 4
    assert most[8] < most[4] + size
