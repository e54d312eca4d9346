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
from typing import IO, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int, Shaped

from jaxaudit.audits.ks.by_group import MOST_PERMUTATIONS, MOST_TESTS, holdout_groups_needed, records_a_set_needed
from jaxaudit.cli.deal import LEAST_BLIND, SEED_BITS, DealOptions
from jaxaudit.cli.deal.source import RecordSource, TextSource, read_source, read_text_source
from jaxaudit.cli.parsers import is_texts
from jaxaudit.cli.show import Summary
from jaxaudit.data.deals import (
    CHALLENGE,
    DEAL_RECORD,
    HOME,
    KEY,
    file_hash,
    group_numbers,
    key_as_json,
    read_key,
    record_order,
)
from jaxaudit.data.deals import Key as DealKey
from jaxaudit.data.examples import Role
from jaxaudit.data.labels import COLUMN, number_groups
from jaxaudit.errors import InputError
from jaxaudit.metrics.deal import deal_holdout, deal_members, deal_within, merge_groups
from jaxaudit.metrics.score_tests import counted_deals
from jaxaudit.metrics.usage import ALPHA
from jaxaudit.randomness import OneKey, generator_of, stream
from jaxaudit.runs.directory import Writer, new_directory, write_files
from jaxaudit.version import __version__


def deal_records(options: DealOptions) -> Summary:
    """Deals the records or texts that the options name, and writes every side."""
    # 256 bits of the system's entropy, whatever the seed: from a commitment nobody can find a seed by trying.
    out, salt = options.out, secrets.token_hex(32)
    source = (read_text_source if is_texts(options.data) else read_source)(options)
    units = dealt_units(source.groups, source.copies, within=options.by is not None)
    # Without --seed one that nobody can guess.
    seed = LEAST_BLIND + secrets.randbelow(2**SEED_BITS - LEAST_BLIND) if options.seed is None else options.seed
    key = key_of_deal(seed, options)
    sides = {name: np.flatnonzero(row) for name, row in draw_deal(key, options, units).items()}
    source.refuse_telling(units.written)
    source, numbers = source.as_written(sides.values()), None
    deal = DealtSides(source, units, sides, seed)
    if units.written:
        # A number tells nothing, neither of the group's value nor of its place in the file.
        numbers = (
            group_numbers(salt, units.count, NUMBERS)[units.of_record]
            if options.blind
            else units.random_group_numbers(key)
        )
    files = {deal.file(name): source.writer(side, numbers) for name, side in sides.items()}
    challenge = f"{CHALLENGE}{source.suffix}" if options.blind else ""
    if isinstance(source, RecordSource) and challenge:
        files[challenge] = source.challenge(salt)

    def record(file: IO[bytes]) -> None:
        for name, side in sides.items():
            source.refuse_changed(draft / deal.file(name), side)
        write_record(file, options, deal, draft)

    # The record is written after the sides, and a key last: they have the hashes of the others.
    files[DEAL_RECORD] = record
    with new_directory(out) as draft:
        if challenge:
            files[KEY] = key_writer(draft, [*files], salt, deal)
        if source.groups is not None and numbers is not None:
            files[HOME] = home_writer(numbers.tolist())
        write_files(draft, files)
    return summary(out, deal, challenge)


NUMBERS = 2**53
"""Groups get random numbers below this: groups of two deals get different ones, and a float has each exactly."""
ONE_EACH = (
    "WARNING: every group has one record. Is that the key of what records have in common, such as their author, and",
    "not a number of each record? Deal again by that key; if records have nothing in common, leave the groups out.",
)
ASK = "`ks --scores --by group`"


class DealtUnits(NamedTuple):
    """The group of each record, from 0 in the order in which they first occur; the number of records that are copies;
    whether the sides say which records belong together, and whether the records of each group are dealt over all sides.
    """

    of_record: Int[np.ndarray, " records"]
    copied: int
    written: bool
    within: bool

    @property
    def whole(self) -> bool:
        """Whether groups are dealt whole."""
        return self.written and not self.within

    @property
    def count(self) -> int:
        """The number of groups."""
        return int(self.of_record.max()) + 1

    def on(self, rows: Int[np.ndarray, " some"]) -> int:
        """The number of groups that these records are of."""
        return len(np.unique(self.of_record[rows]))

    def random_group_numbers(self, key: OneKey) -> Int[np.ndarray, " records"]:
        """A random number for the group of each record, which tells neither the group's value nor its place."""
        return generator_of(stream(key, "numbers")).choice(NUMBERS, self.count, replace=False)[self.of_record]


class DealtSides(NamedTuple):
    """A source that was dealt by a seed: the rows of each side, by its name."""

    source: RecordSource | TextSource
    units: DealtUnits
    sides: Mapping[str, Int[np.ndarray, " some"]]
    seed: int

    def file(self, side: str) -> str:
        """The name of the file of a side."""
        return f"{side}{self.source.suffix}"


def dealt_units(
    values: Shaped[np.ndarray, " records"] | None, hashes: Shaped[np.ndarray, " records"], *, within: bool
) -> DealtUnits:
    """The units of a deal, by the group of each record, if it has one, and a hash that equal records share."""
    copied = len(hashes) - len(np.unique(hashes))
    if within and copied:
        raise InputError(
            f"{copied:,} records are copies of others, and --by could put one text on two sides: a copy hides use. "
            "Leave out all but one of each, or deal whole groups (--groups)."
        )
    # Records that belong to nobody need no groups, and the test of records finds more.
    written = values is not None or copied > 0
    groups = np.arange(len(hashes)) if values is None else values
    return DealtUnits(number_groups(groups if within else merge_groups(groups, hashes)), copied, written, within)


def draw_deal(key: OneKey, options: DealOptions, units: DealtUnits) -> dict[str, Bool[np.ndarray, " records"]]:
    """Deals records at random: True for the records of each side (`query`, `members`, `holdout`), by its name."""
    key, count, groups = stream(key, "deal"), len(units.of_record), units.of_record if units.whole else None
    if options.withdraw is not None:
        drawn = deal_holdout(key, count, options.withdraw, groups)
        return {"query": drawn, "members": ~drawn}
    share = options.members_share
    if units.within:
        drawn, members = deal_within(key, units.of_record, options.held, share or 0.0)
    else:
        drawn = deal_holdout(key, count, options.held, groups)
        members = np.zeros(count, bool) if share is None else deal_members(key, drawn, share, groups)
    stay = {} if share is None else {"members": members}
    return {"query": ~(drawn | members), **stay, "holdout": drawn}


def single_groups(units: DealtUnits, rows: Mapping[str, np.ndarray]) -> tuple[tuple[str, ...], bool]:
    """What to say of single groups of the query set, and whether scores would name any of them, each on its own.

    At 5%, adjusted for all groups, of one target. Nothing is said without a holdout. `rows` is of each side.
    """
    if "holdout" not in rows:
        return (), False
    query, holdout = (np.bincount(units.of_record[rows[side]], minlength=units.count) for side in ("query", "holdout"))
    groups, held = int((query > 0).sum()), int((holdout > 0).sum())
    counted = f"{groups:,} group{'' if groups == 1 else 's'}"
    adjusted = f"(5%, adjusted for {counted} of one model)"
    if units.within:
        sizes = zip(query.tolist(), holdout.tolist(), strict=True)
        can_be_named = sum(counted_deals(q, h, MOST_PERMUTATIONS) * ALPHA >= groups for q, h in sizes)
        needed = records_a_set_needed(groups)
        rest = f"{needed:,} records of a group in query set and in holdout are enough."
        if can_be_named < groups:
            rest = f"Enough are {needed:,} records of a group in query set and in holdout each."
        if groups > MOST_TESTS:
            rest = f"P-values can be adjusted for at most {MOST_TESTS:,} groups: deal fewer of them."
        able = "each" if can_be_named == groups else f"{can_be_named:,}"
        return (f"Single groups: {ASK} can name {able} of {counted} {adjusted}.", rest), can_be_named > 0
    needed = holdout_groups_needed(groups)
    enough = held >= needed
    lines = (
        f"Single groups: to name one of {counted} {adjusted}, {ASK}",
        f"needs {needed:,} groups in the holdout, and there are {held:,}: "
        f"{'enough' if enough else 'none can be named'}.",
        *(() if enough else ("Is it single ones you ask about? --by in place of --groups deals for that.",)),
    )
    if units.count < len(units.of_record):
        return lines, enough
    # A deal of records within groups would name none of them either.
    return (*ONE_EACH, *(lines if enough else ())), enough


def home_writer(numbers: Sequence[int]) -> Writer:
    """Writes which records of the source, from 1, each random number stands for. Two people who share a copy are one
    group: all of its records are there, so that nobody is taken for another one.
    """
    records = dict[int, list[int]]()
    for record, number in enumerate(numbers, 1):
        records.setdefault(number, []).append(record)

    def save(file: IO[bytes]) -> None:
        rows = (f"{number},{' '.join(map(str, places))}\n" for number, places in records.items())
        file.write("".join(("group,records\n", *rows)).encode())

    return save


def key_writer(out: Path, names: list[str], salt: str, deal: DealtSides) -> Writer:
    """Writes the key of a blind deal. The files `names` in `out` are written before: the key has their hashes."""
    places = np.argsort(record_order(salt, len(deal.units.of_record)))
    rows = {Role(name): places[side].tolist() for name, side in deal.sides.items()}

    def save(file: IO[bytes]) -> None:
        key = DealKey(
            salt=salt,
            seed=deal.seed,
            groups=deal.units.whole,
            label=deal.source.label,
            files={name: file_hash(out / name) for name in names},
            rows=rows,
        )
        file.write(key_as_json(key))

    return save


SCHEMA = "jaxaudit.deal/1"
SIDES = ("query", "members", "holdout")


def key_of_deal(seed: int, options: DealOptions) -> OneKey:
    """The key of a deal: of all 64 bits of its seed, since `jax.random.key` keeps 32, few enough to try them all."""
    key = jax.random.wrap_key_data(jnp.array([seed >> 32, seed & 0xFFFFFFFF], jnp.uint32), impl="threefry2x32")
    return key if options.withdraw is None else stream(key, "withdraw")


def write_record(file: IO[bytes], options: DealOptions, deal: DealtSides, out: Path) -> None:
    """Writes what documents a deal, as JSON; a side's `membership` is the SHA-256 of its records' hashes, in order."""
    units, hashes = deal.units, deal.source.hashes
    sides = {
        name: {
            "file": deal.file(name),
            "records": len(side),
            "groups": units.on(side),
            "sha256": file_hash(out / deal.file(name)),
            "membership": hashlib.sha256(hashes[side].tobytes()).hexdigest(),
        }
        for name, side in deal.sides.items()
    }
    facts = {
        "schema": SCHEMA,
        "seed": deal.seed,
        "holdout_share": options.held if options.withdraw is None else None,
        "members_share": options.members_share,
        "withdraw": options.withdraw,
        "by_groups": units.whole,
        "within_groups": units.within,
        "copies": units.copied,
        "source": {**deal.source.facts, "records": len(hashes), "groups": units.count},
        **dict.fromkeys(SIDES),
        **sides,
        "versions": {"jaxaudit": __version__, "python": platform.python_version()}
        | {name: version(name) for name in ("jax", "numpy")},
    }
    file.write((json.dumps(facts, indent=1) + "\n").encode())


def summary(out: Path, deal: DealtSides, challenge: str) -> Summary:
    """What is printed of a deal, with no value of a record; `challenge` is the file of a blind one."""
    source, units, sides, _ = deal
    texts, has_groups = isinstance(source, TextSource), source.groups is not None
    single, by_scores = single_groups(units, sides) if has_groups else ((), False)
    names = [name for name in SIDES if name in sides or name == "holdout"]
    lines = _dealt(out, deal, [*([KEY] if challenge else []), *([HOME] if has_groups else [])])
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


def _dealt(out: Path, deal: DealtSides, at_home: Sequence[str]) -> list[str]:
    """The sides, and who may have which file; `at_home` are further files that stay there."""
    source, units, sides, _ = deal
    query, members, holdout = map(deal.file, SIDES)
    lines = [f"Dealt the records of {source.name} at random."]
    for name, side in sides.items():
        groups = f" in {units.on(side):,} groups" if units.written else ""
        lines.append(f"  {Role(name).words}: {len(side):,} records{groups} ({out / deal.file(name)})")
    if units.copied:
        lines.append(
            f"  copies: {units.copied:,} records are copies of others; copies were dealt together, as one group"
        )
    lines.append("")
    if "members" in sides:
        lines += [
            f"For the company that trains: {query} and {members}. The query set is to be withdrawn later, and the",
            "members are to stay in training.",
        ]
    else:
        lines.append(f"For the company that trains: {query}.")
    files = [*([holdout] if "holdout" in sides else []), *at_home]
    kept = f"At home: {', '.join(files)} and {DEAL_RECORD}" if files else f"At home: {DEAL_RECORD}"
    if "holdout" in sides:
        lines.append(f"{kept}. Nobody may ever train on the holdout.")
    else:
        lines += [
            f"{kept}, and the holdout: put the {holdout} of the earlier deal beside {query}, records of",
            "the same provider that were kept.",
        ]
    return [
        *lines,
        f"{DEAL_RECORD} has the seed, which repeats the deal: keep it until the deal must be shown. Only its",
        "SHA-256 may be published now.",
    ]
