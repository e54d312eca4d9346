"""Runs `jaxaudit shadows add`: checks files of outputs and puts them into a bank, each whole or not at all."""

import hashlib
import shlex
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32

from jaxaudit.audits.bank_odds import said
from jaxaudit.audits.ks.bank.whose import COMPARED, first_models, misplaced
from jaxaudit.cli.show import show_text
from jaxaudit.data.bank.bank import Bank, load_bank
from jaxaudit.data.bank.outputs import load_into, outputs_path
from jaxaudit.data.bank.writing import write_outputs
from jaxaudit.data.formats.arrays import map_npy
from jaxaudit.errors import InputError, visible
from jaxaudit.metrics.row_fit import RATE
from jaxaudit.runs.lock import working_in

Values = Float32[np.ndarray, "n views values"]
FIRST = 64
"""Rows that are compared before whole files are."""


class Placed(NamedTuple):
    """A file, the model whose outputs it has, whether the bank lacks them, and a digest of its numbers."""

    file: Path
    model: int
    new: bool
    digest: bytes


def run(path: Path, files: list[Path], model: int | None) -> None:
    """Adds these files' outputs to the bank, in this order; all of them, or none if one is refused.

    Raises:
        InputError: there is no such bank, another process works there, or a file is refused.
    """
    if model is not None and len(files) > 1:
        raise InputError(f"--model names one model, but {len(files)} files were given: give one of them.")
    bank = load_bank(path)
    if model is not None and model >= len(bank):
        raise InputError(f"--model {model}: the bank has {len(bank)} models, numbered from 0.")
    with working_in(bank.directory):
        # What another process added meanwhile is in it.
        bank = load_bank(path)
        placed = _placed(bank, files, model)
        for each in placed:
            if each.new:
                _write(bank, each)
    lines = [
        f"{visible(file.name)}: {'added' if new else 'is there already'} as model {at}" for file, at, new, _ in placed
    ]
    finished = len(bank.finished())
    about = "What is missing" if finished < len(bank) else "Which tests they allow"
    lines.append(f"{finished:,} of {len(bank):,} models have outputs. {about}: jaxaudit shadows show {_shown(bank)}")
    show_text("\n".join([*lines, ""]))


def _shown(bank: Bank) -> str:
    return visible(shlex.quote(str(bank.directory)))


def _placed(bank: Bank, files: list[Path], model: int | None) -> list[Placed]:
    """The model that each file is for; nothing is written."""
    missing, known = bank.missing().tolist(), first_models(bank)
    placed, early = list[Placed](), list[Placed]()
    for file in files:
        values = load_into(file, bank.description)
        digest = _digest(values)
        there = next((each.model for each in placed if each.digest == digest), _identical(bank, values, model))
        if there is not None:
            placed.append(Placed(file, there, False, digest))
            continue
        number = _place(bank, file, missing, model)
        missing = [each for each in missing if each != number]
        placed.append(Placed(file, number, True, digest))
        log_odds = said(bank, values).log_odds
        if len(known) < COMPARED:
            # The first few are held against the rows when there are others to compare them with.
            known[number] = log_odds
            early.append(placed[-1])
        else:
            _refuse_misplaced(bank, placed[-1], log_odds, known)
    for each in early:
        _refuse_misplaced(bank, each, known[each.model], known)
    return placed


def _place(bank: Bank, file: Path, missing: list[int], model: int | None) -> int:
    """The model that the file is for."""
    if model is None:
        if not missing:
            raise InputError(
                f"{file}: every model of {bank.directory} has outputs already ({len(bank)} models); `jaxaudit shadows "
                "plan` with more --models adds more."
            )
        return missing[0]
    if model not in missing and _is_usable(bank, model):
        raise InputError(
            f"{file}: model {model} has other outputs already; delete {outputs_path(bank.directory, model)} first if "
            "they are wrong."
        )
    return model


def _is_usable(bank: Bank, model: int) -> bool:
    try:
        bank.outputs(model)
    except InputError:
        return False
    return True


def _digest(values: Values) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(values).data, digest_size=16).digest()


def _identical(bank: Bank, values: Values, model: int | None) -> int | None:
    """The model that has these very outputs, `model` alone if it is given."""
    for number in bank.finished().tolist() if model is None else [model]:
        path = outputs_path(bank.directory, number)
        if path.exists() and _equal(path, values.reshape(bank.description.shape)):
            return number
    return None


def _equal(path: Path, values: np.ndarray) -> bool:
    try:
        there = map_npy(path)
    except InputError:
        return False
    if there.shape != values.shape or there.dtype.kind != "f":
        return False
    with np.errstate(over="ignore"):
        return all(
            np.array_equal(there[start:end].astype(np.float32), values[start:end])
            for start, end in ((0, FIRST), (FIRST, len(values)))
        )


def _refuse_misplaced(bank: Bank, placed: Placed, log_odds: np.ndarray, known: dict[int, np.ndarray]) -> None:
    """Refuses outputs that fit the training records of another model."""
    file, model, found = placed.file, placed.model, misplaced(bank, placed.model, log_odds, known)
    if found is None:
        return
    raise InputError(
        f"{file}: seems to be the outputs of model {found.model}, not of model {model}: it fits the training records "
        f"of model {found.model} by {found.fit:.1f} standard deviations, those of model {model} by "
        f"{found.own_fit:.1f} (right outputs are refused at most once in {1 / RATE:,.0f} times). Are the files in "
        f"order? Give --model {found.model}; if you are sure, save it as {outputs_path(bank.directory, model)} "
        "yourself."
    )


def _write(bank: Bank, placed: Placed) -> None:
    values = load_into(placed.file, bank.description)
    if _digest(values) != placed.digest:
        raise InputError(
            f"{placed.file}: changed while it was read; is something still writing it? Repeat the command."
        )
    try:
        write_outputs(bank.directory, placed.model, values, bank.description)
    except OSError as error:
        raise InputError(
            f"{bank.directory} cannot be written ({error.strerror or error}); free space there and repeat the command."
        ) from error
