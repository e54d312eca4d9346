"""`jaxaudit ks --scores`, as a user runs it: the table, the verdict, the page, and what is refused."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ks_2samp
from sklearn.metrics import roc_auc_score
from support.cli_runs import jaxaudit, refused
from support.details import details_of
from support.evaluation_logs import tofu_log, write_log

SIZE = 120
MODELS = {"npo": 0.5, "unused_1": 0.0, "unused_2": 0.0, "unused_3": 0.0, "used_1": 1.0, "used_2": 1.0}
"""By name, how much lower the loss on the forget set is."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(1)
    sets = np.repeat(["query", "holdout"], SIZE)
    hard = random.normal(3, 1, 2 * SIZE)
    loss = hard - 0.4 * (sets == "query") + 0.3 * random.normal(size=2 * SIZE)
    columns = {"set": sets, "target.loss": loss, "baseline.loss": hard}
    write("scores.csv", columns)
    truth = {
        f"{role}.{seed}.loss": hard - share * (sets == "query") + 0.3 * random.normal(size=2 * SIZE)
        for seed in range(3)
        for role, share in (("unused", 0.0), ("used", 0.8))
    }
    write("truth.csv", {**columns, **truth, "group": np.arange(2 * SIZE) // 4})
    np.savez("truth.npz", **columns, **truth)
    return tmp_path


def write(path: str, columns: dict) -> None:
    with Path(path).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def test_a_result_is_read_again_and_repeats_itself() -> None:
    done = jaxaudit("ks", "--scores", "truth.csv", "--question", "left", "--out", "run", "--report", "page.html")
    assert done.code == 0, done.err
    assert "left: Intervals are cut at" in done.out
    again = jaxaudit("report", "run", "--out", "again.html")
    assert again.code == 0, again.err
    assert "No model was trained" in Path("again.html").read_text()


def test_groups_are_numbers_with_a_verdict_each() -> None:
    """The names of authors stay with whoever has the table."""
    table = {name: column.tolist() for name, column in np.load("truth.npz").items()}
    names = [f"Author of {number}" for number in np.arange(2 * SIZE) // 12]
    write("authors.csv", {**table, "group": names})
    done = jaxaudit("ks", "--scores", "authors.csv", "--by", "group", "--json", "--out", "run", "--report", "page.html")
    assert done.code == 0, done.err
    target = done.result["targets"][0]
    assert sorted(group["name"] for group in target["grouping"]["groups"]) == list(range(1, 11))
    # All were used; by models, nobody is more than suspected.
    assert {(group["verdict"], group["basis"]) for group in target["grouping"]["groups"]} == {("suspected", "models")}
    lines = Path("authors.csv").read_text().splitlines()
    for group in target["grouping"]["groups"]:
        assert f"Author of {group['name'] - 1}" in lines[group["first"]]
    written = [path.read_bytes() for path in [*Path("run").rglob("*"), Path("page.html")] if path.is_file()]
    assert not any(b"Author of" in content for content in written)


def test_a_stated_share_is_an_option_of_the_test() -> None:
    table = {name: column.tolist() for name, column in np.load("truth.npz").items()}
    table["target.loss"] = table.pop("unused.0.loss")
    write("never.csv", table)

    def answer(*words: str) -> tuple[str, float]:
        done = jaxaudit("ks", "--scores", "never.csv", "--same-recipe", *words, "--json")
        assert done.code == 0, done.err
        (target,) = done.result["targets"]
        return target["finding"]["verdict"], details_of(target)[0]["upper"]

    _, upper = answer()
    for stated, verdict in ((upper + 0.01, "forgotten"), (upper - 0.01, "inconclusive")):
        assert answer("--test-option", f"scores.stated={stated}") == (verdict, upper)
    refused(("ks", "--scores", "truth.csv", "--test-option", "scores.stated=2"), ("stated",))
    refused(("ks", "--scores", "truth.csv", "--test-option", "members.stated=0.1"), ("members", "scores"))


def test_what_does_not_go_together_is_refused() -> None:
    for words in (
        ("--scores", "none.csv"),
        ("--scores", "scores.csv", "--query", "digits"),
        ("--scores", "scores.csv", "--target", "scores.csv"),
        ("--scores", "scores.csv", "--epochs", "3"),
        ("--scores", "scores.csv", "--tests", "holdout"),
        ("--scores", "scores.csv", "--by", "group"),
        ("--by", "group"),
        ("--scores", "scores.csv", "--direction", "loss"),
        ("--scores", "scores.csv", "--direction", "loss=down"),
        ("--scores", "scores.csv", "--direction", "nothing=higher"),
        ("--scores", "scores.csv", "--direction", "loss=lower", "--direction", "loss=higher"),
        ("--direction", "loss=lower"),
    ):
        refused(("ks", *words))


def test_logs_of_open_unlearning_give_its_own_numbers_and_a_verdict() -> None:
    """To 1e-12, by the log's own values; and by three retrained models a share."""
    logs = {name: tofu_log(seed, used) for seed, (name, used) in enumerate(MODELS.items())}
    paths = {name: str(write_log(Path(name), log)) for name, log in logs.items()}
    words = [word for name in paths if name != "npo" for word in (f"--{name.partition('_')[0]}", paths[name])]
    made = jaxaudit("scores", "open-unlearning", paths["npo"], *words, "--records-per-group", "4", "--out", "s.csv")
    assert made.code == 0, made.err
    target = jaxaudit("ks", "--scores", "s.csv", "--json").result["targets"][0]
    ratios = {name: [each["score"] for each in values(log["forget_truth_ratio"])] for name, log in logs.items()}
    areas = {
        name: roc_auc_score(
            [0] * 40 + [1] * 40, [v["score"] for part in ("forget", "holdout") for v in values(log["mia_min_k"][part])]
        )
        for name, log in logs.items()
    }
    leak = ((1 - areas["npo"]) - (1 - areas["unused_1"])) / (1 - areas["unused_1"] + 1e-10) * 100
    assert details_of(target, "tofu")[0]["forget_quality"] == pytest.approx(
        np.asarray(ks_2samp(ratios["npo"], ratios["unused_1"]))[1], abs=1e-12
    )
    assert details_of(target, "tofu")[0]["privleak"] == pytest.approx(leak, abs=1e-10)
    assert details_of(target, "tofu")[0]["retrained"]["models"] == 3
    assert len(details_of(target, "tofu")[0]["retrained"]["between"]) == 3
    assert target["finding"]["verdict"] == "not forgotten"
    assert target["tests"][0]["details"]["fraction_low"] < 0.5 < target["tests"][0]["details"]["fraction_high"]


def values(metric: dict) -> list[dict]:
    return [metric["value_by_index"][index] for index in sorted(metric["value_by_index"], key=int)]


def test_a_pilot_tells_how_many_records_are_needed() -> None:
    found = jaxaudit("power", "--scores", "truth.csv", "--query-size", "1000", "--json").result
    least = [size["least_noticed"] for size in found["sizes"]]
    assert found["finding"]["verdict"] == "sufficient"
    assert least == sorted(least, reverse=True)
    refused(("power", "--scores", "scores.csv"), ("scores.csv",))


# What a table of another tool means is said where it was guessed


def test_a_direction_that_was_guessed_is_said_and_one_that_was_given_is_not() -> None:
    said = "by their names, scores are taken for records that were used as lower: loss"
    assert said in jaxaudit("ks", "--scores", "scores.csv").err
    assert said in jaxaudit("power", "--scores", "truth.csv", "--query-size", "1000").err
    assert said not in jaxaudit("ks", "--scores", "scores.csv", "--direction", "loss=lower").err


def test_columns_that_are_not_used_are_named_but_for_an_index_without_a_name() -> None:
    random = np.random.default_rng(12)
    columns = {"": np.arange(40), "set": ["query", "holdout"] * 20, "target.loss": random.gamma(2, size=40)}
    write("plain.csv", columns)
    write("note.csv", {**columns, "my note": np.arange(40)})
    assert "not used" not in jaxaudit("ks", "--scores", "plain.csv").err
    assert "1 column is not used: 'my note'" in jaxaudit("ks", "--scores", "note.csv").err


@pytest.mark.parametrize("used", [True, False])
def test_the_pages_lines_of_numpy_write_a_table_of_errors_that_is_read(used: bool):
    page = Path(__file__).parents[2] / "docs" / "how_to" / "judge_by_scores.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    random = np.random.default_rng(3)
    sets, true = np.repeat(["query", "holdout"], SIZE), random.normal(3, 1, 2 * SIZE)
    predicted = true + np.where(used & (sets == "query"), 0.3, 1.0) * random.normal(size=2 * SIZE)
    write("predictions.csv", {"set": sets, "predicted": predicted, "true": true})
    exec(code, {})
    with Path("scores.csv").open(newline="", encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    assert [row["set"] for row in written] == sets.tolist()
    assert [float(row["target.squared_error"]) for row in written] == ((predicted - true) ** 2).tolist()
    (target,) = jaxaudit("ks", "--scores", "scores.csv", "--json").result["targets"]
    assert (details_of(target)[0]["p_never"] < 0.001) is used
