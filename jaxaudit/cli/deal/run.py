"""Runs `jaxaudit deal`: deals records, or the lines of a file of texts, writes every side with the record of the deal.

It prints the sides, what may be given to whom, and the command of the later test.
"""

import hashlib
import json
import platform
import secrets
import shlex
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, NamedTuple

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jaxtyping import Array, Int, Key, Shaped

from jaxaudit.cli.deal import LEAST_BLIND, SEED_BITS, DealFlags, DealOptions
from jaxaudit.cli.deal.source import (
    NUMBERS,
    DealSide,
    DealtUnits,
    challenge_arrays,
    dealt_units,
    draw_deal,
    has_all_classes,
    home_writer,
    key_writer,
    read_source,
    refuse_in_records,
    single_groups,
    texts_with_values,
)
from jaxaudit.cli.parsers import is_texts
from jaxaudit.cli.progress import say
from jaxaudit.cli.read_sets import read_told, tell_of_groups
from jaxaudit.cli.show import Summary
from jaxaudit.data import Examples, is_image, prepare_images
from jaxaudit.data.deals import CHALLENGE, DEAL_RECORD, HOME, KEY, file_hash, group_numbers, read_key, record_order
from jaxaudit.data.deals import RECORD as NAMES
from jaxaudit.data.groups import groups_file, load_groups
from jaxaudit.data.labels import COLUMN
from jaxaudit.data.own_table import refuse_read_otherwise
from jaxaudit.data.paths import expanded
from jaxaudit.data.selection import CLASS_NAMES
from jaxaudit.data.texts import Texts
from jaxaudit.errors import InputError, few
from jaxaudit.randomness import stream
from jaxaudit.runs.directory import Writer, new_directory, write_files
from jaxaudit.version import __version__


def deal_records(options: DealOptions) -> Summary:
    """Deals the records or texts that the options name, and writes every side."""
    if is_texts(options.data.data):
        return _deal_texts(options)
    data, groups = options.data.data, options.data.names_of_groups
    # 256 bits of the system's entropy, whatever the seed: from a commitment nobody can find a seed by trying.
    how, out, salt = options.deal, options.out, secrets.token_hex(32)
    # A column with groups is no input, and its values are not written: the files are shared.
    source = read_source(options.data, None if groups is None or groups_file(groups) else groups)
    count = len(source.examples)
    copies = _as_compared(source.examples).record_hashes.view("S16")
    group_values = None if groups is None else load_groups(groups, data, count, "data")
    units = dealt_units(group_values, copies, within=options.data.by is not None)
    seed = seed_of(how)
    key = key_of_deal(seed, how)
    rows = draw_deal(key, how, units)
    if group_values is not None:
        refuse_in_records(group_values, source.examples, source.columns, source.words)
    arrays, left_out = {**source.arrays}, source.left_out
    table = source.table if has_all_classes(source, rows.values()) else None
    if table is None and source.examples.gaps:
        raise InputError(
            f"{source.name}: columns {few(map(repr, source.examples.gaps))} have empty cells, which no .npz has: leave "
            "them out (--drop), or deal a whole table of which every set gets all classes."
        )
    if COLUMN in (*left_out, *(() if source.table is None else source.table.names)):
        raise InputError(
            f"{data} has an array or column {COLUMN!r}, the name of the groups of a deal: deal by it (--groups "
            f"{COLUMN}), or rename it."
        )
    if units.written:
        # A number tells nothing, neither of the group's value nor of its place in the file.
        drawn = group_numbers(salt, units.count, NUMBERS)[units.of_record] if how.blind else units.random_numbers(key)
        arrays[COLUMN] = drawn
    label = None if table is None else options.data.label
    suffix = ".npz" if table is None else table.suffix
    sides = {
        name: DealSide(f"{name}{suffix}", np.flatnonzero(row), units.on(np.flatnonzero(row)))
        for name, row in rows.items()
    }

    def side_writer(side: DealSide) -> Writer:
        if table is None:
            return _npz({name: all_of if name in CLASS_NAMES else all_of[side.rows] for name, all_of in arrays.items()})
        part = table.part(side.rows, arrays[COLUMN][side.rows] if units.written else None)
        return partial(table.write, part)

    described = {
        "name": source.name,
        "content_hash": source.examples.content_hash,
        "sha256": None if source.path is None else file_hash(source.path),
        "columns": None if table is None else {"inputs": table.inputs, "label": table.label},
    }

    def record(file: IO[bytes]) -> None:
        for side in sides.values() if table is not None else ():
            refuse_read_otherwise(draft / side.file, source.examples.take(side.rows), options.data.label)
        write_record(file, how, seed, units, described, draft, sides, source.examples.record_hashes)

    files = {side.file: side_writer(side) for side in sides.values()}
    challenge, positions = "", {}
    if how.blind:
        challenge_file, positions = challenge_arrays(sides, arrays, salt)
        challenge = f"{CHALLENGE}{suffix}"
        files[challenge] = _npz(challenge_file)
        if table is not None:
            named_rows = table.challenge(record_order(salt, count), NAMES, challenge_file[NAMES])
            files[challenge] = partial(table.write, named_rows)
    # The record is written after the sides, and a key last: they have the hashes of the others.
    files[DEAL_RECORD] = record
    with new_directory(out) as draft:
        if how.blind:
            files[KEY] = key_writer(draft, [*files], salt, seed, units.whole, positions, label)
        if group_values is not None:
            files[HOME] = home_writer(arrays[COLUMN].tolist())
        write_files(draft, files)
    report = DealReport(source.name, out, sides, units, left_out, groups is not None)
    return summary(report, challenge, read_key(out / KEY).committed if how.blind else "")


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


def _deal_texts(options: DealOptions) -> Summary:
    """Deals the texts and writes every side."""
    how, out, groups = options.deal, options.out, options.data.names_of_groups
    path = expanded(options.data.data)
    texts = read_told(path)
    hashes = _hashes(texts)
    if groups is None:
        tell_of_groups([texts])
    values = None if groups is None else _groups(groups, options.data.flag_of_groups, path, texts)
    units = dealt_units(None if values is None else _as_numbers(values), hashes, within=options.data.by is not None)
    keys = {key for line in texts.objects() for key in line} - {groups}
    if values is not None:
        _tell_of_texts(values, texts)
    if units.written and COLUMN in keys:
        raise InputError(f"{texts.source} has a key {COLUMN!r}, which a deal writes: rename it, or deal by it.")
    seed = seed_of(how)
    key = key_of_deal(seed, how)
    numbers = units.random_numbers(key)

    def writer(rows: Int[np.ndarray, " lines"]) -> Writer:
        def save(file: IO[bytes]) -> None:
            for row in rows.tolist():
                line = {name: value for name, value in texts.object(row).items() if name in texts.keys}
                if units.written:
                    line[COLUMN] = int(numbers[row])
                file.write(msgspec.json.encode(line) + b"\n")

        return save

    rows = {of: np.flatnonzero(mask) for of, mask in draw_deal(key, how, units).items()}
    sides = {of: DealSide(f"{of}.jsonl", rows_of_side, units.on(rows_of_side)) for of, rows_of_side in rows.items()}
    content = hashlib.blake2b(hashes.tobytes(), digest_size=16).hexdigest()
    described = {"name": texts.source, "content_hash": f"blake2b:{content}", "sha256": file_hash(path)}
    files = {side.file: writer(side.rows) for side in sides.values()}
    files[DEAL_RECORD] = lambda file: write_record(file, how, seed, units, described, draft, sides, hashes)
    if values is not None:
        files[HOME] = home_writer(numbers.tolist())
    with new_directory(out) as draft:
        write_files(draft, files)
    left_out = sorted(keys.difference(texts.keys))
    return summary(DealReport(texts.source, out, sides, units, left_out, groups is not None))


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
    telling = sorted(texts_with_values(values, texts))
    if telling:
        say(
            f"{texts.source}: the texts themselves ({', '.join(telling)}) tell whose they are: they have the "
            "values of the groups, or one text for each group, and are shared"
        )


def _as_numbers(values: Sequence[str | int]) -> Int[np.ndarray, " records"]:
    names: dict[str | int, int] = {}
    return np.array([names.setdefault(value, len(names)) for value in values])


SCHEMA = "jaxaudit.deal/1"


def seed_of(how: DealFlags) -> int:
    """The seed that was asked for, or a new one that nobody can guess."""
    return LEAST_BLIND + secrets.randbelow(2**SEED_BITS - LEAST_BLIND) if how.seed is None else how.seed


def key_of_deal(seed: int, how: DealFlags) -> Key[Array, ""]:
    """The key of a deal: of all 64 bits of its seed, since `jax.random.key` keeps 32, few enough to try them all."""
    key = jax.random.wrap_key_data(jnp.array([seed >> 32, seed & 0xFFFFFFFF], jnp.uint32), impl="threefry2x32")
    return key if how.withdraw is None else stream(key, "withdraw")


def write_record(
    file: IO[bytes],
    how: DealFlags,
    seed: int,
    units: DealtUnits,
    source: Mapping[str, Any],
    out: Path,
    sides: Mapping[str, DealSide],
    hashes: np.ndarray,
) -> None:
    """Writes what documents a deal, as JSON; `hashes` are of all records, and `membership` of a side is the SHA-256 of
    those of its records, in order.
    """

    def recorded(side: DealSide) -> dict[str, Any]:
        return {
            "file": side.file,
            "records": len(side.rows),
            "groups": side.groups,
            "sha256": file_hash(out / side.file),
            "membership": hashlib.sha256(hashes[side.rows].tobytes()).hexdigest(),
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
        "source": {**source, "records": len(hashes), "groups": units.count},
        **dict.fromkeys(("query", "members", "holdout")),
        **{name: recorded(side) for name, side in sides.items()},
        "versions": {"jaxaudit": __version__, "python": platform.python_version()}
        | {name: version(name) for name in ("jax", "numpy")},
    }
    file.write((json.dumps(facts, indent=1) + "\n").encode())


LABELS = {"query": "query set", "members": "members", "holdout": "holdout"}


class DealReport(NamedTuple):
    """What a deal says of itself, with no value of a record: arrays or keys beside the records are `left_out`;
    `has_groups`: the groups are the user's, and not only copies.
    """

    source: str
    out: Path
    sides: Mapping[str, DealSide]
    units: DealtUnits
    left_out: Sequence[str]
    has_groups: bool


def summary(report: DealReport, challenge: str = "", commitment: str = "") -> Summary:
    """What is printed of a deal; `challenge` is the file of a blind one, and `commitment` that of its key."""
    sides, units, texts = report.sides, report.units, report.sides["query"].file.endswith(".jsonl")
    rows = {of: side.rows for of, side in sides.items()}
    single, by_scores = single_groups(units, rows) if report.has_groups else ((), False)
    names = [name for name in LABELS if name in sides or name == "holdout"]
    lines = _dealt(report, (KEY,) if challenge else ())
    if challenge:
        lines += [
            f"To ask for outputs later: {challenge}. It has all these records in a random order, without labels",
            "or groups. Send it to whoever holds the model, and get one file of outputs in its order.",
            f"Commitment of {KEY}, a SHA-256 to publish before the outputs arrive:",
            f"  {commitment}",
            "Nobody can change afterwards which record is of which set: `jaxaudit ks` recomputes the",
            f"commitment, and {KEY} says how anybody can, once it is shown.",
        ]
    if units.written:
        lines.append(f"The files tell which records belong together ({COLUMN}), by random numbers.")
    if report.has_groups:
        lines.append(f"{HOME} says which records of {report.source} each number stands for.")
    lines += single
    if report.left_out:
        lines.append(f"Left out of the files, which have records alone: {', '.join(report.left_out)}.")
    by_group = "jaxaudit ks --scores scores.csv --by group"
    command = ["jaxaudit", "ks", "--deal", str(report.out), "--target", "OUTPUTS"]
    if texts:
        files = [str(report.out / f"{name}.jsonl") for name in names]
        request = ["To test a model later (add --baseline, --before):"]
        # With records of a group in both sets, there is no test of whole groups.
        then = by_group if units.within or by_scores else by_group.removesuffix(" --by group")
        commands = [shlex.join(["jaxaudit", "scores", "lm", "MODEL", *files, "--out", "scores.csv"]), then]
    elif challenge:
        request = [f"To test a model later, get its outputs on the records of {challenge}:"]
        commands = [shlex.join(command)]
    else:
        request = [
            "To test a model later, get its outputs on the records of each file, as arrays",
            f"{', '.join(names[:-1])} and {names[-1]} of one .npz or as files of these names in one folder:",
        ]
        # Without known members only the model before a deletion tells what a model remembers.
        commands = [shlex.join(command if "members" in sides else [*command, "--before", "OUTPUTS_BEFORE"])]
    lines += ["", *request, "", *(f"  {words}" for words in commands)]
    if units.within and not texts:
        lines += ["", f"For a verdict on each group, a table of scores with the column {COLUMN}:", "", f"  {by_group}"]
    return Summary(tuple(lines))


def _dealt(report: DealReport, at_home: Sequence[str] = ()) -> list[str]:
    """The sides, and who may have which file; `at_home` are further files that stay there."""
    sides, units = report.sides, report.units

    def counted(side: DealSide) -> str:
        return f"{len(side.rows):,} records" + (f" in {side.groups:,} groups" if units.written else "")

    end = sides["query"].file.removeprefix("query")
    lines = [f"Dealt the records of {report.source} at random."]
    lines += [f"  {LABELS[name]}: {counted(side)} ({report.out / side.file})" for name, side in sides.items()]
    if units.copied:
        lines.append(
            f"  copies: {units.copied:,} records are copies of others; copies were dealt together, as one group"
        )
    lines.append("")
    if "members" in sides:
        lines += [
            f"For the company that trains: query{end} and members{end}. "
            "The query set is to be withdrawn later, and the",
            "members are to stay in training.",
        ]
    else:
        lines.append(f"For the company that trains: query{end}.")
    holdout = [f"holdout{end}"] if "holdout" in sides else []
    *before, last = [*holdout, *at_home, *([HOME] if report.has_groups else []), DEAL_RECORD]
    kept = f"At home: {', '.join(before)} and {last}" if before else f"At home: {last}"
    if holdout:
        lines.append(f"{kept}. Nobody may ever train on the holdout.")
    else:
        lines += [
            f"{kept}, and the holdout: put the holdout{end} of the earlier deal beside query{end}, records of",
            "the same provider that were kept.",
        ]
    return [
        *lines,
        f"{DEAL_RECORD} has the seed, which repeats the deal: keep it until the deal must be shown. Only its",
        "SHA-256 may be published now.",
    ]
