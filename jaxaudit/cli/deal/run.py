"""Runs `jaxaudit deal`: reads records, deals them, and writes every side with the record of the deal."""

import hashlib
import json
import platform
import secrets
import zipfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from jaxaudit.cli.deal.command import SEED_BITS, Deal, DealOptions
from jaxaudit.cli.deal.private import (
    arrays_with_values,
    challenge_arrays,
    home_writer,
    key_writer,
    new_salt,
    refuse_in_records,
)
from jaxaudit.cli.deal.show import BlindChallenge, DealReport, DealSide, before_sharing, summary
from jaxaudit.cli.deal.source import INPUTS, has_all_classes, read_source
from jaxaudit.cli.deal.units import NUMBERS, DealtUnits, dealt_units, draw_deal
from jaxaudit.cli.job import Summary
from jaxaudit.cli.parsers import is_texts
from jaxaudit.data import Examples, is_image, prepare_images
from jaxaudit.data.challenge import CHALLENGE, KEY, file_hash, group_numbers, read_key, record_order
from jaxaudit.data.challenge import RECORD as NAMES
from jaxaudit.data.deal_record import DEAL_RECORD, HOME
from jaxaudit.data.group_values import COLUMN
from jaxaudit.data.groups import groups_file, load_groups
from jaxaudit.data.selection import CLASS_NAMES, role_of
from jaxaudit.data.tables.rows import refuse_read_otherwise
from jaxaudit.errors import InputError
from jaxaudit.randomness import stream
from jaxaudit.runs.directory import Writer, write_files
from jaxaudit.version import __version__

SCHEMA = "jaxaudit.deal/1"


def deal_given(options: DealOptions) -> Summary:
    """Deals the records or texts that the options name, and writes every side."""
    if not is_texts(options.data.data):
        return deal_records(options)
    from jaxaudit.cli.deal.texts import deal_texts

    return deal_texts(options)


def deal_records(options: DealOptions) -> Summary:
    """Deals the records and writes every side."""
    data, groups, data_dir = options.data.data, options.data.names_of_groups, options.data.data_dir
    how, out, salt = options.deal, options.out, new_salt()
    # A column with groups is no input, and its values are not written: the files are shared.
    source = read_source(options.data, None if groups is None or groups_file(groups) else groups)
    count = len(source.examples)
    copies = _as_compared(source.examples).record_hashes.view("S16")
    group_values = None if groups is None else load_groups(groups, data, count, "data", data_dir)
    units = dealt_units(group_values, copies, within=options.data.by is not None)
    seed = seed_of(how)
    key = key_of(seed) if how.withdraw is None else stream(key_of(seed), "withdraw")
    rows = draw_deal(key, how, units)
    left_out: list[str] = []
    if group_values is not None:
        refuse_in_records(group_values, source.examples, source.columns)
        left_out = arrays_with_values(group_values, {name: source.arrays[name] for name in _further(source.arrays)})
    arrays = {name: array for name, array in source.arrays.items() if name not in left_out}
    split = set(source.split) - set(left_out)
    further_arrays = _further(arrays)
    table = source.table if has_all_classes(source, rows.values()) else None
    if COLUMN in (*arrays, *(() if source.table is None else source.table.names)):
        raise InputError(
            f"{data} has an array or column {COLUMN!r}, the name of the groups of a deal: deal by it (--groups "
            f"{COLUMN}), or rename it."
        )
    if units.written:
        # A number tells nothing, neither of the group's value nor of its place in the file.
        drawn = group_numbers(salt, units.count, NUMBERS)[units.of_record] if how.blind else units.random_numbers(key)
        arrays[COLUMN] = drawn
        split = {*split, COLUMN}
    label = None if table is None else options.data.label
    suffix = ".npz" if table is None else table.suffix
    sides = {
        name: DealSide(f"{name}{suffix}", np.flatnonzero(row), units.on(np.flatnonzero(row)))
        for name, row in rows.items()
    }

    def rows_of(side: DealSide) -> dict[str, np.ndarray]:
        return {name: array[side.rows] if name in split else array for name, array in arrays.items()}

    def side_writer(side: DealSide) -> Writer:
        if table is None:
            return _npz(rows_of(side))
        part = table.part(side.rows, arrays[COLUMN][side.rows] if units.written else None)
        return partial(table.write, part)

    def record(file: IO[bytes]) -> None:
        for side in sides.values() if table is not None else ():
            refuse_read_otherwise(out / side.file, source.examples.take(side.rows), options.data.label)
        described = {
            "name": source.name,
            "records": count,
            "groups": units.count,
            "content_hash": source.examples.content_hash,
            "sha256": None if source.path is None else file_hash(source.path),
            "columns": None if table is None else {"inputs": table.inputs, "label": table.label},
        }
        membership = {name: source.examples.record_hashes[side.rows] for name, side in sides.items()}
        file.write(record_of(how, seed, units, described, out, sides, membership))

    files = {side.file: side_writer(side) for side in sides.values()}
    challenge, positions = "", {}
    if how.blind:
        challenge_file, positions = challenge_arrays(sides, arrays, INPUTS, salt, how.views)
        challenge = f"{CHALLENGE}{suffix}"
        files[challenge] = _npz(challenge_file)
        if table is not None:
            named_rows = table.challenge(record_order(salt, count), NAMES, challenge_file[NAMES])
            files[challenge] = partial(table.write, named_rows)
    # The record is written after the sides, and a key last: they have the hashes of the others.
    files[DEAL_RECORD] = record
    if how.blind:
        files[KEY] = key_writer(out, [*files], salt, seed, units.whole, positions, label)
    if group_values is not None:
        files[HOME] = home_writer(arrays[COLUMN].tolist())
    write_files(out, files)
    blind = BlindChallenge(challenge, read_key(out / KEY).committed, how.views) if how.blind else None
    report = DealReport(source.name, out, sides, units, further_arrays, left_out, groups is not None)
    power = () if units.written else before_sharing(data, sides, options.data.label, options.data.drop)
    return summary(report, blind, label, power)


def _further(arrays: Iterable[str]) -> list[str]:
    """The names of the arrays that are neither inputs, labels nor class names."""
    return [name for name in arrays if role_of(name) is None and name not in CLASS_NAMES]


def seed_of(how: Deal) -> int:
    """The seed that was asked for, or a new one that nobody can guess."""
    return secrets.randbits(SEED_BITS) if how.seed is None else how.seed


def key_of(seed: int) -> Key[Array, ""]:
    """`jax.random.key`, which keeps only 32 bits of a seed: few enough to try them all."""
    return jax.random.wrap_key_data(jnp.array([seed >> 32, seed & 0xFFFFFFFF], jnp.uint32), impl="threefry2x32")


def _as_compared(examples: Examples) -> Examples:
    """The records as other commands compare them where no option says otherwise: images in gray."""
    if is_image(examples) and examples.inputs.ndim == 4:
        with suppress(InputError):  # numbers that no image has
            return prepare_images(examples, examples.inputs.shape[1:3])
    return examples


def record_of(
    how: Deal,
    seed: int,
    units: DealtUnits,
    source: Mapping[str, Any],
    out: Path,
    sides: Mapping[str, DealSide],
    hashes: Mapping[str, np.ndarray],
) -> bytes:
    """The file that documents a deal, as JSON: its options, its source, and the size and hashes of each side.

    `membership` of a side is the SHA-256 of the hashes of its records, in the file's order.

    Args:
        how, seed: the options of the deal.
        units: what was dealt.
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
        "by_groups": units.whole,
        "within_groups": units.within,
        "copies": units.copied,
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
