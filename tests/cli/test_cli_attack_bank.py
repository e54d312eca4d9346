"""`jaxaudit attack --shadows BANK`: every record attacked by models that are there, targets, and what is refused."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import cli_runs
from support.banks import CLASSES, HOLDOUT, QUERY, RECORDS, bank_of, logits, planned, save, target, train
from support.cli_runs import jaxaudit

from jaxaudit import attack, load_bank
from jaxaudit.attacks.records import RECORD_ATTACKS

MODELS, MEMORY = 20, 4.0
USED = np.isin(np.arange(RECORDS), np.arange(QUERY))
CONTRACT = ("--attacks", "lira,lira-fixed,lira-offline,rmia,base")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`bank`, and outputs of a target that used its query set, and of one that used nothing."""
    folder = tmp_path_factory.mktemp("made")
    train(load_bank(planned(folder / "bank", MODELS, 0, holdout=True)), range(MODELS), MEMORY)
    for name, members in (("used", USED), ("unused", ~USED & False)):
        np.save(folder / f"{name}.npy", target(folder / "bank", name, members, MEMORY))
    return folder


def attacked(*words: str, bank: str = "bank") -> dict[str, Any]:
    """The result of the attacks in this process."""
    done = jaxaudit("attack", "--shadows", bank, *words, "--json")
    assert done.code == 0, done.err
    return done.result


def refused(*words: str, said: str = "", bank: str = "bank") -> str:
    return cli_runs.refused(("attack", "--shadows", bank, *words, "--out", "run"), (said,))


def test_columns_in_another_order_are_told(folder: Path):
    sure = 8 * np.eye(CLASSES)[load_bank("bank").labels] + np.random.default_rng(1).normal(size=(RECORDS, CLASSES))
    np.save("sure.npy", sure)
    np.save("turned.npy", np.roll(sure, 1, axis=1))
    words = ("--target", "sure.npy", "--target", "turned.npy", "--attacks", "base", "--json")
    done = jaxaudit("attack", "--shadows", "bank", *words)
    (told,) = [line for line in done.err.splitlines() if "the labels are met far better with column" in line]
    assert (done.code, "turned.npy" in told, "sure.npy" in told) == (0, True, False)


def test_without_a_target_every_model_is_one(folder: Path):
    """The directory that others build on: scores of every model and record by attack, rates with intervals."""
    done = jaxaudit("attack", "--shadows", "bank", *CONTRACT, "--json", "--out", "run")
    assert "training" not in done.err
    names = CONTRACT[1].split(",")
    audit = attack(load_bank("bank"), attacks=[each for each in RECORD_ATTACKS if each.name in names])
    with np.load("run/scores.npz", allow_pickle=False) as scores:
        assert scores.files == names
        for name in names:
            assert scores[name].shape == (MODELS, RECORDS)
            np.testing.assert_array_equal(scores[name], audit.scores[name])
    result = json.loads(Path("run/result.json").read_text())
    assert result == done.result
    assert (result["schema"], result["decided_by"]) == ("jaxaudit.attack/3", "lira")
    assert [attack["name"] for attack in result["attacks"]] == names
    for said in result["attacks"]:
        assert said["auc"]["low"] < said["auc"]["value"] < said["auc"]["high"]
        tenth, percent, *rest = said["tpr_at_fpr"]
        assert (tenth["fpr"], percent["fpr"], [each["value"] for each in rest]) == (0.1, 0.01, [None, None])
        assert tenth["low"] <= tenth["value"] <= tenth["high"]
        assert [each["fpr"] for each in rest] == [0.001, 0.0001]
        assert tenth["realised"]["low"] < 0.1 < tenth["realised"]["high"]
    assert result["finding"]["verdict"] == "gives some away"
    # The same from the command that the result names.
    again = jaxaudit(*result["provenance"]["command"][1:], "--json").result
    assert again["attacks"] == result["attacks"]


def test_targets_of_unknown_membership(folder: Path):
    """One that used the query set gives more records away than chance explains, another does not.

    A third is of another recipe, which is said first. Every record has a row.
    """
    np.save("other.npy", 4.0 * np.load("used.npy"))
    targets = ("--target", "used.npy", "--target", "unused.npy", "--target", "other.npy")
    result = attacked(*targets, "--attacks", "lira", "--out", "run")
    used, unused, other = result["targets"]
    first, verdict = other["finding"]["checks"][0], other["finding"]["verdict"]
    assert (first["name"], first["state"], verdict) == ("trained as the shadow models", "failed", "inconclusive")
    assert (used["finding"]["verdict"], unused["finding"]["verdict"]) == ("gives some away", "inconclusive")
    for each in (used, unused):
        tenth = each["named"][0]
        assert tenth["fpr"] == 0.1
        assert tenth["by_chance"] == pytest.approx(9, abs=3)
        assert tenth["by_chance"] < tenth["at_most"]
    assert used["named"][0]["count"] > used["named"][0]["at_most"]
    assert result["attacks"][0]["of_targets"] is None
    with open("run/records.csv") as file:
        rows = list(csv.DictReader(file))
    sizes = {"query": QUERY, "holdout": HOLDOUT, "calibration": RECORDS - QUERY - HOLDOUT}
    places = [(name, place) for name, size in sizes.items() for place in range(size)]
    assert [(row["set"], int(row["place"])) for row in rows] == places
    assert [int(row["models_with"]) for row in rows] == load_bank("bank").membership.sum(axis=0).tolist()
    known = [row for row in rows if row["named"]]
    assert len(known) > RECORDS - 10
    assert all(float(row["named_low"]) <= float(row["named"]) <= float(row["named_high"]) for row in known)
    called = np.array([row["called_0"] == "1" for row in rows])
    assert called[USED].mean() > 0.2 > called[~USED].mean()


def test_targets_of_known_membership_have_rates_of_their_own(folder: Path):
    np.save("members.npy", USED)
    result = attacked("--target", "used.npy", "--members", "members.npy", "--attacks", "stacked,attack-p")
    ours, plain = (attack["of_targets"] for attack in result["attacks"])
    assert (ours["members"], ours["non_members"]) == (QUERY, RECORDS - QUERY)
    assert ours["auc"]["value"] > plain["auc"]["value"]
    assert ours["auc"]["low"] < ours["auc"]["value"] < ours["auc"]["high"]
    # Unless it used every record.
    np.save("first.npy", np.load("used.npy")[:QUERY])
    np.save("members.npy", np.ones(QUERY, bool))
    result = attacked("--target", "first.npy", "--members", "members.npy", "--attacks", "base")
    assert (result["attacks"][0]["of_targets"], len(result["targets"])) == (None, 1)


@pytest.mark.parametrize(("records", "words"), [(QUERY, "query set"), (QUERY + HOLDOUT, "query set and holdout")])
def test_a_target_may_be_on_the_first_sets_alone(records: int, words: str, folder: Path):
    """Then these alone are attacked."""
    np.save("first.npy", np.load("used.npy")[:records])
    chosen = ("--shadows", "bank", "--attacks", "base", "--target", "first.npy", "--out", "run", "--json")
    done = jaxaudit("attack", *chosen)
    assert words in done.err
    assert done.result["records"] == records
    with np.load("run/scores.npz") as scores:
        assert scores["base"].shape == (1, records)


def test_a_model_without_outputs_is_left_out_and_dropped_records_have_no_score(folder: Path):
    Path("bank/outputs/00003.npy").unlink()
    dropped = np.isin(np.arange(RECORDS), (4, 70))
    np.save("bank/dropped.npy", dropped)
    np.save("bank/membership.npy", np.load("bank/membership.npy") & ~dropped)
    done = jaxaudit("attack", "--shadows", "bank", "--attacks", "base", "--out", "run", "--json")
    assert "1 of 20" in done.err
    assert done.result["models"] == MODELS - 1
    with np.load("run/scores.npz") as scores:
        assert scores["base"].shape == (MODELS - 1, RECORDS)
        assert np.isnan(scores["base"]).all(axis=0).nonzero()[0].tolist() == [4, 70]


# What the verdicts rest on


def test_an_attack_that_compares_with_the_targets_other_records_names_nobody_by_chance(folder: Path):
    """How many RMIA calls among records that were not used depends on how many the target used."""
    (unused,) = attacked("--target", "unused.npy", "--attacks", "rmia,base")["targets"]
    assert (unused["finding"]["verdict"], unused["named"]) == ("inconclusive", [])


def test_rmia_names_members_where_the_bank_has_records_that_nobody_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Of 1,000 records that may have been used, no more of a target that used none than chance explains (1%)."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(6)
    rows = np.stack([random.permutation(1300) < 650 for _ in range(24)])
    rows[:, 1000:] = False
    members = np.array([np.arange(1300) < 800, np.zeros(1300, bool)])
    odds = random.normal(size=(26, 1300)) + 4.0 * np.concatenate([rows, members])
    bank_of(tmp_path / "bank", odds[:24], rows, "log_odds")
    for name, values in zip(("used", "unused"), odds[24:], strict=True):
        np.save(f"{name}.npy", values.astype(np.float32))
    result = attacked("--attacks", "rmia", "--target", "used.npy", "--target", "unused.npy")
    used, unused = result["targets"]
    assert [each["finding"]["verdict"] for each in (used, unused)] == ["gives some away", "inconclusive"]
    assert used["named"][0]["count"] > used["named"][0]["at_most"]
    assert all(each["count"] <= each["at_most"] for each in unused["named"])


def test_one_record_that_is_always_given_away_is_no_failed_attack(tmp_path: Path):
    """On average over 600 records nothing is known; of this one everything is."""
    random = np.random.default_rng(3)
    rows = random.random((32, 600)) < 0.5
    odds = random.normal(size=rows.shape)
    odds[:, 7] += 15.0 * rows[:, 7]
    bank_of(tmp_path / "one", odds, rows, "log_odds")
    result = attacked("--attacks", "lira-fixed,bavaria-t", bank=str(tmp_path / "one"))
    assert (result["finding"]["verdict"], result["exposure"]["surely_named"]) == ("gives some away", 1)
    assert result["attacks"][0]["auc"]["low"] < 0.51
    riskiest = result["exposure"]["riskiest"]
    assert (riskiest[0]["place"], riskiest[0]["named"]) == (7, 1.0)
    # A share of few models may be large by chance: the list goes by its lower limit.
    lows = [record["named_low"] for record in riskiest]
    assert lows == sorted(lows, reverse=True)
    assert [record["named"] for record in riskiest] != sorted((record["named"] for record in riskiest), reverse=True)


# What is refused

USED_AND = ("--target", "used.npy", "--members")
FIELD = ("--attacks", "rmia", "--attack-option")
WRONG: tuple[tuple[tuple[str, ...], str], ...] = (
    (("--attacks", "distance,lira"), "distance"),
    (("--attacks", "lyra"), "did you mean lira?"),
    ((*FIELD, "nobody.gamma=39"), "nobody is not made"),
    ((*FIELD, "rmia.size=39"), "no field size"),
    ((*FIELD, "rmia.gamma=many"), "'many'"),
    ((*FIELD, "rmia.name"), "NAME.FIELD=VALUE"),
    (("--target", "short.npy"), "50"),
    (("--target", "used.npy", "--target", "first.npy"), "30"),
    (("--target", "classes.npy"), "2"),
    (("--target", "hard.npy"), "labels"),
    ((*USED_AND, "fewer.npy"), "90 records"),
    ((*USED_AND, "numbers.npy"), "one boolean"),
    (("--target", "unused.npy", *USED_AND, "fewer.npy"), "--members"),
)


def test_what_does_not_go_together_is_refused(folder: Path):
    used = np.load("used.npy")
    np.save("short.npy", used[:50])
    np.save("first.npy", used[:QUERY])
    np.save("classes.npy", used[:, :2])
    np.save("hard.npy", np.eye(CLASSES)[used.argmax(axis=1)])
    np.save("fewer.npy", USED[:50])
    np.save("numbers.npy", USED.astype(int))
    for words, said in WRONG:
        refused(*words, said=said)
    cli_runs.refused(("attack", "--attacks", "lira"), ("--shadows",))
    cli_runs.refused(("attack", "--target", "used.npy"), ("--target",))


def test_banks_that_cannot_be_used_are_refused(folder: Path):
    damaged, rows = np.load("bank/outputs/00005.npy"), np.load("bank/membership.npy")
    damaged[3] = np.nan
    save(Path("bank"), 5, damaged)
    refused(said="model 5")
    for model in range(MODELS):
        save(Path("bank"), model, logits(0, USED))
    refused(said="one model counts as two")
    for model in range(MODELS):
        save(Path("bank"), model, logits(model, rows[model]))
    np.save("bank/membership.npy", np.repeat(np.arange(RECORDS)[None] == 0, MODELS, axis=0))
    refused(said="no record")
    np.save("bank/membership.npy", rows)
    for finished in (3, 1, 0):
        for model in range(finished, MODELS):
            Path(f"bank/outputs/{model:05}.npy").unlink(missing_ok=True)
        refused(said=str(finished))


def test_an_attack_that_was_named_and_says_nothing_is_refused(folder: Path):
    """Where it was not named it is left out, and said."""
    for model in range(4, MODELS):
        Path(f"bank/outputs/{model:05}.npy").unlink()
    assert "3 of them" in refused("--attacks", "lira", said="lira needs")
    assert "lira" in attacked()["left_out"]


def test_scores_that_tie_do_not_show_that_attacks_fail(folder: Path):
    assert attacked("--attacks", "rmia", "--attack-option", "rmia.gamma=1e6")["finding"]["verdict"] == "inconclusive"
    # Others succeed, which may fail a pipeline.
    done = jaxaudit("attack", "--shadows", "bank", "--attacks", "base", "--fail-on", "gives-some-away")
    assert done.code == 3
