"""Reads the records for `jaxaudit shadows plan`: labels, copies, groups."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Int, Key, Shaped

from jaxaudit.cli.groups import named_sets
from jaxaudit.cli.options import refuse_options
from jaxaudit.cli.parsers import is_texts
from jaxaudit.cli.progress import say
from jaxaudit.cli.read_sets import group_columns, groups_of_sets, reader, text_reader
from jaxaudit.cli.recipe import make_adapters
from jaxaudit.cli.shadows import BankData, BankNetwork
from jaxaudit.data import Examples, align_classes, align_dealt, concatenate
from jaxaudit.data.bank.description import MOST_RECORDS, Counts, Hashes, SampledAlike, Sizes
from jaxaudit.data.examples import Role, Sets
from jaxaudit.data.formats.arrays import npy_shape
from jaxaudit.data.pairs import find_overlap, refuse_held, refuse_overlap
from jaxaudit.data.paths import expanded
from jaxaudit.data.sequences import are_texts, token_counts
from jaxaudit.data.texts import read_texts
from jaxaudit.errors import InputError
from jaxaudit.metrics.exchangeability import alike
from jaxaudit.randomness import stream


class BankSets(NamedTuple):
    """The records of a bank; columns are the query set, the holdout, the calibration set.

    Attributes:
        parts, hashes: the inputs of each set, and hashes of the sets as they were read.
        counts: numbers of records of each set, dropped ones included.
        labels: class of each record.
        dropped: records that no model is trained on.
        groups: of query set and holdout, if groups are kept whole.
        sampled_alike: the test whether query set and holdout are exchangeable, on records that are not dropped; None
            without a holdout.
    """

    parts: tuple[np.ndarray, ...]
    class_names: tuple[str, ...]
    counts: Counts
    hashes: Hashes
    labels: Int[np.ndarray, " n"]
    dropped: Bool[np.ndarray, " n"]
    groups: Sets[Int[np.ndarray, " _"]]
    sampled_alike: SampledAlike | None


def read_bank_sets(key: Key[Array, ""], data: BankData, model: BankNetwork | None = None) -> BankSets:
    """The records of the sets that these options name.

    `key` draws the test of exchangeability of query set and holdout, as in `ks`. `model` says how texts become tokens.
    """
    sets_named = named_sets(data)
    names = sets_named.names.only(Role.QUERY, Role.HOLDOUT, Role.CALIBRATION)
    if model is None and is_texts(names[Role.QUERY]):
        raise InputError(
            "texts have no classes, so models give each a number: --outputs log-likelihood, or another one of those; "
            "`shadows train` trains language models on them."
        )
    adapters = None if model is None else make_adapters(model)
    columns = group_columns(data.groups)
    read = text_reader([*names.values()], model or BankNetwork(), adapters) or reader(
        replace(data, label=sets_named.label), columns
    )
    examples_by_role = names.map(lambda _, name: read(name))
    query, held = examples_by_role[Role.QUERY], examples_by_role.get(Role.HOLDOUT)
    other = examples_by_role.get(Role.CALIBRATION)
    if len(query.class_names) < 2 and not are_texts(query):
        raise InputError(f"{query.name} has one class, so there is nothing to classify; is the right label given?")
    groups = groups_of_sets(data.groups, names, examples_by_role.map(lambda _, examples: len(examples)))
    query = replace(query, groups=groups.get(Role.QUERY))
    held = None if held is None else replace(held, groups=groups.get(Role.HOLDOUT))
    holdout = None if held is None else align_dealt(query, held)
    calibration = None if other is None else align_classes(query, other)
    if not data.drop_overlap:
        _refuse_shared(query, holdout, calibration)
    dropped = _copies(query, holdout, other)
    if dropped.any() and not data.drop_overlap:
        raise InputError(
            f"{int(dropped.sum())} records have a copy in their own set, so a model can be trained on one and not on "
            "the other: deal copies together, as `jaxaudit deal` does (its files have the groups; else give --groups), "
            "or leave them out (--drop-overlap)."
        )
    if dropped.any():
        say(f"{int(dropped.sum())} records have copies; their columns stay, and no model is trained on them")
    labels = [examples.labels for examples in (query, holdout, calibration) if examples is not None]
    sets = Sets(query=query, holdout=held, calibration=other)
    return BankSets(
        tuple(examples.inputs for examples in (query, held, other) if examples is not None),
        query.class_names,
        Counts(**sets.map(lambda _, examples: len(examples))),
        Hashes(**sets.map(lambda _, examples: examples.content_hash)),
        np.concatenate(labels).astype(np.int32),
        dropped,
        groups,
        None if holdout is None else _sampled_alike(key, query, holdout, dropped),
    )


def count_bank_sets(data: BankData) -> BankSets:
    """The sets of a bank of records without classes: their numbers of records, which nothing reads."""
    values = {
        "--drop-overlap": data.drop_overlap,
        "--images": data.images not in (None, "none"),
    }
    refuse_options(values, "is for records that are read, and of scores only their number is known")
    names = named_sets(data).names.only(*map(Role, Sizes._fields))
    counts = names.map(lambda role, text: count_of(f"--{role}", text))
    groups = groups_of_sets(data.groups, names, counts)
    records = sum(counts.values())
    none = np.zeros(records, bool)
    return BankSets((), ("",), Counts(**counts), Hashes(), np.zeros(records, np.int32), none, groups, None)


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
    key: Key[Array, ""], query: Examples, holdout: Examples, dropped: Bool[np.ndarray, " n"]
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
    return SampledAlike(**{name: value for name, value in alikeness._asdict().items() if name != "difficulty"})


def _refuse_shared(query: Examples, holdout: Examples | None, calibration: Examples | None) -> None:
    if calibration is not None:
        refuse_overlap(query, calibration)
    if holdout is not None:
        refuse_held(query, holdout, "query set")
        if calibration is not None:
            refuse_held(calibration, holdout, "calibration set")


def _copies(query: Examples, holdout: Examples | None, calibration: Examples | None) -> Bool[np.ndarray, " n"]:
    """Records to drop, because their membership would not determine whether a model was trained on their content.

    In query set and holdout: every record with a copy in either that is not kept together with it. These do not depend
    on the random split, so the remaining records are still split at random (`without_copies`). In the calibration set:
    copies of a query or holdout record, and all but the first of equal records.
    """
    for other in (holdout, calibration):
        if other is not None:
            # Rejects sets whose records could not be equal because they were stored in different forms.
            find_overlap(query, other.take(slice(1)))
    record_hashes = _hashes(query, holdout)
    groups = [part.groups for part in (query, holdout) if part is not None and part.groups is not None]
    units = np.concatenate(groups) if groups else np.arange(len(record_hashes))
    _, index = np.unique(record_hashes, return_inverse=True)
    first, last = np.full(index.max() + 1, len(units)), np.full(index.max() + 1, -1)
    np.minimum.at(first, index, units)
    np.maximum.at(last, index, units)
    apart = first[index] != last[index]
    if calibration is None:
        return apart
    calibration_hashes = _hashes(calibration, None)
    _, earliest = np.unique(calibration_hashes, return_index=True)
    again = np.ones(len(calibration_hashes), bool)
    again[earliest] = False
    return np.concatenate([apart, again | np.isin(calibration_hashes, record_hashes)])


def _hashes(first: Examples, second: Examples | None) -> Shaped[np.ndarray, " n"]:
    """Hashes as byte strings, which NumPy sorts quickly."""
    parts = [examples.record_hashes for examples in (first, second) if examples is not None]
    return np.concatenate(parts).view("S16")
