"""Runs `jaxaudit deal` for texts: deals the lines of a file, or which of two versions of each line is shared."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Int, Shaped

from jaxaudit.cli.deal.command import DealOptions
from jaxaudit.cli.deal.private import home_writer, keys_with_values
from jaxaudit.cli.deal.record import key_of_deal, record_of, seed_of
from jaxaudit.cli.deal.show import DealReport, DealSide, texts_summary
from jaxaudit.cli.deal.units import dealt_units, draw_deal
from jaxaudit.cli.job import Summary
from jaxaudit.cli.progress import say
from jaxaudit.cli.texts import read_told, tell_of_groups
from jaxaudit.data.challenge import file_hash
from jaxaudit.data.deal_record import DEAL_RECORD, HOME
from jaxaudit.data.group_values import COLUMN
from jaxaudit.data.groups import groups_file, load_groups
from jaxaudit.data.paths import expanded
from jaxaudit.data.texts import Texts
from jaxaudit.errors import InputError
from jaxaudit.metrics.effect import ALPHA
from jaxaudit.randomness import generator_of, stream
from jaxaudit.runs.directory import Writer, write_files

PAIR, INDEX = "pair", "index"


class Lines(NamedTuple):
    """The lines of a side: for each, which version of which record it is."""

    version: Int[np.ndarray, " lines"]
    row: Int[np.ndarray, " lines"]


def deal_texts(options: DealOptions) -> Summary:
    """Deals the texts and writes every side."""
    how, out, pairs = options.deal, options.out, options.data.pairs
    groups = options.data.names_of_groups
    path = expanded(options.data.data)
    versions = [read_told(path_of_version) for path_of_version in (path, pairs) if path_of_version is not None]
    hashes = [_hashes(version) for version in versions]
    count, paired = len(hashes[0]), pairs is not None
    if paired:
        _refuse_no_versions(versions, hashes)
    if groups is None and not paired:
        tell_of_groups(versions)
    values = None if groups is None else _groups(groups, options.data.flag_of_groups, path, versions[0])
    units = dealt_units(None if values is None else _as_numbers(values), hashes[0], within=options.data.by is not None)
    keys = {key for version in versions for line in version.objects() for key in line} - {groups}
    text_keys = {*versions[0].keys}
    left_out: list[str] = []
    if values is not None:
        telling = keys_with_values(values, versions[0].objects())
        left_out = [key for key in telling if key not in text_keys | {groups}]
        _tell_of_texts(values, versions[0])
    for taken in keys & {*((COLUMN,) if units.written else ()), *((PAIR,) if paired else ())}:
        raise InputError(f"{versions[0].source} has a key {taken!r}, which a deal writes: rename it, or deal by it.")
    seed = seed_of(how)
    key = key_of_deal(seed, how)
    if paired:
        shared, every = generator_of(stream(key, "deal")).integers(2, size=count), np.arange(count)
        lines = {"query": Lines(shared, every), "holdout": Lines(1 - shared, every)}
    else:
        rows = map(np.flatnonzero, (dealt_rows := draw_deal(key, how, units)).values())
        lines = {of: Lines(np.zeros_like(row), row) for of, row in zip(dealt_rows, rows, strict=True)}
    numbers = units.random_numbers(key)

    def writer(side_lines: Lines) -> Writer:
        def save(file: IO[bytes]) -> None:
            for version, row in zip(side_lines.version.tolist(), side_lines.row.tolist(), strict=True):
                line = versions[version].object(row)
                for key_left_out in (groups, *left_out):
                    line.pop(key_left_out, None)
                if units.written:
                    line[COLUMN] = int(numbers[row])
                if paired:
                    line = {INDEX: row, **line, PAIR: row}
                file.write(msgspec.json.encode(line) + b"\n")

        return save

    sides = {of: DealSide(f"{of}.jsonl", side_lines.row, units.on(side_lines.row)) for of, side_lines in lines.items()}
    source = {
        "name": " and ".join(version.source for version in versions),
        "records": count,
        "groups": units.count,
        "content_hash": f"blake2b:{hashlib.blake2b(np.concatenate(hashes).tobytes(), digest_size=16).hexdigest()}",
        "sha256": file_hash(path),
        **({} if pairs is None else {"pairs_sha256": file_hash(pairs)}),
    }

    def record(file: IO[bytes]) -> None:
        membership = {of: np.stack(hashes)[side_lines] for of, side_lines in lines.items()}
        file.write(record_of(how, seed, units, source, out, sides, membership))

    home = {} if values is None else {HOME: home_writer(numbers.tolist())}
    write_files(
        out, {**{f"{of}.jsonl": writer(side_lines) for of, side_lines in lines.items()}, DEAL_RECORD: record, **home}
    )
    further = sorted(keys - {*text_keys, COLUMN, PAIR, INDEX, *left_out})
    return texts_summary(DealReport(source["name"], out, sides, units, further, left_out, groups is not None), paired)


def _hashes(texts: Texts) -> Shaped[np.ndarray, " records"]:
    """16 bytes a record, the same for equal texts."""
    pairs = zip(texts.prompts, texts.answers, strict=True)
    digests = [hashlib.blake2b(json.dumps(pair).encode(), digest_size=16).digest() for pair in pairs]
    return np.array(digests, "S16")


def _groups(groups: str, flag: str, path: Path, texts: Texts) -> list[str | int]:
    """The group of each record; `flag` is the option that names them."""
    if groups_file(groups) is not None:
        return load_groups(groups, str(path), len(texts.lines), "data").tolist()
    values = None if groups in texts.keys else texts.column(groups)
    if values is None:
        trouble = "is a text of the records" if groups in texts.keys else "is neither a file nor a key of the lines"
        raise InputError(f"{flag} {groups} {trouble}; name the key of what records have in common, such as author.")
    return values


def _tell_of_texts(values: list[str | int], texts: Texts) -> None:
    """Says on stderr that the texts, which nobody can leave out, have the groups' values or are other names of them."""
    # Where each record is a group of its own, any texts that differ would be names of the groups.
    shared = len(set(values)) < len(values)
    telling = {*texts.keys} & {*keys_with_values(values, texts.objects(), other_names=shared)}
    if telling:
        say(
            f"{texts.source}: the texts themselves ({', '.join(sorted(telling))}) tell whose they are: they have the "
            "values of the groups, or one text for each group, and are shared"
        )


def _as_numbers(values: Sequence[str | int]) -> Int[np.ndarray, " records"]:
    names: dict[str | int, int] = {}
    return np.array([names.setdefault(value, len(names)) for value in values])


def _refuse_no_versions(versions: list[Texts], hashes: list[np.ndarray]) -> None:
    first, second = versions
    if (len(first.lines), first.form) != (len(second.lines), second.form):
        raise InputError(
            f"`pairs` {second.source} has {len(second.lines):,} lines of the form {second.form!r}, and {first.source} "
            f"{len(first.lines):,} of {first.form!r}: give two versions of each record, line by line."
        )
    count = len(first.lines)
    again = 2 * count - len(np.unique(np.concatenate(hashes)))
    if again:
        raise InputError(
            f"{again:,} texts of {first.source} and {second.source} are copies of others, so one text could be shared "
            "and kept; give versions that differ, and leave copies out of both."
        )
    if 2**count * ALPHA < 1:
        raise InputError(
            f"{count} pairs are too few: no test of them could reach a p-value of {ALPHA:g}. Give five or more."
        )
