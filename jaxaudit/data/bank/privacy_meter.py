"""Shadow models of Privacy Meter 2 (privacytrustlab/ml_privacy_meter): the `log_dir` of `run_mia.py`.

models/memberships.npy        bool [models, n]: the records that each model was trained on, by models/utils.py
models/models_metadata.json   of each model `model_name` and `train_acc`, which is null for language models
signals/rmia_signals.npy      float [n, models]: the probability of each record's own class, by get_signals.py; of a
                              language model exp(mean log-probability of the record's tokens). Its name begins with the
                              algorithm of the configuration

With the algorithm LOSS, its version of 2024 writes losses, which are rejected. Its labels are only in a pickle of the
data set, so they must be given. Signals of other records (`*_pop.npy`, `*_ramia_signals.npy`) are not read.
"""

import json
import os
import re
from functools import partial
from pathlib import Path

import numpy as np

from jaxaudit.data.bank.bank import booleans
from jaxaudit.data.bank.description import MOST_MODELS
from jaxaudit.data.bank.foreign import Foreign, has_array, is_folder, read_labels, refuse_large
from jaxaudit.data.formats.arrays import StoredArray
from jaxaudit.data.formats.parsing import parsing, refuse_pickle, refuse_repeated_keys
from jaxaudit.data.memory import MAX_BYTES
from jaxaudit.data.outputs.kinds import inside
from jaxaudit.data.paths import entries, read_small
from jaxaudit.errors import InputError

TOOL = "Privacy Meter"
METADATA = "models_metadata.json"
LONGEST_METADATA = 1 << 24
SURE = 0.5
"""A classifier gives more than this to some of the records that it was trained on."""
_SIGNALS = re.compile(r"\w+_signals")


def is_privacy_meter_folder(directory: Path) -> bool:
    """Whether a directory has the training sets of Privacy Meter's models."""
    return is_folder(directory / "models") and has_array(directory / "models", "memberships")


def read_privacy_meter(directory: Path, labels: Path | None) -> Foreign:
    """The models of an audit by Privacy Meter, with log-odds log(p / (1 - p)) computed from its probabilities.

    A float32 probability resolves log-odds up to about 16 nats; a probability rounded to 1 gives infinite log-odds. Of
    language models, and then without `labels`, signals are log-likelihoods log(p), a nat a token.
    """
    path = directory / "models" / "memberships.npy"
    rows = StoredArray(path)
    if rows.ndim != 2 or not rows.nbytes or len(rows) > MOST_MODELS:
        raise InputError(f"{path}: has shape {rows.shape}; it must be [models, records].")
    models, records = rows.shape
    refuse_large(models, records, directory)
    file = _signals(directory)
    signals = StoredArray(file, max_bytes=MAX_BYTES)
    if signals.ndim != 2 or signals.shape[0] != records or not 0 < signals.shape[1] <= models:
        raise InputError(
            f"{file}: has shape {signals.shape}, but {path.name} is of {models} models and {records} records: signals "
            "are [records, models]. If audit.data_size was smaller than the data set, leave it out and run the audit "
            "again."
        )
    kept, signals = booleans(rows[:], str(path)), signals[:].T
    language = _are_of_language(directory)
    sure = _surest(signals, kept)
    if labels is None:
        if language or (language is None and sure < SURE):
            readers = (
                *(partial(_log_likelihoods, file, *signal) for signal in enumerate(signals)),
                *_missing(rows, signals),
            )
            why = f"{METADATA} says that its models are language models" if language else "its models are sure of none"
            note = (
                f"{file}: read as exp(mean log-probability of a record's tokens), because {why}; give their labels if "
                "these are probabilities of the records' classes"
            )
            none = np.zeros(records, int)
            return Foreign(TOOL, "log_likelihood", 1, 1, none, kept, readers, recipe=TOOL, note=note)
        raise InputError(
            f"{directory}: Privacy Meter keeps no labels as arrays; give those of its data set (`labels`)."
        )
    labels_array, classes = read_labels(labels, records, None)
    if language or (language is None and sure < max(SURE, 1 / classes)):
        why = f"{METADATA} says so" if language else f"no model gives its own records more than {sure:.2g}, nearly"
        raise InputError(
            f"{file}: these are not probabilities of {classes} classes but of a language model's tokens ({why}). Leave "
            "out `labels`: they are then read as log-likelihoods of records. If the models are classifiers after all, "
            "write their log-odds into a bank (`jaxaudit shadows plan`)."
        )
    readers = *(partial(_log_odds, file, *signal) for signal in enumerate(signals)), *_missing(rows, signals)
    return Foreign(TOOL, "log_odds", classes, 1, labels_array, kept, readers, recipe=TOOL)


def _missing(rows: StoredArray, signals: np.ndarray) -> tuple[None, ...]:
    return (None,) * (len(rows) - len(signals))


def _are_of_language(directory: Path) -> bool | None:
    """Whether the models are language models, by what Privacy Meter says of them; None if it says nothing."""
    path = directory / "models" / METADATA
    if not os.path.lexists(path):
        return None
    with parsing(f"{path}: is not one JSON object of each model's facts", "delete it to import without it."):
        text = read_small(path, LONGEST_METADATA, links=False)
        refuse_repeated_keys(text)
        # Python writes NaN, which other parsers refuse.
        models = list(json.loads(text).values())
        # Classifiers have an accuracy.
        language = {model["model_name"] == "gpt2" or model.get("train_acc", 0) is None for model in models}
    return language.pop() if len(language) == 1 else None


def _surest(signals: np.ndarray, rows: np.ndarray) -> float:
    """The signal that a model gives to few of the records that it was trained on: a classifier is sure of some."""
    kept_values = [values[row] for values, row in zip(signals, rows, strict=False)]
    quantiles = [
        float(np.quantile(model_values.astype(np.float64), 0.99)) for model_values in kept_values if len(model_values)
    ]
    return max(quantiles, default=1.0)


def _signals(directory: Path) -> Path:
    folder = directory / "signals"
    files = entries(folder) if is_folder(folder) else []
    files = [file for file in files if _SIGNALS.fullmatch(file.stem) and not file.stem.endswith("_ramia_signals")]
    for file in files:
        refuse_pickle(file)
    files = [file for file in files if file.suffix == ".npy"]
    if len(files) != 1:
        names = ", ".join(file.name for file in files[:5]) or "none"
        raise InputError(f"{folder}: must have one file of signals such as rmia_signals.npy; found {names}.")
    return files[0]


def _shares(file: Path, model: int, stored: np.ndarray) -> np.ndarray:
    signals = stored.astype(np.float64)
    if not inside((float(signals.min()), float(signals.max()))):
        raise InputError(
            f"{file}: model {model} has signals from {signals.min():g} to {signals.max():g}, so they are no "
            "probabilities. If they are losses, save numpy.exp(-signals) instead."
        )
    return signals.clip(0, 1)


def _log_odds(file: Path, model: int, stored: np.ndarray) -> np.ndarray:
    share = _shares(file, model, stored)
    with np.errstate(divide="ignore"):
        return (np.log(share) - np.log1p(-share)).astype(np.float32)[:, None]


def _log_likelihoods(file: Path, model: int, stored: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(_shares(file, model, stored)).astype(np.float32)[:, None]
