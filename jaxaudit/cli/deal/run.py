"""Runs `jaxaudit deal`: reads records, deals them, and writes both sides with the record of the deal."""

import hashlib
import json
import platform
import shlex
import zipfile
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, NamedTuple

import jax
import numpy as np

from jaxaudit.cli.deal.command import DealOptions
from jaxaudit.cli.show import show_text
from jaxaudit.data import Examples, load
from jaxaudit.data.formats.arrays import NpzArrays
from jaxaudit.data.formats.named_arrays import CLASS_NAMES, find_pairs
from jaxaudit.data.groups import COLUMN, groups_file, load_groups, numbered
from jaxaudit.data.paths import open_data
from jaxaudit.data.tfds.tfds import file_and_split
from jaxaudit.errors import InputError, visible
from jaxaudit.metrics.deal import deal, joined
from jaxaudit.places import without_folders
from jaxaudit.randomness import stream
from jaxaudit.runs.directory import claim, write_files
from jaxaudit.version import __version__

SCHEMA = "jaxaudit.deal/1"
RECORD, QUERY, HOLDOUT = "deal.json", "query.npz", "holdout.npz"


class Source(NamedTuple):
    """The provider's records.

    Attributes:
        examples: as every command reads them.
        arrays: as they are written; of a `.npz` its own.
        split: names of the arrays with one row per record.
        path: the file, if it is one.
    """

    examples: Examples
    arrays: Mapping[str, np.ndarray]
    split: frozenset[str]
    path: Path | None


class Side(NamedTuple):
    """One side of a deal."""

    file: str
    rows: np.ndarray
    groups: int


def run(options: DealOptions) -> None:
    """Deals the records and writes both sides.

    Raises:
        InputError: the data or groups cannot be used, or the directory contains something or cannot be written.
    """
    data, groups, data_dir = options.data.data, options.data.groups, options.data.data_dir
    share, seed, out = options.deal.holdout_share, options.deal.seed, options.output.out
    claim(out)
    # A column with groups is no input.
    source = _read(data, data_dir, [] if groups is None or groups_file(groups) else [groups])
    count = len(source.examples)
    copies = source.examples.record_hashes.view("S16")
    given = np.arange(count) if groups is None else load_groups(groups, data, count, "data", data_dir)
    dealt = numbered(joined(given, copies))
    copied = count - len(np.unique(copies))
    # Records that belong to nobody need no groups, and the test of records finds more.
    whole = groups is not None or copied > 0
    held = deal(stream(jax.random.key(seed), "deal"), count, share, dealt if whole else None)
    arrays, split = dict(source.arrays), set(source.split)
    if whole:
        if COLUMN in arrays and groups != COLUMN:
            raise InputError(
                f"{data} has an array {COLUMN!r}, under which the dealt groups are written: rename it, or deal by it "
                f"(--groups {COLUMN})."
            )
        arrays[COLUMN], split = dealt, {*split, COLUMN}
    sides = {
        name: Side(file, np.flatnonzero(rows), len(np.unique(dealt[rows])))
        for name, file, rows in (("query", QUERY, ~held), ("holdout", HOLDOUT, held))
    }

    def rows_of(side: Side) -> dict[str, np.ndarray]:
        return {name: array[side.rows] if name in split else array for name, array in arrays.items()}

    def record(file: IO[bytes]) -> None:
        facts = {
            "schema": SCHEMA,
            "seed": seed,
            "holdout_share": share,
            "by_groups": whole,
            "copies": copied,
            "source": {
                "name": without_folders(data),
                "records": count,
                "groups": len(np.unique(dealt)),
                "content_hash": source.examples.content_hash,
                "sha256": None if source.path is None else _sha256(source.path),
            },
            **{name: _recorded(side, out, source.examples) for name, side in sides.items()},
            "versions": {"jaxaudit": __version__, "python": platform.python_version()}
            | {name: version(name) for name in ("jax", "numpy")},
        }
        file.write((json.dumps(facts, indent=1) + "\n").encode())

    files = {side.file: _npz(rows_of(side)) for side in sides.values()}
    # The record is written last: it has the hashes of the others.
    write_files(out, {**files, RECORD: record})
    show_text(_summary(data, out, sides, whole, copied))


def _read(data: str, data_dir: Path | None, drop: Sequence[str]) -> Source:
    """The records, and the arrays that hold them; of anything but a `.npz` without splits, inputs and labels."""
    examples = load(data, data_dir=data_dir, drop=drop)
    path, split = file_and_split(data, data_dir)
    file = path if path is not None and split is None and path.is_file() else None
    if file is not None and file.suffix.lower() == ".npz":
        archive = NpzArrays(file)
        if list(find_pairs(archive.names, file.name)) == [None]:
            arrays = {name: archive.read(name) for name in archive.names}
            rows = {name for name, each in arrays.items() if each.shape[:1] == (len(examples),)}
            return Source(examples, arrays, frozenset(rows - set(CLASS_NAMES)), file)
    arrays = {"x": examples.inputs, "y": examples.labels, CLASS_NAMES[0]: np.array(examples.class_names)}
    return Source(examples, arrays, frozenset({"x", "y"}), file)


def _recorded(side: Side, out: Path, examples: Examples) -> dict[str, Any]:
    """`membership` is the SHA-256 of the records' hashes in the file's order (`Examples.record_hashes`)."""
    return {
        "file": side.file,
        "records": len(side.rows),
        "groups": side.groups,
        "sha256": _sha256(out / side.file),
        "membership": hashlib.sha256(examples.record_hashes[side.rows].tobytes()).hexdigest(),
    }


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open_data(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _npz(arrays: Mapping[str, np.ndarray]) -> Callable[[IO[bytes]], None]:
    """Writes arrays as a .npz: the same arrays, the same bytes."""

    def save(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in arrays.items():
                # Without a date of its own a member is of 1980.
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)

    return save


def _summary(data: str, out: Path, sides: Mapping[str, Side], whole: bool, copied: int) -> str:
    def counted(side: Side) -> str:
        return f"{len(side.rows):,} records" + (f" in {side.groups:,} groups" if whole else "")

    query, holdout = sides["query"], sides["holdout"]
    command = ["jaxaudit", "ks", "--query", str(out / QUERY), "--calibration", "CALIBRATION", "--target", "OUTPUTS"]
    command += ["--holdout", str(out / HOLDOUT), "--holdout-target", "HOLDOUT_OUTPUTS"]
    command += ["--groups", COLUMN, "--holdout-groups", COLUMN] if whole else []
    lines = [
        f"Dealt the records of {without_folders(data)} at random.",
        f"  query set: {counted(query)} ({out / QUERY})",
        f"  holdout: {counted(holdout)} ({out / HOLDOUT})",
    ]
    if copied:
        lines.append(f"  copies: {copied:,} records are copies of others; copies were dealt together, as one group")
    lines += [
        "",
        f"Share {QUERY} only. Keep {HOLDOUT} private and never train on it: the test needs records that nobody trained",
        f"on. {RECORD} has hashes and no records: published now, it proves later that the records were dealt so.",
        *((f"{QUERY} tells which records belong together ({COLUMN}): remove that if it is private.",) if whole else ()),
        "",
        "To test a model later, request its outputs on both files, and give a calibration set:",
        "",
        f"  {shlex.join(command)}",
    ]
    return "\n".join(map(visible, lines)) + "\n"
