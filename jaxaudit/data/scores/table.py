"""A table of scores: a row a record, with its set and the scores that models give it; as columns, and as a file.

No message shows a cell. A table tells which record is in which set. So it is written whole or not at all, never over a
file or link that is there, and only its owner may read it, whatever the umask is."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jaxaudit.data.formats import TABLES
from jaxaudit.data.labels import MISSING
from jaxaudit.data.outputs.form import titles_of
from jaxaudit.data.paths import whole_file
from jaxaudit.data.scores.columns import (
    CHECKS,
    COVARIATE,
    HIGHER,
    LOWER,
    OWN,
    ROLES,
    SETS,
    Draft,
    ModelRole,
    columns_of,
    is_number,
    partition,
    refuse_copies,
    set_names,
    shape_of,
)
from jaxaudit.errors import InputError, refuse_wrong
from jaxaudit.json_types import hash_of


class ScoredModel(NamedTuple):
    """The scores of one model.

    Attributes:
        role: what is known of the model. `target`: the model in question. `before`: the target before a deletion.
            `baseline`: it used neither query set nor holdout. `unused`: as a baseline, and trained like the target.
            `used`: trained like the target, with all of the query set.
        scores: one number a record; NaN where the model was not asked. `name`: empty if it is the only one of its role.
    """

    role: ModelRole
    name: str
    scores: Mapping[str, Float[np.ndarray, " records"]]


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Scores of records, and which set each record is in.

    Attributes:
        sets: the set of each record, one of `SETS`.
        models: targets first.
        covariates: by name, a number a record that no model made.
        directions: by name of a score, 1 if it is higher for records that were used, -1 if lower, 0 if not known.
        guessed: the scores whose direction follows from their names alone.
        groups, pairs: the group and the pair of each record, numbered from 0, if any.
        strata: the group of each record, where the records of each group were dealt over both sets.
        notes: how the file was read where that is not plain. `ignored`: names of columns that were not understood.
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
    guessed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    strata: Int[np.ndarray, " records"] | None = None

    def of(self, role: ModelRole) -> tuple[ScoredModel, ...]:
        """The models of a role, in the order of their columns."""
        return tuple(model for model in self.models if model.role == role)

    def rows(self, *sets: str) -> Int[np.ndarray, " some"]:
        """The indices of the records of these sets, set after set."""
        return np.concatenate([np.flatnonzero(self.sets == set_name) for set_name in sets])

    @property
    def content_hash(self) -> str:
        """`blake2b:...` of everything that enters a number."""
        numbers = {
            (f"{model.role}.{model.name}.", name): model.scores[name] for model in self.models for name in model.scores
        }
        numbers |= {(f"{COVARIATE}.", name): self.covariates[name] for name in self.covariates}
        numbers |= {
            ("", name): units for name, units in (("group", self.groups), ("pair", self.pairs)) if units is not None
        }
        contents = ["\n".join(self.sets.tolist()).encode()]
        for (prefix, name), values in numbers.items():
            contents.append(f"\n{prefix}{name} {self.directions.get(name, 0)}\n".encode())
            contents.append(np.ascontiguousarray(values, "<f8").tobytes())
        contents += [text.encode("utf-8", "surrogatepass") + b"\0" for text in self.texts or ()]
        return hash_of(contents)


def score_table(
    columns: Any,
    *,
    name: str = "scores",
    lower: Sequence[str] = (),
    higher: Sequence[str] = (),
) -> ScoreTable:
    """A table of scores from columns.

    Args:
        columns: by name, one value a record, in a mapping or a data frame. `set`: `query`, `holdout`, `members`
            (records that the targets are known to have used) or `reference` (known not to have been used). `ROLE.SCORE`
            or `ROLE.MODEL.SCORE`: the scores of a model, with a role of `ScoredModel`; NaN or None where a model was
            not asked. `covariate.NAME`: numbers that no model made. `group`, `pair`: what was dealt whole, or which two
            records are versions of each other. `text`: the record. `index`: what a record is called elsewhere. A dot
            between two digits belongs to a name: `target.mink_0.2` is the score `mink_0.2`.
        lower, higher: names of scores that are lower, or higher, for records that were used, in addition to `LOWER` and
            `HIGHER`. Of other scores the direction is not known: no verdict rests on them.

    Raises:
        InputError: there is no set, no score, a name that can be read in two ways, a record twice, a number that is not
            finite, or columns of different lengths; a score is missing on part of a set, tells nothing, or has the sign
            of the other direction; groups or pairs do not fit; or two models have the same numbers (`refuse_copies`).

    >>> table = score_table({"set": ["query", "holdout"] * 2, "target.loss": [0.1, 2.0, 0.3, 1.0]})
    >>> table.of("target")[0].scores["loss"], table.directions
    (array([0.1, 2. , 0.3, 1. ]), {'loss': -1})
    """
    columns = dict(columns)
    shapes = {column: shape_of(columns[column]) for column in columns if _is_used(column)}
    wrong = {column: shape for column, shape in shapes.items() if shape != shapes.get("set", shape) or len(shape) != 1}
    if wrong:
        listed = "; ".join(f"{column[:100]} has shape {shape}" for column, shape in list(wrong.items())[:5])
        raise InputError(f"{name}: every column must have one value for each record, as `set` has: {listed}.")
    # Texts become an array only when they are known to be short: its cells are all as wide as the longest.
    sets = np.array(set_names(columns.get("set", ()), name), "U9")
    numbers = columns_of(columns, name)
    models: dict[tuple[ModelRole, str], dict[str, np.ndarray]] = {}
    for column in numbers:
        if column.role != COVARIATE:
            models.setdefault((column.role, column.model), {})[column.score] = column.values  # pyright: ignore[reportArgumentType]
    scored_models = [ScoredModel(*model_key, scores) for model_key, scores in models.items()]
    further = tuple(column for column in columns if not _is_used(column))
    if not models:
        raise InputError(
            f"{name}: has no score; call the column of a target's scores target.SCORE, such as target.loss"
            + (f" (columns that are not understood: {', '.join(further[:5])})." if further else ".")
        )
    directions = _directions(scored_models, lower, higher)
    guessed = tuple(score for score in directions if directions[score] and score not in (*lower, *higher))
    draft = Draft(columns, sets, numbers, guessed)
    for trouble in chain.from_iterable(check(draft) for check in CHECKS):
        raise InputError(f"{name}: {trouble}")
    table = ScoreTable(
        name,
        sets,
        tuple(sorted(scored_models, key=lambda model: ROLES.index(model.role))),
        {column.score: column.values for column in numbers if column.role == COVARIATE},
        directions,
        partition(columns, "group", sets, SETS[:3], name),
        partition(columns, "pair", sets, SETS[:2], name),
        tuple(map(str, columns["text"])) if "text" in columns else None,
        further,
        guessed,
    )
    _refuse_pairs(table)
    refuse_copies(numbers, sets, name)
    return table


def is_scored(values: Float[np.ndarray, " records"], rows: Int[np.ndarray, " some"]) -> bool:
    """Whether a model was asked for these records."""
    return len(rows) > 0 and bool(np.isfinite(values[rows]).all())


def _refuse_pairs(table: ScoreTable) -> None:
    if table.pairs is None:
        return
    query, holdout = (np.sort(table.pairs[table.rows(role)]) for role in ("query", "holdout"))
    if table.groups is not None or len(np.unique(query)) < len(query) or not np.array_equal(query, holdout):
        raise InputError(
            f"{table.name}: each pair must have one record in the query set and one in the holdout, and no `group` "
            f"beside it; there are {len(np.setxor1d(query, holdout))} pairs in only one of the sets."
        )


def _directions(models: Sequence[ScoredModel], lower: Sequence[str], higher: Sequence[str]) -> dict[str, int]:
    names = dict.fromkeys(name for model in models for name in model.scores)
    for score in (*lower, *higher):
        if score not in names or (score in lower and score in higher):
            raise InputError(
                f"`lower` and `higher` name scores of the table, each once: {score!r} is not one of "
                f"{', '.join(list(names)[:10])}, or is in both."
            )
    of_names = {name: (name in HIGHER) - (name in LOWER) for name in names}
    return of_names | dict.fromkeys(lower, -1) | dict.fromkeys(higher, 1)


def load_scores(
    path: Path | str,
    *,
    lower: Sequence[str] = (),
    higher: Sequence[str] = (),
) -> ScoreTable:
    """A table of scores from a file: see `score_table` for its columns.

    Args:
        path: a `.csv` with a header line, or a `.parquet`. Empty cells and null are NaN; true and false are 1 and 0.
        lower, higher: as for `score_table`.
    """
    path = Path(path)
    if path.suffix.lower() not in TABLES:
        raise InputError(
            f"{path.name}: is no table of scores, which is a {' or '.join(TABLES)} file; write it as one, such as by "
            "`table.to_csv('scores.csv', index=False)` of pandas."
        )
    columns, notes = _of_table(path)
    return replace(score_table(columns, name=path.name, lower=lower, higher=higher), notes=notes)


def is_score_table(path: Path) -> bool:
    """Whether the file is a table with a column `set`."""
    return path.suffix.lower() in TABLES and "set" in titles_of(path)


def target_on(path: Path, of: str, log_likelihood: bool, direction: int) -> np.ndarray | None:
    """`float64[n]`: the score of the only target in a table on the records of the set `of`; None if the file is no
    table with a column `set`. It is the target's `log_likelihood`, or its `loss` with the other sign, or else (without
    `log_likelihood`) its one score of this direction.
    """
    if not is_score_table(path):
        return None
    table = load_scores(path)
    targets, rows = table.of("target"), table.rows(of)
    scores = dict(targets[0].scores) if len(targets) == 1 else {}
    signs = {"log_likelihood": 1, "loss": -1} if log_likelihood else dict.fromkeys(list(scores)[: len(scores) == 1], 1)
    name = next((name for name in signs if name in scores), None)
    if name is None or signs[name] * table.directions.get(name, 0) == -direction:
        needed_words = "`log_likelihood` or `loss`" if log_likelihood else "score"
        raise InputError(
            f"{path.name}: has {len(targets)} targets with {len(scores)} scores; name a table of one target with one "
            f"{needed_words} that is {'higher' if direction > 0 else 'lower'} for records that were used, as the "
            "bank's are, or files of one column for each set."
        )
    return signs[name] * scores[name][rows]


def _is_used(column: str) -> bool:
    """Whether a column is read; of others only the names are."""
    return column in OWN or is_number(column)


def _of_table(path: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    # Imported here because pyarrow takes a tenth of a second.
    import pyarrow as pa
    import pyarrow.compute as pc

    from jaxaudit.data.formats.parquet_file import read_text_table
    from jaxaudit.data.formats.text_table import are_among, trimmed

    table = read_text_table(path, _is_used)
    header = table.header
    if len(set(header)) < len(header) or not header:
        raise InputError(f"{path.name}: has no columns, or two of the same name; give each its own.")
    columns: dict[str, Any] = {}
    for index, name in enumerate(header):
        if not _is_used(name):
            columns[name] = range(table.rows)
            continue
        cells = trimmed(table.columns[index])
        if not is_number(name):
            columns[name] = np.asarray(cells.to_pylist(), object)
            continue
        empty = are_among(cells, MISSING)
        table.columns[index] = pc.call_function("if_else", [empty, pa.scalar("nan"), cells])
        columns[name] = table.numbers(index, "leave it empty if the model was not asked")
    return columns, (f"it is read as {table.note}",) if table.note else ()


def claim_scores(path: Path) -> None:
    """Rejects a file that `write_scores` could not write, before any work is done."""
    refuse_wrong(
        f"`out` {path} ",
        (f"must be a .csv or a .parquet file, such as {path.stem or 'scores'}.csv.", path.suffix.lower() not in TABLES),
        ("already exists; name a new file (nothing was changed).", os.path.lexists(path)),
        (
            f"cannot be written: {path.parent} is no directory, or not writable; create it, or name another file.",
            not (path.parent.is_dir() and os.access(path.parent, os.W_OK | os.X_OK)),
        ),
    )


def write_scores(path: Path, columns: Mapping[str, Sequence[Any] | np.ndarray]) -> None:
    """Writes a table of scores, by the suffix of `path` as CSV or Parquet. A number reads back bit for bit, as a 64-bit
    float if it is no integer; None and NaN become empty cells.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "scores.csv"
    >>> write_scores(path, {"set": ["query", "holdout"], "target.loss": [0.1, None]})
    >>> print(path.read_text().strip())
    set,target.loss
    query,0.1
    holdout,
    """
    claim_scores(path)
    if len({len(values) for values in columns.values()}) > 1:
        raise InputError("`columns` must have a cell a record, all equally many.")
    # Imported here because pyarrow takes a tenth of a second.
    import pyarrow as pa

    from jaxaudit.data.formats.text_table import write_table

    table = pa.table({name: _cells(values) for name, values in columns.items()})
    try:
        with whole_file(path) as file:
            write_table(table, file, "," if path.suffix.lower() == ".csv" else "")
    except OSError as error:
        raise InputError(
            f"`out` {path} cannot be written ({error.strerror or error}); free space there, or name another file."
        ) from error


def _cells(values: Sequence[Any] | np.ndarray) -> Any:
    import pyarrow as pa

    cells = pa.array(values, from_pandas=True)
    return cells.cast(pa.float64()) if pa.types.is_floating(cells.type) else cells
