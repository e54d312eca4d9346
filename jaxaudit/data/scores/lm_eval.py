"""Reads the log-likelihood of each record in samples of lm-evaluation-harness: `samples_TASK_DATE.jsonl`.

`lm_eval run --log_samples --output_path FOLDER` writes such a file for each task into a folder a model
(`lm_eval/loggers/evaluation_tracker.py`). A line is a record: `doc_id`, its index in the task's data; `doc_hash`;
`target`; and `filtered_resps`, what the model gave for each request of the record. Of a request for a log-likelihood
that is its sum over the tokens of the continuation and whether greedy decoding gives the same, of a rolling one the
sum alone. Numbers and pairs are written as texts. A record of several choices has a request each, and after them, for
mutual information, another one each with an empty prompt. Its `target` is the index of the right choice or its text:
both occur, and a number may be either. A target that is the index of one choice and the text of another is refused. So
is a record whose choices are prompts (as Winogrande's), since the file does not tell which of them is right.

Read from files that release 0.4.13 wrote, and from its source (`lm_eval/api/task.py`, `evaluator.py`). Lines hold texts
of records, too: no text is kept, and no message has one.
"""

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from jaxaudit.data.formats.parsing import json_lines, parsing
from jaxaudit.data.memory import MAX_BYTES
from jaxaudit.data.paths import entries
from jaxaudit.data.scores.open_unlearning import EvaluationLog, LoggedScores, Set
from jaxaudit.errors import InputError

LONGEST_LINE, SHARE = 2**24, 4
"""Bytes of a line, and the part of the memory of an array that a file may unpack to."""
SCORE = "log_likelihood"
_DATE = r"_\d{4}-\d\d-\d\dT[\d.:-]+\.jsonl"
_VALUE = msgspec.json.Decoder(str | float)
_PAIR = msgspec.json.Decoder(list[str | float | bool])


class _Sample(msgspec.Struct):
    doc_id: int
    filtered_resps: list[msgspec.Raw]
    arguments: dict[str, dict[str, msgspec.Raw]] | list[list[msgspec.Raw]]
    target: str | int = ""
    doc_hash: str = ""
    prompt_hash: str = ""


def read_samples(folder: Path, tasks: Mapping[Set, str]) -> EvaluationLog:
    """The log-likelihood of each record of some tasks, from the folder of one model.

    Args:
        folder: with a file `samples_TASK_DATE.jsonl` of each task.
        tasks: the name of the task of each set.

    Raises:
        InputError: a task has no file, or several; or a file is no such file, has a record twice, generated texts, or a
            target that is none of a record's choices. The message has the numbers of lines.
    """
    scores: dict[Set, Mapping[str, LoggedScores]] = {}
    records: dict[Set, str] = {}
    prompts: dict[Set, str] = {}
    for of, task in tasks.items():
        name = re.compile(f"samples_{re.escape(task)}{_DATE}")
        paths = [path for path in entries(folder) if name.fullmatch(path.name)]
        if len(paths) != 1:
            trouble = f"{len(paths)} evaluations of" if paths else "no samples of"
            raise InputError(
                f"{folder}: has {trouble} the task {task[:80]!r}; give the folder with one samples_TASK_DATE.jsonl of "
                "each task, as lm_eval writes it with its option log_samples."
            )
        logged, records[of], prompts[of] = _read(paths[0])
        scores[of] = {SCORE: logged}
    return EvaluationLog(folder, scores, records=records, prompts=prompts)


def _read(path: Path) -> tuple[LoggedScores, str, str]:
    """The scores, and digests of the records and of their prompts; an empty one if the file has no hashes of them."""
    values: dict[int, float] = {}
    hashes: dict[int, tuple[str, str]] = {}
    decoder = msgspec.json.Decoder(_Sample)
    for number, line in json_lines(path, LONGEST_LINE, MAX_BYTES // SHARE):
        where = f"{path}: line {number}"
        with parsing(f"{where} is no sample of lm-evaluation-harness", "was it written with the option log_samples?"):
            sample = decoder.decode(line)
        if sample.doc_id in values or not 0 <= sample.doc_id < 2**53:
            raise InputError(
                f"{where} has the doc_id of an earlier line, or none from 0; is it of one task and filter?"
            )
        values[sample.doc_id] = _of_right_answer(sample, where)
        hashes[sample.doc_id] = sample.doc_hash, sample.prompt_hash
    if not values:
        raise InputError(f"{path}: is empty; was the evaluation stopped?")
    index = np.array(sorted(values), np.int64)
    of_records, of_prompts = (_digest(column) for column in zip(*(hashes[row] for row in index.tolist()), strict=True))
    return LoggedScores(index, np.array([values[row] for row in index.tolist()])), of_records, of_prompts


def _digest(hashes: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest() if all(hashes) else ""


def _of_right_answer(sample: _Sample, where: str) -> float:
    """The log-likelihood of a record's right answer; NaN where the model gave none."""
    requests: Any = sample.arguments
    requests = [list(request.values()) for request in requests.values()] if isinstance(requests, dict) else requests
    if any(len(request) > 1 and not bytes(request[1]).startswith(b'"') for request in requests):
        raise InputError(f"{where} is of generated texts, and scores are log-likelihoods: choose a task that has them.")
    place = _place(sample, [bytes(request[1]) for request in requests if len(request) > 1], where)
    number = math.nan
    with parsing(f"{where} has no log-likelihood of its right answer", "is it of a task of log-likelihoods?"):
        raw = bytes(sample.filtered_resps[place])
        number = float(_PAIR.decode(raw)[0] if raw.startswith(b"[") else _VALUE.decode(raw))
    if number > 0:
        raise InputError(f"{where} has a log-likelihood above 0; is it of a task of log-likelihoods?")
    return number


def _place(sample: _Sample, continuations: Sequence[bytes], where: str) -> int:
    """The place of the request for the right answer; `continuations` are JSON texts, a request each."""
    count, target = len(sample.filtered_resps), str(sample.target).strip()
    if count == 1:
        return 0
    with parsing(f"{where} has a choice that is no text", "was the file edited?"):
        choices = [msgspec.json.decode(text, type=str).strip() for text in continuations]
    if count and len(choices) == count and len(set(choices)) == 1:
        raise InputError(
            f"{where} has {count:,} prompts with one answer (as Winogrande has), and the file does not tell which of "
            "them is right; choose a task whose choices are answers."
        )
    places = {int(target)} if target.isdecimal() and len(target) < 9 and int(target) < count else set()
    places |= {choices.index(target)} if target in choices else set()
    if len(places) != 1:
        why = "the index of one and the text of another" if places else "neither the index nor the text of one"
        raise InputError(
            f"{where} has {count:,} choices, and its target is {why}; choose a task with one right answer, and give "
            "its index (doc_to_target)."
        )
    return places.pop()
