"""Runs `jaxaudit shadows import`: makes a bank from shadow models in the files of another tool."""

import shlex
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import msgspec
import numpy as np
from jaxtyping import Int

from jaxaudit.audits.open_bank import kinds_of
from jaxaudit.cli.job import Summary
from jaxaudit.cli.progress import say
from jaxaudit.cli.shadows.options import ImportOptions
from jaxaudit.data.bank import lira, privacy_meter
from jaxaudit.data.bank.bank import DESIGNS, LABELS, MEMBERSHIP, Bank, load_bank
from jaxaudit.data.bank.description import BY_CLASS, SCORED, Counts, Description, description_json
from jaxaudit.data.bank.foreign import Foreign, chosen_rows, is_folder
from jaxaudit.data.bank.outputs import checked
from jaxaudit.data.bank.writing import bank_files
from jaxaudit.data.formats.parsing import PICKLES, refuse_pickle
from jaxaudit.data.paths import entries, exists
from jaxaudit.errors import InputError
from jaxaudit.runs.directory import write_files
from jaxaudit.shadow_models import Kind
from jaxaudit.version import __version__

LAYOUTS = (
    (lira.is_lira_folder, lira.read_lira),
    (privacy_meter.is_privacy_meter_folder, privacy_meter.read_privacy_meter),
)
"""For each tool, the functions that recognise and read its directory."""


def make_bank(options: ImportOptions) -> Summary:
    """Writes the bank: completely or not at all."""
    directory, out = options.directory, options.out
    foreign = _read(directory, options.labels)
    order, counts = _columns(foreign.membership.shape[1], options.query_rows, options.holdout_rows)
    description = _described(foreign, counts, options.recipe or "")
    rows = foreign.membership[:, order]
    if rows.all() or not rows.any():
        which = "all records" if rows.all() else "no record"
        raise InputError(f"{directory}: every model is trained on {which}, so nothing can be compared.")
    if foreign.note:
        say(foreign.note)
    labels = {} if description.outputs in SCORED else {LABELS: foreign.labels[order].astype(np.int32)}
    arrays = {**labels, MEMBERSHIP: rows}
    if description.designs:
        arrays[DESIGNS] = np.array([description.designs.index(name) for name in foreign.designs])
    outputs = {
        model: _output(read, order, description, model) for model, read in enumerate(foreign.read) if read is not None
    }
    write_files(out, bank_files(description, arrays, outputs))
    return _summary(out, foreign, load_bank(out))


def _read(directory: Path, labels: Path | None) -> Foreign:
    if not exists(directory) or not directory.is_dir():
        raise InputError(f"{directory}: there is no such directory; is the path right?")
    for recognised, read in LAYOUTS:
        if recognised(directory):
            return read(directory, labels)
    for folder in (directory, directory / "signals"):
        for path in entries(folder) if folder == directory or is_folder(folder) else []:
            if path.suffix.lower() in PICKLES:
                refuse_pickle(path)
    raise InputError(
        f"{directory}: is no directory of a known tool: {lira.TOOL} leaves experiment-*/keep.npy, {lira.PYTORCH} "
        f"0/keep.npy (as in exp/cifar10), {privacy_meter.TOOL} models/memberships.npy. "
        "For any other, write a bank's files (README) or `jaxaudit shadows plan` and `add`."
    )


def _columns(records: int, query_rows: Path | None, holdout_rows: Path | None) -> tuple[Int[np.ndarray, " n"], Counts]:
    """Indices in a pool of the query set, of the holdout, and of all other records, and how many each has."""
    holdout = np.zeros(0, int) if holdout_rows is None else chosen_rows(holdout_rows, records, "--holdout-rows")
    left = np.setdiff1d(np.arange(records), holdout)
    query = left if query_rows is None else chosen_rows(query_rows, records, "--query-rows")
    common_count = len(np.intersect1d(query, holdout))
    if common_count:
        raise InputError(
            f"--query-rows and --holdout-rows have {common_count} records in common; a record is of one set."
        )
    if not len(query):
        raise InputError(f"--holdout-rows names all {records} records, so there is no query set.")
    rest = np.setdiff1d(left, query)
    counts = Counts(query=len(query), holdout=len(holdout), calibration=len(rest))
    return np.concatenate([query, holdout, rest]), counts


def _described(foreign: Foreign, counts: Counts, recipe: str) -> Description:
    models, records = foreign.membership.shape
    try:
        description = Description(
            format=1,
            outputs=foreign.outputs,
            direction=foreign.direction,
            classes=foreign.classes,
            queries=foreign.views,
            records=records,
            models=models,
            counts=counts,
            recipe=recipe or foreign.recipe,
            designs=tuple(dict.fromkeys(foreign.designs)),
            versions={"jaxaudit": __version__, "numpy": version("numpy")},
        )
        # Decoding checks the limits of a description.
        return msgspec.json.decode(description_json(description), type=Description)
    except (ValueError, msgspec.MsgspecError) as error:
        raise InputError(f"the models of {foreign.tool} make no bank: {error}.") from error


def _output(
    read: Callable[[], np.ndarray], order: Int[np.ndarray, " n"], description: Description, model: int
) -> Callable[[], np.ndarray]:
    """A function that reads the outputs of one model in the bank's format; it stores nothing."""

    def make() -> np.ndarray:
        values = read()
        tail = description.shape[len(description.shape) - (description.outputs in BY_CLASS) :]
        if values.shape == (len(order), description.queries, *tail):
            values = values[order].reshape(description.shape)
        checked(values, description, f"model {model}")
        return values

    return make


def _summary(out: Path, foreign: Foreign, bank: Bank) -> Summary:
    description, sizes = bank.description, bank.description.sizes
    names = {"query": sizes.query, "holdout": sizes.holdout, "calibration": sizes.calibration}
    columns = ", ".join(f"{count:,} {name}" for name, count in names.items() if count)
    kind, done = description.outputs.replace("_", "-"), sum(model is not None for model in foreign.read)
    views = "" if description.queries == 1 else f" of {description.queries} views"
    lines = [
        f"{out}: {len(bank)} shadow models of {foreign.tool}, {done} of them finished; {kind}{views} on {columns} "
        "records."
    ]
    if sizes.holdout:
        other_models = len(bank) - kinds_of(bank).count(Kind.MIXED)
        if other_models:
            lines.append(
                f"{other_models} of the models are not of the holdout test: they are trained on far more or fewer of "
                "the "
                f"query and holdout records than the query set has ({sizes.query:,}), or on exactly one of the sets. "
                "Name as many holdout as query records where models are trained on half of all."
            )
    else:
        lines.append("Without --holdout-rows the bank has no holdout, so the holdout test cannot be made.")
    if foreign.tool == privacy_meter.TOOL:
        lines.append(
            f"{foreign.tool} computes RMIA with gamma 1: jaxaudit attack --shadows {shlex.quote(str(out))} --gamma 1"
        )
    return Summary((*lines, f"Which tests it allows: jaxaudit shadows show {shlex.quote(str(out))}"))
