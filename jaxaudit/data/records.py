"""`Records`: records of one or several arrays that may be larger than memory, with labels.

Several arrays are packed side by side as one, in float32, a slice at a time as they are read from a mapped file, and
taken apart again by name where the module is called. So everything between file and module knows one array.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxaudit.data.formats.arrays import NpzArrays, StoredArray
from jaxaudit.data.memory import MAX_BYTES, refuse_larger
from jaxaudit.data.paths import entries, expanded
from jaxaudit.data.selection import CLASS_NAMES, role_of
from jaxaudit.errors import InputError
from jaxaudit.json_types import hash_of

LARGEST_WHOLE = 2**24
"""Whole numbers above this cannot all be represented in 32 bits."""
AT_ONCE = 1024
BLOCK = 32 * 2**20


class Field(NamedTuple):
    """One array of a record: its name, its shape, and whether its numbers are whole (such as those of tokens)."""

    name: str
    shape: tuple[int, ...]
    whole: bool


@dataclass(frozen=True, eq=False)
class Records:
    """Labelled records on the host, read from disk on access: arrays `[n, ...]` by name, and labels `[n]`.
    `by_name`: a network gets the arrays by their names; else there is a single one.
    """

    arrays: Mapping[str, np.ndarray | StoredArray]
    labels: np.ndarray
    name: str
    by_name: bool = True

    def __post_init__(self) -> None:
        lengths = {name: len(array) if array.ndim else 0 for name, array in self.arrays.items()}
        labels = len(self.labels) if self.labels.ndim else 0
        if not lengths or not labels or set(lengths.values()) != {labels}:
            counts_text = ", ".join(f"{name}: {count}" for name, count in lengths.items()) or "no array"
            raise InputError(
                f"{self.name}: there are {labels} labels, and records of {counts_text}; each array needs one row for "
                "each of at least one record."
            )
        for name, array in {**self.arrays, "labels": self.labels}.items():
            # Long doubles: their size depends on the machine, and some of their bytes are undefined.
            if array.dtype.kind not in "biuf" or (array.dtype.kind == "f" and array.dtype.itemsize > 8):
                raise InputError(
                    f"{self.name}: {name} has values of type {array.dtype}; give numbers of up to 64 bits."
                )
        numbers = prod(self.inputs.shape[1:])
        refuse_larger(f"{self.name}, {AT_ONCE:,} records", AT_ONCE * 4 * numbers, MAX_BYTES, "give smaller records")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def fields(self) -> tuple[Field, ...] | None:
        """What a record consists of, for a network that gets arrays by name."""
        return self.parts if self.by_name else None

    @property
    def parts(self) -> tuple[Field, ...]:
        return tuple(Field(name, array.shape[1:], array.dtype.kind != "f") for name, array in self.arrays.items())

    @property
    def inputs(self) -> "Packed":
        """The array, or all arrays side by side, `[n, numbers]`; in float32, read a slice at a time."""
        return Packed(self)

    @cached_property
    def content_hash(self) -> str:
        """`blake2b:...` over all arrays and labels; reads everything once."""

        def contents() -> Iterator[bytes | memoryview]:
            for name, array in sorted({**self.arrays, "": self.labels}.items()):
                yield f"{name}\0{array.dtype.newbyteorder('<').str}{array.shape}\0".encode()
                step = max(1, BLOCK // max(1, prod(array.shape[1:]) * array.dtype.itemsize))
                for start in range(0, len(array), step):
                    block = array[start : start + step]
                    yield np.ascontiguousarray(block, block.dtype.newbyteorder("<")).data

        return hash_of(contents())


@dataclass(frozen=True, eq=False)
class Packed:
    """The arrays of some records side by side; only what a slice reads is in memory."""

    records: Records

    @property
    def shape(self) -> tuple[int, ...]:
        parts = self.records.parts
        one = (sum(prod(field.shape) for field in parts),) if self.records.by_name else parts[0].shape
        return len(self.records), *one

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.float32)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, rows: slice) -> np.ndarray:
        parts = []
        for field, array in zip(self.records.parts, self.records.arrays.values(), strict=True):
            part = array[rows]
            if field.whole and part.size and np.abs(part.astype(np.int64)).max() >= LARGEST_WHOLE:
                raise InputError(f"{self.records.name}: {field.name} has whole numbers of {LARGEST_WHOLE:,} or more.")
            if not field.whole and not np.isfinite(part).all():
                raise InputError(f"{self.records.name}: {field.name} has NaN or infinite values; drop these records.")
            parts.append(part.reshape(len(part), -1).astype(np.float32))
        joined = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
        return joined.reshape(-1, *self.shape[1:])


def unpack_records(fields: tuple[Field, ...], packed: Any, whole: Any) -> dict[str, Any]:
    """The arrays of records by name, from packed arrays of any library; `whole(array)` converts to integers."""
    arrays, start = {}, 0
    for field in fields:
        end = start + prod(field.shape)
        part = packed[:, start:end].reshape(len(packed), *field.shape)
        arrays[field.name], start = whole(part) if field.whole else part, end
    return arrays


def open_records(path: str | Path) -> Records | None:
    """The records in a .npz file or a folder of .npy files, opened but not read; None for anything else. Labels have a
    usual name (y, labels, target); an array x, inputs or images is the records, else all others but `class_names` are.
    """
    path = expanded(path)
    arrays = _stored_arrays(path)
    if arrays is None:
        return None
    roles = {name: role_of(name) for name in arrays}
    labels = [name for name, role in roles.items() if role == ("", "labels")]
    if len(labels) != 1:
        array_names = ", ".join(map(repr, list(arrays)[:10]))
        raise InputError(
            f"{path.name}: found {len(labels)} arrays of labels among {array_names}; name one of them y or labels."
        )
    refuse_larger(f"{path.name}, {labels[0]}", arrays[labels[0]].nbytes, MAX_BYTES, "give fewer records")
    inputs = [name for name, role in roles.items() if role == ("", "inputs")]
    chosen = inputs[:1] or [name for name in arrays if name not in (*labels, *CLASS_NAMES)]
    return Records({name: arrays[name] for name in chosen}, arrays[labels[0]][:], path.name, not inputs)


def must_be_opened(path: Path) -> bool:
    """Whether a .npz or a folder of .npy has labels and no array of the usual name for inputs, or exceeds memory."""
    try:
        if path.is_dir():
            sizes = {file.stem: file.stat().st_size for file in _npy_files(path)}
        else:
            sizes = NpzArrays(path, opened=True).sizes
    except (InputError, OSError):
        return False  # whoever reads it says what is wrong
    roles = [role_of(name) for name in sizes]
    several = ("", "labels") in roles and not any(role and role[1] == "inputs" for role in roles)
    return several or (("", "inputs") in roles and sum(sizes.values()) > MAX_BYTES)


def _stored_arrays(path: Path) -> dict[str, np.ndarray | StoredArray] | None:
    """The arrays by name; compressed arrays of a .npz (`np.savez_compressed`) are unpacked into memory."""
    if path.is_file() and path.suffix.lower() == ".npz":
        archive = NpzArrays(path, opened=True)
        return {name: archive.open(name) for name in archive.names}
    files = _npy_files(path) if path.is_dir() else []
    return {file.stem: StoredArray(file, links=True) for file in files} or None


def _npy_files(folder: Path) -> list[Path]:
    return [entry for entry in entries(folder) if entry.suffix.lower() == ".npy" and not entry.name.startswith(".")]
