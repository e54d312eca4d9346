"""`jaxaudit ks --groups`: groups reach the test with their records, and nothing else."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cli_runs import RECORDS, SETS, intercept, jaxaudit, records

from jaxaudit.metrics.checks import HOLDOUT_APART, HOLDOUT_LIKE_QUERY

RECIPE = ("--hidden", "16", "--learning-rate", "0.02", "--batch-size", "50", "--replicates", "2", "--epochs", "2")
HELD = (*SETS, *RECIPE, "--models-per-batch", "16", "--budget", "none", "--designs", "guess")
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
    Path("held.csv").write_text("".join(f"patient {number // 5}\n" for number in range(RECORDS)))
    return sets


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the audit would have been asked for, where it stops at once."""
    return intercept(monkeypatch, "jaxaudit.cli.ks.run.audit_ks")


@pytest.mark.outer
def test_groups_are_dealt_and_permuted_whole(grouped: Path) -> None:
    words = (*HELD, "--target-data", "query.npz", "--holdout-shadow-models", "19", "--json", "--out", "run")
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
    assert other["targets"][0]["usage"][0]["p_never"] != target["usage"][0]["p_never"]


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
        (("--holdout-groups", "held.csv"), ("--groups", "--holdout-groups")),
        (("--groups", "missing.npy", "--holdout-groups", "held.csv"), ("--groups missing.npy",)),
        (("--groups", "nobody", "--holdout-groups", "held.csv"), ("'nobody'", "query.npz")),
        (("--groups", "patient", "--holdout-groups", "both.npy"), ("60 of 60",)),
        (("--groups", "few.npy", "--holdout-groups", "held_few.npy"), ("1 groups", "3 of the holdout", "4 ways")),
    ],
)
def test_what_is_no_deal_of_groups_is_refused_before_training(
    grouped: Path, words: tuple[str, ...], said: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jaxaudit.audits.ks.audit.train_roles", None)
    np.save("both.npy", 4000 + np.arange(RECORDS) // 5)
    np.save("few.npy", np.zeros(RECORDS, int))
    np.save("held_few.npy", 1 + np.arange(RECORDS) // 100)
    done = jaxaudit("ks", *HELD, *words)
    assert done.code == 2
    assert all(each in done.err for each in said), done.err
    done = jaxaudit("ks", *SETS, *GROUPS)
    assert (done.code, "--holdout" in done.err) == (2, True)


def test_near_copies_that_were_dealt_together_ask_for_groups(grouped: Path) -> None:
    """By records the check fails and says so; by groups it passes."""
    random = np.random.default_rng(8)
    inputs, labels = (each[::5].repeat(5, axis=0) for each in records(2, 0.0, 2 * RECORDS))
    inputs = (inputs + 0.01 * random.normal(size=inputs.shape)).astype(np.float32)
    order = random.permutation(2 * MANY).repeat(5).argsort(kind="stable")
    inputs, labels, patients = inputs[order], labels[order], (np.arange(2 * RECORDS) // 5)[order]
    np.savez("query.npz", x=inputs[:RECORDS], y=labels[:RECORDS], patient=patients[:RECORDS])
    np.savez("holdout.npz", x=inputs[RECORDS:], y=labels[RECORDS:], patient=patients[RECORDS:])
    words = (*HELD, "--target-data", "query.npz", "--holdout-shadow-models", "19", "--json")
    states = {}
    for given in ((), ("--groups", "patient", "--holdout-groups", "patient")):
        (target,) = jaxaudit("ks", *words, *given).result["targets"]
        states[bool(given)] = {each["name"]: each for each in target["checks"]}
    assert not states[False][HOLDOUT_LIKE_QUERY]["passed"]
    assert "--groups" in states[False][HOLDOUT_LIKE_QUERY]["message"]
    assert states[True][HOLDOUT_LIKE_QUERY]["passed"]
    assert all(each[HOLDOUT_APART]["passed"] for each in states.values())
