"""Samples of lm-evaluation-harness: the right answer's log-likelihood, joined by index, and what is refused."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from pyarrow import csv
from support.cli_runs import jaxaudit, refused

from jaxaudit.data import read_samples
from jaxaudit.errors import InputError

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
    assert log.scores["query"]["log_likelihood"].index.tolist() == [0, 3, 4, 5, 9]
    *numbers, none = log.scores["query"]["log_likelihood"].values.tolist()
    assert numbers == [-0.5, -2.5, -12.5, -7.25]
    assert math.isnan(none)
    assert log.scores["holdout"]["log_likelihood"].values.tolist() == [-1.0]
    # Of the rolling record, all of the text is scored.
    size, covariates = len(SECRET), log.covariates["query"]
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
    assert log.scores["query"]["log_likelihood"].values.tolist() == [-2.5, -4.5, -6.5]


REFUSED: dict[str, tuple[list[Line], str]] = {
    "generated": (
        [sample(0, [-1.0], arguments={"gen_args_0": {"arg_0": SECRET, "arg_1": {"until": []}}})],
        "line 1 has no log-likelihood of a prompt and an answer .Expected `str`",
    ),
    "twice": ([sample(0, [-1.0]), sample(0, [-1.0])], "has 2 samples of 1 doc_id"),
    "no index": ([sample(0, [-1.0, -2.0], SECRET)], "line 1 has 2 choices, and its target is not the index"),
    "another index": ([sample(0, [-1.0, -2.0], 2)], "not the index or the text of just one of them"),
    "several right": ([sample(0, [-1.0, -2.0], [0, 1])], "its target is not the index"),
    "either": (
        [sample(0, [-1.0, -2.0], 1, arguments=requests("1", "2"))],
        "not the index or the text of just one of them",
    ),
    "prompts": (
        [sample(0, [-1.0, -2.0], 1, arguments=requests("1", "1", prompts=("a", SECRET)))],
        "those of Winogrande are prompts",
    ),
    "no request": ([sample(0, [])], "has 0 choices"),
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


def test_a_task_has_one_file(tmp_path: Path):
    write(tmp_path, "t", [sample(0, [-1.0])])
    with pytest.raises(InputError, match="no samples of the task 'other'"):
        read_samples(tmp_path, {"query": "other"})
    write(tmp_path, "t", [sample(0, [-1.0])], date="2026-01-06T10-11-12.123456")
    with pytest.raises(InputError, match="2 evaluations of the task 't'"):
        read_samples(tmp_path, {"query": "t"})


def test_tasks_of_two_runs_may_be_of_two_checkpoints(tmp_path: Path):
    write(tmp_path, "a", [sample(0, [-1.0])])
    write(tmp_path, "b", [sample(0, [-2.0])], "2026-01-06T10-11-12.123456")
    with pytest.raises(InputError, match="are of several runs"):
        read_samples(tmp_path, {"query": "a", "holdout": "b"})
    assert list(read_samples(tmp_path, {"query": "a"}).scores) == ["query"]


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
