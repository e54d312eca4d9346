"""Shadow models of Privacy Meter 2 (privacytrustlab/ml_privacy_meter): the `log_dir` of `run_mia.py`.

models/memberships.npy      bool [models, n]: the records that each model was trained on, by models/utils.py
signals/rmia_signals.npy    float [n, models]: the probability of each record's own class, by get_signals.py; its name
                            begins with the algorithm of the configuration

With the algorithm LOSS, its version of 2024 writes losses, which are rejected. Its labels are only in a pickle of the
data set, so they must be given. Signals of other records (`*_pop.npy`, `*_ramia_signals.npy`) are not read.
"""

import re
from functools import partial
from pathlib import Path

import numpy as np

from jaxaudit.data.bank.bank import booleans
from jaxaudit.data.bank.description import MOST_MODELS
from jaxaudit.data.bank.foreign import Foreign, is_folder, read_labels, refuse_large, there
from jaxaudit.data.formats.arrays import StoredArray
from jaxaudit.data.formats.parsing import refuse_pickle
from jaxaudit.data.memory import MAX_BYTES
from jaxaudit.data.outputs.kinds import inside
from jaxaudit.data.paths import entries
from jaxaudit.errors import InputError

TOOL = "Privacy Meter"
_SIGNALS = re.compile(r"\w+_signals")


def recognised(directory: Path) -> bool:
    """Whether a directory has the training sets of Privacy Meter's models."""
    return is_folder(directory / "models") and there(directory / "models", "memberships")


def read_privacy_meter(directory: Path, labels: Path | None) -> Foreign:
    """The models of an audit by Privacy Meter, with log-odds log(p / (1 - p)) computed from its probabilities.

    A float32 probability resolves log-odds up to about 16 nats; a probability rounded to 1 gives infinite log-odds.
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
    if labels is None:
        raise InputError(
            f"{directory}: Privacy Meter keeps no labels as arrays; give those of its data set (`labels`)."
        )
    known, classes = read_labels(labels, records, None)
    said = signals[:].T
    readers = *(partial(_read, file, *each) for each in enumerate(said)), *(None,) * (models - len(said))
    return Foreign(TOOL, "log_odds", classes, 1, known, booleans(rows[:], str(path)), readers, recipe=TOOL)


def _signals(directory: Path) -> Path:
    folder = directory / "signals"
    found = entries(folder) if is_folder(folder) else []
    found = [each for each in found if _SIGNALS.fullmatch(each.stem) and not each.stem.endswith("_ramia_signals")]
    for each in found:
        refuse_pickle(each)
    found = [each for each in found if each.suffix == ".npy"]
    if len(found) != 1:
        names = ", ".join(each.name for each in found[:5]) or "none"
        raise InputError(f"{folder}: must have one file of signals such as rmia_signals.npy; found {names}.")
    return found[0]


def _read(file: Path, model: int, stored: np.ndarray) -> np.ndarray:
    signals = stored.astype(np.float64)
    if not inside((float(signals.min()), float(signals.max()))):
        raise InputError(
            f"{file}: model {model} has signals from {signals.min():g} to {signals.max():g}, so they are no "
            "probabilities. If they are losses, save numpy.exp(-signals) instead."
        )
    with np.errstate(divide="ignore"):
        share = signals.clip(0, 1)
        return (np.log(share) - np.log1p(-share)).astype(np.float32)[:, None]
