"""A table of scores: one row a record, with its set and the scores that models give it."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jaxaudit.data.groups import LONGEST as LONGEST_GROUP
from jaxaudit.data.groups import checked_groups, numbered
from jaxaudit.data.scores.copies import Column, refuse_copies
from jaxaudit.errors import InputError

Role = Literal["target", "before", "baseline", "unused", "used"]
ROLES: tuple[Role, ...] = ("target", "before", "baseline", "unused", "used")
SETS = ("query", "holdout", "members", "reference")
COVARIATE = "covariate"
OWN = ("set", "index", "group", "pair", "text")
"""Columns that are no score and no covariate."""
LOWER = {
    *("loss", "error", "squared_error", "absolute_error", "nll", "perplexity", "truth_ratio"),
    *("min_k", "min_k_plus_plus", "zlib", "reference", "gradnorm"),
}
"""Scores that are lower for records that were used: errors, and attacks with the sign of open-unlearning's `mia_*`."""
HIGHER = {
    *("log_likelihood", "likelihood", "probability", "log_odds", "confidence", "accuracy"),
    *("extraction_strength", "exact_memorization", "rouge"),
}
LONGEST = 100


class ScoredModel(NamedTuple):
    """The scores of one model.

    Attributes:
        role: what is known of the model. `target`: the model in question. `before`: the target before a deletion.
            `baseline`: it used neither query set nor holdout. `unused`: as a baseline, and trained like the target.
            `used`: trained like the target, with all of the query set.
        name: its name; empty if it is the only one of its role.
        scores: by name, one number a record; NaN where the model was not asked.
    """

    role: Role
    name: str
    scores: Mapping[str, Float[np.ndarray, " records"]]


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Scores of records, and which set each record is in.

    Attributes:
        name: of the file.
        sets: the set of each record, one of `SETS`.
        models: the models, targets first.
        covariates: by name, a number a record that no model made.
        directions: by name of a score, 1 if it is higher for records that were used, -1 if lower, 0 if not known.
        groups, pairs: the group and the pair of each record, numbered from 0; None if there are none.
        texts: the records as texts; None if they are not at hand.
        ignored: names of columns that were not understood.
    """

    name: str
    sets: np.ndarray
    models: tuple[ScoredModel, ...]
    covariates: Mapping[str, Float[np.ndarray, " records"]]
    directions: Mapping[str, int]
    groups: Int[np.ndarray, " records"] | None = None
    pairs: Int[np.ndarray, " records"] | None = None
    texts: tuple[str, ...] | None = None
    ignored: tuple[str, ...] = ()

    def of(self, role: Role) -> tuple[ScoredModel, ...]:
        """The models of a role, in the order of their columns."""
        return tuple(model for model in self.models if model.role == role)

    def rows(self, *sets: str) -> Int[np.ndarray, " some"]:
        """The indices of the records of these sets, set after set."""
        return np.concatenate([np.flatnonzero(self.sets == each) for each in sets])

    @property
    def content_hash(self) -> str:
        """`blake2b:...` of everything that enters a number."""
        digest = hashlib.blake2b("\n".join(self.sets.tolist()).encode(), digest_size=16)
        for label, values in (
            *((f"{m.role}.{m.name}.{name}", each) for m in self.models for name, each in m.scores.items()),
            *((f"{COVARIATE}.{name}", each) for name, each in self.covariates.items()),
            *((name, each) for name, each in (("group", self.groups), ("pair", self.pairs)) if each is not None),
        ):
            digest.update(f"\n{label} {self.directions.get(label.rpartition('.')[2], 0)}\n".encode())
            digest.update(np.ascontiguousarray(values, "<f8").tobytes())
        for text in self.texts or ():
            digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
        return f"blake2b:{digest.hexdigest()}"


def score_table(
    columns: Mapping[str, Any],
    *,
    name: str = "scores",
    lower: Sequence[str] = (),
    higher: Sequence[str] = (),
) -> ScoreTable:
    """A table of scores from columns, such as those of a data frame.

    Args:
        columns: by name, one value a record. `set`: `query`, `holdout`, `members` (records that the targets are known
            to have used) or `reference` (known not to have been used). `ROLE.SCORE` or `ROLE.MODEL.SCORE`: the scores
            of a model, with a role of `ScoredModel`; NaN or None where a model was not asked. `covariate.NAME`: numbers
            that no model made. `group`, `pair`: what was dealt whole, or which two records are versions of each other.
            `text`: the record. `index`: what a record is called elsewhere.
        name: of the table.
        lower, higher: names of scores that are lower, or higher, for records that were used, in addition to `LOWER` and
            `HIGHER`. Of other scores the direction is not known, and both count.

    Raises:
        InputError: there is no set, no score, a set of an unknown name, a record twice, a number that is not finite, a
            score that is missing on part of a set, the same for all records or one value for each set; groups or pairs
            do not fit; or two models have the same numbers (`refuse_copies`).

    >>> table = score_table({"set": ["query", "holdout"] * 2, "target.loss": [0.1, 2.0, 0.3, 1.0]})
    >>> table.of("target")[0].scores["loss"], table.directions
    (array([0.1, 2. , 0.3, 1. ]), {'loss': -1})
    """
    found = {str(each): columns[each] for each in columns}
    if "set" not in found:
        raise InputError(
            f"{name}: has no column `set`; say of each record whether it is in the query set (query), the holdout "
            "(holdout) or among the known members (members)."
        )
    # Texts become an array only when they are known to be short: its cells are all as wide as the longest.
    sets = np.array([each if each in SETS else "" for each in map(str, found["set"])], "U9")
    unknown = sets == ""
    if unknown.any() or not len(sets):
        raise InputError(f"{name}: {int(unknown.sum())} of {len(sets)} records are in no set of {', '.join(SETS)}.")
    _refuse_repeated(found, sets, name)
    numbers = {each: _numbers(each, values, len(sets), name) for each, values in found.items() if is_number(each)}
    models: dict[tuple[Role, str], dict[str, np.ndarray]] = {}
    for each, values in numbers.items():
        role, model, score = _parts(each)
        if role == COVARIATE:
            continue
        _refuse_useless(each, values, sets, name)
        models.setdefault((role, model), {})[score] = values  # pyright: ignore[reportArgumentType]
    made = tuple(ScoredModel(*both, scores) for both, scores in models.items())
    table = ScoreTable(
        name,
        sets,
        tuple(sorted(made, key=lambda model: ROLES.index(model.role))),
        {_parts(each)[2]: values for each, values in numbers.items() if _parts(each)[0] == COVARIATE},
        _directions(made, lower, higher),
        _partition(found, "group", sets, SETS[:3], name),
        _partition(found, "pair", sets, SETS[:2], name),
        tuple(map(str, found["text"])) if "text" in found else None,
        tuple(each for each in found if each not in OWN and each not in numbers),
    )
    if not table.models:
        raise InputError(
            f"{name}: has no score; call the column of a target's scores target.SCORE, such as target.loss"
            + (f" (columns that are not understood: {', '.join(table.ignored[:5])})." if table.ignored else ".")
        )
    for each, values in table.covariates.items():
        if not np.isfinite(values).all():
            raise InputError(f"{name}: the column covariate.{each} has empty cells or infinite numbers; complete it.")
    _refuse_pairs(table)
    refuse_copies(columns_of(numbers), sets, name)
    return table


def asked(values: Float[np.ndarray, " records"], rows: Int[np.ndarray, " some"]) -> bool:
    """Whether a model was asked for these records."""
    return len(rows) > 0 and bool(np.isfinite(values[rows]).all())


def is_number(column: str) -> bool:
    """Whether a column of this name holds the scores of a model, or a covariate."""
    role, _, score = column.partition(".")
    return bool(score) and role in (*ROLES, COVARIATE)


def columns_of(columns: Mapping[str, Any]) -> list[Column]:
    """The columns of scores and covariates."""
    found = {each: np.asarray(values, np.float64) for each, values in columns.items() if is_number(each)}
    return [Column(each, *_parts(each), values) for each, values in found.items()]


def _parts(column: str) -> tuple[str, str, str]:
    role, _, rest = column.partition(".")
    model, _, score = rest.rpartition(".")
    return role, model, score


def _numbers(column: str, values: Any, records: int, name: str) -> Float[np.ndarray, " records"]:
    if len(column) > 3 * LONGEST:
        raise InputError(f"{name}: a column has a name of more than {3 * LONGEST} characters; give it a short one.")
    try:
        found = np.array(values, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: the column {column} has a cell that is not a number.") from error
    if found.shape != (records,) or np.isinf(found).any():
        raise InputError(
            f"{name}: the column {column} must have one finite number for each of {records} records; it has shape "
            f"{found.shape} and {int(np.isinf(found).sum())} infinite numbers."
        )
    return found


def _refuse_useless(column: str, values: np.ndarray, sets: np.ndarray, name: str) -> None:
    """Refuses scores that are missing on part of a set, the same everywhere, or one value for each set."""
    of_sets = {each: values[sets == each] for each in SETS}
    for each, found in of_sets.items():
        missing = int(np.isnan(found).sum())
        if 0 < missing < len(found):
            raise InputError(
                f"{name}: the column {column} is empty for {missing} of {len(found)} records of the set {each}; leave "
                "these records out, or ask the model again."
            )
    there = values[~np.isnan(values)]
    if not len(there) or np.ptp(there) == 0:
        raise InputError(f"{name}: the column {column} has no number, or the same one for all records; is it a score?")
    if all(len(each) > 1 and np.ptp(each) == 0 for each in (of_sets["query"], of_sets["holdout"])):
        raise InputError(f"{name}: the column {column} has one value on each set: it is the set, not a score.")


def _refuse_repeated(found: Mapping[str, Any], sets: np.ndarray, name: str) -> None:
    for column in ("index", "text"):
        if column in found:
            # The records of different sets may be numbered from 0 each.
            labels = map(str, found[column]) if column == "text" else zip(sets, map(str, found[column]), strict=True)
            twice = len(sets) - len(set(labels))
            if twice:
                raise InputError(f"{name}: {twice} records occur twice (column {column}); keep one: a copy hides use.")


def _partition(
    found: Mapping[str, Any], column: str, sets: np.ndarray, of: Sequence[str], name: str
) -> Int[np.ndarray, " records"] | None:
    """The values of a column as numbers from 0; -1 for records of other sets than these."""
    if column not in found:
        return None
    longest = max((len(each) for each in found[column] if isinstance(each, str)), default=0)
    if longest > LONGEST_GROUP:
        raise InputError(f"{name}: a {column} has a name of more than {LONGEST_GROUP} characters; give short names.")
    values, there = np.asarray(found[column]), np.isin(sets, of)
    values = values[there]
    whole = values.dtype.kind == "f" and np.isfinite(values).all() and (values == np.floor(values)).all()
    values = values.astype(np.int64) if whole else values if values.dtype.kind in "iu" else values.astype(str)
    numbers = np.full(len(sets), -1)
    numbers[there] = numbered(checked_groups(values, f"table {name} (column {column})"))
    return numbers


def _refuse_pairs(table: ScoreTable) -> None:
    if table.pairs is None:
        return
    if table.groups is not None:
        raise InputError(f"{table.name}: has both `group` and `pair`; keep the one by which the records were dealt.")
    query, holdout = (table.pairs[table.rows(each)] for each in ("query", "holdout"))
    if len(np.unique(query)) < len(query) or not np.array_equal(np.sort(query), np.sort(holdout)):
        raise InputError(
            f"{table.name}: each pair must have one record in the query set and one in the holdout; there are "
            f"{len(np.setxor1d(query, holdout))} pairs in only one of them, or a pair has more than two records."
        )


def _directions(models: Sequence[ScoredModel], lower: Sequence[str], higher: Sequence[str]) -> dict[str, int]:
    names = dict.fromkeys(name for model in models for name in model.scores)
    for each in (*lower, *higher):
        if each not in names or (each in lower and each in higher):
            raise InputError(
                f"`lower` and `higher` name scores of the table, each once: {each!r} is not one of "
                f"{', '.join(list(names)[:10])}, or is in both."
            )
    below, above = (LOWER - set(higher)) | set(lower), (HIGHER - set(lower)) | set(higher)
    return {name: (name in above) - (name in below) for name in names}
