"""Reads the log-likelihood of each record in samples of lm-evaluation-harness: `samples_TASK_DATE.jsonl`.

Read from files that `lm_eval run --log_samples` of release 0.4.13 wrote, and from its source (`lm_eval/api/task.py`,
`evaluator.py`). `filtered_resps` has what the model gave for each request of a record: the sum over the tokens of the
continuation, and whether greedy decoding gives the same; of a rolling request the sum alone. A record of several
choices has a request each, and after them, for mutual information, another one each with an empty prompt. `target` is
the index of the right choice or its text; what could be both is refused, and so are choices that are prompts
(Winogrande). No text of a record is kept, and no message has one.
"""

import hashlib
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

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
_DATE = r"_(\d{4}-\d\d-\d\dT[\d.:-]+)\.jsonl"
COVARIATES = ("choices", "prompt_characters", "answer_characters", "zlib_bytes")
_VALUE = msgspec.json.Decoder(str | float)
_PAIR = msgspec.json.Decoder(list[str | float | bool])


class _Sample(msgspec.Struct):
    doc_id: Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
    filtered_resps: list[msgspec.Raw]
    arguments: dict[str, dict[str, msgspec.Raw]] | list[list[msgspec.Raw]]
    target: str | int = ""
    doc_hash: str = ""
    prompt_hash: str = ""


def read_samples(folder: Path, tasks: Mapping[Set, str]) -> EvaluationLog:
    """The log-likelihood of each record of some tasks (by set), from the folder of one model; covariates: a record's
    choices, characters of prompt and right answer, and bytes that zlib packs the two into. All samples are of one
    run: a folder keeps its name with another checkpoint.
    """
    covariates: dict[Set, Mapping[str, np.ndarray]] = {}
    dates: dict[str, str] = {}
    scores: dict[Set, Mapping[str, LoggedScores]] = {}
    records: dict[Set, str] = {}
    prompts: dict[Set, str] = {}
    for of, task in tasks.items():
        name = re.compile(f"samples_{re.escape(task)}{_DATE}")
        paths = {match[1]: path for path in entries(folder) if (match := name.fullmatch(path.name))}
        if len(paths) != 1:
            trouble = f"{len(paths)} evaluations of" if paths else "no samples of"
            raise InputError(
                f"{folder}: has {trouble} the task {task[:80]!r}; give the folder with one samples_TASK_DATE.jsonl of "
                "each task, as lm_eval writes it with its option log_samples."
            )
        dates |= dict.fromkeys(paths, task)
        logged, covariates[of], records[of], prompts[of] = _read(*paths.values())
        scores[of] = {SCORE: logged}
    if len(dates) > 1:
        raise InputError(
            f"{folder}: the samples of {' and '.join(task[:80] for task in dates.values())} are of several runs "
            f"({', '.join(dates)}), between which the model may have changed. Evaluate all tasks of a model in one run."
        )
    return EvaluationLog(folder, scores, records=records, prompts=prompts, covariates=covariates)


def _read(path: Path) -> tuple[LoggedScores, dict[str, np.ndarray], str, str]:
    """Scores, covariates, and digests of records and of their prompts; an empty one if the file has no such hashes."""
    values: dict[int, list[float]] = {}
    hashes: dict[int, tuple[str, str]] = {}
    decoder = msgspec.json.Decoder(_Sample)
    samples = 0
    for number, line in json_lines(path, LONGEST_LINE, MAX_BYTES // SHARE):
        where = f"{path}: line {number}"
        with parsing(f"{where} is no sample of lm-evaluation-harness", "was it written with the option log_samples?"):
            sample = decoder.decode(line)
        values[sample.doc_id] = _of_right_answer(sample, where)
        hashes[sample.doc_id] = sample.doc_hash, sample.prompt_hash
        samples += 1
    if not 0 < samples == len(values):
        raise InputError(
            f"{path}: has {samples:,} samples of {len(values):,} doc_id; is it of one task and one filter, and was the "
            "evaluation stopped?"
        )
    index = np.array(sorted(values), np.int64)
    of_records, of_prompts = (_digest(column) for column in zip(*(hashes[row] for row in index.tolist()), strict=True))
    numbers, *columns = np.array([values[row] for row in index.tolist()]).T
    return LoggedScores(index, numbers), dict(zip(COVARIATES, columns, strict=True)), of_records, of_prompts


def _digest(hashes: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest() if all(hashes) else ""


def _of_right_answer(sample: _Sample, where: str) -> list[float]:
    """The log-likelihood of a record's right answer, NaN where the model gave none, and the record's covariates."""
    requests: Any = sample.arguments
    requests = [list(request.values()) for request in requests.values()] if isinstance(requests, dict) else requests
    number = math.nan
    # Of generated texts, a request's second part is how they are generated, and so no text.
    with parsing(f"{where} has no log-likelihood of a prompt and an answer", "is it of a task of log-likelihoods?"):
        texts = [[msgspec.json.decode(text, type=str) for text in request[:2]] for request in requests]
        place = _place(sample, [request[1].strip() for request in texts if len(request) > 1], where)
        *prompt, answer = texts[place]
        raw = bytes(sample.filtered_resps[place])
        number = float(_PAIR.decode(raw)[0] if raw.startswith(b"[") else _VALUE.decode(raw))
    if number > 0:
        raise InputError(f"{where} has a log-likelihood above 0; is it of a task of log-likelihoods?")
    packed = zlib.compress("".join((*prompt, answer)).encode("utf-8", "surrogatepass"))
    return [number, *map(float, (len(sample.filtered_resps), sum(map(len, prompt)), len(answer), len(packed)))]


def _place(sample: _Sample, choices: Sequence[str], where: str) -> int:
    """The place of the request for the right answer, one of these choices."""
    count, target = len(sample.filtered_resps), str(sample.target).strip()
    if count == 1:
        return 0
    places = {int(target)} if target.isdecimal() and len(target) < 9 and int(target) < count else set()
    places |= {choices.index(target)} if target in choices else set()
    if len(places) != 1 or (len(choices) == count and len(set(choices)) == 1):
        raise InputError(
            f"{where} has {count:,} choices, and its target is not the index or the text of just one of them. Choose a "
            "task whose choices are answers (those of Winogrande are prompts), of which one is right, and give its "
            "index (doc_to_target)."
        )
    return places.pop()
