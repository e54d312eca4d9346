"""`jaxaudit ks --members`: from a deal, over outputs of any classifier, to a verdict without a shadow model."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from support.banks import train
from support.cli_runs import intercept, jaxaudit, records, refused
from support.details import details_of

from jaxaudit.data.bank.bank import load_bank
from jaxaudit.report.kinds import schema_of

COUNT, SIZE = 1000, 5
ROLES = ("query", "holdout", "members")
SETS = ("--query", "deal/query.npz", "--holdout", "deal/holdout.npz", "--members", "deal/members.npz")
GROUPS = tuple(word for flag in ("--groups", "--holdout-groups", "--members-groups") for word in (flag, "group"))
FEW = (
    "--calibration",
    "calibration.npz",
    "--model",
    "mlp",
    "--recipe",
    "hidden=8",
    "--epochs",
    "1",
    "--recipe",
    "batch-size=100",
)
FEW += (
    "--test-option",
    "holdout.mixed=19",
    "--test-option",
    "rho.replicates=0",
    "--models-per-batch",
    "19",
    "--effort",
    "full",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two deals, of records and of patients; outputs of forests and of a regression that hardly remembers."""
    folder = tmp_path_factory.mktemp("dealt")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        inputs, labels = records(2, 0.0, COUNT)
        np.savez("all.npz", x=inputs, y=labels)
        order = np.random.default_rng(3).permutation(COUNT)
        np.save("patients.npy", order // SIZE)
        inputs, labels = records(3, 0.4, 200)
        np.savez("calibration.npz", x=inputs, y=labels)
        for out, words in (("deal", ()), ("whole", ("--groups", "patients.npy"))):
            shares = ("--members-share", "0.4", "--holdout-share", "0.3", "--seed", "7")
            assert jaxaudit("deal", "all.npz", *shares, *words, "--out", out).code == 0
        outputs("unused", "members")
        outputs("used", "members", "query")
        outputs("flat", "members", "query", model=LogisticRegression(C=1e-3))
        outputs("whole_unused", "members", deal="whole")
    return folder


def outputs(name: str, *trained_on: str, model: Any = None, deal: str = "deal") -> None:
    """`NAME_query.csv` and so on: probabilities of a classifier of scikit-learn."""
    sets = {role: np.load(f"{deal}/{role}.npz") for role in ROLES}
    model = RandomForestClassifier(60, min_samples_leaf=2, random_state=1) if model is None else model
    model.fit(*(np.concatenate([sets[role][key] for role in trained_on]) for key in "xy"))
    for role, each in sets.items():
        np.savetxt(f"{name}_{role}.csv", model.predict_proba(each["x"]), delimiter=",", fmt="%.6f")


def files(*names: str) -> tuple[str, ...]:
    flags = zip(("--target", "--holdout-target", "--members-target"), ROLES, strict=True)
    return tuple(word for flag, role in flags for name in names for word in (flag, f"{name}_{role}.csv"))


def judged(*words: str) -> list[dict[str, Any]]:
    """The targets."""
    return jaxaudit("ks", *words, "--json").result["targets"]


def rewritten(name: str, other: str, write: Callable[[np.ndarray, Path], None]) -> tuple[str, ...]:
    """The same outputs, written by another function into files of another name."""
    for role in ROLES:
        write(np.loadtxt(f"{name}_{role}.csv", delimiter=","), Path(f"{other}_{role}.csv"))
    return files(other)


HEADER: dict[str, Any] = {"header": "person,p_0,p_1,p_2", "comments": ""}


def in_european(values: np.ndarray, path: Path) -> None:
    lines = (";".join(f"{number:.6f}".replace(".", ",") for number in row) for row in values)
    path.write_text("\n".join(("p_0;p_1;p_2", *lines, "")), "utf-8-sig")


def numbered_by_people(values: np.ndarray, path: Path) -> None:
    numbers = 5000 - 7 * np.arange(len(values))[:, None]
    np.savetxt(path, np.hstack([numbers, values]), delimiter=",", fmt=["%d", *["%.6f"] * values.shape[1]], **HEADER)


def in_blanks(values: np.ndarray, path: Path) -> None:
    np.savetxt(path, values)


@pytest.mark.parametrize("write", [in_european, numbered_by_people])
def test_other_forms_of_the_same_outputs_give_the_same_numbers(folder: Path, write: Any) -> None:
    """What was guessed is told in one line on stderr, and stdout has the JSON alone."""
    usage = details_of(judged(*SETS, *files("used"))[0])
    done = jaxaudit("ks", *SETS, *rewritten("used", write.__name__, write), "--json")
    assert details_of(done.result["targets"][0]) == usage
    assert [line.count("_query.csv, ") for line in done.err.splitlines() if "read as" in line] == [1]


def test_another_form_is_refused_with_the_one_that_is_read(folder: Path) -> None:
    form = (
        "in_blanks_query.csv",
        "under the header 0,1,2 or p_0,p_1,p_2",
        "to_csv('in_blanks_query.csv', index=False)",
    )
    refused(("ks", *SETS, *rewritten("used", "in_blanks", in_blanks)), form)


def test_columns_in_another_order_are_refused_by_name(folder: Path) -> None:
    """Of all files, or of the one on the query set; who knows better may go on."""

    def turned(values: np.ndarray, path: Path) -> None:
        np.savetxt(path, values[:, [1, 0, 2]], delimiter=",", fmt="%.6f")

    words = rewritten("used", "turned", turned)
    said = ("turned_query.csv, turned_holdout.csv", "column 2 ('1') as '0', column 1 ('0') as '1'")
    refused(("ks", *SETS, *words), (*said, "--allow-unrelated-target"))
    assert jaxaudit("ks", *SETS, *words, "--allow-unrelated-target", "--json").code in (0, 3)
    said = ("turned_query.csv: on the query set", "over-forgotten", "--allow-unrelated-target")
    last = refused(("ks", *SETS, "--target", "turned_query.csv", *files("used")[2:]), said)
    assert last.index("over-forgotten") < last.index("put the columns in the order")
    assert "used_holdout.csv" not in last


def test_members_decide_and_nothing_is_trained(folder: Path) -> None:
    done = jaxaudit("ks", *SETS, *files("unused"), "--json", "--out", "run")
    jsonschema.validate(done.result, schema_of("ks"))
    (target,) = done.result["targets"]
    (usage,) = details_of(target)
    assert (target["tests"][0]["name"], usage["method"]) == ("members", "members")
    assert usage["verdict"] == target["finding"]["verdict"] == target["tests"][0]["finding"]["verdict"] == "forgotten"
    assert usage["upper"] <= 0.25
    assert usage["p_never"] > 0.05
    assert "training" not in done.err
    provenance = done.result["provenance"]
    assert [file["name"] for file in provenance["members_targets"]] == ["unused_members.csv"]
    assert [provenance["data"][role]["records"] for role in ROLES] == [300, 300, 400]
    assert jaxaudit(*provenance["command"][1:], "--json").result["targets"] == done.result["targets"]
    assert json.loads(Path("run/result.json").read_text()) == done.result
    assert jaxaudit("report", "run", "--out", "page.html").code == 0


def test_what_was_used_is_found_and_what_nobody_can_tell_is_said(folder: Path) -> None:
    (used,) = judged(*SETS, *files("used"))
    assert used["finding"]["verdict"] == "not forgotten"
    assert used["tests"][0]["details"]["fraction_low"] > 0.5
    (left,) = judged(*SETS, *files("used"), "--question", "left")
    assert details_of(left) == [{**used["tests"][0]["details"], "question": "left"}]
    assert left["finding"]["sentence"] != used["finding"]["sentence"]
    (flat,) = judged(*SETS, *files("flat"))
    assert flat["finding"]["verdict"] == "inconclusive"
    assert (flat["tests"][0]["details"]["fraction"], flat["tests"][0]["details"]["upper"]) == (None, 1)
    both = judged(*SETS, *files("used", "unused"))
    assert [each["finding"]["verdict"] for each in both] == ["not forgotten", "forgotten"]
    assert both[0]["tests"][0]["details"]["p_never_adjusted"] == 2 * used["tests"][0]["details"]["p_never"]


@pytest.mark.outer
def test_simulated_targets_use_all_members(folder: Path) -> None:
    done = jaxaudit("ks", *SETS, *FEW, "--json")
    truths = [target["truth"] for target in done.result["targets"]]
    assert [truth["used_fraction"] for truth in truths] == [1.0, 0.0, 0.5]
    assert [truth["training_records"] for truth in truths] == [134 + 400 + used for used in (300, 0, 150)]
    assert {target["tests"][0]["name"] for target in done.result["targets"]} == {"members"}


def test_whole_groups_of_all_three_sets(folder: Path) -> None:
    words = [word.replace("deal/", "whole/") for word in SETS]
    done = jaxaudit("ks", *words, *GROUPS, *files("whole_unused"), "--json")
    (target,) = done.result["targets"]
    counted = done.result["provenance"]["data"]["groups"]
    assert [counted[role] for role in ROLES] == [60, 60, 80]
    assert target["finding"]["verdict"] == "forgotten"
    # What `deal` wrote is read without being named, where all three files have it.
    plain = jaxaudit("ks", *words, *files("whole_unused"), "--json")
    assert "groups: those that the files have" in plain.err
    assert plain.result["targets"] == [target]
    # An array of that name whose values stand in several sets is of no deal by groups.
    for role in ROLES:
        with np.load(f"whole/{role}.npz") as arrays:
            np.savez(f"{role}_own.npz", **{**arrays, "group": np.arange(len(arrays["y"])) % 7})
    own = [word.replace("whole/", "").replace(".npz", "_own.npz") for word in words]
    done = jaxaudit("ks", *own, *files("whole_unused"), "--json")
    assert (done.code, "groups: none" in done.err) == (0, True)
    with np.load("whole/members.npz") as arrays:
        np.savez("members.npz", **{name: array for name, array in arrays.items() if name != "group"})
    (records,) = judged(*words[:-1], "members.npz", *files("whole_unused"))
    assert records["tests"][0]["details"]["p_never"] != target["tests"][0]["details"]["p_never"]


def test_shared_records_are_dropped_with_their_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first three members are copies of a query record each, and the last of a holdout record."""
    asked = intercept(monkeypatch, "jaxaudit.cli.ks.run.train_shadows")
    sets = {role: dict(np.load(f"deal/{role}.npz")) for role in ROLES}
    for key in "xy":
        sets["members"][key][:3] = sets["query"][key][10:13]
        sets["members"][key][-1] = sets["holdout"][key][0]
    np.savez("deal/members.npz", **sets["members"])
    Path("deal/deal.json").unlink()
    refused(("ks", *SETS, *files("unused")))
    done = jaxaudit("ks", *SETS, *files("unused"), "--drop-overlap")
    assert done.err.endswith("Error: enough\n")
    (target,) = asked["targets"]
    left = (np.delete(np.arange(300), [10, 11, 12]), np.arange(1, 300), np.arange(3, 399))
    for role, kept, each in zip(ROLES, left, (target.outputs, target.on_holdout, target.on_members), strict=True):
        np.testing.assert_array_equal(asked[role].inputs, sets[role]["x"][kept])
        rows = np.loadtxt(f"unused_{role}.csv", delimiter=",", dtype=np.float64)[kept]
        np.testing.assert_allclose(each.probabilities, rows, atol=1e-6)


GIVEN, ONE = (*SETS, *files("unused")), files("unused")
QUERY_TWICE = (*SETS[:4], "--members", "deal/query.npz", *ONE[:4], "--members-target", "unused_query.csv")
REFUSED: dict[str, tuple[str, ...]] = {
    "no holdout": (*SETS[:2], *SETS[4:], *ONE[:2], *ONE[4:]),
    "no members": (*SETS[:4], *FEW, *ONE),
    "no outputs on the members": (*SETS, *ONE[:4]),
    "no target": SETS,
    "members outputs of one target of two": (*SETS, *files("used", "unused")[:-2]),
    "members outputs of another number of rows": (*SETS, *ONE[:4], "--members-target", "unused_holdout.csv"),
    "the members are the query set": QUERY_TWICE,
    "nothing else remains": (*QUERY_TWICE, "--drop-overlap"),
    "groups of two of three": (*GIVEN, "--groups", "group", "--holdout-groups", "group"),
    "groups of the members alone": (*GIVEN, "--members-groups", "group"),
    "a test that trains": (*GIVEN, "--tests", "holdout"),
    "an option of training": (*GIVEN, "--epochs", "3"),
    "the word of a recipe": (*GIVEN, "--same-recipe"),
    "the members test without members": ("--query", "deal/query.npz", *FEW, "--tests", "members"),
    "the members test is not the first": (*GIVEN, *FEW, "--tests", "holdout,members"),
    "too few members": (*SETS[:4], "--members", "few.npz", *ONE[:4], "--members-target", "few.csv"),
    "members of other columns": (*SETS[:4], "--members", "wide.npz", *ONE),
    "members of an unknown class": (*SETS[:4], "--members", "fourth.npz", *ONE),
}


def test_what_does_not_go_together_is_refused(folder: Path) -> None:
    with np.load("deal/members.npz") as known:
        x, y = known["x"], known["y"]
    np.savez("few.npz", x=x[:49], y=y[:49])
    np.savetxt("few.csv", np.loadtxt("unused_members.csv", delimiter=",")[:49], delimiter=",")
    np.savez("wide.npz", x=np.repeat(x, 2, axis=1), y=y)
    np.savez("fourth.npz", x=x, y=np.where(np.arange(len(y)) == 5, 3, y))
    for words in REFUSED.values():
        refused(("ks", *words))


@pytest.mark.outer
def test_members_beside_a_bank(folder: Path) -> None:
    """What is measured on records that are given again changes no number; without them, it is said to be missing."""
    sets = (*SETS[:4], "--calibration", "calibration.npz")
    assert jaxaudit("shadows", "plan", *sets, "--models", "20", "--out", "bank").code == 0
    train(load_bank("bank"), range(20))
    bank = ("--shadows", "bank")
    (alone,), (beside,) = (judged(*bank, *given, *files("used")) for given in (SETS[4:], SETS))
    members, holdout = details_of(alone)
    assert [members["method"], holdout["method"]] == ["members", "holdout"]
    assert (alone["tests"][0]["name"], alone["finding"]["verdict"]) == ("members", "not forgotten")
    assert members["p_never"] == holdout["p_never"]
    assert members["fraction_low"] > 0.5
    assert details_of(alone) == details_of(beside)
    assert any("classes alone" in caveat for caveat in alone["finding"]["caveats"])
    with np.load("deal/members.npz") as known, np.load("deal/query.npz") as query:
        x, y = known["x"], known["y"]
        np.savez("shared.npz", x=np.concatenate([x[1:], query["x"][:1]]), y=y)
    np.savez("moved.npz", x=x + 1, y=y)
    (moved,) = judged(*bank, *SETS[:4], "--members", "moved.npz", *files("unused"))
    assert moved["finding"]["verdict"] == "inconclusive"
    (unlike,) = (check for check in moved["checks"] if check["name"] == "members like query")
    assert "inputs differ" in unlike["message"]
    refused(("ks", *bank, *SETS[:4], "--members", "shared.npz", *files("used")), ("1 of the 400",))
    # The query set itself is known by its content, though it is not given.
    given = ("--target", "used_query.csv", "--holdout-target", "used_holdout.csv", "--members-target", "used_query.csv")
    refused(("ks", *bank, "--members", "deal/query.npz", *given), ("are the query records of the bank",))
