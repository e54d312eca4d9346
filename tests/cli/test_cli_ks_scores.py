"""`jaxaudit ks --scores`, as a user runs it: the table, the verdict, the page, and what is refused."""

import csv
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ks_2samp
from sklearn.metrics import roc_auc_score
from support.cli_runs import jaxaudit, refused
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


@pytest.mark.parametrize("form", ["tofu", "prob_mean"])
def test_logs_of_open_unlearning_give_its_own_numbers_and_a_verdict(form: str) -> None:
    """To 1e-12, by the log's own values; and by three retrained models a share."""
    logs = {name: tofu_log(seed, used, form=form) for seed, (name, used) in enumerate(MODELS.items())}
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
    # A two-sample KS test does not depend on which of the two truth ratios is asked.
    assert target["forget_quality"] == pytest.approx(ks_2samp(ratios["npo"], ratios["unused_1"]).pvalue, abs=1e-12)
    assert target["privleak"] == pytest.approx(leak, abs=1e-10)
    assert target["retrained"]["models"] == 3
    assert len(target["retrained"]["between"]) == 3
    assert target["verdict"] == "not forgotten"
    assert target["usage"][0]["fraction_low"] < 0.5 < target["usage"][0]["fraction_high"]


def test_one_retrained_log_gives_the_number_and_no_verdict() -> None:
    paths = [str(write_log(Path(str(seed)), tofu_log(seed, attacks=()))) for seed in range(2)]
    made = jaxaudit("scores", "open-unlearning", paths[0], "--unused", paths[1], "--out", "s.csv")
    assert made.code == 0, made.err
    target = jaxaudit("ks", "--scores", "s.csv", "--json").result["targets"][0]
    assert target["verdict"] == "inconclusive"
    assert 0 <= target["forget_quality"] <= 1
    assert target["privleak"] is None


def values(metric: dict) -> list[dict]:
    return [metric["value_by_index"][index] for index in sorted(metric["value_by_index"], key=int)]


def test_a_pilot_tells_how_many_records_are_needed() -> None:
    found = jaxaudit("power", "--scores", "truth.csv", "--query-size", "1000", "--json").result
    least = [size["least_noticed"] for size in found["sizes"]]
    assert found["finding"]["verdict"] == "sufficient"
    assert least == sorted(least, reverse=True)
    refused(("power", "--scores", "scores.csv"), ("scores.csv",))
    refused(("power", "--query-size", "1000"))
