"""`jaxaudit ks --shadows BANK`: targets judged by models that are there, in whatever form, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import cli_runs
from support.banks import QUERY, RECORDS, bank_of, planned, target, train
from support.cli_runs import jaxaudit, records
from support.deals import write_deal, write_model
from support.details import details_of

from jaxaudit import load_bank
from jaxaudit.data import load

MODELS, N = 20, 60
USED, UNUSED = (np.isin(np.arange(RECORDS), np.arange(count)) for count in (QUERY, 0))
MEMORY = 6.0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`bank`, of the holdout test; outputs of a target that used its query set, and of one that did not."""
    folder = tmp_path_factory.mktemp("made")
    train(load_bank(planned(folder / "bank", MODELS, 0, holdout=True)), range(MODELS), MEMORY)
    for name, members in (("used", USED), ("unused", UNUSED)):
        target(folder / "bank", name, members, MEMORY)
    return folder


def files(*names: str) -> tuple[str, ...]:
    """The options that give these targets' outputs on query set and holdout."""
    return tuple(word for name in names for word in ("--target", f"{name}.npz"))


def judged(*words: str, bank: str = "bank") -> dict[str, Any]:
    """The result of an audit in this process."""
    done = jaxaudit("ks", "--shadows", bank, *words, "--json")
    assert done.code == 0, done.err
    return done.result


def refused(*words: str, bank: str = "bank") -> str:
    """What an audit is refused with; it writes nothing."""
    return cli_runs.refused(("ks", "--shadows", bank, *words, "--out", "run"))


def shadows_of(result: dict[str, Any]) -> dict[str, Any]:
    return result["provenance"]["data"]["shadows"]


def test_a_used_target_is_found_and_an_unused_one_is_not(folder: Path):
    """With this much memory but for 1 target in 20, see `test_audit_bank`; nothing is trained."""
    done = jaxaudit("ks", "--shadows", "bank", *files("used", "unused"), "--json", "--out", "run")
    used, unused = done.result["targets"]
    assert (used["finding"]["verdict"], unused["finding"]["verdict"]) == ("not forgotten", "forgotten")
    assert used["tests"][0]["details"]["p_never"] < 0.001 < 0.05 < unused["tests"][0]["details"]["p_never"]
    assert (details_of(used, "rho"), done.result["noise_floor"], done.result["rates"]) == ([], None, None)
    assert "training" not in done.err
    by = shadows_of(done.result)
    assert (by["models"], by["planned"], by["dropped"], by["seed"]) == (MODELS, MODELS, 0, 3)
    assert json.loads(Path("run/result.json").read_text()) == done.result
    again = jaxaudit(*done.result["provenance"]["command"][1:], "--json")
    assert again.result["targets"] == done.result["targets"]


def test_sets_given_again_are_those_of_the_bank_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    inputs, labels = records(2, 0.0, 3 * N)
    query, held, near = ((inputs[part : part + N], labels[part : part + N]) for part in (0, N, 2 * N))
    sets = ("--deal", write_deal("deal", query=query, holdout=held, calibration=near))
    assert jaxaudit("shadows", "plan", *sets, "--models", f"{MODELS}", "--out", "bank").code == 0
    train(load_bank("bank"), range(MODELS))
    target(Path("bank").absolute(), "used", np.arange(3 * N) < N)
    result = judged(*files("used"), *sets)
    assert result["provenance"]["data"]["query"]["name"] == load("deal/query.npz").name
    assert result["targets"] == judged(*files("used"))["targets"]
    assert load("deal/query.npz").content_hash in refused(*files("used"), "--query", "deal/holdout.npz")
    write_deal("other", query=query, holdout=query)
    assert "other/holdout.npz: is not the holdout set" in refused(*files("used"), "--deal", "other")


WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "no target": ((), "--target"),
    "no outputs on its holdout": (files("query"), "outputs on the holdout"),
    "a bank without hashes": ((*files("used"), "--query", "q.npz"), "no hash there"),
    "before without its holdout": ((*files("used"), "--before", "query.npz"), "query.npz has no outputs"),
    "before of a target without": ((*files("used", "query"), "--before", "used.npz"), "query.npz has no outputs"),
    "rows of another set": (files("short"), "short.npz[holdout]: has 29 rows"),
    "a test of other models": ((*files("used"), "--tests", "shadow"), "shadow"),
    "a test that trains": ((*files("used"), "--tests", "rho"), "rho"),
}


def test_what_does_not_go_together_is_refused(folder: Path):
    rows = dict(np.load("used.npz"))
    write_model("query.npz", query=rows["query"])
    write_model("short.npz", query=rows["query"], holdout=rows["holdout"][1:])
    np.savez("q.npz", x=np.eye(QUERY, dtype=np.float32), y=np.arange(QUERY) % 3)
    for what, (words, why) in WRONG.items():
        assert why in refused(*words), what
    done = jaxaudit("ks", *files("used"), "--leave-one-out")
    assert (done.code, "--shadows" in done.err) == (2, True)


def test_a_model_that_is_missing_is_said_and_left_out(folder: Path):
    """As if it had never been planned, see `test_audit_bank`; one more is too many."""
    Path("bank/outputs/00004.npy").unlink()
    done = jaxaudit("ks", "--shadows", "bank", *files("used"), "--json")
    assert f"1 of {MODELS} shadow models" in done.err
    assert shadows_of(done.result)["models"] == MODELS - 1
    Path("bank/outputs/00007.npy").unlink()
    assert "18 of at least 19 models on random query and holdout records" in refused(*files("used"))


def test_a_bank_without_a_holdout_makes_the_shadow_test_by_one_set_or_two(tmp_path: Path, monkeypatch: Any):
    monkeypatch.chdir(tmp_path)
    bank = load_bank(planned(tmp_path / "bank", 77, 0, holdout=False))
    train(bank, range(77), MEMORY)
    for name, members in (("used", USED), ("unused", UNUSED)):
        target(tmp_path / "bank", name, members, MEMORY, roles=("query",))
    both = judged(*files("used", "unused"))["targets"]
    assert [each["tests"][0]["name"] for each in both] == ["shadow", "shadow"]
    assert both[0]["finding"]["verdict"] == "not forgotten" != both[1]["finding"]["verdict"]
    target(tmp_path / "bank", "two", USED, MEMORY, roles=("query", "calibration"))
    by_two = judged(*files("two"))["targets"][0]
    assert (by_two["tests"][0]["name"], by_two["finding"]["verdict"]) == ("shadow", "not forgotten")
    assert by_two["tests"][0]["details"]["fraction"] != both[0]["tests"][0]["details"]["fraction"]
    write_model("held.npz", query=np.load("used.npz")["query"], holdout=np.zeros((QUERY, 3)))
    assert "held.npz[holdout]: the bank has no holdout" in refused(*files("held"))


def test_one_column_of_two_classes_is_never_taken_for_log_odds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Sigmoid outputs of a binary classifier are all above 0: as log-odds, every record would look remembered."""
    monkeypatch.chdir(tmp_path)
    random, records = np.random.default_rng(11), 240
    labels, level = random.integers(0, 2, 2 * records), random.normal(1, 1, 2 * records)
    membership = np.argsort(random.random((24, 2 * records)), axis=1) < records
    counts = {"query": records, "holdout": records, "calibration": 0}
    odds = random.normal(size=membership.shape) + level + 3 * membership
    bank_of(Path("two"), odds.astype(np.float32), membership, "log_odds", 2, counts=counts)
    np.save("two/labels.npy", labels)
    used = np.arange(2 * records) < records
    logit = (random.normal(size=2 * records) + level + 3 * used) * np.where(labels == 1, 1, -1)
    verdicts = []
    for shape in ((-1,), (-1, 1)):
        parts = np.split((1 / (1 + np.exp(-logit))).astype(np.float32), 2)
        query, held = (part.reshape(shape) for part in parts)
        (target,) = judged("--target", write_model("used.npz", query=query, holdout=held), bank="two")["targets"]
        verdicts.append((target["finding"]["verdict"], target["tests"][0]["details"]["p_never"]))
    assert verdicts[0] == verdicts[1]
    assert verdicts[0][0] == "not forgotten"


@pytest.mark.outer
def test_error_rates_are_in_every_output_and_change_no_verdict(folder: Path):
    done = jaxaudit("ks", "--shadows", "bank", *files("used"), "--leave-one-out", "--json", "--out", "run")
    rates = done.result["rates"]
    assert [(each["test"], each["used"], each["targets"]) for each in rates] == [
        ("holdout", used, MODELS) for used in (0.0, 0.5, 1.0)
    ]
    for each in rates:
        assert each["not_forgotten"] + each["forgotten"] + each["inconclusive"] == each["targets"]
    assert done.result["targets"] == judged(*files("used"))["targets"]
    assert "Error rates on these data" in Path("run/table.txt").read_text()
