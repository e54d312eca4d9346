"""`jaxaudit scores regression`: the errors of a model of real numbers, as a table of scores."""

import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxaudit.cli.harness import Command, Summary
from jaxaudit.cli.options import option
from jaxaudit.cli.scores.lm import claim_table
from jaxaudit.errors import InputError, visible


@dataclass(frozen=True)
class RegressionOptions:
    """All options of the command."""

    predictions: Path = option(
        ..., "CSV with a header line, or Parquet: a row a record.", argument=True, metavar="TABLE", names="file"
    )
    table: Path = option(
        ..., "Write the scores to this new .csv or .parquet file.", "--out", check=claim_table, decides=False
    )
    prediction: str = option(..., "Column of the target's predictions.", metavar="COLUMN")
    truth: str = option(..., "Column of the true values.", metavar="COLUMN")
    set_column: str = option(
        ..., "Column of the sets: query, holdout, members or reference.", "--set", metavar="COLUMN"
    )
    sigma: str | None = option(
        None, "Column of predicted standard deviations, for a score by the Gaussian likelihood.", metavar="COLUMN"
    )
    group: str | None = option(None, "Column of groups that were dealt whole.", metavar="COLUMN")
    covariate: tuple[str, ...] = option(
        (), "Column of a number that no model made, such as a size. Repeatable.", metavar="COLUMN"
    )


def score(options: RegressionOptions) -> Summary:
    """Scores the records of the table and writes their scores."""
    import numpy as np

    from jaxaudit.data.formats.text_table import trimmed
    from jaxaudit.data.groups import numbered
    from jaxaudit.data.scores.writing import write_scores
    from jaxaudit.data.tables.people import read_text_table
    from jaxaudit.data.texts import SETS

    table, _ = read_text_table(options.predictions)
    names = table.header or []

    def place(name: str) -> int:
        if names.count(name) != 1:
            what = "several columns" if name in names else "no column"
            raise InputError(f"{table.source}: has {what} {name!r}; is the name right?")
        return names.index(name)

    def numbers(name: str) -> np.ndarray:
        values = table.numbers(place(name))
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            raise InputError(
                f"{table.source}: row {wrong[0] + 1}, column {name!r} is not finite; leave such records out."
            )
        return values

    sets = trimmed(table.columns[place(options.set_column)]).to_pylist()
    wrong = [row for row, name in enumerate(sets, 1) if name not in SETS]
    if wrong or not sets:
        where = f"row {wrong[0]}, column {options.set_column!r}" if wrong else "there are no rows; each"
        raise InputError(f"{table.source}: {where} must have one of {', '.join(SETS)}.")
    columns: dict[str, Any] = {"set": sets}
    if options.group is not None:
        # No value of a group is written.
        columns["group"] = numbered(np.array(trimmed(table.columns[place(options.group)]).to_pylist()))
    columns |= {f"covariate.{name}": numbers(name) for name in options.covariate}
    score, squared = "squared_error", (numbers(options.prediction) - numbers(options.truth)) ** 2
    if options.sigma is not None:
        sigma = numbers(options.sigma)
        if (sigma <= 0).any():
            raise InputError(
                f"{table.source}: row {int((sigma <= 0).argmax()) + 1}, column {options.sigma!r} is not above 0; "
                "`sigma` names the column of standard deviations."
            )
        score, squared = "nll", np.log(sigma) + 0.5 * (squared / sigma**2 + np.log(2 * np.pi))
    write_scores(options.table, {**columns, f"target.{score}": squared})
    counts = Counter(sets)
    said = ", ".join(f"{name} {counts[name]:,}" for name in SETS if counts[name])
    shown = shlex.quote(str(options.table))
    head = f"{shown}: {len(sets):,} records ({said}), scored by {score}."
    return Summary(tuple(map(visible, (head, "", f"To judge: jaxaudit ks --scores {shown}"))))


REGRESSION = Command(
    "scores regression",
    RegressionOptions,
    score,
    """Scores records by how far a model's predictions are from true values, as a table for `jaxaudit ks`.

    A row a record, with the squared error, or with `--sigma` the Gaussian negative log-likelihood: lower for what the
    model is more likely to have been trained on.

    Examples:

    `jaxaudit scores regression predictions.csv --prediction price --truth paid --set set --out scores.csv`
    """,
    first=("table", "prediction", "truth"),
    compiles=False,
)
