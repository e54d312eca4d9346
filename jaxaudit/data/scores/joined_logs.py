"""One table of scores from the evaluation logs of several models: joined by the indices of records, never by order."""

import re
from collections.abc import Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jaxaudit.data.scores.columns import LONGEST
from jaxaudit.data.scores.names import ROLES, ModelRole
from jaxaudit.data.scores.open_unlearning import EvaluationLog, Set, meeting
from jaxaudit.errors import InputError

_NO_NAME = re.compile(r"[^\w.\-]+")
_UNTELLING = re.compile(r".*_EVAL|evals?(_.*)?|ds_size[0-9]+|\.*", re.IGNORECASE)
"""Files and folders that do not tell which model an evaluation was of."""


class Joined(NamedTuple):
    """A table of scores, a cell a record, and what it could not take from the logs.

    `records` and `left_out` count the records of each set, and those without a number of some score. `empty` are
    columns and their sets that have no number at all, such as `target.a.loss of query`; `constant` are columns that
    were left out, because they have the same number for all records.
    """

    columns: Mapping[str, Sequence[Any]]
    records: Mapping[Set, int]
    left_out: Mapping[Set, int]
    empty: tuple[str, ...]
    constant: tuple[str, ...]


def model_names(paths: Sequence[Path]) -> list[str]:
    """A name for each model, from its log's file or folder: as few of the last parts of its path as tell it apart.

    >>> model_names([Path("saves/eval/retain90/TOFU_EVAL.json"), Path("saves/unlearn/npo/evals/TOFU_EVAL.json")])
    ['retain90', 'npo']
    >>> model_names([Path("a/seed/TOFU_EVAL.json"), Path("b/seed/TOFU_EVAL.json")])
    ['a_seed', 'b_seed']
    """
    parts = []
    for path in paths:
        telling_parts = [part for part in (*path.parts[:-1], path.stem) if not _UNTELLING.fullmatch(part)]
        parts.append(telling_parts or [path.stem])
    names = [_name(telling_parts[-1:]) for telling_parts in parts]
    for more in range(2, max(map(len, parts), default=0) + 1):
        names = [
            _name(telling_parts[-more:]) if names.count(name) > 1 else name
            for telling_parts, name in zip(parts, names, strict=True)
        ]
    unique: list[str] = []
    for name in names:
        numbered = (f"{name}_{number}" for number in count(2))
        unique.append(next(candidate for candidate in chain([name], numbered) if candidate not in unique))
    return unique


def table_of_logs(logs: Mapping[ModelRole, Mapping[str, EvaluationLog]], block: int | None = None) -> Joined:
    """The table of these logs: a row for each record of the forget set (`query`) and of the holdout, by index.

    Records without a finite number of some score are left out; a score without any on a set is an empty column there.

    Args:
        logs: of each role, by the names of models; at least one target. All must have the records of the first target
            with this set.
        block: records of a group, if consecutive indices of a set are one: 20 for TOFU, whose authors have 20 each.
    """
    index: dict[Set, np.ndarray] = {}
    records: dict[Set, str | None] = {}
    prompts: dict[Set, str] = {}
    numbers: dict[str, dict[Set, np.ndarray]] = {}
    for role in ROLES:
        for name, log in logs.get(role, {}).items():
            for part, scores in log.scores.items():
                ours = next(iter(scores.values())).index
                if role == "target":
                    index.setdefault(part, ours)
                if part not in index:
                    continue
                if not np.array_equal(index[part], ours):
                    raise InputError(
                        f"{log.path}: the target and this log have {meeting(index[part], ours)} ({part}). A table has "
                        "every record of every model: evaluate all with the same forget_split and holdout_split."
                    )
                if records.setdefault(part, log.records.get(part)) != log.records.get(part):
                    raise InputError(
                        f"{log.path}: has other records of {part} than the target, under the same indices; evaluate "
                        "all models on the same data."
                    )
                # A baseline only says how difficult a record is; it may lack the chat template of the others.
                prompt = "" if role == "baseline" else log.prompts.get(part, "")
                if prompt and prompts.setdefault(part, prompt) != prompt:
                    raise InputError(
                        f"{log.path}: has other prompts of {part} than the target; evaluate both with the same "
                        "examples before a question (num_fewshot) and the same chat template."
                    )
                for score, logged in scores.items():
                    numbers.setdefault(f"{role}.{name}.{score}", {})[part] = logged.values
    parts: dict[Set, tuple[np.ndarray, list[str]]] = {part: _whole(part, index[part], numbers) for part in index}
    if not len(parts["query"][0]):
        raise InputError("no record has a finite number of every score: did a model diverge? Leave out its log.")
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
            raise InputError(f"{log.path}: no score of the target is a finite number that varies; did it diverge?")
    return Joined(
        columns,
        {part: len(kept) for part, (kept, _) in parts.items()},
        {part: len(index[part]) - len(kept) for part, (kept, _) in parts.items()},
        tuple(f"{column} of {part}" for part, (_, empty) in parts.items() for column in empty),
        tuple(column for column, values in distinct.items() if values == 1),
    )


def _whole(
    part: Set, index: Int[np.ndarray, " n"], numbers: Mapping[str, Mapping[Set, Float[np.ndarray, " n"]]]
) -> tuple[Int[np.ndarray, " kept"], list[str]]:
    """The rows of a set that have a finite number of every score that has any there, and the columns that have none."""
    finite = {column: np.isfinite(values[part]) for column, values in numbers.items() if part in values}
    empty = [column for column, is_finite in finite.items() if not is_finite.any()]
    rest = [is_finite for column, is_finite in finite.items() if column not in empty]
    return np.flatnonzero(np.all([np.full(len(index), bool(rest)), *rest], axis=0)), empty


def _name(parts: Sequence[str]) -> str:
    return _NO_NAME.sub("_", "_".join(parts)).strip("._")[-LONGEST:] or "model"
