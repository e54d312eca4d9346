"""Runs `jaxaudit shadows plan`: draws the training sets of a new bank, or of further models of an existing one."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Int, Shaped

from jaxaudit.audits.ks.bank import HOLDOUT_MODELS, SHADOW_MODELS, plan_bank
from jaxaudit.audits.ks.models import refuse_shared
from jaxaudit.audits.open_bank import NO_CLASS
from jaxaudit.cli.options import command_line, refuse_options
from jaxaudit.cli.parsers import is_texts
from jaxaudit.cli.progress import say
from jaxaudit.cli.read_sets import (
    group_columns,
    read_sets_of,
    with_groups_of_sets,
    with_named_groups,
)
from jaxaudit.cli.shadows import OUTPUTS, BankOptions, PlanOptions
from jaxaudit.cli.shared_options import ShadowNetwork, named_sets
from jaxaudit.cli.show import Summary
from jaxaudit.data import Examples, concatenate
from jaxaudit.data.bank.bank import (
    DROPPED,
    GROUPS,
    IDS,
    LABELS,
    MEMBERSHIP,
    SEEDS,
    bank_files,
    finished_in,
    grow,
    make_folder,
)
from jaxaudit.data.bank.description import (
    DESCRIPTION,
    FOLDER,
    MOST_RECORDS,
    ROLES,
    SCORED,
    Counts,
    Description,
    Hashes,
    SampledAlike,
    read_description,
)
from jaxaudit.data.examples import Role, Sets
from jaxaudit.data.formats.arrays import npy_shape, read_npy
from jaxaudit.data.groups import groups_by_role, groups_in_words, load_ids
from jaxaudit.data.pairs import CALIBRATION, align_sets, find_overlap, refuse_held
from jaxaudit.data.paths import expanded
from jaxaudit.data.sequences import are_texts, token_counts
from jaxaudit.data.texts import read_texts
from jaxaudit.errors import InputError, writing
from jaxaudit.metrics.exchangeability import alike
from jaxaudit.randomness import OneKey, stream
from jaxaudit.runs.directory import claim, write_files
from jaxaudit.runs.unfinished import NAME, make_directories, remove_empty, working_in
from jaxaudit.version import __version__

Arrays = dict[str, np.ndarray]
ADVICE = "free space there and repeat the command."


class BankSets(NamedTuple):
    """The sets of a bank, matched with the query set, and the `hashes` of these as they were read. No model is trained
    on the records that are `dropped`; `sampled_alike` is of the others; `ids` are the caller's own.
    """

    sets: Sets[Examples]
    hashes: Hashes
    dropped: Bool[np.ndarray, " n"]
    sampled_alike: SampledAlike | None = None
    ids: Shaped[np.ndarray, " n"] | None = None

    @property
    def parts(self) -> list[Examples]:
        """The sets in the order of the bank's columns."""
        return [self.sets[role] for role in ROLES if role in self.sets]

    @property
    def groups(self) -> Sets[Int[np.ndarray, " _"]]:
        """The groups that are kept whole."""
        return groups_by_role(self.sets)


def write_planned_bank(options: PlanOptions) -> Summary:
    """Draws the training sets and writes the bank, or adds models to it."""
    options, out = with_groups_of_sets(options, named_sets(options)), options.bank or Path()
    earlier = bank_there(out)
    key = jax.random.key(options.seed)
    sets = count_bank_sets(options) if options.one_number_a_record else read_bank_sets(key, options)
    options = replace(options, models=number_of_models(options.models, earlier, sets))
    description = bank_description(options, options.outputs, sets, command_line("shadows plan", options))
    lay(out, bank_arrays(key, sets, description, options.coins), earlier, description)
    return _summary(out, description, sets.groups, 0 if earlier is None else earlier.models)


def bank_there(out: Path) -> Description | None:
    """The description of the bank in this directory; None if there is no bank yet."""
    if os.path.lexists(out / DESCRIPTION):
        return read_description(out)
    claim(out)
    return None


def lay(out: Path, arrays: Arrays, earlier: Description | None, description: Description) -> None:
    """Writes a bank without outputs, or adds models to that which was planned `earlier`.

    If two commands write a new bank at the same time, only one does.
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
    usual = HOLDOUT_MODELS if Role.HOLDOUT in sets.sets else SHADOW_MODELS
    return requested or (usual if earlier is None else earlier.models)


def bank_description(
    options: BankOptions, kind: str, sets: BankSets, command: Sequence[str], **more: Any
) -> Description:
    """The description of this bank for `bank.json`; `kind` is of `OUTPUTS`, `command` repeats the plan."""
    outputs, direction = OUTPUTS[kind]
    class_names, counts = sets.parts[0].class_names, sets.sets.map(lambda _, examples: len(examples))
    try:
        return Description(
            format=1,
            outputs=outputs,
            direction=direction,
            classes=len(class_names),
            class_names=() if direction else class_names,
            records=sum(counts.values()),
            models=options.models or 0,
            counts=Counts(**counts),
            hashes=sets.hashes,
            sampled_alike=sets.sampled_alike,
            images=options.images or "none",
            seed=options.seed,
            groups=bool(sets.groups),
            group_columns=group_columns(options.groups),
            command=tuple(command),
            **{"versions": {"jaxaudit": __version__, "numpy": version("numpy")}, **more},
        )
    except ValueError as error:
        raise InputError(f"these sets and --models {options.models} make no bank: {error}.") from error


def bank_arrays(key: OneKey, sets: BankSets, description: Description, coins: bool) -> Arrays:
    """The arrays of a bank by the names of their files."""
    sizes, groups = description.sizes, [*sets.groups.values()]
    group_of_record = np.concatenate(groups) if groups else None
    bank_plan = plan_bank(
        key,
        description.models,
        sizes.query,
        holdout=sizes.holdout,
        calibration=sizes.calibration,
        groups=group_of_record,
        dropped=sets.dropped,
        coins=coins,
    )
    labels = None
    if description.outputs not in SCORED:
        labels = np.concatenate([examples.labels for examples in sets.parts])
    arrays = {
        LABELS: labels,
        MEMBERSHIP: bank_plan.membership,
        SEEDS: bank_plan.seeds,
        GROUPS: None if group_of_record is None else group_of_record.astype(np.int64),
        DROPPED: sets.dropped if sets.dropped.any() else None,
        IDS: sets.ids,
    }
    return {name: array for name, array in arrays.items() if array is not None}


def refuse_other(out: Path, earlier: Description, planned: Description) -> None:
    """Refuses to write a plan into a bank that was planned `earlier` with other data or options, or for more models.

    A bank whose training failed before its first model was done takes another recipe.
    """
    ours, earlier_facts = _facts(planned), _facts(earlier)
    untrained = earlier.recipe and not len(finished_in(out, earlier.models))
    compared = [name for name in earlier_facts if not untrained or name not in OF_THE_RECIPE]
    differing = [name for name in compared if ours[name] != earlier_facts[name]]
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


OF_THE_RECIPE = ("outputs", "recipe")


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
    """Rejects an existing bank whose arrays differ from those that this command draws."""
    # There may be more rows than bank.json states, if adding models was interrupted.
    of_models = (MEMBERSHIP, SEEDS)
    for name in (LABELS, GROUPS, DROPPED, IDS, MEMBERSHIP, SEEDS):
        new_array = arrays.get(name)
        old_array = read_npy(out / name, links=False) if os.path.lexists(out / name) else None
        if new_array is not None and old_array is not None and name in of_models:
            new_array, old_array = new_array[:models], old_array[:models]
        if (new_array is None) != (old_array is None) or not np.array_equal(new_array, old_array):  # pyright: ignore[reportArgumentType]
            raise InputError(
                f"--out {out}: {name} is not what this command deals for its {models} models: was it changed, or made "
                "by another version, or with --coins, --id or --drop-overlap? Name a new directory (nothing was "
                "changed)."
            )


def _summary(out: Path, description: Description, groups: Sets[np.ndarray], before: int) -> Summary:
    bank = shlex.quote(str(out))
    added = "" if not before else f", {description.models - before} of them new"
    lines = (
        f"{out}: training sets of {description.models} shadow models{added}, dealt from {description.sizes.words} "
        "records, in this order.",
        *((f"Groups: {groups_in_words(groups)}.",) if groups else ()),
        f"Train model m on the records where row m of {MEMBERSHIP} is true, with seed m of {SEEDS}, and save its "
        f"{description.outputs} on all {description.records:,} records as",
        f"  {bank}/{FOLDER}/00000.npy and so on: floats of shape {description.shape}",
        f"or add files: jaxaudit shadows add {bank} FILE...",
        f"What is missing: jaxaudit shadows show {bank}",
    )
    return Summary(lines)


def read_bank_sets(key: OneKey, options: BankOptions) -> BankSets:
    """The records of the sets that these options name.

    `key` draws the test of exchangeability of query set and holdout, as in `ks`.
    """
    sets_named = named_sets(options)
    names = sets_named.names.only(Role.QUERY, Role.HOLDOUT, Role.CALIBRATION)
    if not isinstance(options, ShadowNetwork) and is_texts(names[Role.QUERY]):
        raise InputError(
            "texts have no classes, so models give each a number: --outputs log-likelihood, or another one of those; "
            "`shadows train` trains language models on them."
        )
    if options.id is not None and options.id == (sets_named.label or "label"):
        raise InputError(f"--id {options.id}: is the label; name the column that has your own name of each record.")
    columns = (options.id,) if options.id else ()
    sets = read_sets_of(sets_named._replace(names=names), options, further=columns, gaps=True)
    query = sets[Role.QUERY]
    if len(query.class_names) < 2 and not are_texts(query):
        raise InputError(f"{query.name} has one class, so there is nothing to classify; is the right label given?")
    # Hashes are of the files; inputs and labels have the columns and the classes of the query set in its order.
    aligned = align_sets(sets)
    if not options.drop_overlap:
        if Role.CALIBRATION in aligned:
            refuse_held(query, aligned[Role.CALIBRATION], "query set", of=CALIBRATION)
        refuse_shared(aligned, "deal copies together, as `jaxaudit deal` does, or leave them out (--drop-overlap)")
    dropped = _copies(aligned)
    if dropped.any() and not options.drop_overlap:
        raise InputError(
            f"{int(dropped.sum())} records have a copy in their own set, so a model can be trained on one and not on "
            "the other: leave them out (--drop-overlap), or deal copies together, as `jaxaudit deal` does (its files "
            "have the groups; else give --groups)."
        )
    if dropped.any():
        say(f"{int(dropped.sum())} records have copies; their columns stay, and no model is trained on them")
    return BankSets(
        aligned,
        Hashes(**sets.map(lambda _, examples: examples.content_hash)),
        dropped,
        _sampled_alike(key, query, aligned[Role.HOLDOUT], dropped) if Role.HOLDOUT in aligned else None,
        None if options.id is None else _ids(options.id, names, sets),
    )


def _ids(column: str, names: Sets[str], sets: Sets[Examples]) -> Shaped[np.ndarray, " n"]:
    """The ids of query set and holdout; those of the calibration set, which no result names, are empty."""
    ids = np.concatenate(
        [
            load_ids(column, names[role], len(examples), role.words)
            for role, examples in sets.only(Role.QUERY, Role.HOLDOUT).items()
        ]
    )
    repeated, empty = len(ids) - len(np.unique(ids)), int((ids == "").sum())
    if repeated or empty:
        say(f"--id {column}: {repeated:,} of {len(ids):,} ids stand for a further record, and {empty:,} are empty")
    return np.concatenate([ids, np.zeros(len(sets.get(Role.CALIBRATION, ())), "U1")])


def count_bank_sets(options: BankOptions) -> BankSets:
    """The sets of a bank of records without classes: their numbers of records, which nothing reads."""
    values = {
        "--drop-overlap": options.drop_overlap,
        "--images": options.images not in (None, "none"),
        "--id": options.id,
    }
    refuse_options(values, "is for records that are read, and of scores only their number is known")
    names = named_sets(options).names.only(*ROLES)
    sets = with_named_groups(names.map(lambda role, text: unread_examples(f"--{role}", text)), options.groups, names)
    return BankSets(sets, Hashes(), np.zeros(sum(map(len, sets.values())), bool))


def unread_examples(flag: str, text: str) -> Examples:
    """Records without classes, of which only their number is known."""
    count = count_of(flag, text)
    return Examples(np.zeros((count, 0), np.float32), np.zeros(count, int), NO_CLASS, text)


def count_of(flag: str, text: str) -> int:
    """A number of records: in digits, of the rows of a .npy file, or of a file of texts."""
    if is_texts(text):
        return len(read_texts(expanded(Path(text))).answers)
    rows = npy_shape(Path(text))[:1] if text.lower().endswith(".npy") else (int(text),) if text.isdecimal() else ()
    if not rows or not 0 < rows[0] <= MOST_RECORDS:
        raise InputError(
            f"{flag} {text}: give the number of records, such as 400, or a .npy file with a row for each, or texts; a "
            "bank of scores needs no more of them."
        )
    return rows[0]


def _sampled_alike(
    key: OneKey, query: Examples, holdout: Examples, dropped: Bool[np.ndarray, " n"]
) -> SampledAlike | None:
    """The test of `ks` whether these sets are exchangeable; None if no record of a set is left."""
    dropped_records = dropped[: len(query) + len(holdout)]
    left, held = (np.flatnonzero(~part) for part in np.split(dropped_records, [len(query)]))
    if not len(left) or not len(held):
        return None
    query_and_holdout = concatenate([query.take(left), holdout.take(held)], "query set and holdout")
    inputs = token_counts(query_and_holdout) if are_texts(query_and_holdout) else query_and_holdout.inputs
    alikeness = alike(
        stream(key, "exchangeability"),
        inputs,
        query_and_holdout.labels,
        None,
        query_and_holdout.record_hashes.view("S16"),
        len(left),
        groups=query_and_holdout.groups,
    )
    return SampledAlike.of(alikeness)


def _copies(sets: Sets[Examples]) -> Bool[np.ndarray, " n"]:
    """Records to drop, because their membership would not determine whether a model was trained on their content.

    In query set and holdout: every record with a copy in either that is not kept together with it (`without_copies`).
    In the calibration set: copies of a query or holdout record, and all but the first of equal records.
    """
    for other in sets.values():
        # Rejects sets whose records could not be equal because they were stored in different forms.
        find_overlap(sets[Role.QUERY], other.take(slice(1)))
    dealt_sets = sets.only(Role.QUERY, Role.HOLDOUT)
    record_hashes = np.concatenate([examples.record_hashes.view("S16") for examples in dealt_sets.values()])
    groups = [examples.groups for examples in dealt_sets.values() if examples.groups is not None]
    units = np.concatenate(groups) if groups else np.arange(len(record_hashes))
    _, index = np.unique(record_hashes, return_inverse=True)
    # Each content once for each unit that has it; units are numbered from 0.
    contents = np.unique(index * len(units) + units) // len(units)
    apart = np.bincount(contents)[index] > 1
    if Role.CALIBRATION not in sets:
        return apart
    calibration_hashes = sets[Role.CALIBRATION].record_hashes.view("S16")
    _, earliest = np.unique(calibration_hashes, return_index=True)
    again = np.ones(len(calibration_hashes), bool)
    again[earliest] = False
    return np.concatenate([apart, again | np.isin(calibration_hashes, record_hashes)])
