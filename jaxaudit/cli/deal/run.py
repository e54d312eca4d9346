"""Runs `jaxaudit deal`: reads records, deals them, and writes every side with the record of the deal."""

import hashlib
import json
import platform
import secrets
import zipfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from jaxaudit.cli.deal.command import SEED_BITS, Deal, DealData, DealOptions
from jaxaudit.cli.deal.private import (
    arrays_with_values,
    as_csv,
    challenge_arrays,
    key_writer,
    new_salt,
    refuse_in_records,
)
from jaxaudit.cli.deal.show import RECORD, BlindChallenge, DealSide, before_sharing, summary
from jaxaudit.cli.harness import Summary
from jaxaudit.cli.parsers import is_texts
from jaxaudit.cli.read_sets import load_told
from jaxaudit.data import Examples, is_image, load, prepare_images
from jaxaudit.data.challenge import CHALLENGE, KEY, file_hash, group_numbers, read_key
from jaxaudit.data.files import comparable
from jaxaudit.data.formats.arrays import NpzArrays
from jaxaudit.data.group_values import number_groups
from jaxaudit.data.groups import COLUMN, groups_file, load_groups
from jaxaudit.data.selection import CLASS_NAMES, find_pairs, named_in, role_of
from jaxaudit.data.tfds.tfds import file_and_split
from jaxaudit.errors import InputError, without_folders
from jaxaudit.metrics.deal import deal, deal_members, merge_groups
from jaxaudit.randomness import generator_of, stream
from jaxaudit.runs.directory import write_files
from jaxaudit.version import __version__

SCHEMA = "jaxaudit.deal/1"
NUMBERS = 2**53
"""Groups get random numbers below this: groups of two deals get different ones, and a float has each exactly."""


INPUTS, LABELS = "x", "y"
"""The arrays of what a deal writes, whatever they were called; class names have the first of their usual names."""


class DealSource(NamedTuple):
    """The records to deal, as their provider gave them.

    Attributes:
        examples: the records, as every other command reads them.
        arrays: the arrays to write, by name. Of a `.npz` these are all its arrays, except the groups.
        split: the names of `arrays` that have one row for each record, so that a side gets its own rows only.
        path: the file of the records; None if they are not a file.
        name: the name of the records, without folders.
    """

    examples: Examples
    arrays: Mapping[str, np.ndarray]
    split: frozenset[str]
    path: Path | None
    name: str


def deal_given(options: DealOptions) -> Summary:
    """Deals the records or texts that the options name, and writes every side."""
    if not is_texts(options.data.data):
        return deal_records(options)
    from jaxaudit.cli.deal.texts import deal_texts

    return deal_texts(options)


def deal_records(options: DealOptions) -> Summary:
    """Deals the records and writes every side."""
    data, groups, data_dir = options.data.data, options.data.groups, options.data.data_dir
    how, out, salt = options.deal, options.out, new_salt()
    # A column with groups is no input, and its values are not written: the files are shared.
    source = _read(options.data, None if groups is None or groups_file(groups) else groups)
    count = len(source.examples)
    copies = _as_compared(source.examples).record_hashes.view("S16")
    group_values = np.arange(count) if groups is None else load_groups(groups, data, count, "data", data_dir)
    together = number_groups(merge_groups(group_values, copies))
    copied = count - len(np.unique(copies))
    # Records that belong to nobody need no groups, and the test of records finds more.
    whole = groups is not None or copied > 0
    seed = seed_of(how)
    key = key_of(seed) if how.withdraw is None else stream(key_of(seed), "withdraw")
    rows = draw_deal(key, how, count, together if whole else None)
    left_out: list[str] = []
    if groups is not None:
        refuse_in_records(group_values, source.examples)
        left_out = arrays_with_values(group_values, {name: source.arrays[name] for name in _further(source.arrays)})
    arrays = {name: array for name, array in source.arrays.items() if name not in left_out}
    split = set(source.split) - set(left_out)
    further_arrays = _further(arrays)
    if COLUMN in arrays:
        raise InputError(
            f"{data} has an array {COLUMN!r}, the name of the groups of a deal: deal by it (--groups {COLUMN}), or "
            "rename it."
        )
    if whole:
        # A number tells nothing, neither of the group's value nor of its place in the file.
        number = int(together.max()) + 1
        if how.blind:
            drawn = group_numbers(salt, number, NUMBERS)
        else:
            drawn = generator_of(stream(key, "numbers")).choice(NUMBERS, number, replace=False)
        arrays[COLUMN], split = drawn[together], {*split, COLUMN}
    sides = {
        name: DealSide(f"{name}.npz", np.flatnonzero(row), len(np.unique(together[row]))) for name, row in rows.items()
    }

    def rows_of(side: DealSide) -> dict[str, np.ndarray]:
        return {name: array[side.rows] if name in split else array for name, array in arrays.items()}

    def record(file: IO[bytes]) -> None:
        described = {
            "name": source.name,
            "records": count,
            "groups": len(np.unique(together)),
            "content_hash": source.examples.content_hash,
            "sha256": None if source.path is None else file_hash(source.path),
        }
        membership = {name: source.examples.record_hashes[side.rows] for name, side in sides.items()}
        file.write(record_of(how, seed, whole, copied, described, out, sides, membership))

    files = {side.file: _npz(rows_of(side)) for side in sides.values()}
    challenge, positions = "", {}
    if how.blind:
        challenge_file, positions = challenge_arrays(sides, arrays, INPUTS, salt, how.views)
        table = source.path is not None and source.path.suffix.lower() == ".csv"
        challenge = f"{CHALLENGE}{'.csv' if table else '.npz'}"
        files[challenge] = as_csv(challenge_file, INPUTS) if table else _npz(challenge_file)
    # The record is written after the sides, and a key last: they have the hashes of the others.
    files[RECORD] = record
    if how.blind:
        files[KEY] = key_writer(out, [*files], salt, seed, whole, positions)
    write_files(out, files)
    blind = BlindChallenge(challenge, read_key(out / KEY).committed, how.views) if how.blind else None
    lines = summary(source.name, out, sides, whole, copied, further_arrays, left_out, blind)
    return Summary((*lines, *(() if whole else before_sharing(data, sides))))


def _further(arrays: Iterable[str]) -> list[str]:
    """The names of the arrays that are neither inputs, labels nor class names."""
    return [name for name in arrays if role_of(name) is None and name not in CLASS_NAMES]


def seed_of(how: Deal) -> int:
    """The seed that was asked for, or a new one that nobody can guess."""
    return secrets.randbits(SEED_BITS) if how.seed is None else how.seed


def key_of(seed: int) -> Key[Array, ""]:
    """`jax.random.key`, which keeps only 32 bits of a seed: few enough to try them all."""
    return jax.random.wrap_key_data(jnp.array([seed >> 32, seed & 0xFFFFFFFF], jnp.uint32), impl="threefry2x32")


def draw_deal(
    key: Key[Array, ""], how: Deal, count: int, groups: Int[np.ndarray, " n"] | None
) -> dict[str, Bool[np.ndarray, " n"]]:
    """Deals records at random: True for the records of each side (`query`, `members`, `holdout`), by its name.

    `how` has the shares of the sides. `groups` has the group of each of `count` records, if groups are dealt whole.
    """
    drawn = deal(stream(key, "deal"), count, how.held if how.withdraw is None else how.withdraw, groups)
    if how.withdraw is not None:
        return {"query": drawn, "members": ~drawn}
    if how.members_share is None:
        return {"query": ~drawn, "holdout": drawn}
    members = deal_members(stream(key, "deal"), drawn, how.members_share, groups)
    return {"query": ~(drawn | members), "members": members, "holdout": drawn}


def _read(options: DealData, groups: str | None) -> DealSource:
    """The records, and the arrays that hold them; of anything but a `.npz` without splits, inputs and labels.

    Inputs are as they are stored, or of 64 bits where they are text.
    """
    if groups is not None and role_of(groups) is not None:
        raise InputError(
            f"--groups {groups} is the name of inputs or labels, which are shared with the records; copy the groups to "
            "an array or column of another name, or to a file."
        )
    data, data_dir = options.data, options.data_dir
    columns = [] if groups is None else [groups]
    stored = load_told(data, options, groups=columns, exact=True)
    examples = replace(stored, inputs=comparable(stored.inputs, stored.name))
    path, split = file_and_split(data, data_dir)
    name = without_folders(data) if path is None else path.name + (f"@{split}" if split else "")
    file = path if path is not None and not split and path.is_file() else None
    archive = NpzArrays(file) if file is not None and file.suffix.lower() == ".npz" else None
    pairs = {} if archive is None else find_pairs(archive.names, name)
    how: dict[str, Any] = {"data_dir": data_dir, "label": options.label, "drop": options.drop, "groups": columns}
    if not split and (file is None or len(pairs) > 1):
        _refuse_others(name, len(examples), len(load(f"{data}@all", **how)), pairs)
    if archive is not None and list(pairs) == [""]:
        inputs, labels = pairs[""]
        standard_names = {inputs: INPUTS, str(labels): LABELS}
        # The reader of groups also takes names that differ in case or hyphens.
        kept = [name for name in archive.names if groups is None or named_in([name], groups, "") is None]
        arrays = {standard_names.get(name, name): archive.read(name) for name in kept if name != groups}
        rows = {name for name, array in arrays.items() if array.shape[:1] == (len(examples),)}
        return DealSource(examples, arrays, frozenset(rows - set(CLASS_NAMES)), file, name)
    arrays = {INPUTS: stored.inputs, LABELS: examples.labels, CLASS_NAMES[0]: np.array(examples.class_names)}
    return DealSource(examples, arrays, frozenset({INPUTS, LABELS}), file, name)


def _refuse_others(name: str, taken: int, whole: int, splits: Iterable[str]) -> None:
    """Refuses a set of several splits: what is not dealt now could only be dealt apart."""
    if taken == whole:
        return
    split_names = ", ".join(filter(None, splits))
    raise InputError(
        f"{name} has several splits{f' ({split_names})' if split_names else ''}, and {taken:,} of its {whole:,} "
        "records in the one "
        f"that is read where none is named: say which records to deal. {name}@all deals all of them, {name}@train one "
        f"split, {name}@train+test two."
    )


def _as_compared(examples: Examples) -> Examples:
    """The records as other commands compare them where no option says otherwise: images in gray."""
    if is_image(examples) and examples.inputs.ndim == 4:
        with suppress(InputError):  # numbers that no image has
            return prepare_images(examples, examples.inputs.shape[1:3])
    return examples


def record_of(
    how: Deal,
    seed: int,
    whole: bool,
    copied: int,
    source: Mapping[str, Any],
    out: Path,
    sides: Mapping[str, DealSide],
    hashes: Mapping[str, np.ndarray],
) -> bytes:
    """The file that documents a deal, as JSON: its options, its source, and the size and hashes of each side.

    `membership` of a side is the SHA-256 of the hashes of its records, in the file's order.

    Args:
        how, seed: the options of the deal.
        whole: whether groups were dealt whole.
        copied: the number of records that are copies of others.
        source: facts on the source, as they are written.
        out: the folder that contains the sides' files.
        sides, hashes: each side, and the hashes of its records, by its name.
    """

    def recorded(name: str, side: DealSide) -> dict[str, Any]:
        return {
            "file": side.file,
            "records": len(side.rows),
            "groups": side.groups,
            "sha256": file_hash(out / side.file),
            "membership": hashlib.sha256(hashes[name].tobytes()).hexdigest(),
        }

    facts = {
        "schema": SCHEMA,
        "seed": seed,
        "holdout_share": how.held if how.withdraw is None else None,
        "members_share": how.members_share,
        "withdraw": how.withdraw,
        "by_groups": whole,
        "copies": copied,
        "source": dict(source),
        **dict.fromkeys(("query", "members", "holdout")),
        **{name: recorded(name, side) for name, side in sides.items()},
        "versions": {"jaxaudit": __version__, "python": platform.python_version()}
        | {name: version(name) for name in ("jax", "numpy")},
    }
    return (json.dumps(facts, indent=1) + "\n").encode()


def _npz(arrays: Mapping[str, np.ndarray]) -> Callable[[IO[bytes]], None]:
    """Writes arrays as a .npz: the same arrays, the same bytes."""

    def save(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in arrays.items():
                # Without a date of its own a member is of 1980.
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)

    return save
