"""Runs `jaxaudit shadows plan`: draws the training sets of a new bank, or of further models of an existing one."""

import os
import shlex
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Key

from jaxaudit.audits.ks.bank import HOLDOUT_MODELS, SHADOW_MODELS, plan_bank
from jaxaudit.cli.groups import named_sets
from jaxaudit.cli.options import command_line, with_values
from jaxaudit.cli.read_sets import group_columns, with_groups_of_sets
from jaxaudit.cli.shadows import OUTPUTS, BankData, PlannedModels, PlanOptions
from jaxaudit.cli.shadows.sets import BankSets, count_bank_sets, read_bank_sets
from jaxaudit.cli.show import Summary
from jaxaudit.data.bank.bank import DROPPED, GROUPS, LABELS, MEMBERSHIP, SEEDS, bank_files, grow, make_folder
from jaxaudit.data.bank.description import DESCRIPTION, SCORED, Description, read_description
from jaxaudit.data.bank.outputs import FOLDER
from jaxaudit.data.examples import Sets
from jaxaudit.data.formats.arrays import read_npy
from jaxaudit.data.groups import groups_in_words
from jaxaudit.errors import InputError, writing
from jaxaudit.runs.directory import claim, write_files
from jaxaudit.runs.unfinished import NAME, make_directories, remove_empty, working_in
from jaxaudit.version import __version__

Arrays = dict[str, np.ndarray]
ADVICE = "free space there and repeat the command."


def write_planned_bank(options: PlanOptions) -> Summary:
    """Draws the training sets and writes the bank, or adds models to it."""
    options, out = with_groups_of_sets(options, named_sets(options.data)), options.bank or Path()
    earlier = bank_there(out)
    key = jax.random.key(options.models.seed)
    sets = count_bank_sets(options.data) if options.models.scored else read_bank_sets(key, options.data)
    models = number_of_models(options.models.models, earlier, sets)
    options = with_values(options, models=models)
    description = bank_description(options.data, options.models, sets, command_line("shadows plan", options))
    arrays = deal_bank(key, sets, description, options.data.coins)
    refuse_other(out, earlier, description)
    lay(out, arrays, earlier, description)
    return _summary(out, description, sets.groups, 0 if earlier is None else earlier.models)


def bank_there(out: Path) -> Description | None:
    """The description of the bank in this directory; None if there is no bank yet."""
    if os.path.lexists(out / DESCRIPTION):
        return read_description(out)
    claim(out)
    return None


def lay(out: Path, arrays: Arrays, earlier: Description | None, description: Description) -> None:
    """Writes a bank without outputs, or adds models to an existing bank.

    If two commands write a new bank at the same time, only one does.

    Args:
        out: the folder of the bank.
        arrays: the arrays of all models, from `deal_bank`.
        earlier: what the existing bank was planned as; None if there is no bank.
        description: what is to be written.
    """
    if earlier is not None:
        with working_in(out):
            refuse_other(out, read_description(out), description)
            _refuse_changed(out, earlier.models, arrays)
            with writing(f"--out {out}", ADVICE):
                grow(out, description, arrays)
        return
    _refuse_made(out)
    folders_created: tuple[Path, ...] = ()
    try:
        with writing(f"--out {out}", ADVICE):
            folders_created = make_directories(out / NAME)
            # The command keeps its drafts in this folder, and `write_files` removes it together with the lock.
            with working_in(out / NAME, f"--out {out}"):
                _refuse_made(out)
                write_files(out, bank_files(description, arrays))
                make_folder(out)
    finally:
        remove_empty(folders_created)


def _refuse_made(out: Path) -> None:
    """Rejects a bank that another command made since this one started; says whether that command is still running."""
    if not os.path.lexists(out / DESCRIPTION):
        return
    with working_in(out):
        raise InputError(
            f"--out {out}: another command made this bank meanwhile; repeat this command, which goes on with what is "
            "there."
        )


def number_of_models(requested: int | None, earlier: Description | None, sets: BankSets) -> int:
    """The requested number, else that of the existing bank, else that of the usual test."""
    usual = HOLDOUT_MODELS if sets.counts.holdout else SHADOW_MODELS
    return requested or (usual if earlier is None else earlier.models)


def bank_description(
    data: BankData, chosen: PlannedModels, sets: BankSets, command: Sequence[str], **more: Any
) -> Description:
    """The description of this bank for `bank.json`; `command` repeats the plan."""
    outputs, direction = OUTPUTS[chosen.outputs]
    try:
        return Description(
            format=1,
            outputs=outputs,
            direction=direction,
            classes=len(sets.class_names),
            class_names=() if chosen.scored else sets.class_names,
            records=len(sets.labels),
            models=chosen.models or 0,
            counts=sets.counts,
            hashes=sets.hashes,
            sampled_alike=sets.sampled_alike,
            images=data.images or "none",
            seed=chosen.seed,
            groups=bool(sets.groups),
            group_columns=group_columns(data.groups),
            command=tuple(command),
            **{"versions": {"jaxaudit": __version__, "numpy": version("numpy")}, **more},
        )
    except ValueError as error:
        raise InputError(f"these sets and --models {chosen.models} make no bank: {error}.") from error


def deal_bank(key: Key[Array, ""], sets: BankSets, description: Description, coins: bool) -> Arrays:
    """The arrays of a bank by the names of their files."""
    sizes = description.sizes
    bank_plan = plan_bank(
        key,
        description.models,
        sizes.query,
        holdout=sizes.holdout,
        calibration=sizes.calibration,
        groups=np.concatenate([*sets.groups.values()]) if sets.groups else None,
        dropped=sets.dropped,
        coins=coins,
    )
    labels = {} if description.outputs in SCORED else {LABELS: sets.labels}
    arrays: Arrays = {**labels, MEMBERSHIP: bank_plan.membership, SEEDS: bank_plan.seeds}
    if sets.groups:
        arrays[GROUPS] = np.concatenate([*sets.groups.values()]).astype(np.int64)
    if sets.dropped.any():
        arrays[DROPPED] = sets.dropped
    return arrays


def refuse_other(out: Path, earlier: Description | None, planned: Description) -> None:
    """Refuses to write a plan into a bank that was planned with other data or options, or for more models.

    Args:
        out: the folder of the bank.
        earlier: what the bank was planned as; None if there is no bank, which is never refused.
        planned: what is to be written.
    """
    if earlier is None:
        return
    ours, earlier_facts = _facts(planned), _facts(earlier)
    differing = [name for name in ours if ours[name] != earlier_facts[name]]
    if differing:
        raise InputError(
            f"--out {out} is a bank with other {', '.join(differing)}, as its {DESCRIPTION} says; repeat its own "
            "command, or name a new directory (nothing was changed)."
        )
    if earlier.models > planned.models:
        raise InputError(
            f"--out {out} is a bank of {earlier.models} models, and a bank only grows: give --models {earlier.models} "
            "or more (nothing was changed)."
        )


def _facts(of: Description) -> dict[str, Any]:
    """Properties that all models of a bank share, by their names in messages."""
    return {
        "query set": of.hashes.query,
        "holdout": of.hashes.holdout,
        "calibration set": of.hashes.calibration,
        "images": of.images,
        "seed": of.seed,
        "outputs": of.outputs,
        "direction": of.direction,
        "groups": of.groups,
        "recipe": of.recipe,
    }


def _refuse_changed(out: Path, models: int, arrays: Arrays) -> None:
    """Rejects an existing bank whose arrays differ from those that this command draws.

    The arrays may have more rows than `bank.json` states, if adding models was interrupted.
    """
    of_models = (MEMBERSHIP, SEEDS)
    for name in (LABELS, GROUPS, DROPPED, MEMBERSHIP, SEEDS):
        new_array = arrays.get(name)
        old_array = read_npy(out / name, links=False) if os.path.lexists(out / name) else None
        if new_array is not None and old_array is not None and name in of_models:
            new_array, old_array = new_array[:models], old_array[:models]
        if (new_array is None) != (old_array is None) or not np.array_equal(new_array, old_array):  # pyright: ignore[reportArgumentType]
            raise InputError(
                f"--out {out}: {name} is not what this command deals for its {models} models: was it changed, or made "
                "by another version, or with --coins or --drop-overlap? Name a new directory (nothing was changed)."
            )


def _summary(out: Path, description: Description, groups: Sets[np.ndarray], before: int) -> Summary:
    sizes, bank = description.sizes, shlex.quote(str(out))
    added = "" if not before else f", {description.models - before} of them new"
    names = {"query": sizes.query, "holdout": sizes.holdout, "calibration": sizes.calibration}
    columns = ", ".join(f"{count:,} {name}" for name, count in names.items() if count)
    lines = (
        f"{out}: training sets of {description.models} shadow models{added}, dealt from {columns} records, "
        "in this order.",
        *((f"Groups: {groups_in_words(groups)}.",) if groups else ()),
        f"Train model m on the records where row m of {MEMBERSHIP} is true, with seed m of {SEEDS}, and save its "
        f"{description.outputs} on all {description.records:,} records as",
        f"  {bank}/{FOLDER}/00000.npy and so on: floats of shape {description.shape}",
        f"or add files: jaxaudit shadows add {bank} FILE...",
        f"What is missing: jaxaudit shadows show {bank}",
    )
    return Summary(lines)
