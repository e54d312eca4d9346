"""`jaxaudit ks` with a holdout and with the shadow test, with and without rho, from its options to its page."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from support.cli_runs import RECORDS, SETS, Done, intercept, jaxaudit, records, write_sets
from support.html_pages import Parsed

from jaxaudit.audits.ks.tests import EMATest, HoldoutTest, KSTest, ReferenceTest, RhoTest, ShadowTest
from jaxaudit.report.kinds import schema_of

RECIPE = ("--hidden", "32", "--learning-rate", "0.02", "--batch-size", "50", "--replicates", "2")
RECIPE += ("--models-per-batch", "16")
HELD_TARGET = ("--holdout", "holdout.npz", "--target", "t.npy", "--holdout-target", "t_h.npy")
PAIR = ("--before", "b.npy", "--holdout-before", "b_h.npy")
FEW = (*SETS, "--hidden", "32", "--batch-size", "50", "--epochs", "4", "--shadow-models", "19", "--designs", "guess")
FEW += ("--holdout-shadow-models", "19", *HELD_TARGET, *PAIR, "--target-data", "query.npz", "--out", "run")
TRACES = re.compile(r"\brho\b|paper's rule|noise floor|query models?\b|positive control", re.IGNORECASE)
OF_RHO = ("rho", "ks", "controls", "paper_rule", "rho_verdict")


def write_holdout(folder: Path) -> None:
    inputs, labels = records(5, 0.0)
    np.savez(folder / "holdout.npz", x=inputs, y=labels)
    for name, sure in (("t", 0.9), ("t_h", 0.6), ("b", 0.8), ("b_h", 0.6)):
        np.save(folder / f"{name}.npy", np.eye(3)[np.arange(RECORDS) % 3] * sure + (1 - sure) / 3)


@pytest.fixture
def with_holdout(sets: Path) -> Path:
    write_holdout(sets)
    return sets


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the audit would have been asked for, where it stops at once."""
    return intercept(monkeypatch, "jaxaudit.cli.ks.run.audit_ks")


def run_in(folder: Path, *words: str) -> tuple[Path, Done]:
    """A run in a folder of its own, where models per batch are not yet measured."""
    write_sets(folder)
    write_holdout(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("COLUMNS", "80")
        patch.setenv("JAXAUDIT_CACHE", str(folder / "cache"))
        done = jaxaudit("ks", *FEW, *words)
    assert done.code == 0, done.err
    return folder, done


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """All tests, without a budget."""
    words = ("--tests", "all", "--replicates", "2", "--budget", "none", "--json")
    return run_in(tmp_path_factory.mktemp("everything"), *words)


@pytest.fixture(scope="module")
def without_rho(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """Two tests and no rho, within the usual budget."""
    words = ("--tests", "holdout,shadow", "--replicates", "0", "--report", "page.html")
    return run_in(tmp_path_factory.mktemp("without"), *words)


@pytest.mark.outer
def test_all_methods_in_one_result(everything: tuple[Path, Done]):
    folder, done = everything
    jsonschema.validate(done.result, schema_of("ks"))
    file, simulated = done.result["targets"]
    assert [usage["method"] for usage in file["usage"]] == ["holdout", "shadow"]
    assert file["method"] == simulated["method"] == "holdout"
    # The file is surer of every query record than of any holdout record.
    assert file["verdict"] == "not forgotten"
    assert file["usage"][0]["p_never"] == 0.0005
    assert file["ema"]["p_value"] == 1
    assert file["paper_rule"] in ("forgotten", "not forgotten")
    provenance = done.result["provenance"]
    assert provenance["data"]["holdout"]["records"] == RECORDS
    assert [target["name"] for target in provenance["holdout_targets"]] == ["t_h.npy"]
    assert [provenance[role][0]["name"] for role in ("before", "holdout_before")] == ["b.npy", "b_h.npy"]
    # Nobody knows how much the file's model remembers: that it uses less now has a p-value, and how much less has none.
    assert [file["change"][name] for name in ("fraction", "low", "high")] == [None, -1, 1]
    assert 0 < file["change"]["p_value"] <= 1
    assert simulated["change"] is None
    assert file["usage"][0]["p_never_adjusted"] == 0.001
    assert "--holdout-target" in provenance["command"]
    assert json.loads((folder / "run/result.json").read_text()) == done.result
    assert np.load(folder / "run/outputs.npy", mmap_mode="r").shape[1] == 3 * RECORDS


@pytest.mark.outer
def test_more_tests_models_and_no_budget_change_no_number(
    everything: tuple[Path, Done], without_rho: tuple[Path, Done]
):
    """Also the models per batch, whose number is measured here, follows from the design alone."""
    (every, more), (some, fewer) = everything, without_rho
    one, other = (json.loads((folder / "run/result.json").read_text()) for folder in (every, some))
    assert [target["usage"] for target in one["targets"]] == [target["usage"] for target in other["targets"]]
    assert [set(re.findall(r"(\d+) models$", done.err, re.MULTILINE)) for done in (more, fewer)] == [{"82"}, {"77"}]


def test_without_rho_no_output_speaks_of_it(
    without_rho: tuple[Path, Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder, done = without_rho
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, done.out.splitlines())) <= 80
    result = json.loads((folder / "run/result.json").read_text())
    jsonschema.validate(result, schema_of("ks"))
    for text in (done.out, done.err, Parsed((folder / "page.html").read_text("utf-8")).text):
        assert not TRACES.search(text)
    assert result["noise_floor"] is None
    for target in result["targets"]:
        assert {target[name] for name in OF_RHO} == {None}
        assert [test["name"] for test in target["tests"]] == ["holdout", "shadow"]
    assert result["provenance"]["options"]["replicates"] == 0
    assert result["provenance"]["plan"]["models"] == 77
    with np.load(folder / "run/confidences.npz", allow_pickle=False) as arrays:
        assert set(arrays.files) == {"labels", "target_0", "target_1"}
        assert arrays["target_0"].shape == (RECORDS,)
    assert jaxaudit("report", str(folder / "run"), "--text").out.split() == done.out.split()
    charts = tmp_path / "charts"
    drawn = jaxaudit("report", str(folder / "run"), "--figures", str(charts), "--out", str(tmp_path / "again.html"))
    assert drawn.code == 0, drawn.err
    assert [path.name for path in charts.iterdir()] == ["used.svg"]


def test_what_judges(with_holdout: Path, asked: dict[str, Any]):
    def of(*words: str) -> tuple[tuple[KSTest, ...], bool, str]:
        done = jaxaudit("ks", *SETS, *RECIPE, "--budget", "none", "--designs", "guess", *words)
        assert done.err.endswith("Error: enough\n")
        models = re.search(r"(\d+) models$", done.err.splitlines()[-2])
        assert models
        return asked["tests"], asked["holdout"] is not None, models[1]

    held, rho = ("--holdout", "holdout.npz"), RhoTest(replicates=2)
    # As many as a p-value of 0.05 takes that is adjusted for the three targets.
    counts = {"without_query": 59, "half_query": 29, "with_query": 29, "targets": 3}
    shadow, reference, holdout = ShadowTest(**counts), ReferenceTest(**counts), HoldoutTest()
    assert of() == ((shadow, rho), False, "125")
    more = ShadowTest(without_query=60, half_query=30, with_query=30, targets=3)
    assert of("--tests", "shadow", "--shadow-models", "60") == ((more, rho), False, "128")
    assert of(*held) == ((holdout, rho), True, "48")
    assert of("--tests", "rho") == ((rho,), False, "8")
    assert of("--tests", "ema") == ((EMATest(), rho), False, "8")
    assert of("--tests", "all") == ((reference, shadow, EMATest(), rho), False, "125")
    none = ("--replicates", "0")
    assert of(*none) == ((shadow,), False, "120")
    assert of(*none, *held) == ((holdout,), True, "43")
    assert of(*none, "--tests", "all") == ((reference, shadow), False, "120")
    fewer = HoldoutTest(query_and_holdout=20)
    everything = of("--tests", "all", *held, "--holdout-shadow-models", "20")
    assert everything == ((fewer, reference, shadow, EMATest(), rho), True, "145")


def test_the_first_test_named_decides(with_holdout: Path, asked: dict[str, Any]):
    """Also rho, and a test named twice is made once."""
    for names, order in (
        ("rho,shadow", ["rho", "shadow"]),
        (" ema , shadow,ema,, rho", ["ema", "shadow", "rho"]),
        ("shadow,ema", ["shadow", "ema", "rho"]),
    ):
        assert jaxaudit("ks", *SETS, *RECIPE, "--budget", "none", "--tests", names).err.endswith("Error: enough\n")
        assert [test.name for test in asked["tests"]] == order


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--tests", "holdout"), ("--tests holdout", "--holdout")),
        (("--target", "t.npy", "--holdout-target", "t_h.npy"), ("--holdout-target", "--holdout:")),
        (("--holdout", "holdout.npz", "--tests", "rho"), ("--tests rho", "--holdout", "--tests all")),
        (("--holdout", "holdout.npz", "--tests", "rho,shadow"), ("--tests rho,shadow", "--holdout")),
        (("--holdout", "holdout.npz", "--target", "t.npy"), ("--target", "1", "--holdout-target", "0")),
        (
            (*HELD_TARGET[:2], "--target-data", "query.npz", *HELD_TARGET[4:]),
            ("--target", "0", "--holdout-target", "1"),
        ),
        (("--tests", "ema", "--subsample", "1"), ("EMA", "--subsample 1", "--subsample 0.9")),
        (("--tests", "all", "--subsample", "1"), ("EMA", "--subsample 1", "--subsample 0.9")),
        (("--tests", "rho", "--replicates", "0"), ("--tests rho", "--replicates 0", "--replicates 2")),
        (("--tests", "shadow,ema", "--replicates", "0"), ("--tests shadow,ema", "--replicates 0", "ema need")),
        (PAIR, ("--before", "--holdout:")),
        (("--holdout", "holdout.npz", *PAIR), ("--target", "0", "--before", "1")),
        ((*HELD_TARGET, *PAIR[:2]), ("--target", "1", "--before", "1", "--holdout-before", "0")),
        ((*HELD_TARGET, *PAIR[:3], "short.npy"), ("short.npy", "5 rows", "holdout", "300")),
        (("--stated-share", "1"), ("--stated-share", "0.25")),
        (("--holdout", "query.npz"), ("300 of the 300", "query.npz")),
        (("--holdout", "calibration.npz"), ("calibration.npz", "calibration set")),
        (("--holdout", "nowhere.npz"), ("--holdout nowhere.npz",)),
        ((*HELD_TARGET[:-1], "short.npy"), ("short.npy", "5 rows", "holdout", "300")),
    ],
)
def test_what_does_not_go_together_is_one_clear_line(with_holdout: Path, words: tuple[str, ...], said: tuple[str, ...]):
    np.save("short.npy", np.full((5, 3), 1 / 3))
    done = jaxaudit("ks", *SETS, *RECIPE, *words)
    assert done.code == 2
    (line,) = [line for line in done.err.splitlines() if line.startswith("Error: ")]
    assert [each for each in said if each not in line] == [], line


@pytest.mark.outer
def test_what_query_set_and_holdout_share_is_dropped_with_its_outputs(with_holdout: Path, asked: dict[str, Any]):
    # The holdout has copies of query records 2 and 4, the query set has its record 9 at 0, too, and the calibration set
    # has the holdout's record 3 and query record 4.
    (mine, labels), (other, their), (held, own) = records(2, 0.0), records(3, 0.5), records(5, 0.0)
    mine[0], labels[0] = mine[9], labels[9]
    x, y = np.concatenate([held, mine[[2, 4]]]), np.concatenate([own, labels[[2, 4]]])
    more, names = np.concatenate([other, held[3:4], mine[4:5]]), np.concatenate([their, own[3:4], labels[4:5]])
    np.savez("query.npz", x=mine, y=labels)
    np.savez("holdout.npz", x=x, y=y)
    np.savez("calibration.npz", x=more, y=names)
    first = np.linspace(0.1, 0.9, RECORDS + 2, dtype=np.float64)
    rows = np.stack([first, 1 - first, 0 * first], axis=1)
    np.save("t.npy", rows[:RECORDS])
    np.save("t_h.npy", rows)
    np.save("b.npy", rows[:RECORDS, [1, 0, 2]])
    np.save("b_h.npy", rows[:, [1, 0, 2]])
    files = (*HELD_TARGET, *PAIR)
    refused = jaxaudit("ks", *SETS, *RECIPE, *files)
    assert refused.code == 2
    assert "calibration.npz" in refused.err
    done = jaxaudit("ks", *SETS, *RECIPE, *files, "--drop-overlap")
    query, own, both = done.err.splitlines()[:3]
    assert {"1", "calibration", "query"} <= set(query.split())
    assert {"1", "calibration", "holdout"} <= set(own.split())
    assert re.findall(r"\d+ of the \w+", both) == ["4 of the query", "2 of the holdout"]
    left = np.delete(np.arange(RECORDS), [0, 2, 4, 9])
    np.testing.assert_array_equal(asked["query"].inputs, mine[left])
    np.testing.assert_array_equal(asked["holdout"].inputs, x[:RECORDS])
    assert len(asked["calibration"]) == RECORDS
    exact = first.astype(np.float32)
    (file,) = asked["targets"]
    assert file.outputs.probabilities[:, 0].tolist() == exact[left].tolist()
    assert file.on_holdout.probabilities[:, 0].tolist() == exact[:RECORDS].tolist()
    assert file.before.probabilities[:, 1].tolist() == exact[left].tolist()
    assert file.before_on_holdout.probabilities[:, 1].tolist() == exact[:RECORDS].tolist()


def test_contents_and_options_make_a_run_and_names_do_not(with_holdout: Path, asked: dict[str, Any]):
    inputs, labels = records(6, 0.0)
    np.savez("other.npz", x=inputs, y=labels)
    shutil.copy("holdout.npz", "copy.npz")
    shutil.copy("t.npy", "copy.npy")
    shutil.copy("t_h.npy", "other.npy")

    def identity(**more: str) -> Path:
        words = {"holdout": "holdout.npz", "target": "t.npy", "holdout-target": "t_h.npy", "budget": "none"} | more
        given = (word for name, value in words.items() for word in (f"--{name.replace('_', '-')}", value))
        assert jaxaudit("ks", *SETS, *RECIPE, "--json", *given).err.endswith("Error: enough\n")
        return asked["execution"].checkpoints.parent

    usual = identity()
    for same in ({}, {"holdout": "copy.npz"}, {"target": "copy.npy"}):
        assert identity(**same) == usual
    others = (
        {"shadow_models": "20"},
        {"holdout": "other.npz"},
        {"target": "other.npy"},
        {"stated_share": "0.1"},
        {"before": "other.npy", "holdout_before": "t_h.npy"},
    )
    assert len({usual, *(identity(**other) for other in others)}) == len(others) + 1
