"""`jaxaudit ks` with shadow models beside a holdout, groups, or outputs on the calibration set; small sets."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cli_runs import RECORDS, SETS, identities, intercept, jaxaudit, recipe, records, refused
from support.deals import write_deal, write_model

from jaxaudit import HoldoutTest, KSTest, RhoTest, Role, ShadowTest

RECIPE = (*recipe("hidden=32", "learning-rate=0.02", "batch-size=50", "models-per-batch=16"), "--effort", "full")
RHO = ("--test-option", "rho.replicates=2", "--tests")
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
    "outputs on what is not there": ((*SETS, *TARGET), ("t.npz: has outputs on holdout", "no holdout.*")),
    "not the deciding test first": (
        (*HELD, *TARGET, "--tests", "rho,holdout"),
        ("the holdout test decides", "give holdout,rho"),
    ),
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
    """Outputs on them follow their records."""
    (mine, labels), (other, their), (held, own) = records(2, 0.0), records(3, 0.5), records(5, 0.0)
    more, names = np.concatenate([held[3:4], mine[4:5], other]), np.concatenate([own[3:4], labels[4:5], their])
    write_deal("deal", query=(mine, labels), holdout=(held, own))
    np.savez("calibration.npz", x=more, y=names)
    said = (np.random.default_rng(4).dirichlet(np.ones(3), len(names)) + np.eye(3)[names]).astype(np.float32) / 2
    write_model("t.npz", query=sure_of(0.9), holdout=sure_of(0.6), calibration=said)
    words = ("ks", *HELD, *RECIPE, *TARGET, *BEFORE)
    query, holdout = [line for line in jaxaudit(*words).err.splitlines() if "read as" not in line][:2]
    assert {"1", "calibration", "query"} <= set(query.split())
    assert {"1", "calibration", "holdout"} <= set(holdout.split())
    np.testing.assert_array_equal(asked["calibration"].inputs, other)
    np.testing.assert_array_equal(asked["targets"][0].on[Role.CALIBRATION].probabilities, said[2:])
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
    assert identity(deal="again", target="copy") == usual
    others = [identity(target=name) for name in ("other.npz", "c.npz", "d.npz")]
    others += [identity(deal="other"), identity(before="other.npz"), identity(test_option="holdout.stated=0.1")]
    assert len({usual, *others}) == len(others) + 1


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
