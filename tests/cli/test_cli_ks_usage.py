"""`jaxaudit ks` with shadow models beside a holdout, groups, or outputs on the calibration set; small sets."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cli_runs import RECORDS, SETS, identities, intercept, jaxaudit, records, refused
from support.deals import write_deal, write_model

from jaxaudit import HoldoutTest, KSTest, RhoTest, Role, ShadowTest

RECIPE = tuple(
    word
    for setting in ("hidden=32", "learning-rate=0.02", "batch-size=50", "models-per-batch=16")
    for word in ("--recipe", setting)
)
RECIPE += ("--effort", "full")
RHO = ("--test-option", "rho.replicates=2", "--tests")
FEW = (*RECIPE, "--epochs", "4", "--test-option", "shadow.never=19")
HELD = ("--deal", "deal", "--calibration", "calibration.npz")
TARGET, BEFORE = ("--target", "t.npz"), ("--before", "b.npz")


def sure_of(share: float) -> np.ndarray:
    return np.eye(3)[np.arange(RECORDS) % 3] * share + (1 - share) / 3


@pytest.fixture
def dealt(sets: Path) -> Path:
    """Query set and holdout in a folder, and a model whose outputs are surer on the query set, now and before."""
    write_deal("deal", query=records(2, 0.0), holdout=records(5, 0.0))
    for name, sure in (("t", 0.9), ("b", 0.8)):
        write_model(f"{name}.npz", query=sure_of(sure), holdout=sure_of(0.6))
    return sets


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the audit would have been asked for, where it stops at once."""
    return intercept(monkeypatch, "jaxaudit.cli.ks.run.train_shadows")


def stopped(*words: str) -> None:
    done = jaxaudit("ks", *words)
    assert done.err.endswith("Error: enough\n"), done.err


def test_what_judges(dealt: Path, asked: dict[str, Any]):
    def of(*words: str, sets: tuple[str, ...] = SETS) -> tuple[tuple[KSTest, ...], bool, str]:
        done = jaxaudit("ks", *sets, *RECIPE, *words)
        assert done.err.endswith("Error: enough\n"), done.err
        models = re.search(r"(\d+) models$", done.err.splitlines()[-2])
        assert models
        return asked["tests"], asked["holdout"] is not None, models[1]

    rho = RhoTest(replicates=2)
    # As many as a p-value of 0.05 takes that is adjusted for the three targets.
    shadow = ShadowTest(never=59, half=29, fully=29, targets=3)
    assert of() == ((shadow,), False, "120")
    more = ShadowTest(never=60, half=30, fully=30, targets=3)
    sizes = {"never": 60, "half": 30, "fully": 30}
    sized = [word for name, size in sizes.items() for word in ("--test-option", f"shadow.{name}={size}")]
    assert of("--tests", "shadow", *sized) == ((more,), False, "123")
    # rho is made where it is named.
    assert of(*RHO, "rho") == ((rho,), False, "8")
    assert of(*RHO, "all") == ((shadow, rho), False, "125")
    # In the order in which they are named, each once.
    assert of(*RHO, " rho , shadow,rho,,") == ((rho, shadow), False, "125")
    # With a holdout, and one target.
    held, fewer = (*HELD, *TARGET), HoldoutTest(mixed=20)
    assert of(sets=held) == ((HoldoutTest(),), True, "40")
    everything = of(*RHO, "all", "--test-option", "holdout.mixed=20", sets=held)
    one = ShadowTest(never=39, half=19, fully=19, targets=1)
    assert everything == ((fewer, one, rho), True, "102")


def test_nothing_is_trained_but_for_a_calibration_set_or_a_test_that_needs_one(dealt: Path, asked: dict[str, Any]):
    """A calibration set of the folder alone asks for nothing; named tests do."""
    write_deal("deal", calibration=records(3, 0.7))
    for words, tests in (
        ((), (HoldoutTest(mixed=0),)),
        (("--tests", "holdout"), (HoldoutTest(mixed=0),)),
        ((*RHO, "holdout,rho", *RECIPE), (HoldoutTest(), RhoTest(replicates=2))),
    ):
        stopped("--deal", "deal", *TARGET, *words)
        assert asked["tests"] == tests
        assert (asked["learner"] is None) is (len(tests) == 1)


WRONG: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "a test without its set": ((*SETS, "--tests", "holdout"), ("the holdout test needs a holdout",)),
    "an unknown test": ((*HELD, *TARGET, "--tests", "reference"), ("'reference'", "shadow")),
    "outputs on what is not there": ((*SETS, *TARGET), ("t.npz: has outputs on holdout", "no holdout.*")),
    "not the deciding test first": (
        (*HELD, *TARGET, "--tests", "rho,holdout"),
        ("the holdout test decides", "give holdout,rho"),
    ),
    "a deal without a model": (HELD, ("--deal needs --target",)),
    "before and no target": ((*SETS, *BEFORE), ("--before", "--target")),
    "before without a holdout": ((*HELD, *TARGET, "--before", "q.npz"), ("--before", "q.npz", "on the holdout")),
    "before of a target without": ((*HELD, "--target", "q.npz", *BEFORE), ("--before", "q.npz", "on the holdout")),
    "no test": ((*SETS, *TARGET, "--tests", ""), ("--tests is empty",)),
    "a set twice": ((*HELD, *TARGET, "--query", "query.npz"), ("deal of --deal has that set", "--query: ")),
    "a share": ((*HELD, *TARGET, "--test-option", "holdout.stated=1"), ("stated", "below 1")),
    "one set as two": (("--deal", "same", *HELD[2:], *TARGET), ("300 of the 300", "query.npz")),
    "a holdout as calibration set": (("--deal", "near", *HELD[2:], *TARGET), ("calibration.npz", "calibration set")),
    "too few rows": ((*HELD, "--target", "short.npz"), ("short.npz[holdout]", "5 rows", "holdout", "300")),
    "too few rows of another set": ((*SETS, "--target", "few.npz"), ("few.npz[calibration]", "100", "calibration set")),
    "too small a sample": ((*SETS, "--target", "c.npz", "--sample", "49"), ("calibration_records_not_used", "got 49")),
}


def test_what_does_not_go_together_is_one_clear_line(dealt: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("jaxaudit.audits.ks.train.train_rows", None)
    write_deal("same", query=records(2, 0.0), holdout=records(2, 0.0))
    write_deal("near", query=records(2, 0.0), holdout=records(3, 0.7))
    write_model("q.npz", query=sure_of(0.8))
    write_model("short.npz", query=sure_of(0.8), holdout=sure_of(0.8)[:5])
    write_model("few.npz", query=sure_of(0.8), calibration=sure_of(0.8)[:100])
    write_model("c.npz", query=sure_of(0.8), calibration=sure_of(0.8))
    for words, parts in WRONG.values():
        refused(("ks", *words, *(() if "holdout.stated=1" in words else RECIPE)), parts)


@pytest.mark.outer
def test_calibration_records_of_other_sets_are_left_out_and_sets_that_were_dealt_share_none(
    dealt: Path, asked: dict[str, Any]
):
    (mine, labels), (other, their), (held, own) = records(2, 0.0), records(3, 0.5), records(5, 0.0)
    more, names = np.concatenate([other, held[3:4], mine[4:5]]), np.concatenate([their, own[3:4], labels[4:5]])
    write_deal("deal", query=(mine, labels), holdout=(held, own))
    np.savez("calibration.npz", x=more, y=names)
    words = ("ks", *HELD, *RECIPE, *TARGET, *BEFORE)
    query, holdout = [line for line in jaxaudit(*words).err.splitlines() if "read as" not in line][:2]
    assert {"1", "calibration", "query"} <= set(query.split())
    assert {"1", "calibration", "holdout"} <= set(holdout.split())
    np.testing.assert_array_equal(asked["calibration"].inputs, other)
    held[7] = mine[2]
    write_deal("deal", holdout=(held, own))
    refused(words, ("1 of the 300 records", "holdout.npz", "query.npz"))


@pytest.mark.usefixtures("asked")
def test_contents_and_options_make_a_run_and_names_do_not(dealt: Path, monkeypatch: pytest.MonkeyPatch):
    noted = identities(monkeypatch)
    write_deal("other", query=records(2, 0.0), holdout=records(6, 0.0))
    write_deal("again", query=records(2, 0.0), holdout=records(5, 0.0))
    on_both = {"query": sure_of(0.9), "holdout": sure_of(0.6)}
    write_model("copy", **on_both)
    write_model("other.npz", query=sure_of(0.9), holdout=sure_of(0.5))
    for name, sure in (("c", 0.6), ("d", 0.5)):
        write_model(f"{name}.npz", **on_both, calibration=sure_of(sure))

    def identity(**more: str) -> str:
        words = {"deal": "deal", "calibration": "calibration.npz", "target": "t.npz"} | more
        stopped(*RECIPE, *(word for name, value in words.items() for word in (f"--{name.replace('_', '-')}", value)))
        return noted[-1]

    usual = identity()
    for same in ({}, {"deal": "again"}, {"target": "copy"}):
        assert identity(**same) == usual
    others = (
        {"deal": "other"},
        {"target": "other.npz"},
        {"test_option": "holdout.stated=0.1"},
        {"before": "other.npz"},
        {"target": "c.npz"},
        {"target": "d.npz"},
    )
    assert len({usual, *(identity(**other) for other in others)}) == len(others) + 1


# Outputs on the calibration set.


@pytest.fixture
def outputs(sets: Path) -> dict[str, np.ndarray]:
    """Outputs on both sets, a row of its own for each record."""
    random = np.random.default_rng(4)
    made = {}
    for name in ("query", "calibration"):
        labels = np.load(f"{name}.npz")["y"]
        made[name] = random.dirichlet(np.ones(3), len(labels)).astype(np.float32) + np.eye(3, dtype=np.float32)[labels]
        made[name] /= made[name].sum(axis=1, keepdims=True)
    write_model("both.npz", **made)
    write_model("one.npz", query=made["query"])
    return made


@pytest.mark.outer
def test_rows_follow_records_that_are_dropped_or_sampled(outputs: dict[str, np.ndarray], asked: dict[str, Any]):
    shared, labels = (np.load("query.npz")[name][:7] for name in "xy")
    with np.load("calibration.npz") as known:
        inputs, classes = known["x"], known["y"]
    places = np.arange(10, 80, 10)
    inputs[places], classes[places] = shared, labels
    np.savez("calibration.npz", x=inputs, y=classes)
    words = (*SETS, *FEW, "--target", "both.npz")
    stopped(*words)
    left = np.delete(np.arange(RECORDS), places)
    assert np.array_equal(asked["calibration"].inputs, inputs[left])
    assert np.array_equal(asked["targets"][0].on[Role.CALIBRATION].probabilities, outputs["calibration"][left])
    stopped(*words, "--sample", "40")
    place = {row.tobytes(): index for index, row in enumerate(inputs)}
    taken = [place[row.tobytes()] for row in asked["calibration"].inputs]
    assert len(taken) == 40
    assert np.array_equal(asked["targets"][0].on[Role.CALIBRATION].probabilities, outputs["calibration"][taken])


# Groups reach the test with their records, and nothing else.

OF_PATIENTS = (*HELD, *RECIPE, "--recipe", "hidden=16", "--epochs", "2")
GROUPS = ("--groups", "patient")
MANY = 60
"""Groups of five records in each set."""


@pytest.fixture
def grouped(sets: Path) -> Path:
    number = np.arange(RECORDS)
    for role, seed, patient, few in (("query", 2, 4000, 0 * number), ("holdout", 5, 5000, 1 + number // 100)):
        inputs, labels = records(seed, 0.0)
        groups = {"patient": patient + number // 5, "both": number // 5, "few": few}
        write_deal("deal", **{role: {"x": inputs, "y": labels, **groups}})
    write_model("t.npz", query=sure_of(0.9), holdout=sure_of(0.6))
    return sets


@pytest.mark.outer
def test_groups_are_dealt_and_permuted_whole(grouped: Path) -> None:
    words = (*OF_PATIENTS, *TARGET, "--test-option", "holdout.mixed=19", "--json", "--out", "run")
    done = jaxaudit("ks", *words, *GROUPS)
    provenance = done.result["provenance"]
    counted = provenance["data"]["groups"]
    assert (counted["query"], counted["holdout"]) == (MANY, MANY)
    assert provenance["options"]["groups"] == "patient"
    (target,) = done.result["targets"]
    assert any(
        f"{MANY} groups of the query set and {MANY} of the holdout" in each for each in target["finding"]["caveats"]
    )
    written = "".join(path.read_text() for path in Path("run").glob("*.[jt]*"))
    assert not {"4001", "5001"} & {*re.findall(r"\d+", written + done.err)}
    assert jaxaudit("report", "run", "--out", "page.html").code == 0
    # Without groups it is another run.
    other = jaxaudit("ks", *words[:-2]).result
    assert "groups" not in other["provenance"]["data"]


def test_a_column_with_groups_is_no_input_of_any_set(grouped: Path, asked: dict[str, Any]) -> None:
    def written(name: str, seed: int, first: int) -> None:
        inputs, labels = records(seed, 0.0)
        rows = [*zip(inputs.tolist(), labels.tolist(), strict=True)]
        lines = [f"{','.join(map(repr, row))},p{first + place // 5},{label}" for place, (row, label) in enumerate(rows)]
        header = [*(f"x{place}" for place in range(inputs.shape[1])), "patient", "label"]
        Path(name).write_text("\n".join([",".join(header), *lines, ""]))

    Path("csv").mkdir()
    for seed, name in enumerate(("query", "holdout", "calibration"), 2):
        written(f"csv/{name}.csv", seed, 1000 * seed)
    stopped("--deal", "csv", "--tests", "holdout,rho", *OF_PATIENTS[4:], *TARGET, *GROUPS)
    assert [len(np.unique(asked[name].groups)) for name in ("query", "holdout")] == [MANY, MANY]
    assert asked["calibration"].groups is None
    sets = [asked[name].inputs for name in ("query", "holdout", "calibration")]
    np.testing.assert_array_equal(sets[0], records(2, 0.0)[0])
    assert {each.shape[1] for each in sets} == {12}


def test_a_sample_has_whole_groups(grouped: Path, asked: dict[str, Any]) -> None:
    stopped(*OF_PATIENTS, *TARGET, *GROUPS, "--sample", "57")
    # 57 records are 11 groups of five.
    assert [len(np.unique(asked[name].groups)) for name in ("query", "holdout")] == [11, 11]
    assert (len(asked["query"]), len(asked["holdout"]), len(asked["calibration"])) == (55, 55, 57)
    inputs = records(2, 0.0)[0]
    groups = asked["query"].groups
    for index, group in enumerate(groups.tolist()):
        (place,) = np.flatnonzero((inputs == asked["query"].inputs[index]).all(axis=1))
        same = groups == group
        assert (asked["query"].inputs[same] == inputs[5 * (place // 5) : 5 * (place // 5) + 5]).all()


def test_what_is_no_deal_of_groups_is_refused_before_training(grouped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxaudit.audits.ks.train.train_rows", None)
    np.save("patients.npy", np.arange(RECORDS) // 5)
    for name, parts in (
        ("patients.npy", ("--groups patients.npy", "several sets")),
        ("nobody", ("'nobody'", "query.npz")),
        ("both", ("60 of 60",)),
        ("few", ("1 groups", "3 of the holdout", "4 ways")),
    ):
        refused(("ks", *OF_PATIENTS, *TARGET, "--groups", name), parts)
        refused(("ks", *SETS, "--groups", name), ("--groups", "no holdout"))
