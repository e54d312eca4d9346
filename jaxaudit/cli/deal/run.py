"""Runs `jaxaudit deal`: reads records, deals them, and writes every side with the record of the deal."""

import zipfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import IO

import numpy as np

from jaxaudit.cli.deal.command import DealOptions
from jaxaudit.cli.deal.private import (
    arrays_with_values,
    challenge_arrays,
    home_writer,
    key_writer,
    new_salt,
    refuse_in_records,
)
from jaxaudit.cli.deal.record import key_of_deal, record_of, seed_of
from jaxaudit.cli.deal.show import BlindChallenge, DealReport, DealSide, before_sharing, summary
from jaxaudit.cli.deal.source import has_all_classes, read_source
from jaxaudit.cli.deal.units import NUMBERS, dealt_units, draw_deal
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
from jaxaudit.runs.directory import Writer, write_files


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
    key = key_of_deal(seed, how)
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
        challenge_file, positions = challenge_arrays(sides, arrays, salt, how.views)
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


def _as_compared(examples: Examples) -> Examples:
    """The records as other commands compare them where no option says otherwise: images in gray."""
    if is_image(examples) and examples.inputs.ndim == 4:
        with suppress(InputError):  # numbers that no image has
            return prepare_images(examples, examples.inputs.shape[1:3])
    return examples


def _npz(arrays: Mapping[str, np.ndarray]) -> Callable[[IO[bytes]], None]:
    """Writes arrays as a .npz: the same arrays, the same bytes."""

    def save(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in arrays.items():
                # Without a date of its own a member is of 1980.
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)

    return save
