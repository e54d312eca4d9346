"""Scores in the logs of evaluation tools: read as their sources write them, joined by index, or refused."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import csv
from support.cli_runs import jaxaudit, refused
from support.evaluation_logs import ATTACKS, SECRET, muse_log, summary_of, tofu_log, write_log

from jaxaudit.data import EvaluationLog, model_names, read_log, read_samples, score_table, table_of_logs
from jaxaudit.errors import InputError

Log = dict[str, Any]


def table_of(folder: Path, logs: dict[Any, list[Log]], block: int | None = None) -> Any:
    paths: dict[Any, list[Path]] = {
        role: [write_log(folder / f"{role}{place}", log) for place, log in enumerate(those)]
        for role, those in logs.items()
    }
    read: dict[Any, dict[str, EvaluationLog]] = {
        role: dict(zip(model_names(those), map(read_log, those), strict=True)) for role, those in paths.items()
    }
    made = table_of_logs(read, block)
    assert [model.name for model in score_table(made.columns).of("target")] == list(read["target"])
    return made


def test_what_is_taken(tmp_path: Path):
    log = tofu_log(1, attacks=ATTACKS)
    read = read_log(write_log(tmp_path, log))
    scores = {of: logged.scores for of, logged in read.sets.items()}
    assert set(scores["holdout"]) == set(ATTACKS)
    assert set(scores["query"]) == {*ATTACKS, "truth_ratio", "extraction_strength"}
    for name in ATTACKS:
        parts: tuple[tuple[str, Any], ...] = (("forget", "query"), ("holdout", "holdout"))
        for part, ours in parts:
            wanted = [each["score"] for each in log[f"mia_{name}"][part]["value_by_index"].values()]
            assert scores[ours][name].tolist() == wanted
            assert read.sets[ours].index.tolist() == list(range(40))
    assert scores["query"]["truth_ratio"].tolist() == [
        each["score"] for each in log["forget_truth_ratio"]["value_by_index"].values()
    ]


def test_without_the_attack_the_loss_is_that_of_the_answers(tmp_path: Path):
    """The mean, where there are several; the truth ratio may have either spelling."""
    log = tofu_log(1)
    log["forget_Truth_Ratio"] = log.pop("forget_truth_ratio")
    several = log["forget_Q_A_Prob"]["value_by_index"]
    wanted = [each["avg_loss"] for each in several.values()]
    several["0"]["avg_loss"], several["1"]["avg_loss"] = [1.0, 2.0, 4.5], [1.0, None]
    scores = {of: logged.scores for of, logged in read_log(write_log(tmp_path, log)).sets.items()}
    np.testing.assert_array_equal(scores["query"]["loss"], [2.5, math.nan, *wanted[2:]])
    assert "truth_ratio" in scores["query"]
    assert "loss" not in scores["holdout"]


def test_the_other_truth_ratio_is_turned_into_tofus(tmp_path: Path):
    """correct / (correct + wrong) is higher for records that were used; the table's is lower for them."""
    of_tofu, other = (
        read_log(write_log(tmp_path / form, tofu_log(1, form=form))).sets["query"].scores["truth_ratio"]
        for form in ("tofu", "prob_mean")
    )
    np.testing.assert_allclose(other, of_tofu, rtol=1e-12)


def test_the_records_of_muse(tmp_path: Path):
    log = muse_log(1)
    path = write_log(tmp_path, log, "MUSE_EVAL.json")
    attack, passages, questions = (read_log(path, *muse).sets for muse in ((), ("verbmem",), ("knowmem",)))
    assert {part: set(each.scores) for part, each in attack.items()} == {"query": {"min_k"}, "holdout": {"min_k"}}
    assert {part: set(each.scores) for part, each in passages.items()} == {"query": {"rouge", "extraction_strength"}}
    assert {part: set(each.scores) for part, each in questions.items()} == {"query": {"rouge"}}
    for sets, name in ((passages, "forget_verbmem_ROUGE"), (questions, "forget_knowmem_ROUGE")):
        wanted = [each["rougeL_f1"] for each in log[name]["value_by_index"].values()]
        assert sets["query"].scores["rouge"].tolist() == wanted
    log["exact_memorization"] = log["forget_knowmem_ROUGE"]
    with pytest.raises(InputError, match="exact_memorization has not a `score`"):
        read_log(write_log(tmp_path, log), "verbmem")
    with pytest.raises(InputError, match="where `muse` names them, and nothing else there"):
        read_log(write_log(tmp_path, tofu_log(1)), "verbmem")
    averages = {"privleak": log["privleak"], "retain_knowmem_ROUGE": log["retain_knowmem_ROUGE"]}
    with pytest.raises(InputError, match="MUSE's passages and questions are read where `muse` names them"):
        read_log(write_log(tmp_path, averages))


def test_logs_are_joined_by_index_whatever_their_order(tmp_path: Path):
    shuffled, order = tofu_log(2), np.random.default_rng(0).permutation(40)
    plain = table_of(tmp_path / "plain", {"target": [tofu_log(1)], "unused": [tofu_log(2)]})
    for metric in (*shuffled.values(), *(shuffled["mia_min_k"][part] for part in ("forget", "holdout"))):
        if "value_by_index" in metric:
            metric["value_by_index"] = {str(at): metric["value_by_index"][str(at)] for at in order}
    mixed = table_of(tmp_path / "mixed", {"target": [tofu_log(1)], "unused": [shuffled]})
    assert mixed == plain
    assert plain.columns["index"] == [*range(40), *range(40)]
    assert plain.columns["set"] == ["query"] * 40 + ["holdout"] * 40
    assert {"target.target0.min_k", "unused.unused0.min_k", "unused.unused0.loss"} < set(plain.columns)
    assert plain.columns["target.target0.loss"][40:] == [None] * 40


def test_groups_are_blocks_of_indices_of_one_set(tmp_path: Path):
    found = table_of(tmp_path, {"target": [tofu_log(1)]}, 20).columns["group"]
    assert found == ["query-0"] * 20 + ["query-1"] * 20 + ["holdout-0"] * 20 + ["holdout-1"] * 20
    with pytest.raises(InputError, match="`records_per_group` 30 does not divide the 40 records"):
        table_of(tmp_path, {"target": [tofu_log(1)]}, 30)


def test_a_record_without_a_number_is_left_out_of_all(tmp_path: Path):
    target, retain = tofu_log(1), tofu_log(2)
    target["forget_Q_A_Prob"]["value_by_index"]["3"]["avg_loss"] = float("nan")
    retain["mia_min_k"]["forget"]["value_by_index"]["5"]["score"] = float("-inf")
    retain["mia_min_k"]["holdout"]["value_by_index"]["7"] = None
    found = table_of(tmp_path, {"target": [target], "unused": [retain]})
    assert found.records == {"query": 38, "holdout": 39}
    assert found.left_out == {"query": 2, "holdout": 1}
    assert found.empty == ()
    assert found.columns["index"] == [at for at in range(40) if at not in (3, 5)] + [at for at in range(40) if at != 7]


def test_a_score_without_any_number_is_an_empty_column(tmp_path: Path):
    diverged = tofu_log(2)
    for each in diverged["mia_min_k"]["holdout"]["value_by_index"].values():
        each["score"] = float("nan")
    found = table_of(tmp_path, {"target": [tofu_log(1)], "unused": [diverged]})
    assert found.empty == ("unused.unused0.min_k of holdout",)
    assert found.records == {"query": 40, "holdout": 40}
    assert found.columns["unused.unused0.min_k"][40:] == [None] * 40


def test_a_score_that_is_the_same_for_all_records_is_left_out(tmp_path: Path):
    log = tofu_log(1)
    for each in log["extraction_strength"]["value_by_index"].values():
        each["score"] = 0.0
    found = table_of(tmp_path, {"target": [log], "unused": [tofu_log(2)]})
    assert found.constant == ("target.target0.extraction_strength",)
    assert "unused.unused0.extraction_strength" in found.columns


def test_a_target_without_any_number_is_refused(tmp_path: Path):
    diverged = muse_log(1)
    for part in ("forget", "holdout"):
        for each in diverged["mia_min_k"][part]["value_by_index"].values():
            each["score"] = float("nan")
    with pytest.raises(InputError, match="no score of the target varies over the records of which every log"):
        table_of(tmp_path, {"target": [diverged]})
    with pytest.raises(InputError, match="no score of the target"):
        table_of(tmp_path, {"target": [muse_log(1), diverged]})


def test_logs_of_other_records_are_refused(tmp_path: Path):
    for role in ("target", "unused", "used", "before", "baseline"):
        logs: dict[Any, list[Log]] = {"target": [tofu_log(1)]}
        logs.setdefault(role, []).append(tofu_log(2, records=20))
        with pytest.raises(InputError, match=r"40 and 20 records, of which 20 meet by index"):
            table_of(tmp_path, logs)


def test_metrics_of_other_records_in_one_log_are_refused(tmp_path: Path):
    """A log keeps what an earlier evaluation left there, such as that of another forget set."""
    log = {**tofu_log(1), "forget_Q_A_Prob": tofu_log(1, records=20)["forget_Q_A_Prob"]}
    with pytest.raises(InputError, match=r"min_k and loss have 40 and 20 records, of which 20 meet.*overwrite=true"):
        read_log(write_log(tmp_path, log))


def damaged(change: Callable[[Log], object]) -> str:
    log = tofu_log(1)
    change(log)
    return json.dumps(log)


DAMAGE: dict[str, tuple[str, str]] = {
    "summary": (json.dumps(summary_of(tofu_log(1))), "averages alone"),
    "empty": ("", "not as open-unlearning writes it"),
    "other metrics": (json.dumps({"mmlu": [{"doc": SECRET}]}), "no number a record of a metric that is known"),
    "deep": ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "maximum recursion depth"),
    "text for a number": (
        damaged(lambda log: log["mia_min_k"]["forget"]["value_by_index"].update({"0": {"score": SECRET}})),
        "metric mia_min_k is not as",
    ),
    "text for an index": (
        damaged(lambda log: log["mia_min_k"]["forget"]["value_by_index"].update({SECRET: {"score": 1.0}})),
        "mia_min_k has not a `score` by index",
    ),
    "an index twice": (
        damaged(lambda log: log["mia_min_k"]["forget"]["value_by_index"].update({"07": {"score": 1.0}})),
        "mia_min_k has not a `score` by index",
    ),
    "no record": (damaged(lambda log: log["mia_min_k"]["forget"].update(value_by_index={})), "has not a `score`"),
    "one set": (damaged(lambda log: log["mia_min_k"].pop("holdout")), "missing required field `holdout`"),
    "a truth ratio of other losses": (
        damaged(lambda log: log["forget_truth_ratio"]["value_by_index"]["0"].update(score=0.123)),
        "does not follow from.*overwrite=true",
    ),
    "a truth ratio of either kind": (
        damaged(
            lambda log: (
                log.pop("forget_Q_A_PARA_Prob"),
                log.update(forget_truth_ratio=tofu_log(1, form="prob_mean")["forget_truth_ratio"]),
            )
        ),
        "wrong / correct or correct / ",
    ),
    "no text": ('{"mia_loss": {"forget": {"value_by_index": {"\udcff": {}}}}}', "utf-8"),
    "too large a number": ('{"mia_loss": {"forget": {"value_by_index": {"0": {"score": 1e999}}}}}', "out of range"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_log_that_cannot_be_used_is_refused(tmp_path: Path, what: str):
    text, match = DAMAGE[what]
    (tmp_path / "TOFU_EVAL.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=match) as error:
        read_log(tmp_path / "TOFU_EVAL.json")
    assert SECRET not in str(error.value)
    assert "\n" not in str(error.value)


def test_a_log_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with open(tmp_path / "sparse.json", "wb") as file:
        file.truncate(2**28 + 1)
    with pytest.raises(InputError, match="more than 268,435,456 bytes"):
        read_log(tmp_path / "sparse.json")
    monkeypatch.setattr("jaxaudit.data.scores.logs.MOST_VALUES", 100)
    with pytest.raises(InputError, match="more than 100 values"):
        read_log(write_log(tmp_path, tofu_log(1)))
    for name in ("none.json", "."):
        with pytest.raises(InputError):
            read_log(tmp_path / name)


def test_names_of_models():
    assert model_names([Path("TOFU_EVAL.json"), Path(), Path("..")]) == ["TOFU_EVAL", "model", "model_2"]
    assert model_names([Path("a/evals/TOFU_EVAL.json"), Path("a/evals_forget10/TOFU_EVAL.json")]) == ["a", "a_2"]
    assert model_names([Path("x" * 200 + ".json")]) == ["x" * 100]
    assert model_names([Path("a b\x1b,/TOFU_EVAL.json")]) == ["a_b"]
    assert model_names([Path("a/TOFU_EVAL.json"), Path("a_2.json"), Path("a/MUSE_EVAL.json")]) == ["a", "a_2", "a_3"]


def test_a_copy_of_a_log_is_no_other_model(tmp_path: Path):
    """Of the path alone, nobody could tell."""
    seeds = {"a": 1, "b": 1, "c": 2}
    logs = {name: read_log(write_log(tmp_path / name, tofu_log(seed))) for name, seed in seeds.items()}
    found = table_of_logs({"target": {"a": logs["a"]}, "before": {"c": logs["c"]}, "used": {"c": logs["c"]}})
    assert len(score_table(found.columns).models) == 3
    for role in ("before", "baseline", "unused", "used"):
        copied = table_of_logs({"target": {"a": logs["a"]}, role: {"b": logs["b"]}})
        with pytest.raises(InputError, match=rf"target\.a\.\w+ and {role}\.b\."):
            score_table(copied.columns)


@pytest.mark.parametrize("key", ["forget_quality", "0", "score"])
def test_a_key_twice_in_a_log_is_refused(key: str, tmp_path: Path):
    """A metric, a record, and a number of a record."""
    path = write_log(tmp_path, tofu_log(1))
    path.write_text(path.read_text().replace(f'"{key}": ', f'"{key}": {{}}, "{key}": ', 1))
    json.loads(path.read_text())
    with pytest.raises(InputError, match="twice"):
        read_log(path)


SECRET = "Basil of Kuwait"
DATE = "2026-01-05T10-11-12.123456"
Line = dict[str, Any]


def requests(*answers: str, prompts: tuple[str, ...] = (SECRET,)) -> dict[str, dict[str, str]]:
    """The requests of a line, one for each answer, with these prompts in turn."""
    return {
        f"gen_args_{place}": {"arg_0": prompts[place % len(prompts)], "arg_1": f" {answer}"}
        for place, answer in enumerate(answers)
    }


def sample(row: int, numbers: list[float], target: Any = "0", **more: Any) -> Line:
    """A line with the keys and types of release 0.4.13, compared with files that it wrote; its values are made up."""
    return {
        "doc_id": row,
        "doc": {"question": SECRET},
        "target": str(target),
        "arguments": requests(*(f"{SECRET} {'abcdef'[place]}" for place in range(len(numbers)))),
        "resps": [[[str(number), "False"]] for number in numbers],
        "filtered_resps": [[str(number), "False"] for number in numbers],
        "filter": "none",
        "metrics": ["acc"],
        "doc_hash": f"hash {row}",
        "prompt_hash": f"prompt {row}",
        "target_hash": f"target {row}",
        "acc": 1.0,
        **more,
    }


def write(folder: Path, task: str, lines: list[Line], date: str = DATE) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"samples_{task}_{date}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder


def test_the_right_answer_s_log_likelihood_is_the_score(tmp_path: Path):
    rolling = sample(4, [], arguments={"gen_args_0": {"arg_0": SECRET}}, filtered_resps=["-12.5"], target="")
    older = sample(5, [-7.25], arguments=[[SECRET, f" {SECRET}"]], filtered_resps=[[-7.25, False]], target=SECRET)
    lines = [sample(3, [-1.5, -2.5], 1), sample(0, [-0.5, -9.0, -1.0], 0), rolling, older, sample(9, [math.nan])]
    write(tmp_path, "my_task", lines)
    write(tmp_path, "my_task_2", [sample(0, [-1.0])])
    log = read_samples(tmp_path, {"query": "my_task", "holdout": "my_task_2"})
    assert log.sets["query"].index.tolist() == [0, 3, 4, 5, 9]
    *numbers, none = log.sets["query"].scores["log_likelihood"].tolist()
    assert numbers == [-0.5, -2.5, -12.5, -7.25]
    assert math.isnan(none)
    assert log.sets["holdout"].scores["log_likelihood"].tolist() == [-1.0]
    # Of the rolling record, all of the text is scored.
    size, covariates = len(SECRET), log.sets["query"].covariates
    assert covariates["choices"].tolist() == [3, 2, 1, 1, 1]
    assert covariates["prompt_characters"].tolist() == [size, size, 0, size, size]
    assert covariates["answer_characters"].tolist() == [size + 3, size + 3, size, size + 1, size + 3]
    assert (covariates["zlib_bytes"] > size).all()


def test_a_target_may_be_the_text_of_the_right_choice(tmp_path: Path):
    text = sample(0, [-1.5, -2.5], f"{SECRET} b")
    # For mutual information, each choice is asked again without a prompt.
    answers = ("yes", "no", "yes", "no")
    again = sample(1, [-3.5, -4.5, -0.1, -0.2], "no", arguments=requests(*answers))
    # The index of a choice, and its text.
    both = sample(2, [-5.5, -6.5], "1", arguments=requests("0", "1"))
    log = read_samples(write(tmp_path, "t", [text, again, both]), {"query": "t"})
    assert log.sets["query"].scores["log_likelihood"].tolist() == [-2.5, -4.5, -6.5]


REFUSED: dict[str, tuple[list[Line], str]] = {
    "generated": (
        [sample(0, [-1.0], arguments={"gen_args_0": {"arg_0": SECRET, "arg_1": {"until": []}}})],
        "line 1 has no log-likelihood of a prompt and an answer .Expected `str`",
    ),
    "twice": ([sample(0, [-1.0]), sample(0, [-1.0])], "has 2 samples of 1 doc_id"),
    "no index": ([sample(0, [-1.0, -2.0], SECRET)], "line 1 has 2 choices, and its target is not the index"),
    "another index": ([sample(0, [-1.0, -2.0], 2)], "not the index or the text of just one of them"),
    "no request": ([sample(0, [])], "has 0 choices"),
    "several right": ([sample(0, [-1.0, -2.0], [0, 1])], "its target is not the index"),
    "either": (
        [sample(0, [-1.0, -2.0], 1, arguments=requests("1", "2"))],
        "not the index or the text of just one of them",
    ),
    "prompts": (
        [sample(0, [-1.0, -2.0], 1, arguments=requests("1", "1", prompts=("a", SECRET)))],
        "those of Winogrande are prompts",
    ),
    "a text": ([sample(0, [-1.0], filtered_resps=[[SECRET, "False"]])], "line 1 has no log-likelihood"),
    "above 0": ([sample(0, [42.0])], "above 0"),
    "no sample": ([{"doc_id": 0, "text": SECRET}], "line 1 is no sample"),
    "nothing": ([], "has 0 samples"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_log_likelihood_is_refused_without_a_text(name: str, tmp_path: Path):
    lines, words = REFUSED[name]
    with pytest.raises(InputError, match=words) as caught:
        read_samples(write(tmp_path, "t", lines), {"query": "t"})
    assert SECRET not in str(caught.value)


def test_choices_of_other_bytes_than_utf_8_are_refused(tmp_path: Path):
    path = write(tmp_path, "t", [sample(0, [-1.0, -2.0])]) / f"samples_t_{DATE}.jsonl"
    path.write_bytes(path.read_bytes().replace(f"{SECRET} b".encode(), b"\xff"))
    with pytest.raises(InputError, match="line 1 has no log-likelihood of a prompt and an answer"):
        read_samples(tmp_path, {"query": "t"})


def test_a_task_has_one_file_and_tasks_are_of_one_run(tmp_path: Path):
    """Of two checkpoints, else."""
    later = "2026-01-06T10-11-12.123456"
    for task, date in (("t", DATE), ("t", later), ("a", DATE), ("b", later)):
        write(tmp_path, task, [sample(0, [-1.0])], date)
    refused: tuple[tuple[dict[Any, str], str], ...] = (
        ({"query": "other"}, "no samples of the task 'other'"),
        ({"query": "t"}, "2 evaluations of the task 't'"),
        ({"query": "a", "holdout": "b"}, "are of several runs"),
    )
    for tasks, words in refused:
        with pytest.raises(InputError, match=words):
            read_samples(tmp_path, tasks)
    assert list(read_samples(tmp_path, {"query": "a"}).sets) == ["query"]


def test_models_are_joined_into_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for place, model in enumerate(("npo", "base", "other")):
        for level, of in enumerate(("query", "holdout", "members")):
            lines = [sample(row, [-1.0 - row - place - row * place / 7 - 10 * level]) for row in range(8)]
            write(Path(model), f"my_{of}", lines if model == "npo" else lines[::-1])
    tasks = ("--query", "my_query", "--holdout", "my_holdout", "--members", "my_members")
    done = jaxaudit("scores", "lm-eval", "npo", *tasks, "--baseline", "base", "--out", "s.csv")
    assert done.code == 0, done.err
    assert SECRET not in done.out + done.err + Path("s.csv").read_text()
    table = csv.read_csv("s.csv").to_pydict()
    assert not any(column.startswith("covariate") for column in table)
    assert table["set"] == [of for of in ("query", "holdout", "members") for _ in range(8)]
    assert table["target.npo.log_likelihood"] == [-1.0 - row - 10 * level for level in range(3) for row in range(8)]
    below = [2.0 + row + row / 7 + 10 * level for level in range(3) for row in range(8)]
    assert table["baseline.base.log_likelihood"] == pytest.approx([-each for each in below])
    write(Path("other"), "my_query", [sample(row, [-3.0 - row], doc_hash="x") for row in range(8)])
    words = ("scores", "lm-eval", "npo", *tasks, "--out", "t.csv")
    refused((*words, "--unused", "other"), ("other: has other records of query than the target",))
    write(Path("other"), "my_query", [sample(row, [-3.0 - row * row], prompt_hash="x") for row in range(8)])
    refused((*words, "--unused", "other"), ("other: has other prompts of query than the target", "num_fewshot"))
    assert jaxaudit("scores", "lm-eval", "npo", *tasks, "--baseline", "other", "--out", "t.csv").code == 0
    Path("t.csv").unlink()
    refused(("scores", "lm-eval", "npo", "--query", "t", "--holdout", "t", "--out", "t.csv"), ("one task is given",))
