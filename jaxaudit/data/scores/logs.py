"""Scores of records in the logs of evaluation tools, one model's each; no text is kept, and no message has one.

open-unlearning: a metric of an attack (`mia_*`) has values by the index of a record of the forget set and of the
holdout, MUSE's of three sets, of which a table takes one. Logs are joined by these indices, never by order.

lm-evaluation-harness (`samples_TASK_DATE.jsonl`, release 0.4.13 with `--log_samples`): `filtered_resps` has a sum over
tokens for each request of a record. A record of several choices has a request each, and after them, for mutual
information, another one each with an empty prompt. `target` is the index of the right choice or its text.
"""

import hashlib
import re
import zlib
from collections.abc import Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float, Int

from jaxaudit.data.formats.parsing import json_lines, parsing, refuse_repeated_keys
from jaxaudit.data.memory import MAX_BYTES
from jaxaudit.data.paths import entries, read_small
from jaxaudit.data.scores.columns import COVARIATE, LONGEST, ROLES, ModelRole
from jaxaudit.errors import InputError

Set = Literal["query", "holdout", "members"]
"""The forget set, records that no model used, and records that the target used."""
LARGEST = 2**28
MOST_VALUES = 2**21
"""Values of a log, by its commas: Python takes up to 200 bytes for each."""
ATTACKS = ("loss", "zlib", "min_k", "min_k_plus_plus", "reference", "gradnorm")
"""Scores of both sets: the metric's name without `mia_`. A lower one is more likely a member's."""
LOSS, CORRECT, WRONG = "forget_Q_A_Prob", "forget_Q_A_PARA_Prob", "forget_Q_A_PERT_Prob"
TRUTH_RATIO = ("forget_truth_ratio", "forget_Truth_Ratio")
OF_FORGET = ("extraction_strength", "exact_memorization")
"""Scores of the forget set, where a log has TOFU's: MUSE's are of other records than its attacks'."""
PRIVLEAK, ROUGE = "privleak", "rougeL_f1"
OF_MUSE = {
    "verbmem": {"rouge": "forget_verbmem_ROUGE", **{name: name for name in OF_FORGET}},
    "knowmem": {"rouge": "forget_knowmem_ROUGE"},
}
"""The metrics of the other two sets of MUSE's records, by the names of their scores."""
TINY = 1e-10
ALIKE = 1e-6
"""How far a truth ratio may lie from what the log's own losses give, relatively."""
_NO_NUMBER = re.compile(rb"(?<=[\s:,\[])-?(?:NaN|Infinity)(?=[\s,\]}])")
_INDEX = re.compile(r"0|[1-9][0-9]{0,14}", re.ASCII)


Numbers = Float[np.ndarray, " n"]
"""A number a record, NaN where the log has none."""
Indices = Int[np.ndarray, " n"]
"""The numbers of the records, ascending."""


class LoggedSet(NamedTuple):
    """The index of each record of a set, and the numbers a record of one model, by name. `records` and `prompts` are
    equal for logs of the same records, and of the same texts before answers, where logs tell; `covariates` are numbers
    that no model made.
    """

    index: Indices
    scores: Mapping[str, Numbers]
    covariates: Mapping[str, Numbers] = MappingProxyType({})
    records: str = ""
    prompts: str = ""


class EvaluationLog(NamedTuple):
    """What a log, or a folder of samples, has of one model, by set."""

    path: Path
    sets: Mapping[Set, LoggedSet]


class _Value(msgspec.Struct):
    score: float | msgspec.UnsetType | None = msgspec.UNSET
    avg_loss: float | list[float | None] | msgspec.UnsetType | None = msgspec.UNSET
    rougeL_f1: float | msgspec.UnsetType | None = msgspec.UNSET


class _Metric(msgspec.Struct):
    value_by_index: dict[str, _Value | None]


class _Attack(msgspec.Struct):
    forget: _Metric
    holdout: _Metric


_Logged = tuple[Indices, Numbers]
"""The records of a metric and their numbers."""


def read_log(path: Path, muse: str = PRIVLEAK) -> EvaluationLog:
    """The numbers a record in an evaluation log; of MUSE's, those of the set that `muse` names. `loss` is that of
    `mia_loss`, or else of the answers to the forget set's questions. `truth_ratio` is TOFU's, wrong / (correct +
    1e-10); where the log has correct / (correct + wrong), under the same name, it is computed from the losses.
    """
    metrics = _metrics(path)
    query: dict[str, _Logged] = {}
    holdout: dict[str, _Logged] = {}

    def numbers(name: str, field: str = "score") -> _Logged:
        return _scores(path, name, _decoded(path, f"metric {name} ", metrics[name], _Metric), field)

    if muse == PRIVLEAK:
        for title in (f"mia_{name}" for name in ATTACKS):
            if title in metrics:
                attack: _Attack = _decoded(path, f"metric {title} ", metrics[title], _Attack)
                name = title.removeprefix("mia_")
                query[name], holdout[name] = (_scores(path, title, part) for part in (attack.forget, attack.holdout))
        if LOSS in metrics and "loss" not in query:
            query["loss"] = numbers(LOSS, "avg_loss")
        of_tofu = next((name for name in TRUTH_RATIO if name in metrics), None)
        if of_tofu:
            losses = {name: numbers(name, "avg_loss") for name in (CORRECT, WRONG) if name in metrics}
            query["truth_ratio"] = _truth_ratio(path, of_tofu, numbers(of_tofu), losses)
        query |= {name: numbers(name) for name in OF_FORGET if name in metrics and (of_tofu or LOSS in metrics)}
    elif OF_MUSE[muse]["rouge"] in metrics:
        of_muse = {score: name for score, name in OF_MUSE[muse].items() if name in metrics}
        query = {score: numbers(name, ROUGE if score == "rouge" else "score") for score, name in of_muse.items()}
    if not query:
        raise InputError(
            f"{path}: has no number a record of a metric that is known here: mia_*, {LOSS}, {TRUTH_RATIO[0]}. Is it "
            "the log of an evaluation (TOFU_EVAL.json, MUSE_EVAL.json)? MUSE's passages and questions are read where "
            "`muse` names them, and nothing else there."
        )
    sets: dict[Set, LoggedSet] = {"query": _joined(path, query)}
    if holdout:
        sets["holdout"] = _joined(path, holdout)
    return EvaluationLog(path, sets)


def _joined(path: Path, metrics: Mapping[str, _Logged]) -> LoggedSet:
    return LoggedSet(_common_index(path, metrics), {name: values for name, (_, values) in metrics.items()})


def meeting(ours: Indices, other_index: Int[np.ndarray, " m"]) -> str:
    """How many indices of two lists meet, in words."""
    return (
        f"{len(ours):,} and {len(other_index):,} records, of which {len(np.intersect1d(ours, other_index)):,} meet "
        "by index"
    )


def _metrics(path: Path) -> dict[str, msgspec.Raw]:
    text = read_small(path, LARGEST)
    if text.count(b",") > MOST_VALUES:
        raise InputError(f"{path}: has more than {MOST_VALUES:,} values; is it the log of an evaluation?")
    # Python writes NaN, which is no JSON. A text that has the word is not kept.
    text = _NO_NUMBER.sub(b"null", text)
    metrics = _decoded(path, "", text, dict[str, msgspec.Raw])
    with parsing(f"{path}", "was it edited?"):
        refuse_repeated_keys(text)
    return metrics


def _decoded(path: Path, part_name: str, text: Any, kind: Any) -> Any:
    with parsing(
        f"{path}: {part_name}is not as open-unlearning writes it",
        "was the evaluation stopped while it wrote, or is it the *_SUMMARY.json, which has averages alone?",
    ):
        return msgspec.json.decode(text, type=kind)


def _scores(path: Path, name: str, metric: _Metric, field: str = "score") -> _Logged:
    """The numbers of a metric, in order of their indices; of several answers to a question, the mean."""
    keys = list(metric.value_by_index)
    values = [None if value is None else getattr(value, field) for value in metric.value_by_index.values()]
    if not all(map(_INDEX.fullmatch, keys)) or all(value is msgspec.UNSET for value in values):
        raise InputError(f"{path}: metric {name} has not a `{field}` by index (0, 1, 2); is it open-unlearning's?")
    index = np.array(keys, np.int64)
    order = np.argsort(index)
    return index[order], np.array([_number(value) for value in values])[order]


def _number(value: Any) -> float:
    answers = value if isinstance(value, list) else [value]
    numbers = [answer for answer in answers if isinstance(answer, float)]
    return float(np.mean(numbers)) if numbers and len(numbers) == len(answers) else float("nan")


def _truth_ratio(path: Path, name: str, logged_ratio: _Logged, losses: Mapping[str, _Logged]) -> _Logged:
    """The truth ratio as TOFU defines it, whichever of the two the log has."""
    index, logged = _common_index(path, {name: logged_ratio, **losses}), logged_ratio[1]
    if len(losses) == 2:
        with np.errstate(all="ignore"):
            correct, wrong = (np.exp(-losses[loss_name][1]) for loss_name in (CORRECT, WRONG))
            ratio, share = wrong / (correct + TINY), correct / (correct + wrong + TINY)
            for form, values in ((ratio, logged), (share, ratio)):
                if np.allclose(logged, form, ALIKE, 0, equal_nan=True):
                    return index, values
    raise InputError(
        f"{path}: {name} may be wrong / correct or correct / (correct + wrong), and does not follow from {CORRECT} and "
        f"{WRONG} of the same log, which tell: evaluate again with them (overwrite=true)."
    )


def _common_index(path: Path, scores: Mapping[str, _Logged]) -> Indices:
    """The index of metrics of one set, refused if they are of different records, as where a log keeps what an earlier
    evaluation left there.
    """
    first, (index, _) = next(iter(scores.items()))
    for name, (other_index, _) in scores.items():
        if not np.array_equal(other_index, index):
            raise InputError(
                f"{path}: {first} and {name} have {meeting(index, other_index)}; were they evaluated on different "
                "forget sets? Evaluate again with overwrite=true."
            )
    return index


_NO_NAME = re.compile(r"[^\w.\-]+")
_UNTELLING = re.compile(r".*_EVAL|evals?(_.*)?|ds_size[0-9]+|\.*", re.IGNORECASE)
"""Files and folders that do not tell which model an evaluation was of."""


class Joined(NamedTuple):
    """A table of scores, a cell a record. By set, `records` counts the records, `left_out` those without a number of
    some score. Without any number on a set, a column is `empty` (`target.a.loss of query`); with one number for all
    records, it is left out (`constant`).
    """

    columns: Mapping[str, Sequence[Any]]
    records: Mapping[Set, int]
    left_out: Mapping[Set, int]
    empty: tuple[str, ...]
    constant: tuple[str, ...]


def model_names(paths: Sequence[Path]) -> list[str]:
    """A name for each model from its log's path: the last part that tells of a model; where several have it, all parts.

    >>> model_names([Path("saves/eval/retain90/TOFU_EVAL.json"), Path("saves/unlearn/npo/evals/TOFU_EVAL.json")])
    ['retain90', 'npo']
    >>> model_names([Path("a/seed/TOFU_EVAL.json"), Path("b/seed/TOFU_EVAL.json")])
    ['a_seed', 'b_seed']
    """
    parts = [
        [part for part in (*path.parts[:-1], path.stem) if not _UNTELLING.fullmatch(part)] or [path.stem]
        for path in paths
    ]
    last = [_name(of_path[-1:]) for of_path in parts]
    names = [_name(of_path) if last.count(name) > 1 else name for of_path, name in zip(parts, last, strict=True)]
    unique: list[str] = []
    for name in names:
        numbered = (f"{name}_{number}" for number in count(2))
        unique.append(next(candidate for candidate in chain([name], numbered) if candidate not in unique))
    return unique


def table_of_logs(logs: Mapping[ModelRole, Mapping[str, EvaluationLog]], block: int | None = None) -> Joined:
    """The table of these logs, by index: a row for each record of the forget set (`query`) and of the holdout that has
    a finite number of every score; a score without any on a set is an empty column there. With `block`, so many
    consecutive indices of a set are a group: 20 for TOFU, whose authors have 20 each.
    """
    index: dict[Set, np.ndarray] = {}
    records: dict[Set, str] = {}
    prompts: dict[Set, str] = {}
    numbers: dict[str, dict[Set, np.ndarray]] = {}
    for role in ROLES:
        for name, log in logs.get(role, {}).items():
            for part, logged in log.sets.items():
                if role == "target":
                    index.setdefault(part, logged.index)
                if part not in index:
                    continue
                # A baseline only says how difficult a record is; it may lack the chat template of the others.
                prompt = "" if role == "baseline" else logged.prompts
                for kind, is_same in (
                    ("indices", np.array_equal(index[part], logged.index)),
                    ("records", records.setdefault(part, logged.records) == logged.records),
                    ("prompts", not prompt or prompts.setdefault(part, prompt) == prompt),
                ):
                    if not is_same:
                        raise InputError(
                            f"{log.path}: has other {kind} of {part} than the target "
                            f"({meeting(index[part], logged.index)}). A table has every record of every model: "
                            "evaluate all with the same forget_split and holdout_split, examples before a question "
                            "(num_fewshot) and chat template."
                        )
                if role == "target":
                    for covariate, values in logged.covariates.items():
                        numbers.setdefault(f"{COVARIATE}.{covariate}", {}).setdefault(part, values)
                for score, values in logged.scores.items():
                    numbers.setdefault(f"{role}.{name}.{score}", {})[part] = values
    parts: dict[Set, tuple[np.ndarray, list[str]]] = {part: _whole(part, len(index[part]), numbers) for part in index}
    columns: dict[str, list[Any]] = {
        "set": [part for part, (kept, _) in parts.items() for _ in kept],
        "index": [int(one) for part, (kept, _) in parts.items() for one in index[part][kept]],
    }
    if block is not None:
        for part, ours in index.items():
            if (ours[-1] + 1) % block:
                raise InputError(
                    f"`records_per_group` {block} does not divide the {ours[-1] + 1:,} records of {part}; are groups "
                    "blocks of equal size, as TOFU's authors of 20 questions each?"
                )
        columns["group"] = [
            f"{part}-{one // block}" for part, one in zip(columns["set"], columns["index"], strict=True)
        ]
    for column, of_parts in numbers.items():
        columns[column] = [
            float(of_parts[part][row]) if part in of_parts and column not in empty else None
            for part, (kept, empty) in parts.items()
            for row in kept
        ]
    distinct = {column: len({*columns[column]} - {None}) for column in numbers}
    columns = {column: cells for column, cells in columns.items() if distinct.get(column, 2) > 1}
    for name, log in logs["target"].items():
        if not any(column.startswith(f"target.{name}.") for column in columns):
            raise InputError(
                f"{log.path}: no score of the target varies over the records of which every log has a finite number; "
                "did a model diverge? Leave out its log."
            )
    return Joined(
        columns,
        {part: len(kept) for part, (kept, _) in parts.items()},
        {part: len(index[part]) - len(kept) for part, (kept, _) in parts.items()},
        tuple(f"{column} of {part}" for part, (_, empty) in parts.items() for column in empty),
        tuple(column for column, values in distinct.items() if values == 1),
    )


def _whole(
    part: Set, records: int, numbers: Mapping[str, Mapping[Set, Numbers]]
) -> tuple[Int[np.ndarray, " kept"], list[str]]:
    """The rows of a set that have a finite number of every score that has any there, and the columns that have none."""
    finite = {column: np.isfinite(values[part]) for column, values in numbers.items() if part in values}
    empty = [column for column, is_finite in finite.items() if not is_finite.any()]
    rest = [is_finite for is_finite in finite.values() if is_finite.any()]
    return np.flatnonzero(np.all([np.full(records, bool(rest)), *rest], axis=0)), empty


def _name(parts: Sequence[str]) -> str:
    return _NO_NAME.sub("_", "_".join(parts)).strip("._")[-LONGEST:] or "model"


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
    dates: dict[str, str] = {}
    sets: dict[Set, LoggedSet] = {}
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
        sets[of] = _read(*paths.values())
    if len(dates) > 1:
        raise InputError(
            f"{folder}: the samples of {' and '.join(task[:80] for task in dates.values())} are of several runs "
            f"({', '.join(dates)}), between which the model may have changed. Evaluate all tasks of a model in one run."
        )
    return EvaluationLog(folder, sets)


def _read(path: Path) -> LoggedSet:
    """The records of a file, with digests of records and of their prompts; an empty one if it has no such hashes."""
    rows: dict[int, tuple[list[float], str, str]] = {}
    decoder = msgspec.json.Decoder(_Sample)
    samples = 0
    for number, line in json_lines(path, LONGEST_LINE, MAX_BYTES // SHARE):
        where = f"{path}: line {number}"
        with parsing(f"{where} is no sample of lm-evaluation-harness", "was it written with the option log_samples?"):
            sample = decoder.decode(line)
        rows[sample.doc_id] = _of_right_answer(sample, where), sample.doc_hash, sample.prompt_hash
        samples += 1
    if not 0 < samples == len(rows):
        raise InputError(
            f"{path}: has {samples:,} samples of {len(rows):,} doc_id; is it of one task and one filter, and was the "
            "evaluation stopped?"
        )
    index = sorted(rows)
    numbers, of_records, of_prompts = zip(*(rows[row] for row in index), strict=True)
    likelihoods, *covariates = np.array(numbers).T
    by_name: dict[str, Numbers] = dict(zip(COVARIATES, covariates, strict=True))
    return LoggedSet(np.array(index, np.int64), {SCORE: likelihoods}, by_name, _digest(of_records), _digest(of_prompts))


def _digest(hashes: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest() if all(hashes) else ""


def _of_right_answer(sample: _Sample, where: str) -> list[float]:
    """The log-likelihood of a record's right answer, NaN where the model gave none, and the record's covariates."""
    requests: Any = sample.arguments
    requests = [list(request.values()) for request in requests.values()] if isinstance(requests, dict) else requests
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
