"""`jaxaudit scores`: one table from the logs of several models, whole or not at all; a folder is one model."""

import csv
import stat
import sys
from pathlib import Path

import pytest
from pyarrow import parquet
from support.cli_runs import jaxaudit, refused
from support.evaluation_logs import ATTACKS, SECRET, muse_log, summary_of, tofu_log, write_log
from support.language_models import write_lines

LOG = "TOFU_EVAL.json"
COMMAND = ("scores", "open-unlearning")


@pytest.fixture
def saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Logs where open-unlearning puts them."""
    monkeypatch.chdir(tmp_path)
    for name, seed, used in (
        ("eval/retain_1", 1, 0.0),
        ("eval/retain_2", 2, 0.0),
        ("eval/full/evals_forget01", 3, 1.0),
        ("unlearn/NPO/evals", 4, 0.3),
        ("unlearn/RMU/evals", 5, 0.1),
    ):
        write_log(tmp_path / name, tofu_log(seed, used))
    return tmp_path


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_one_table_of_several_models(saves: Path):
    targets = (f"unlearn/NPO/evals/{LOG}", f"unlearn/RMU/evals/{LOG}")
    unused = ("--unused", f"eval/retain_1/{LOG}", "--unused", f"eval/retain_2/{LOG}")
    full = f"eval/full/evals_forget01/{LOG}"
    words = (*targets, *unused, "--used", full, "--before", full, "--records-per-group", "20")
    done = jaxaudit(*COMMAND, *words, "--out", "s.csv")
    assert done.code == 0, done.err
    assert "Models: 2 target, 1 before, 2 unused, 1 used." in done.out
    assert done.out.endswith("To judge: jaxaudit ks --scores s.csv\n")
    rows = rows_of(saves / "s.csv")
    assert [row["set"] for row in rows] == ["query"] * 40 + ["holdout"] * 40
    assert list(rows[0])[:3] == ["set", "index", "group"]
    models = {column.rpartition(".")[0] for column in list(rows[0])[3:]}
    assert models == {"target.NPO", "target.RMU", "before.full", "unused.retain_1", "unused.retain_2", "used.full"}
    log = tofu_log(4, 0.3)
    assert float(rows[7]["target.NPO.loss"]) == log["forget_Q_A_Prob"]["value_by_index"]["7"]["avg_loss"]
    assert float(rows[47]["target.NPO.min_k"]) == log["mia_min_k"]["holdout"]["value_by_index"]["7"]["score"]
    assert rows[47]["target.NPO.truth_ratio"] == ""
    assert rows[47]["group"] == "holdout-0"
    assert SECRET not in (saves / "s.csv").read_text() + done.out + done.err
    assert "--records-per-group" not in done.err
    if sys.platform != "win32":
        assert stat.S_IMODE((saves / "s.csv").stat().st_mode) == 0o600


def test_as_parquet_and_with_baselines(saves: Path):
    write_log(saves / "base", {**tofu_log(9, attacks=ATTACKS)})
    done = jaxaudit(*COMMAND, f"unlearn/NPO/evals/{LOG}", "--baseline", f"base/{LOG}", "--out", "s.parquet")
    assert done.code == 0, done.err
    names = parquet.read_table(saves / "s.parquet").column_names
    assert {f"baseline.base.{name}" for name in ATTACKS} < set(names)
    assert "group" not in names
    assert "--records-per-group" in done.err


def test_what_is_left_out_is_said(saves: Path):
    log = tofu_log(4)
    log["forget_Q_A_Prob"]["value_by_index"]["3"]["avg_loss"] = float("nan")
    for each in log["mia_min_k"]["holdout"]["value_by_index"].values():
        each["score"] = None
    write_log(saves / "odd", log)
    done = jaxaudit(*COMMAND, f"odd/{LOG}", "--out", "s.csv")
    assert done.code == 0, done.err
    assert "1 of 40 records of query are left out" in done.err
    assert "target.odd.min_k of holdout: no record has a finite number" in done.err
    assert len(rows_of(saves / "s.csv")) == 39


def test_what_cannot_be_used_is_refused_and_nothing_is_written(saves: Path):
    target = f"unlearn/NPO/evals/{LOG}"
    write_log(saves / "sums", summary_of(tofu_log(1)), "TOFU_SUMMARY.json")
    (saves / "cut.json").write_text((saves / target).read_text()[:500])
    (saves / "there.csv").write_text("mine")
    for words, said in (
        ((target, "--unused", "sums/TOFU_SUMMARY.json"), "averages alone"),
        ((target, "--used", "cut.json"), "was the evaluation stopped while it wrote"),
        ((target, "--unused", target), "as a target and as --unused"),
        ((target, "--records-per-group", "30"), "--records-per-group 30 does not divide the 40 records"),
        ((target, "--unused", "gone.json"), "--unused gone.json: there is no such file"),
        ((target, "--unused", "eval"), "folder"),
        ((target, "--out", "there.csv"), "--out there.csv already exists"),
        ((target, "--out", "s.txt"), "--out s.txt must be a .csv or a .parquet"),
        ((target, "--out", "no/s.csv"), "no is no directory"),
    ):
        out = () if "--out" in words else ("--out", "s.csv")
        assert SECRET not in refused((*COMMAND, *words, *out), (said,))


def test_muse_passages_are_judged_beside_retrained_models(saves: Path):
    for name, used in (("target", 0.3), ("retrain_1", 0.0), ("retrain_2", 0.0), ("full", 0.35)):
        write_log(saves / name, muse_log(len(name) + ord(name[-1]), 120, used), "MUSE_EVAL.json")
    words = ["target/MUSE_EVAL.json", "--muse", "verbmem", "--used", "full/MUSE_EVAL.json", "--out", "s.csv"]
    words += [word for seed in "12" for word in ("--unused", f"retrain_{seed}/MUSE_EVAL.json")]
    done = jaxaudit(*COMMAND, *words)
    assert done.code == 0, done.err
    assert SECRET not in done.out + done.err + Path("s.csv").read_text()
    assert {row["set"] for row in rows_of(Path("s.csv"))} == {"query"}
    for more, verdict in (((), "inconclusive"), (("--same-recipe",), "not forgotten")):
        (target,) = jaxaudit("ks", "--scores", "s.csv", *more, "--json").result["targets"]
        assert target["finding"]["verdict"] == verdict
        assert ("same_recipe" in " ".join(target["finding"]["would_change"])) is not bool(more)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("query.jsonl", "--baseline", "model"), "as a target and as --baseline"),
        (("query.jsonl", "holdout.jsonl"), "3 records are in two sets, such as query and holdout"),
        (("query.jsonl", "members.jsonl"), "1 records are in two sets"),
        (("all.jsonl",), "1 records are in two sets"),
    ],
)
def test_one_model_or_record_in_two_places_is_refused(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model").mkdir()
    for file in ("config.json", "tokenizer.json", "model.safetensors"):
        Path("model", file).write_text("{}")
    lines = [{"question": f"secret {row}?", "answer": "yes"} for row in range(5)]
    for name, some in (("query", lines[:3]), ("holdout", lines[:3]), ("members", lines[2:])):
        write_lines(f"{name}.jsonl", some)
    write_lines("all.jsonl", [{**lines[0], "set": "query"}, {**lines[0], "set": "holdout"}])
    shown = refused(("scores", "lm", "model", *words, "--out", "s.csv"), (said,))
    assert "secret" not in shown
    assert not Path("s.csv").exists()
