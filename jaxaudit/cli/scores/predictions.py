"""Runs `jaxaudit scores regression`: scores predictions of a number, and writes the table."""

from typing import Any

import numpy as np

from jaxaudit.cli.job import Summary
from jaxaudit.cli.progress import say
from jaxaudit.cli.scores.command import RegressionOptions
from jaxaudit.cli.scores.written import scored_summary
from jaxaudit.data.formats.text_table import trimmed
from jaxaudit.data.group_values import group_values, number_groups
from jaxaudit.data.scores.columns import MOST
from jaxaudit.data.scores.names import other_sets
from jaxaudit.data.scores.predictions import refuse_other_scale, squared_errors
from jaxaudit.data.scores.table import score_table, set_of
from jaxaudit.data.scores.writing import write_scores
from jaxaudit.data.tables.reading import read_text_table
from jaxaudit.data.texts import SETS
from jaxaudit.errors import InputError


def score_predictions(options: RegressionOptions) -> Summary:
    """Scores the records of the table and writes their scores."""
    needed_columns = {
        options.prediction,
        options.truth,
        options.set_column,
        *options.covariate,
        options.group,
        options.sigma,
    }
    # pandas' index may hold any of them.
    table, notes = read_text_table(options.predictions, index=True, only=lambda name: name in needed_columns)
    names = table.header

    def place(name: str) -> int:
        if names.count(name) != 1:
            trouble = "several columns" if name in names else "no column"
            raise InputError(f"{table.source}: has {trouble} {name!r}; is the name right?")
        return names.index(name)

    def numbers(name: str) -> np.ndarray:
        values = table.numbers(place(name), "leave such records out")
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            raise InputError(
                f"{table.source}: row {wrong[0] + 1}, column {name!r} is not finite; leave such records out."
            )
        return values

    sets = [set_of(cell) for cell in table.columns[place(options.set_column)].to_pylist()]
    wrong = [row for row, name in enumerate(sets, 1) if not name]
    if wrong or not sets:
        where = f"row {wrong[0]}, column {options.set_column!r}" if wrong else "there are no rows; each"
        other_values = f"; {other_sets(table.columns[place(options.set_column)].to_pylist(), SETS)}" if wrong else ""
        raise InputError(f"{table.source}: {where} must have one of {', '.join(SETS)}{other_values}.")
    columns: dict[str, Any] = {"set": sets}
    if options.group is not None:
        # No value of a group is written.
        values = np.asarray(trimmed(table.columns[place(options.group)]).to_pylist(), object)
        of = f"table {table.source} (column {options.group})"
        columns["group"] = number_groups(group_values(values, np.arange(table.rows), of))
    columns |= {f"covariate.{name}": numbers(name) for name in options.covariate}
    prediction, truth = numbers(options.prediction), numbers(options.truth)
    score, squared = "squared_error", squared_errors(prediction, truth, table.source)
    for note in (*notes, *refuse_other_scale(prediction, truth, sets, table.source)):
        say(f"{table.source}: {note}")
    if options.sigma is not None:
        sigma = numbers(options.sigma)
        if (sigma <= 0).any():
            raise InputError(
                f"{table.source}: row {int((sigma <= 0).argmax()) + 1}, column {options.sigma!r} is not above 0; "
                "`sigma` names the column of standard deviations."
            )
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            score, squared = "nll", np.log(sigma) + 0.5 * (squared / sigma**2 + np.log(2 * np.pi))
        beyond = np.flatnonzero(~(np.abs(squared) <= MOST))
        if len(beyond):
            raise InputError(
                f"{table.source}: row {beyond[0] + 1}, column {options.sigma!r} is too far from 0 or too near to it "
                "for a likelihood; are predictions, true values and `sigma` of one unit?"
            )
    columns[f"target.{score}"] = squared
    # The nll of a density may be below 0 everywhere, which is no log-likelihood.
    lower = ("nll",) if score == "nll" else ()
    # What cannot be judged is not written.
    score_table(columns, name=table.source, lower=lower)
    write_scores(options.table, columns)
    return scored_summary(options.table, columns, score, lower)
