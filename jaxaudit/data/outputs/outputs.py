"""A model's outputs on a data set, from any framework: the numbers in a file, and the records that they are of."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

from jaxaudit.data.outputs.form import (
    Expected,
    OutputColumns,
    OutputsPlace,
    as_place,
    columns_of_array,
    read_outputs,
)
from jaxaudit.data.outputs.kinds import (
    HARD_LABELS,
    MOST_DECIMALS,
    Kind,
    are_log_probabilities,
    blocks,
    coarsest_dtype,
    decimals_of,
    inside,
    kind_of_outputs,
    of_infinite,
    refuse_bits,
    refuse_hard_labels,
    round_like,
    round_to,
    rounding_of_sums,
    significant_of,
    span_of,
    step_near,
)
from jaxaudit.errors import InputError
from jaxaudit.json_types import hash_of

SURE = (
    "If they are probabilities all the same, as trees grown in full, extremely randomised trees, nearest neighbours, "
    "and, rounded, sure networks give them of records that they were trained on, give `kind` probabilities."
)
"""What to do with 0 and 1 that are no labels."""


@dataclass(frozen=True, eq=False)
class Outputs:
    """A model's outputs on a data set, one row per record.

    Attributes:
        values: `float32` or `float64[n, classes]`, as stored in the file. For two classes there may be one column, that
            of the second class. Rows of probabilities are not renormalised: that would move them off their grid.
        decimals: how many decimals they were printed with, at most 6; None if they were not rounded to decimals.
        dtype: the coarsest of bfloat16, float16 and the file's own type that holds its numbers; "text" for CSV.
        significant: how many significant digits they were printed with (`%.4g`, `%.3e`), 1 to 6; None if they were not
            so rounded, or are probabilities for which `decimals` are as coarse.
        own_class: whether there are always two columns: of all other classes together, and of the record's own class.
        reading: what the reader took the file's content for, where it had to guess, in words.
    """

    values: np.ndarray
    kind: Literal["probabilities", "logits"]
    decimals: int | None
    dtype: str
    name: str
    significant: int | None = None
    own_class: bool = False
    reading: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.values.flags.writeable = False

    @cached_property
    def probabilities(self) -> np.ndarray:
        """`float32[n, classes]`, read-only; for logits their softmax, computed in float64."""
        probabilities = _probabilities(self.values) if self.kind == "probabilities" else _softmax(self.logits)
        probabilities.flags.writeable = False
        return probabilities

    @property
    def logits(self) -> np.ndarray:
        """`[n, classes]`; a missing first column of two is 0. A `ValueError` where the file holds probabilities."""
        if self.kind != "logits":
            raise ValueError("probabilities were rounded, so their logits are not known")
        whole = self.values.shape[1] > 1
        return self.values if whole else np.concatenate([np.zeros_like(self.values), self.values], axis=1)

    def columns(self, labels: np.ndarray) -> np.ndarray:
        """The column of each record's own class, given these classes."""
        return np.ones_like(labels) if self.own_class else labels

    @cached_property
    def content_hash(self) -> str:
        """`blake2b:...` of the numbers: equal numbers give an equal hash, whatever the format and type."""
        numbers = (np.ascontiguousarray(block, "<f8").data for block in blocks(self.values))
        return hash_of(chain([repr(self.values.shape).encode()], numbers))

    def take(self, indices: np.ndarray) -> "Outputs":
        """The same model's outputs on the records at `indices`, in that order; the hash is of these numbers."""
        return replace(self, values=self.values[indices])


def load_outputs(
    path: str | Path | OutputsPlace,
    classes: int | Sequence[str],
    rows: int,
    kind: Kind = "auto",
    *,
    of: str = "query set",
    records: Sequence[str] | None = None,
) -> Outputs:
    """The outputs in a .npz, .npy, .csv or .parquet file, as probabilities.

    | file | holds |
    |---|---|
    | `.npy` | `[rows, classes]` |
    | `.npz` | one array of outputs, under any name; labels and names of records may stand beside it |
    | `.csv` | a line for each record, with or without a header line, in UTF-8 |
    | `.parquet` | one column per class |

    A table has a header that names a column for each class exactly as the class, or `p_0`, `p_1`, ..., in any order; or
    none, and the classes in their order. One more column may name or number the rows: it is left out. Commas,
    semicolons or tabs separate cells, with decimal commas beside the last two. For two classes one column is enough: of
    the class that its header names, else of class 1. Another form is refused with the header that would be read.

    With `kind="auto"` rows within [0, 1] that sum to 1, within printing precision, are probabilities; numbers
    outside [0, 1] are logits (log-probabilities are logits too) and go through a softmax in float64. Logarithms of
    probabilities of which some are 0 (`-inf`) are read as these probabilities. `Outputs.reading` says what was guessed.
    Nothing but 0 and 1 is taken for predicted labels, unless `kind` says that they are probabilities.

    Args:
        path: the file, or the part of one that is of this set.
        classes: their number, or their names in label order. `rows`: the number of records of the set.
        of: the name of the set in messages.
        records: the names of the set's records, in order. The one further column, unless it counts the rows, or an
            array `record` of a `.npz`, must have these names, each once, and puts the rows in their order.

    Raises:
        InputError: the file cannot be read; has another number of rows or classes, or other names of records; holds
            NaN, infinity, text or predicted labels; its rows are neither probabilities nor logits, or are probabilities
            after a second softmax or logarithms that are not natural; or could be either (one column of one sign).
    """
    place = as_place(path)
    source = place.name
    expected = Expected(rows, classes, of, records)
    read = read_outputs(place, expected)
    return _as_outputs(read, expected, kind, source, is_text=place.path.suffix.lower() == ".csv")


def outputs_of(
    values: Any, classes: int | Sequence[str], rows: int, kind: Kind = "auto", *, name: str, of: str = "query set"
) -> Outputs:
    """The outputs in an array, as `load_outputs` has those of a file.

    Args:
        values: `[rows, classes]`, in label order; or a table of pandas or Polars with columns named after the classes.
        name: of the model, for messages.

    >>> outputs_of(np.array([[0.9, 0.1], [0.2, 0.8]]), ["cat", "dog"], 2, name="mine").kind
    'probabilities'
    """
    expected = Expected(rows, classes, of)
    if hasattr(values, "columns"):
        values = _by_class(values, expected, name)
    return _as_outputs(columns_of_array(np.array(values), None, expected, name), expected, kind, name)


def _by_class(frame: Any, expected: Expected, name: str) -> np.ndarray:
    """The columns of a table of pandas or Polars in the order of the classes, after which they are named."""
    titles = {str(title): title for title in frame.columns}
    if list(frame.columns) == list(range(expected.classes)):
        # pandas numbers the columns of an array: these have no names, and are in the order of the classes.
        return np.stack([np.asarray(frame[title]) for title in frame.columns], axis=1)
    for header in expected.headers:
        if titles.keys() == {*header} and len(frame.columns) == len(header):
            return np.stack([np.asarray(frame[titles[title]]) for title in header], axis=1)
    missing = next((title for title in expected.names if title not in titles), None)
    trouble = "has more columns than classes" if missing is None else f"has no column named {missing!r}"
    raise InputError(
        f"{name}: {trouble}; give a column a class, named after it ({', '.join(expected.names)[:200]}), or an array "
        "with the classes in this order."
    )


def _as_outputs(read: OutputColumns, expected: Expected, kind: Kind, source: str, is_text: bool = False) -> Outputs:
    """What these numbers are: probabilities or logits, how they were rounded, and what was guessed."""
    values, count = read.values, expected.classes
    dtype = "text" if is_text else values.dtype.name
    _check_shape(values, expected, source)
    refuse_bits(values, source)
    exact = values.dtype.kind == "f" and values.dtype.itemsize <= 4
    values = values.astype(np.float32 if exact else np.float64, copy=False)
    unlogged = None if kind == "probabilities" else of_infinite(values, source)
    if unlogged is not None:
        values, dtype = unlogged, "float64"
    span = span_of(values, source)
    if kind != "probabilities":
        refuse_hard_labels(values, source, SURE if kind == "auto" else "")
    dtype = coarsest_dtype(values, dtype)
    decimals = decimals_of(values, dtype, least=int(inside(span)))
    # d decimals have at most d digits; if all have fewer, the decimals only reach down to the smallest of them.
    most = MOST_DECIMALS if decimals is None or not inside(span) else decimals - 1
    significant = significant_of(values, dtype, most)
    tolerance = rounding_of_sums(values.shape[1], decimals, significant, dtype)
    kind_found = kind_of_outputs(values, "auto" if unlogged is not None else kind, span, tolerance, source)
    logged = unlogged is not None or (kind_found == "logits" and kind == "auto" and are_log_probabilities(values, span))
    if values.shape[1] == 1 and kind_found == "probabilities" and significant is not None:
        # The other class has as many decimals as numbers near 1 have digits.
        decimals = significant
    if read.only == 0:
        values = -values if kind_found == "logits" else 1 - values
    words = "logarithms of probabilities" if logged else kind_found
    reading = (f"{words} of {count} classes",) if kind == "auto" else ()
    if values.shape[1] < count:
        title = expected.title(1 if read.only is None else read.only)
        how = "as its header says" if read.only is not None else f"the second class, and not of {expected.title(0)}"
        reading = (f"{words}, in one column, of {title}, {how}",)
    return Outputs(values, kind_found, decimals, dtype, source, significant, reading=(*reading, *read.notes))


def confidence_of(outputs: Outputs, labels: np.ndarray) -> np.ndarray:
    """`float32[n]`: each row's probability of its ground-truth class (c of Liu & Tsaftaris 2020, section 2)."""
    if len(labels) != len(outputs.probabilities):
        raise InputError(
            f"{outputs.name}: has {len(outputs.probabilities)} rows but there are {len(labels)} labels; give one for "
            "each."
        )
    own_columns = outputs.columns(np.asarray(labels))
    return np.take_along_axis(outputs.probabilities, own_columns[:, None], axis=1)[:, 0]


def match_precision(confidences: np.ndarray, outputs: Outputs) -> np.ndarray:
    """`float32`: `confidences` rounded like the file of `outputs`, and to at most 6 decimals.

    Apply it to every confidence that is compared, including those of `outputs`. Near 1, where most of them lie,
    rounding alone separates samples. Even a float32 softmax is rounded there, in another way by every framework; 6
    decimals are common to all. Logits need only `match_logits`.
    """
    if outputs.kind == "logits":
        return round_like(confidences, None, None, "float32")
    return round_like(confidences, outputs.decimals, outputs.significant, outputs.dtype)


def match_logits(log_odds: np.ndarray, *outputs: Outputs) -> np.ndarray:
    """`float32`: log-odds (nats) rounded to a grid as coarse as the logits in these files.

    Apply it to all log-odds that are compared. The step is that between neighbouring numbers of a file at the median of
    the records' largest logits, since a constant added to all logits of a record also costs digits.
    """
    return round_to(log_odds, max(logit_step(grid) for grid in outputs))


def logit_step(outputs: Outputs) -> float:
    """The step (nats) between neighbouring logits of a file at the median of the records' largest logits."""
    largest = [np.abs(block).max(axis=1) for block in blocks(outputs.logits)]
    size = float(np.median(np.concatenate(largest)))
    return step_near(size, outputs.decimals, outputs.significant, outputs.dtype)


def _check_shape(values: np.ndarray, expected: Expected, source: str) -> None:
    classes = expected.classes
    if values.size == 0:
        raise InputError(f"{source}: is empty; did the model write its outputs?")
    columns = values.shape[1]
    if columns != classes and not (columns == 1 and classes == 2):
        labels = columns == 1 and bool((values == np.rint(values)).all())
        raise expected.unlike(source, HARD_LABELS) if labels else expected.of_columns(source, columns)


def _probabilities(values: np.ndarray) -> np.ndarray:
    """`float32[n, classes]` clipped to [0, 1]; the values themselves if they already are."""
    if values.shape[1] == 1:
        second = values.astype(np.float64)
        values = np.concatenate([1 - second, second], axis=1)
    if values.dtype == np.float32 and values.min() >= 0 and values.max() <= 1:
        return values
    return values.clip(0, 1).astype(np.float32)


def _softmax(logits: np.ndarray) -> np.ndarray:
    """`float32[n, classes]`, by way of float64."""
    probabilities = np.empty(logits.shape, np.float32)
    start = 0
    for block in blocks(logits):
        powers = np.ascontiguousarray(block, np.float64)
        with np.errstate(over="ignore"):
            powers = np.exp(powers - powers.max(axis=1, keepdims=True))
        probabilities[start : start + len(block)] = powers / powers.sum(axis=1, keepdims=True)
        start += len(block)
    return probabilities
