"""`jaxaudit ks` with a holdout, groups, or a reference, on sets small enough to train on in a second."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from support.cli_runs import RECORDS, SETS, intercept, jaxaudit, records, refused
from support.details import details_of

from jaxaudit.audits.ks.tests_of_use import HoldoutTest, KSTest, RhoTest, ShadowTest
from jaxaudit.report.kinds import schema_of

RECIPE = (
    "--recipe",
    "hidden=32",
    "--recipe",
    "learning-rate=0.02",
    "--recipe",
    "batch-size=50",
    "--test-option",
    "rho.replicates=2",
)
RECIPE += ("--recipe", "models-per-batch=16")
HELD_TARGET = ("--holdout", "holdout.npz", "--target", "t.npy", "--holdout-target", "t_h.npy")
PAIR = ("--before", "b.npy", "--holdout-before", "b_h.npy")
FEW = (*SETS, "--recipe", "hidden=32", "--recipe", "batch-size=50", "--epochs", "4", "--shadow-models", "19")
FEW += ("--test-option", "holdout.mixed=19", *HELD_TARGET, *PAIR, "--target-data", "query.npz", "--out", "run")


@pytest.fixture
def with_holdout(sets: Path) -> Path:
    inputs, labels = records(5, 0.0)
    np.savez("holdout.npz", x=inputs, y=labels)
    for name, sure in (("t", 0.9), ("t_h", 0.6), ("b", 0.8), ("b_h", 0.6)):
        np.save(f"{name}.npy", np.eye(3)[np.arange(RECORDS) % 3] * sure + (1 - sure) / 3)
    return sets


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the audit would have been asked for, where it stops at once."""
    return intercept(monkeypatch, "jaxaudit.cli.ks.run.train_shadows")


@pytest.mark.outer
def test_all_methods_in_one_result(with_holdout: Path):
    done = jaxaudit("ks", *FEW, "--tests", "all", "--test-option", "rho.replicates=2", "--effort", "full", "--json")
    jsonschema.validate(done.result, schema_of("ks"))
    file, simulated = done.result["targets"]
    assert [usage["method"] for usage in details_of(file)] == ["holdout", "shadow"]
    assert file["tests"][0]["name"] == simulated["tests"][0]["name"] == "holdout"
    # The file is surer of every query record than of any holdout record.
    assert file["finding"]["verdict"] == "not forgotten"
    provenance = done.result["provenance"]
    assert provenance["data"]["holdout"]["records"] == RECORDS
    assert [target["name"] for target in provenance["holdout_targets"]] == ["t_h.npy"]
    assert [provenance[role][0]["name"] for role in ("before", "holdout_before")] == ["b.npy", "b_h.npy"]
    # Nobody knows how much the file's model remembers: that it uses less now has a p-value, and how much less has none.
    assert [file["change"][name] for name in ("fraction", "low", "high")] == [None, -1, 1]
    assert 0 < file["change"]["p_value"] <= 1
    assert simulated["change"] is None
    assert file["tests"][0]["details"]["p_never_adjusted"] == 0.001
    assert json.loads(Path("run/result.json").read_text()) == done.result
    assert np.load("run/outputs.npy", mmap_mode="r").shape[1] == 3 * RECORDS


def test_what_judges(with_holdout: Path, asked: dict[str, Any]):
    def of(*words: str) -> tuple[tuple[KSTest, ...], bool, str]:
        done = jaxaudit("ks", *SETS, *RECIPE, "--effort", "full", *words)
        assert done.err.endswith("Error: enough\n")
        models = re.search(r"(\d+) models$", done.err.splitlines()[-2])
        assert models
        return asked["tests"], asked["holdout"] is not None, models[1]

    held, rho = ("--holdout", "holdout.npz"), RhoTest(replicates=2)
    # As many as a p-value of 0.05 takes that is adjusted for the three targets.
    counts = {"never": 59, "half": 29, "fully": 29, "targets": 3}
    shadow, holdout = ShadowTest(**counts), HoldoutTest()
    assert of() == ((shadow, rho), False, "125")
    more = ShadowTest(never=60, half=30, fully=30, targets=3)
    assert of("--tests", "shadow", "--shadow-models", "60") == ((more, rho), False, "128")
    assert of(*held) == ((holdout, rho), True, "48")
    assert of("--tests", "rho") == ((rho,), False, "8")
    assert of("--tests", "all") == ((shadow, rho), False, "125")
    # In the order in which they are named, each once.
    assert of("--tests", " rho , shadow,rho,,") == ((rho, shadow), False, "125")
    none = ("--test-option", "rho.replicates=0")
    assert of(*none) == ((shadow,), False, "120")
    assert of(*none, *held) == ((holdout,), True, "43")
    assert of(*none, "--tests", "all") == ((shadow,), False, "120")
    fewer = HoldoutTest(mixed=20)
    assert of("--tests", "rho,shadow", *none) == ((shadow,), False, "120")
    everything = of("--tests", "all", *held, "--test-option", "holdout.mixed=20")
    assert everything == ((fewer, shadow, rho), True, "145")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--tests", "holdout"), ("the holdout test needs a holdout", "--holdout")),
        (("--target", "t.npy", "--holdout-target", "t_h.npy"), ("--holdout-target: ", "of --holdout,")),
        (("--holdout", "holdout.npz", "--tests", "rho"), ("--tests rho", "--holdout", "--tests all")),
        (("--holdout", "holdout.npz", "--target", "t.npy"), ("--target", "1", "--holdout-target", "0")),
        (
            (*HELD_TARGET[:2], "--target-data", "query.npz", *HELD_TARGET[4:]),
            ("--target", "0", "--holdout-target", "1"),
        ),
        (("--holdout", "holdout.npz", *PAIR), ("--target", "0", "--before", "1")),
        ((*HELD_TARGET, *PAIR[:2]), ("--target", "1", "--holdout-before", "0")),
        (("--stated-share", "1"), ("--stated-share", "0.25")),
        (("--holdout", "query.npz"), ("300 of the 300", "query.npz")),
        (("--holdout", "calibration.npz"), ("calibration.npz", "calibration set")),
        ((*HELD_TARGET[:-1], "short.npy"), ("short.npy", "5 rows", "holdout", "300")),
    ],
)
def test_what_does_not_go_together_is_one_clear_line(with_holdout: Path, words: tuple[str, ...], said: tuple[str, ...]):
    np.save("short.npy", np.full((5, 3), 1 / 3))
    refused(("ks", *SETS, *RECIPE, *words), said)


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
    refused(("ks", *SETS, *RECIPE, *files), ("calibration.npz",))
    done = jaxaudit("ks", *SETS, *RECIPE, *files, "--drop-overlap")
    query, own, both = [line for line in done.err.splitlines() if "read as" not in line][:3]
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
        words = {"holdout": "holdout.npz", "target": "t.npy", "holdout-target": "t_h.npy", "effort": "full"} | more
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
        {"calibration_target": "other.npy"},
        {"calibration_target": "t.npy"},
    )
    assert len({usual, *(identity(**other) for other in others)}) == len(others) + 1


# Groups reach the test with their records, and nothing else.

HELD = (*SETS, *RECIPE, "--recipe", "hidden=16", "--epochs", "2", "--effort", "full")
HELD += ("--holdout", "holdout.npz")
GROUPS = ("--groups", "patient", "--holdout-groups", "held.csv")
MANY = 60
"""Groups of five records in each set."""


@pytest.fixture
def grouped(sets: Path) -> Path:
    inputs, labels = records(2, 0.0)
    np.savez("query.npz", x=inputs, y=labels, patient=4000 + np.arange(RECORDS) // 5)
    inputs, labels = records(5, 0.0)
    np.savez("holdout.npz", x=inputs, y=labels)
    Path("held.csv").write_text("\n".join(["group", *(f"patient {number // 5}" for number in range(RECORDS)), ""]))
    return sets


@pytest.mark.outer
def test_groups_are_dealt_and_permuted_whole(grouped: Path) -> None:
    words = (*HELD, "--target-data", "query.npz", "--test-option", "holdout.mixed=19", "--json", "--out", "run")
    done = jaxaudit("ks", *words, *GROUPS)
    provenance = done.result["provenance"]
    counted = provenance["data"]["groups"]
    assert (counted["query"], counted["holdout"]) == (MANY, MANY)
    assert provenance["options"]["groups"] == "patient"
    assert provenance["options"]["holdout_groups"] == "held.csv"
    (target,) = done.result["targets"]
    assert any(
        f"{MANY} groups of the query set and {MANY} of the holdout" in each for each in target["finding"]["caveats"]
    )
    written = "".join(path.read_text() for path in Path("run").glob("*.[jt]*"))
    assert "patient 1" not in written + done.err
    assert "4001" not in written + done.err
    assert jaxaudit("report", "run", "--out", "page.html").code == 0
    # Without groups it is another run.
    other = jaxaudit("ks", *words[:-2]).result
    assert "groups" not in other["provenance"]["data"]
    assert other["targets"][0]["tests"][0]["details"]["p_never"] != target["tests"][0]["details"]["p_never"]


def test_a_column_with_groups_is_no_input_of_any_set(grouped: Path, asked: dict[str, Any]) -> None:
    def written(name: str, seed: int, first: int) -> None:
        inputs, labels = records(seed, 0.0)
        rows = [*zip(inputs.tolist(), labels.tolist(), strict=True)]
        lines = [f"{','.join(map(repr, row))},p{first + place // 5},{label}" for place, (row, label) in enumerate(rows)]
        header = [*(f"x{place}" for place in range(inputs.shape[1])), "patient", "label"]
        Path(name).write_text("\n".join([",".join(header), *lines, ""]))

    for seed, name in enumerate(("query", "holdout", "calibration"), 2):
        written(f"{name}.csv", seed, 1000 * seed)
    words = [word.replace(".npz", ".csv") for word in HELD]
    done = jaxaudit("ks", *words, "--groups", "patient", "--holdout-groups", "patient")
    assert done.err.endswith("Error: enough\n")
    assert asked["groups"].counts == (MANY, MANY, 0)
    sets = [asked[name].inputs for name in ("query", "holdout", "calibration")]
    np.testing.assert_array_equal(sets[0], records(2, 0.0)[0])
    assert {each.shape[1] for each in sets} == {12}


def test_a_sample_has_whole_groups(grouped: Path, asked: dict[str, Any]) -> None:
    done = jaxaudit("ks", *HELD, *GROUPS, "--sample", "57")
    assert done.err.endswith("Error: enough\n")
    groups = asked["groups"]
    # 57 records are 11 groups of five.
    assert groups.counts == (11, 11, 0)
    assert [len(each) for each in groups] == [55, 55, 0]
    assert (len(asked["query"]), len(asked["holdout"]), len(asked["calibration"])) == (55, 55, 57)
    inputs = records(2, 0.0)[0]
    for index, group in enumerate(groups.query.tolist()):
        (place,) = np.flatnonzero((inputs == asked["query"].inputs[index]).all(axis=1))
        same = groups.query == group
        assert (asked["query"].inputs[same] == inputs[5 * (place // 5) : 5 * (place // 5) + 5]).all()


def test_groups_follow_records_that_are_kept(grouped: Path, asked: dict[str, Any]) -> None:
    inputs, labels = records(5, 0.0)
    inputs[7] = records(2, 0.0)[0][3]
    np.savez("holdout.npz", x=inputs, y=labels)
    done = jaxaudit("ks", *HELD, *GROUPS, "--drop-overlap")
    assert done.err.endswith("Error: enough\n")
    query, holdout = (np.bincount(each) for each in (asked["groups"].query, asked["groups"].holdout - MANY))
    assert query.tolist() == [4] + [5] * (MANY - 1)
    assert holdout.tolist() == [5, 4] + [5] * (MANY - 2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--groups", "patient"), ("--groups", "--holdout-groups")),
        (("--groups", "missing.npy", "--holdout-groups", "held.csv"), ("--groups missing.npy",)),
        (("--groups", "nobody", "--holdout-groups", "held.csv"), ("'nobody'", "query.npz")),
        (("--groups", "patient", "--holdout-groups", "both.npy"), ("60 of 60",)),
        (("--groups", "few.npy", "--holdout-groups", "held_few.npy"), ("1 groups", "3 of the holdout", "4 ways")),
    ],
)
def test_what_is_no_deal_of_groups_is_refused_before_training(
    grouped: Path, words: tuple[str, ...], said: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jaxaudit.audits.ks.train.train_rows", None)
    np.save("both.npy", 4000 + np.arange(RECORDS) // 5)
    np.save("few.npy", np.zeros(RECORDS, int))
    np.save("held_few.npy", 1 + np.arange(RECORDS) // 100)
    refused(("ks", *HELD, *words), said)
    refused(("ks", *SETS, *GROUPS), ("--holdout",))
