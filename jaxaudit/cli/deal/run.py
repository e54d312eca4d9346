"""Runs `jaxaudit deal`: deals records, or the lines of a file of texts, writes every side with the record of the deal.

It prints the sides, what may be given to whom, and the command of the later test.
"""

import hashlib
import json
import platform
import secrets
import shlex
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from jaxaudit.cli.deal import LEAST_BLIND, SEED_BITS, DealFlags, DealOptions
from jaxaudit.cli.deal.source import (
    NUMBERS,
    DealSide,
    DealtUnits,
    RecordSource,
    TextSource,
    dealt_units,
    draw_deal,
    home_writer,
    key_writer,
    read_source,
    read_text_source,
    single_groups,
)
from jaxaudit.cli.parsers import is_texts
from jaxaudit.cli.show import Summary
from jaxaudit.data.deals import CHALLENGE, DEAL_RECORD, HOME, KEY, file_hash, group_numbers, read_key
from jaxaudit.data.labels import COLUMN
from jaxaudit.randomness import stream
from jaxaudit.runs.directory import new_directory, write_files
from jaxaudit.version import __version__


def deal_records(options: DealOptions) -> Summary:
    """Deals the records or texts that the options name, and writes every side."""
    # 256 bits of the system's entropy, whatever the seed: from a commitment nobody can find a seed by trying.
    how, out, salt = options.deal, options.out, secrets.token_hex(32)
    source = (read_text_source if is_texts(options.data.data) else read_source)(options.data)
    units = dealt_units(source.groups, source.copies, within=options.data.by is not None)
    seed = seed_of(how)
    key = key_of_deal(seed, how)
    rows = draw_deal(key, how, units)
    source.refuse_telling(units)
    source, numbers = source.as_written(rows.values()), None
    if units.written:
        # A number tells nothing, neither of the group's value nor of its place in the file.
        drawn = group_numbers(salt, units.count, NUMBERS)[units.of_record] if how.blind else units.random_numbers(key)
        numbers = drawn
    sides = {
        name: DealSide(f"{name}{source.suffix}", np.flatnonzero(row), units.on(np.flatnonzero(row)))
        for name, row in rows.items()
    }
    files = {side.file: source.writer(side.rows, numbers) for side in sides.values()}
    challenge = f"{CHALLENGE}{source.suffix}" if how.blind else ""
    if isinstance(source, RecordSource) and challenge:
        files[challenge] = source.challenge(salt)

    def record(file: IO[bytes]) -> None:
        for side in sides.values():
            source.refuse_changed(draft / side.file, side.rows)
        write_record(file, how, seed, units, source, draft, sides)

    # The record is written after the sides, and a key last: they have the hashes of the others.
    files[DEAL_RECORD] = record
    with new_directory(out) as draft:
        if challenge:
            files[KEY] = key_writer(draft, [*files], salt, seed, units, sides, source.label)
        if source.groups is not None and numbers is not None:
            files[HOME] = home_writer(numbers.tolist())
        write_files(draft, files)
    return summary(out, source, sides, units, challenge)


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
    source: RecordSource | TextSource,
    out: Path,
    sides: Mapping[str, DealSide],
) -> None:
    """Writes what documents a deal, as JSON; a side's `membership` is the SHA-256 of its records' hashes, in order."""
    hashes = source.hashes

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
        "source": {**source.facts, "records": len(hashes), "groups": units.count},
        **dict.fromkeys(("query", "members", "holdout")),
        **{name: recorded(side) for name, side in sides.items()},
        "versions": {"jaxaudit": __version__, "python": platform.python_version()}
        | {name: version(name) for name in ("jax", "numpy")},
    }
    file.write((json.dumps(facts, indent=1) + "\n").encode())


LABELS = {"query": "query set", "members": "members", "holdout": "holdout"}


def summary(
    out: Path, source: RecordSource | TextSource, sides: Mapping[str, DealSide], units: DealtUnits, challenge: str
) -> Summary:
    """What is printed of a deal, with no value of a record; `challenge` is the file of a blind one."""
    texts, has_groups = isinstance(source, TextSource), source.groups is not None
    rows = {of: side.rows for of, side in sides.items()}
    single, by_scores = single_groups(units, rows) if has_groups else ((), False)
    names = [name for name in LABELS if name in sides or name == "holdout"]
    lines = _dealt(out, source, sides, units, [*([KEY] if challenge else []), *([HOME] if has_groups else [])])
    if challenge:
        lines += [
            f"To ask for outputs later: {challenge}. It has all these records in a random order, without labels",
            "or groups. Send it to whoever holds the model, and get one file of outputs in its order.",
            f"Commitment of {KEY}, a SHA-256 to publish before the outputs arrive:",
            f"  {read_key(out / KEY).committed}",
            "Nobody can change afterwards which record is of which set: `jaxaudit ks` recomputes the",
            f"commitment, and {KEY} says how anybody can, once it is shown.",
        ]
    if units.written:
        lines.append(f"The files tell which records belong together ({COLUMN}), by random numbers.")
    if has_groups:
        lines.append(f"{HOME} says which records of {source.name} each number stands for.")
    lines += single
    if source.left_out:
        lines.append(f"Left out of the files, which have records alone: {', '.join(source.left_out)}.")
    by_group = "jaxaudit ks --scores scores.csv --by group"
    command = ["jaxaudit", "ks", "--deal", str(out), "--target", "OUTPUTS"]
    if texts:
        files = [str(out / f"{name}.jsonl") for name in names]
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


def _dealt(
    out: Path,
    source: RecordSource | TextSource,
    sides: Mapping[str, DealSide],
    units: DealtUnits,
    at_home: Sequence[str],
) -> list[str]:
    """The sides, and who may have which file; `at_home` are further files that stay there."""

    def counted(side: DealSide) -> str:
        return f"{len(side.rows):,} records" + (f" in {side.groups:,} groups" if units.written else "")

    end = source.suffix
    lines = [f"Dealt the records of {source.name} at random."]
    lines += [f"  {LABELS[name]}: {counted(side)} ({out / side.file})" for name, side in sides.items()]
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
    *before, last = [*holdout, *at_home, DEAL_RECORD]
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
