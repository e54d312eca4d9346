"""Banks of scores, of records without classes: planned by numbers, filled from columns, judged and attacked."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.cli_runs import jaxaudit, refused

from jaxaudit import Bank, FileTarget, HoldoutTest, Sets, attack, judge, load_bank, plan_bank
from jaxaudit.audits import RecordTarget, open_bank, score_outputs

QUERY, MODELS = 80, 22
RECORDS = 2 * QUERY
USED = np.arange(RECORDS) < QUERY
MIX = ("--target", "target")


def losses(members: np.ndarray, seed: int, memory: float = 0.4) -> np.ndarray:
    """Losses of a model, multiples of 1/1024: some records are hard for all models, members are easier."""
    level = np.exp(np.random.default_rng(1).normal(0.5, 0.5, RECORDS))
    found = level * np.exp(0.1 * np.random.default_rng([2, seed]).normal(size=RECORDS) - memory * members)
    return np.rint(found * 1024) / 1024


def write_csv(path: str, values: np.ndarray) -> None:
    Path(path).write_text("".join(["loss\n", *(f"{value}\n" for value in values.tolist())]))


def bank_of(
    folder: Path, of: Callable[[np.ndarray], np.ndarray], outputs: str = "score", direction: str = "lower"
) -> Bank:
    """A bank whose models' losses are written as another function of them."""
    folder.mkdir()
    rows = plan_bank(jax.random.key(3), MODELS, QUERY, holdout=QUERY).membership
    said = {"format": 1, "outputs": outputs, "direction": direction, "records": RECORDS, "models": MODELS, "seed": 3}
    said["counts"] = {"query": QUERY, "holdout": QUERY}
    (folder / "bank.json").write_text(json.dumps(said))
    np.save(folder / "membership.npy", rows)
    np.save(folder / "outputs.npy", np.stack([of(losses(row, model)) for model, row in enumerate(rows)]))
    return load_bank(folder)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bank of scores, planned and filled by the command line, and a target that used the query set."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        words = ("--query", f"{QUERY}", "--holdout", f"{QUERY}", "--models", f"{MODELS}", "--out", "bank")
        done = jaxaudit("shadows", "plan", *words, "--outputs", "lower-score")
        assert done.code == 0, done.err
        said = losses(USED, 900)
        Path("target").mkdir()
        for name, part in (("target/query", said[:QUERY]), ("target/holdout", said[QUERY:]), ("used", said)):
            write_csv(f"{name}.csv", part)
        files = [f"s{model:02}.csv" for model in range(MODELS)]
        for model, (file, row) in enumerate(zip(files, np.load("bank/membership.npy"), strict=True)):
            write_csv(file, losses(row, model))
        done = jaxaudit("shadows", "add", "bank", *files)
        assert done.code == 0, done.err
    return folder


def test_a_bank_of_scores_is_shown_judged_and_attacked(folder: Path):
    assert not Path("bank/labels.npy").exists()
    shown = jaxaudit("shadows", "show", "bank")
    assert "score, lower for records that a model was trained on" in shown.out
    assert "holdout test: yes" in shown.out
    assert "shadow test: no. The records have no classes." in shown.out
    facts = json.loads(jaxaudit("shadows", "show", "bank", "--json").out)
    assert facts["training_accuracy"]["0"] is None
    judged = jaxaudit("ks", "--shadows", "bank", *MIX, "--tests", "all", "--json")
    (target,) = json.loads(judged.out)["targets"]
    assert "the shadow test needs classes, and is left out" in judged.err
    assert (target["finding"]["verdict"], target["tests"][0]["name"]) == ("not forgotten", "holdout")
    assert {each["name"] for each in target["checks"]} == {
        "target outputs",
        "holdout like query",
        "holdout apart from query",
    }
    attacked = jaxaudit("attack", "--shadows", "bank", "--target", "used.csv", "--out", "run", "--json")
    result = json.loads(attacked.out)
    assert "rmia" in attacked.err
    assert not {each["name"] for each in result["attacks"]} & {"rmia", "rmia-offline"}
    assert {"stacked", "lira", "base", "attack-p"} <= {each["name"] for each in result["attacks"]}
    assert [result["finding"]["verdict"], result["targets"][0]["finding"]["verdict"]] == ["gives records away"] * 2
    assert len(Path("run/records.csv").read_text().splitlines()) == 1 + RECORDS
    assert jaxaudit("power", "--shadows", "bank").code == 0


def test_known_members_are_a_number(folder: Path):
    """Texts of a deal are counted, and no bank of scores knows more of its records."""
    write_csv("target/members.csv", losses(np.ones(RECORDS), 901)[:60])
    Path("deal").mkdir()
    for role, count in (("query", QUERY), ("holdout", QUERY + 1), ("members", 60)):
        Path(f"deal/{role}.jsonl").write_text("".join(f'{{"text": "{role} {place}"}}\n' for place in range(count)))
    by_bank = ("ks", "--shadows", "bank", *MIX)
    assert "are not used: a bank has none, and no --deal names them" in jaxaudit(*by_bank).err
    refused((*by_bank, "--deal", "deal"), ("deal/holdout.jsonl: has 81 records, and the bank has 80 of its holdout",))
    Path("deal/holdout.jsonl").unlink()
    done = jaxaudit(*by_bank, "--deal", "deal", "--json")
    (target,) = json.loads(done.out)["targets"]
    assert target["tests"][0]["name"] == "members"
    assert any("only numbers of these records are known" in each for each in target["finding"]["caveats"])


PLAN = ("shadows", "plan", "--query", "9", "--coins", "--out", "b", "--outputs", "lower-score")
REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "rho": (("ks", "--shadows", "bank", *MIX, "--tests", "rho"), "has no models for rho"),
    "shadow": (
        ("ks", "--shadows", "bank", "--target", "target/query.csv", "--tests", "shadow"),
        "the shadow test cannot be made: the records have no classes",
    ),
    "kind": (("ks", "--shadows", "bank", *MIX, "--target-kind", "logits"), "--target-kind logits: this is a bank of"),
    "rmia": (("attack", "--shadows", "bank", "--attacks", "lira,rmia"), "rmia: compares probabilities of records"),
    "columns": (("shadows", "add", "bank", "two.csv"), "two.csv: has 2 columns"),
    "NaN": (("shadows", "add", "bank", "nan.npy"), "nan.npy: 1 numbers are NaN or infinite"),
    "coarse": (
        ("attack", "--shadows", "bank", "--target", "coarse.csv"),
        "coarse.csv: its scores are rounded to about 1,",
    ),
    "row": (("shadows", "add", "bank", "s02.csv", "--model", "1"), "seems to be the outputs of model 2"),
    "overlap": ((*PLAN, "--drop-overlap"), "--drop-overlap"),
}


def test_what_needs_classes_or_is_no_score_is_refused_by_name(folder: Path):
    np.savetxt("two.csv", np.random.default_rng(0).normal(size=(RECORDS, 2)), delimiter=",")
    np.save("nan.npy", np.where(np.arange(RECORDS) == 3, np.nan, 1.0))
    write_csv("coarse.csv", losses(USED, 902).round())
    for model in (1, 2):
        Path(f"bank/outputs/{model:05}.npy").unlink()
    for words, why in REFUSED.values():
        refused(words, (why,))


def results_of(bank: Bank, of: Callable[[np.ndarray], np.ndarray], folder: Path) -> list[Any]:
    """The numbers of the holdout test and of the attacks, for targets whose losses are written in the same way."""
    files = []
    for seed, members in ((900, USED), (901, np.zeros(RECORDS))):
        said = of(losses(members, seed))
        for place, part in enumerate((said[:QUERY], said[QUERY:], said)):
            np.save(folder / f"{seed}-{place}.npy", part)
        files.append([folder / f"{seed}-{place}.npy" for place in range(3)])
    read = [[score_outputs(path, bank.description, len(np.load(path))) for path in each] for each in files]
    judged = judge(
        jax.random.key(5),
        open_bank(bank),
        [FileTarget(Sets(query=query, holdout=held)) for query, held, _ in read],
        tests=[HoldoutTest()],
    )
    targets = [RecordTarget(f"{place}", whole.values[None, :, 1]) for place, (*_, whole) in enumerate(read)]
    attacked = attack(bank, targets)
    usages = [each.usage[0] for each in judged.targets]
    return [usages, {name: scores.tolist() for name, scores in attacked.scores.items()}]


def test_an_increasing_function_of_scores_changes_no_number(tmp_path: Path):
    """Nor does the direction, if it is said: losses, their logarithms and their negative cubes."""
    ways: dict[str, tuple[Callable[[np.ndarray], np.ndarray], str]] = {
        "losses": (lambda each: each, "lower"),
        "logarithms": (np.log, "lower"),
        "cubes": (lambda each: -1e3 * each**3, "higher"),
    }
    found = []
    for name, (of, direction) in ways.items():
        (tmp_path / f"of {name}").mkdir()
        bank = bank_of(tmp_path / name, of, direction=direction)
        found.append(results_of(bank, of, tmp_path / f"of {name}"))
    assert found[0] == found[1] == found[2]


def test_log_likelihoods_are_log_odds_in_nats_and_allow_rmia(tmp_path: Path):
    bank = bank_of(tmp_path / "bank", lambda each: each, "log_likelihood")
    shadows = open_bank(bank)
    assert shadows.scale is None
    for model, row in enumerate(shadows.log_odds):
        probability = np.exp(-losses(bank.membership[model], model))
        np.testing.assert_allclose(row, np.log(probability / (1 - probability)), rtol=1e-4, atol=1e-5)
    assert "rmia" in attack(bank).scores
    for of, why in ((lambda each: -each, "log-likelihoods above 0"), (lambda each: 100 * each, "mean over tokens")):
        wrong = bank_of(tmp_path / why, of, "log_likelihood")
        with pytest.raises(Exception, match=why):
            open_bank(wrong)
