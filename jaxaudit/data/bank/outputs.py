"""The outputs of one model of a bank, checked before they are used."""

import math
import os
from pathlib import Path

import numpy as np
from jaxtyping import Float

from jaxaudit.data.bank.description import BY_CLASS, SCORED, Description
from jaxaudit.data.formats.arrays import StoredArray, read_npy
from jaxaudit.data.formats.parsing import refuse_pickle
from jaxaudit.data.memory import MAX_BYTES, refuse_larger
from jaxaudit.data.outputs.form import Expected, OutputsPlace, as_place, read_outputs
from jaxaudit.data.outputs.kinds import are_probabilities, inside, refuse_hard_labels, rounding_of_sums, span_of
from jaxaudit.data.outputs.outputs import load_outputs
from jaxaudit.data.outputs.precision import coarsest_dtype, decimals_of, significant_of
from jaxaudit.errors import InputError

FOLDER = "outputs"
WHOLE = "outputs.npy"
"""The outputs of all models in one file, in place of a folder."""
MOST_NATS = 20
"""Tests cut log-odds here, so a log-likelihood further below 0 could not be told from others."""
SPARE = 1 << 16


def outputs_path(directory: Path, model: int) -> Path:
    return directory / FOLDER / f"{model:05}.npy"


def read_model(directory: Path, model: int, description: Description) -> np.ndarray:
    """The outputs of a model, checked, `[n, views, values]` and read-only; `log_odds` have one value."""
    path, whole = outputs_path(directory, model), os.path.lexists(directory / WHOLE)
    stored = StoredArray(directory / WHOLE if whole else path)
    rows, source = (slice(model, model + 1), WHOLE) if whole else (slice(None), path.name)
    _refuse_form(stored.dtype, stored.shape, description, source, (description.models,) if whole else ())
    refuse_larger(f"{source}, of one model", math.prod(description.shape) * stored.dtype.itemsize, MAX_BYTES)
    values = stored[rows]
    values.flags.writeable = False
    return checked(values[0] if whole else values, description, source)


def load_into(path: Path | OutputsPlace, description: Description, of: str | None = None) -> np.ndarray:
    """`float32[n, views, values]`: the numbers of a file of outputs, checked for a bank. Only a .npy file has several
    views, or log-odds. Scores and log-likelihoods are one column, or the target's on the set `of` in a table of scores.
    """
    place = as_place(path)
    if description.outputs in SCORED:
        # Imported here because pyarrow takes a tenth of a second.
        from jaxaudit.data.scores.files import target_on

        expected = Expected(description.records, 1, None, of or "bank")
        likely = description.outputs == "log_likelihood"
        direction = 1 if likely or description.direction == "higher" else -1
        values = (
            None
            if of is None or place.path.suffix.lower() == ".npz"
            else target_on(place.path, of.partition(" ")[0], likely, direction)
        )
        if values is None:
            values = read_outputs(place, expected).values
            if values.shape[1:] != (1,):
                raise InputError(f"{place.name}: has {values.shape[1]} columns; give one number for each record.")
            values = values[:, 0]
        else:
            expected.check_rows(len(values), place.name)
            values = -values if likely and description.direction == "lower" else values
    elif description.queries == 1 and description.outputs in BY_CLASS:
        names = description.class_names or description.classes
        # The kind of outputs is checked below, since no option can declare it here.
        values = load_outputs(place, names, description.records, "logits", of="bank").values
    else:
        refuse_pickle(place.path)
        if place.path.suffix.lower() != ".npy":
            layout = "log-odds" if description.outputs == "log_odds" else f"{description.queries} views of a record"
            raise InputError(f"{place.name}: {layout} are read from a .npy file of shape {description.shape}.")
        values = read_npy(place.path, min(MAX_BYTES, 16 * math.prod(description.shape) + SPARE))
    with np.errstate(over="ignore"):
        outputs = checked(values.astype(np.float32), description, place.name)
    refuse_labels(outputs, description, place.name)
    return outputs


def checked(values: np.ndarray, description: Description, source: str) -> np.ndarray:
    """`[n, views, values]`: the same numbers, which must be outputs for this bank."""
    _refuse_form(values.dtype, values.shape, description, source)
    viewed = values.reshape(len(values), description.queries, -1)
    if description.outputs in BY_CLASS:
        for rows in np.moveaxis(viewed, 1, 0):
            span = span_of(rows, source)
            if (inside(span) and _sum_to_one(rows, span)) != (description.outputs == "probabilities"):
                raise _other_kind(description, source)
        return viewed
    scored = description.outputs in SCORED
    bad = int((~np.isfinite(values) if scored else np.isnan(values)).sum())
    if bad:
        trouble = "numbers are NaN or infinite" if scored else "log-odds are NaN"
        raise InputError(f"{source}: {bad} {trouble}; did the model diverge?")
    if description.outputs == "log_likelihood":
        likely = -values if description.direction == "lower" else values
        if likely.max() > 0 or np.median(likely) < -MOST_NATS:
            raise InputError(
                f"{source}: has log-likelihoods above 0, of densities or of the other `direction`, or half of them "
                f"below -{MOST_NATS} nats, as sums over the parts of a record are; save the mean over tokens, or plan "
                "a bank with `outputs` score."
            )
    return viewed


def refuse_labels(outputs: Float[np.ndarray, "n views values"], description: Description, source: str) -> None:
    """Rejects predicted labels in place of numbers for each class, unless this package trained the models: what a tree
    that is grown in full is sure of are its probabilities.
    """
    if description.outputs in BY_CLASS and not description.device:
        for rows in np.moveaxis(outputs, 1, 0):
            refuse_hard_labels(rows, source)


def _refuse_form(
    dtype: np.dtype, shape: tuple[int, ...], description: Description, source: str, models: tuple[int, ...] = ()
) -> None:
    if dtype.kind != "f" or dtype.itemsize > 8 or shape != (*models, *description.shape):
        raise InputError(
            f"{source}: has values of type {dtype} and shape {shape}, but the bank's outputs are float16, float32 or "
            f"float64 of shape {(*models, *description.shape)}: one row per record, in the order of the bank's columns."
        )


def _other_kind(description: Description, source: str) -> InputError:
    return InputError(
        f"{source}: its rows are {'' if description.outputs == 'logits' else 'not '}probabilities that sum to 1, but "
        f"this is a bank of {description.outputs}; save what the softmax is given or gives, or plan a bank of the "
        "other `outputs`."
    )


def _sum_to_one(values: np.ndarray, span: tuple[float, float]) -> bool:
    """Whether all rows are probabilities, up to the precision with which they are stored or were rounded."""
    classes, dtype = values.shape[1], values.dtype.name
    if are_probabilities(values, span, rounding_of_sums(classes, None, None, dtype)):
        return True
    # Few files were rounded, and finding the rounding takes far longer.
    dtype = coarsest_dtype(values, dtype)
    decimals, significant = decimals_of(values, dtype), significant_of(values, dtype)
    return are_probabilities(values, span, rounding_of_sums(classes, decimals, significant, dtype))
