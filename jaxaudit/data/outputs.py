"""The target model's outputs on the query set, from any framework."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal

import numpy as np

from jaxaudit.data.output_files import HARD_LABELS, check_rows, read_outputs
from jaxaudit.data.precision import coarsest_dtype, decimals_of, round_like, significant_of
from jaxaudit.errors import InputError

Kind = Literal["auto", "probabilities", "logits"]
# Softmax in float32 leaves [0, 1] by about 1e-7.
SLACK = 1e-6


@dataclass(frozen=True, eq=False)
class Outputs:
    """A model's outputs on a data set, one row a record.

    Attributes:
        probabilities: `float32[n, classes]`; rows sum to 1 as precisely as the file was printed (they are not
            renormalised: that would move them off the grid that `match_precision` needs).
        kind: what the file held.
        decimals: how many decimals probabilities were printed with, 1 to 6; None where they were not so rounded.
        dtype: the coarsest of bfloat16, float16 and the file's own type that holds its numbers; "text" for CSV.
        name: the file's name.
        content_hash: of the file's numbers, `blake2b:...`.
        significant: how many significant digits probabilities were printed with (`%.4g`, `%.3e`), 1 to 6; None where
            they were not so rounded, or `decimals` are as coarse.
    """

    probabilities: np.ndarray
    kind: Literal["probabilities", "logits"]
    decimals: int | None
    dtype: str
    name: str
    content_hash: str
    significant: int | None = None

    def __post_init__(self) -> None:
        self.probabilities.flags.writeable = False

    def take(self, indices: np.ndarray) -> "Outputs":
        """The same model's outputs on the records at `indices`, in that order; the hash remains the file's."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: each[indices] for name, each in values.items() if isinstance(each, np.ndarray)})


def load_outputs(
    path: str | Path, classes: int | Sequence[str], rows: int, kind: Kind = "auto", *, of: str = "query set"
) -> Outputs:
    """The outputs in a .npz, .npy, .csv or .parquet file, as probabilities.

    | file | holds |
    |---|---|
    | `.npy` | `[rows, classes]` |
    | `.npz` | one array, or one named probabilities, probs, logits, outputs, predictions, y_pred or arr_0 |
    | `.csv` | a line for each record, with or without a header line |
    | `.parquet` | a column a class, or one column of lists |

    In tables a first column that numbers the rows, or that is text, is left out, and columns named after the
    classes are brought into class order. For two classes one column is enough: the probability (or the logit) of
    class 1, as binary classifiers give it.

    With `kind="auto"` rows within [0, 1] that sum to 1, within printing precision, are probabilities; numbers
    outside [0, 1] are logits (log-probabilities are logits too) and go through a softmax in float64.

    Args:
        classes: how many, or their names in label order.
        rows: how many records the set has that they are of.
        kind: what the file holds, where it should not be guessed.
        of: what messages call that set.

    Raises:
        InputError: when the file cannot be read; has another number of rows or classes; holds NaN, infinity, text
            or predicted labels; or its rows are neither probabilities nor logits.
    """
    path = Path(path).expanduser()
    class_names = None if isinstance(classes, int) else [str(name) for name in classes]
    count = classes if isinstance(classes, int) else len(classes)
    values, dtype = read_outputs(path, rows, count, class_names, of)
    _check_shape(values, rows, count, path.name, of)
    broken = np.logical_not(np.isfinite(values).all(axis=1))
    if broken.any():
        raise InputError(
            f"{path.name}: {int(broken.sum())} rows hold NaN or infinite values (first: row {_first(broken)}); did the "
            "model diverge?"
        )
    _refuse_hard_labels(values, path.name)
    dtype = coarsest_dtype(values, dtype)
    decimals, significant = _grid(values, dtype)
    if values.shape[1] == 1:
        found = _kind_of_one_column(values, kind, path.name)
        # The other class is known to as many decimals as numbers near 1 have digits.
        decimals = decimals if significant is None else significant
        pairs = np.concatenate([1 - values if found == "probabilities" else 0 * values, values], axis=1)
    else:
        found = _kind_of_rows(values, kind, _tolerance(values.shape[1], decimals, significant, dtype), path.name)
        pairs = values
    digest = hashlib.blake2b(repr(values.shape).encode() + values.astype("<f8").tobytes(), digest_size=16)
    return Outputs(
        probabilities=(pairs.clip(0, 1) if found == "probabilities" else _softmax(pairs)).astype(np.float32),
        kind=found,
        decimals=decimals if found == "probabilities" else None,
        dtype=dtype,
        name=path.name,
        content_hash=f"blake2b:{digest.hexdigest()}",
        significant=significant if found == "probabilities" else None,
    )


def confidence_of(outputs: Outputs, labels: np.ndarray) -> np.ndarray:
    """`float32[n]`: each row's probability of its ground-truth class (c of Liu & Tsaftaris 2020, section 2).

    Args:
        labels: `int[n]`, in the order of the rows.

    Raises:
        InputError: when there are not as many labels as rows.
    """
    if len(labels) != len(outputs.probabilities):
        raise InputError(
            f"{outputs.name}: has {len(outputs.probabilities)} rows but there are {len(labels)} labels; give the "
            "outputs in the order of the query set."
        )
    return np.take_along_axis(outputs.probabilities, np.asarray(labels)[:, None], axis=1)[:, 0]


def match_precision(confidences: np.ndarray, outputs: Outputs) -> np.ndarray:
    """`float32`: `confidences` rounded as the file of `outputs` was, and to 6 decimals where it was not coarser.

    To be applied to every confidence that is compared, those of `outputs` too. Comparing rounded with unrounded
    confidences would inflate the KS distance: near 1, where most of them lie, rounding alone separates the samples.
    Even a full float32 softmax is rounded there, in another way by every framework; 6 decimals are common to all.
    Logits that were stored coarsely cannot be matched: they are brought to 6 decimals only.
    """
    if outputs.kind == "logits":
        return round_like(confidences, None, None, "float32")
    return round_like(confidences, outputs.decimals, outputs.significant, outputs.dtype)


def _first(rows: np.ndarray) -> int:
    """The first true row, counted from 1 as people count lines."""
    return int(np.flatnonzero(rows)[0]) + 1


def _check_shape(values: np.ndarray, rows: int, classes: int, source: str, of: str) -> None:
    if values.size == 0:
        raise InputError(f"{source}: is empty; did the model write its outputs?")
    if values.shape == (classes, rows) and classes != rows:
        raise InputError(f"{source}: has shape {values.shape}, one row a class; transpose it to {rows} rows.")
    check_rows(len(values), rows, source, of)
    columns = values.shape[1]
    if columns == 1 and classes > 2 and (values == np.rint(values)).all():
        raise InputError(f"{source}: {HARD_LABELS}.")
    if columns != classes and not (columns == 1 and classes == 2):
        raise InputError(
            f"{source}: has {columns} columns but the {of} {classes} classes; give one column a class, in label order."
        )


def _refuse_hard_labels(values: np.ndarray, source: str) -> None:
    zero_or_one = ((values == 0) | (values == 1)).all()
    if zero_or_one and (values.shape[1] == 1 or (values.sum(axis=1) == 1).all()):
        raise InputError(f"{source}: holds only 0 and 1: {HARD_LABELS}.")


def _inside(values: np.ndarray) -> np.ndarray:
    return (values >= -SLACK) & (values <= 1 + SLACK)


def _grid(values: np.ndarray, dtype: str) -> tuple[int | None, int | None]:
    """The decimals and the significant digits that `values` were printed with, as far as they were."""
    if not _inside(values).all():
        return None, None
    decimals, significant = decimals_of(values, dtype), significant_of(values, dtype)
    # d decimals have at most d digits; fewer digits mean that the decimals only reach down to the smallest number.
    says_more = decimals is None or (significant is not None and significant < decimals)
    return decimals, significant if says_more else None


def _tolerance(classes: int, decimals: int | None, significant: int | None, dtype: str) -> float:
    """How far from 1 the rounding of its entries can bring the sum of a row of probabilities."""
    if significant is not None:
        return max(1e-3, 0.5 * 10.0**-significant * min(classes, 10) + SLACK)
    if decimals is not None:
        return min(0.5, classes * 0.5 * 10.0**-decimals) + SLACK
    return {"float16": 4e-3, "bfloat16": 2e-2}.get(dtype, 1e-3)


def _kind_of_one_column(values: np.ndarray, kind: Kind, source: str) -> Literal["probabilities", "logits"]:
    outside = np.logical_not(_inside(values)[:, 0])
    if kind == "probabilities" and outside.any():
        raise InputError(
            f"{source}: row {_first(outside)} holds {values[outside][0, 0]:g}, which is no probability; are these "
            "logits (--target-kind logits)?"
        )
    if kind == "auto":
        return "logits" if outside.any() else "probabilities"
    return kind


def _kind_of_rows(values: np.ndarray, kind: Kind, tolerance: float, source: str) -> Literal["probabilities", "logits"]:
    if kind == "logits":
        return kind
    outside = np.logical_not(_inside(values).all(axis=1))
    sums = values.sum(axis=1)
    off = np.abs(sums - 1) > tolerance
    if not outside.any() and not off.any():
        return "probabilities"
    if kind == "probabilities":
        row = _first(outside | off)
        what = "leaves [0, 1]" if outside[row - 1] else f"sums to {sums[row - 1]:g}"
        raise InputError(
            f"{source}: row {row} {what}, so these are no probabilities; renormalise the rows, or are they logits "
            "(--target-kind logits)?"
        )
    if not outside.any():
        raise InputError(
            f"{source}: neither probabilities nor logits: all values lie in [0, 1] but row {_first(off)} sums to "
            f"{sums[_first(off) - 1]:g}; if they are logits, say so (--target-kind logits); if they are independent "
            "scores (sigmoid), renormalise the rows."
        )
    for scale, what in ((100, "percentages"), (255, "8-bit probabilities")):
        if (values >= 0).all() and (np.abs(sums - scale) <= 0.02 * scale).all():
            raise InputError(
                f"{source}: every row sums to about {scale}: these look like {what}; divide them by {scale}, or say "
                "that they are logits (--target-kind logits)."
            )
    return "logits"


def _softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
