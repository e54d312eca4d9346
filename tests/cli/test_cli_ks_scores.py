"""`jaxaudit ks --scores`, as a user runs it: the table, the verdict, the page, and what is refused."""

import csv
from pathlib import Path

import numpy as np
import pytest
from support.cli_runs import jaxaudit, refused

SIZE = 120


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
    return tmp_path


def write(path: str, columns: dict) -> None:
    with Path(path).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def test_a_table_is_judged() -> None:
    found = jaxaudit("ks", "--scores", "scores.csv", "--seed", "7", "--json").result
    target = found["targets"][0]
    assert target["verdict"] == "not forgotten"
    assert target["usage"][0]["method"] == "scores"
    assert target["usage"][0]["p_never"] <= 0.001
    assert target["usage"][0]["fraction"] is None


def test_models_of_known_truth_give_a_share_and_its_limit() -> None:
    usage = jaxaudit("ks", "--scores", "truth.csv", "--json").result["targets"][0]["usage"][0]
    assert usage["fraction_low"] < 0.5 < usage["fraction_high"] < 1
    assert usage["fraction"] < usage["upper"] < 1


def test_a_result_is_read_again_and_repeats_itself() -> None:
    done = jaxaudit("ks", "--scores", "truth.csv", "--question", "left", "--out", "run", "--report", "page.html")
    assert done.code == 0, done.err
    assert "share left" in done.out
    again = jaxaudit("report", "run", "--out", "again.html")
    assert again.code == 0, again.err
    assert "No model was trained" in Path("again.html").read_text()


def test_columns_are_named_by_options() -> None:
    columns = {"set": np.repeat(["query", "holdout"], 20), "mine": np.random.default_rng(2).normal(size=40)}
    write("mine.csv", columns)
    done = jaxaudit("ks", "--scores", "mine.csv", "--column", "target.mine=mine", "--lower", "mine")
    assert done.code == 0, done.err
    assert "lower or higher" not in done.err
    assert "lower or higher" in jaxaudit("ks", "--scores", "mine.csv", "--column", "target.mine=mine").err


def test_words_are_shown_when_asked_for_and_never_written() -> None:
    texts = [f"patient {i} of the ward" for i in range(30)] + [f"customer {i} of the shop" for i in range(30)]
    write(
        "texts.csv",
        {
            "set": np.repeat(["query", "holdout"], 30),
            "text": texts,
            "target.loss": np.random.default_rng(3).normal(size=60),
        },
    )
    done = jaxaudit("ks", "--scores", "texts.csv", "--show-words", "--out", "run")
    assert done.code == 0, done.err
    assert "inconclusive" in done.out
    assert "ward" in done.out
    assert not any(b"ward" in path.read_bytes() for path in Path("run").iterdir())
    assert "ward" not in jaxaudit("ks", "--scores", "texts.csv").out


@pytest.mark.parametrize(
    "words",
    [
        ("--scores", "none.csv"),
        ("--scores", "scores.csv", "--query", "digits"),
        ("--scores", "scores.csv", "--target", "scores.csv"),
        ("--scores", "scores.csv", "--epochs", "3"),
        ("--scores", "scores.csv", "--tests", "holdout"),
        ("--scores", "scores.csv", "--show-words"),
        ("--scores", "scores.csv", "--column", "target.loss"),
        ("--scores", "scores.csv", "--column", "target.x=nowhere"),
        ("--scores", "scores.csv", "--higher", "nothing"),
        ("--lower", "loss"),
    ],
)
def test_what_does_not_go_together_is_refused(words: tuple[str, ...]) -> None:
    refused(("ks", *words))
