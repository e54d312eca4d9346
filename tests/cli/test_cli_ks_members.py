"""`jaxaudit ks --deal`: from a deal, over outputs in any form, to a verdict without a shadow model."""

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from support.banks import train
from support.cli_runs import jaxaudit, records, refused
from support.deals import ROLES, read_deal, write_deal, write_model
from support.details import details_of

from jaxaudit import load_bank
from jaxaudit.report import schema_of

COUNT, SIZE = 1000, 5
DEAL = ("--deal", "deal")
FEW = ("--calibration", "calibration.npz", "--model", "mlp", "--epochs", "1", "--effort", "full")


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
    """`NAME/query.csv` and so on: probabilities of a classifier of scikit-learn."""
    sets = read_deal(deal)
    model = RandomForestClassifier(60, min_samples_leaf=2, random_state=1) if model is None else model
    model.fit(*(np.concatenate([sets[role][key] for role in trained_on]) for key in "xy"))
    Path(name).mkdir()
    for role, arrays in sets.items():
        in_csv(model.predict_proba(arrays["x"]), Path(name, f"{role}.csv"))


def rows_of(name: str) -> dict[str, np.ndarray]:
    """The outputs in a model's folder, by set."""
    return {role: np.loadtxt(f"{name}/{role}.csv", delimiter=",") for role in ROLES}


def files(*names: str) -> tuple[str, ...]:
    return tuple(word for name in names for word in ("--target", name))


def judged(*words: str) -> list[dict[str, Any]]:
    """The targets."""
    return jaxaudit("ks", *words, "--json").result["targets"]


def in_csv(values: np.ndarray, path: Path) -> None:
    np.savetxt(path, values, delimiter=",", fmt="%.6f")


def test_a_folder_an_archive_and_a_table_give_the_same_numbers(folder: Path) -> None:
    usual = details_of(judged(*DEAL, *files("used"))[0])
    for path in ("used.npz", "used.csv"):
        (target,) = judged(*DEAL, *files(write_model(path, **rows_of("used"))))
        assert (target["name"], details_of(target)) == (path, usual)


def test_rows_of_a_table_are_put_in_order_by_the_names_of_records(folder: Path) -> None:
    """Which stand in the sets, too; a name of another set is refused."""
    Path("named").mkdir()
    start = 0
    for role, arrays in read_deal("deal").items():
        lines = enumerate(zip(arrays["x"].tolist(), arrays["y"].tolist(), strict=True), start)
        header = ",".join(("id", *(f"x{column}" for column in range(arrays["x"].shape[1])), "label"))
        body = (f"r{number},{','.join(map(repr, row))},{label}" for number, (row, label) in lines)
        Path(f"named/{role}.csv").write_text("\n".join((header, *body, "")))
        start += len(arrays["y"])
    write_model("plain.csv", **rows_of("used"))
    head, *lines = Path("plain.csv").read_text().splitlines()
    lines = [f"r{number},{line}" for number, line in enumerate(lines)]
    turned = np.random.default_rng(5).permutation(lines).tolist()
    Path("turned.csv").write_text("\n".join((f"id,{head}", *turned, "")))
    sets = ("--deal", "named", "--drop", "id")
    plain, named = (judged(*sets, *files(path)) for path in ("plain.csv", "turned.csv"))
    assert details_of(named[0]) == details_of(plain[0])
    Path("wrong.csv").write_text("\n".join((f"id,{head}", *turned, "")).replace("r7,query", "r999,query"))
    refused(("ks", *sets, *files("wrong.csv")), ("wrong.csv[query]", "'id'", "not those of the query set"))


def model_of(path: str, **changed: Any) -> tuple[str, ...]:
    """A target with these outputs of the model that used the query set; None leaves those on a set out."""
    rows = {**rows_of("used"), **changed}
    return files(write_model(path, **{name: values for name, values in rows.items() if values is not None}))


def test_outputs_on_fewer_sets_are_judged_without_the_others_and_it_is_said(folder: Path) -> None:
    both = ("--deal", write_deal("both", **{role: read_deal("deal")[role] for role in ROLES[:2]}))
    fewer = model_of("fewer.npz", members=None)
    (usual,) = judged(*both, *fewer)
    done = jaxaudit("ks", *DEAL, *fewer, "--json")
    assert "fewer.npz: has no outputs on the members, and is judged without" in done.err
    (target,) = done.result["targets"]
    assert [test["name"] for test in target["tests"]] == ["holdout"]
    assert target["finding"]["verdict"] == usual["finding"]["verdict"] == "not forgotten"
    assert target["tests"][0]["details"] == usual["tests"][0]["details"]


@pytest.mark.parametrize("ending", [".csv", ".npy", ".xlsx"])
def test_one_file_that_names_no_set_is_refused_where_there_are_several(folder: Path, ending: str) -> None:
    """Not read as outputs on the query set, for which shadow models would be trained."""
    shutil.copy("used/query.csv", f"alone{ending}")
    said = (f"alone{ending}", "column `set`")
    assert "--calibration" not in refused(("ks", *DEAL, "--target", f"alone{ending}"), said)


def test_columns_in_another_order_are_refused_by_name(folder: Path) -> None:
    """Of all files, or of the one on the query set; who knows better may go on."""
    Path("turned").mkdir()
    for role, rows in rows_of("used").items():
        in_csv(rows[:, [1, 0, 2]], Path(f"turned/{role}.csv"))
    words = files("turned")
    said = ("turned, turned/holdout.csv", "column 2 ('1') as '0', column 1 ('0') as '1'")
    refused(("ks", *DEAL, *words), (*said, "--allow-unrelated-target"))
    assert jaxaudit("ks", *DEAL, *words, "--allow-unrelated-target", "--json").code in (0, 3)
    shutil.copytree("used", "mixed")
    shutil.copy("turned/query.csv", "mixed")
    said = ("mixed: on the query set", "over-forgotten", "--allow-unrelated-target")
    last = refused(("ks", *DEAL, *files("mixed")), said)
    assert last.index("over-forgotten") < last.index("put the columns in the order")
    assert "mixed/holdout.csv" not in last


def test_members_decide_and_nothing_is_trained(folder: Path) -> None:
    done = jaxaudit("ks", *DEAL, *files("unused"), "--json", "--out", "run")
    jsonschema.validate(done.result, schema_of("ks"))
    (target,) = done.result["targets"]
    (usage,) = details_of(target)
    assert (target["tests"][0]["name"], usage["method"]) == ("members", "members")
    assert usage["verdict"] == target["finding"]["verdict"] == target["tests"][0]["finding"]["verdict"] == "forgotten"
    assert usage["upper"] <= 0.25
    assert usage["p_never"] > 0.05
    assert "training" not in done.err
    provenance = done.result["provenance"]
    assert [file["name"] for file in provenance["members_targets"]] == ["unused/members.csv"]
    assert [provenance["data"][role]["records"] for role in ROLES] == [300, 300, 400]
    assert jaxaudit(*provenance["command"][1:], "--json").result["targets"] == done.result["targets"]
    assert json.loads(Path("run/result.json").read_text()) == done.result
    # Known members teach difficulty, whichever test is named.
    several = [
        judged(*DEAL, *files("unused"), "--tests", names)[0]["tests"] for names in ("members,holdout", "holdout")
    ]
    assert several[0][0]["details"] == target["tests"][0]["details"]
    assert several[0][1]["details"]["p_never"] == several[1][0]["details"]["p_never"]
    assert jaxaudit("report", "run", "--out", "page.html").code == 0


def test_what_was_used_is_found_and_what_nobody_can_tell_is_said(folder: Path) -> None:
    (used,) = judged(*DEAL, *files("used"))
    assert used["finding"]["verdict"] == "not forgotten"
    assert used["tests"][0]["details"]["fraction_low"] > 0.5
    (left,) = judged(*DEAL, *files("used"), "--question", "left")
    assert details_of(left) == [{**used["tests"][0]["details"], "question": "left"}]
    assert left["finding"]["sentence"] != used["finding"]["sentence"]
    several = judged(*DEAL, *files("used", "flat"))
    assert [each["finding"]["verdict"] for each in several] == ["not forgotten", "inconclusive"]
    details = [each["tests"][0]["details"] for each in several]
    assert (details[1]["fraction"], details[1]["upper"]) == (None, 1)
    assert details[0]["p_never_adjusted"] == 2 * used["tests"][0]["details"]["p_never"]


def test_whole_groups_of_all_three_sets(folder: Path) -> None:
    whole, target_words = ("--deal", "whole"), files("whole_unused")
    done = jaxaudit("ks", *whole, "--groups", "group", *target_words, "--json")
    (target,) = done.result["targets"]
    counted = done.result["provenance"]["data"]["groups"]
    assert [counted[role] for role in ROLES] == [60, 60, 80]
    assert target["finding"]["verdict"] == "forgotten"
    # What `deal` wrote is read without being named, where all three files have it.
    plain = jaxaudit("ks", *whole, *target_words, "--json")
    assert "groups: those that the files have" in plain.err
    assert plain.result["targets"] == [target]
    # An array of that name whose values stand in several sets is of no deal by groups.
    sets = read_deal("whole")
    alike = {role: {**arrays, "group": np.arange(len(arrays["y"])) % 7} for role, arrays in sets.items()}
    done = jaxaudit("ks", "--deal", write_deal("alike", **alike), *target_words, "--json")
    assert "groups: none" in done.err
    assert details_of(done.result["targets"][0]) != details_of(target)


USED = files("used")
WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "no target": (DEAL, "--deal needs --target"),
    "no such deal": (("--deal", "nowhere", *USED), "nowhere"),
    "no such model": ((*DEAL, *files("nowhere.npz")), "nowhere.npz"),
    "a file as deal": (("--deal", "all.npz", *USED), "is no folder"),
    "two files of one set": (("--deal", "twice", *USED), "holdout.npz and holdout.csv"),
    "a deal without a query set": (("--deal", "held", *USED), "has none of query.npz"),
    "no outputs on the query set": ((*DEAL, *files("no_query")), "has none of query.npz, query.npy"),
    "an array of another name": ((*DEAL, *files("labels.npz")), "outputs on 'labels'"),
    "rows of another set": ((*DEAL, *files("test.csv")), "outputs on 'test'"),
    "a set too many": (("--deal", "both", *USED), "used: has outputs on members, and both has no members.*"),
    "other sets alone": (("--query", "deal/query.npz", *USED), "used: has outputs on holdout"),
    "another number of rows": ((*DEAL, *files("short.npz")), "short.npz[members]: has 300 rows"),
    "no holdout": (("--deal", "no_holdout", *files("no_holdout.npz")), "--calibration"),
    "no outputs on the holdout": ((*DEAL, *files("no_holdout.npz")), "--calibration"),
    "the members are the query set": (("--deal", "as_members", *files("as_members.npz")), "300 of the 300"),
    "no such groups": ((*DEAL, *USED, "--groups", "nobody"), "'nobody'"),
    "a test that trains": ((*DEAL, *USED, "--tests", "holdout,rho"), "without a calibration set"),
    "an option of training": ((*DEAL, *USED, "--epochs", "3"), "--epochs"),
    "no test for the calibration set": ((*DEAL, *USED, "--tests", "members", *FEW[:2]), "--calibration"),
    "the word of a recipe": ((*DEAL, *USED, "--same-recipe"), "--same-recipe"),
    "the members test without members": (("--deal", "both", *files("both.npz"), "--tests", "members"), "members"),
    "the members test is not the first": ((*DEAL, *USED, *FEW, "--tests", "holdout,members"), "members,holdout"),
    "too few members": (("--deal", "few", *files("few.npz")), "(members.* in --deal)"),
    "members of other columns": (("--deal", "wide", *USED), ""),
    "members of an unknown class": (("--deal", "fourth", *USED), ""),
}


def test_what_does_not_go_together_is_refused(folder: Path) -> None:
    sets, rows = read_deal("deal"), rows_of("used")
    x, y = sets["members"]["x"], sets["members"]["y"]
    write_deal("both", **{role: sets[role] for role in ROLES[:2]})
    write_deal("held", holdout=sets["holdout"])
    write_deal("no_holdout", query=sets["query"], members=sets["members"])
    write_deal("twice", **sets)
    Path("twice/holdout.csv").write_text("a,label\n1,0\n")
    write_deal("as_members", **{**sets, "members": sets["query"]})
    write_deal("few", **{**sets, "members": (x[:49], y[:49])})
    write_deal("wide", **{**sets, "members": (np.repeat(x, 2, axis=1), y)})
    write_deal("fourth", **{**sets, "members": (x, np.where(np.arange(len(y)) == 5, 3, y))})
    write_model("no_query", holdout=rows["holdout"])
    model_of("labels.npz", labels=y)
    model_of("test.csv", test=rows["members"])
    model_of("both.npz", members=None)
    model_of("no_holdout.npz", holdout=None)
    model_of("as_members.npz", members=rows["query"])
    model_of("few.npz", members=rows["members"][:49])
    model_of("short.npz", members=rows["holdout"])
    for what, (words, why) in WRONG.items():
        assert why in refused(("ks", *words)), what


@pytest.mark.outer
def test_members_beside_a_bank(folder: Path) -> None:
    """What is measured on records that are given again changes no number; without them, it is said to be missing."""
    plan = ("shadows", "plan", *DEAL, "--calibration", "calibration.npz", "--models", "20", "--out", "bank")
    assert jaxaudit(*plan).code == 0
    train(load_bank("bank"), range(20))
    bank, sets = ("--shadows", "bank"), read_deal("deal")
    part = ("--deal", write_deal("part", query=sets["query"], members=sets["members"]))
    (alone,), (beside,) = (judged(*bank, *deal, *USED) for deal in (part, DEAL))
    members, holdout = details_of(alone)
    assert [members["method"], holdout["method"]] == ["members", "holdout"]
    assert (alone["tests"][0]["name"], alone["finding"]["verdict"]) == ("members", "not forgotten")
    assert members["p_never"] == holdout["p_never"]
    assert members["fraction_low"] > 0.5
    assert details_of(alone) == details_of(beside)
    assert any("classes alone" in caveat for caveat in alone["finding"]["caveats"])
    x, y = sets["members"]["x"], sets["members"]["y"]
    write_deal("moved", **{**sets, "members": (x + 1, y)})
    (moved,) = judged(*bank, "--deal", "moved", *files("unused"))
    assert moved["finding"]["verdict"] == "inconclusive"
    (unlike,) = (check for check in moved["checks"] if check["name"] == "members like query")
    assert "inputs differ" in unlike["message"]
    write_deal("shared", **{**sets, "members": (np.concatenate([x[1:], sets["query"]["x"][:1]]), y)})
    refused(("ks", *bank, "--deal", "shared", *USED), ("1 of the 400",))
    model_of("as_members.npz", members=rows_of("used")["query"])
    write_deal("as_members", **{**sets, "members": sets["query"]})
    refused(("ks", *bank, "--deal", "as_members", *files("as_members.npz")), ("are the query records of the bank",))
