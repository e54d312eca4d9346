"""`Examples`, labelled records with a content hash, and `Sets`, one value for each role of a set in an audit.

What an audit holds of the sets (records, a target's outputs, numbers of records) is one `Sets`, from the public
functions, whose keyword arguments are the roles, to the tests.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Generic, TypeVar

import numpy as np
from jaxtyping import Int, Shaped

from jaxaudit.data.labels import join_groups, number_groups
from jaxaudit.errors import InputError, refuse_wrong
from jaxaudit.json_types import hash_of


@dataclass(frozen=True, eq=False)
class Examples:
    """Labelled records on the host.

    Attributes:
        inputs: `[n, ...]`, one record per row; `uint8` or `uint16` images as stored, or `float32` after preprocessing.
        labels: `int32[n]`, indices into `class_names`. `name`: for tables and messages.
        notes: what was guessed or left out when the set was read, one line each.
        titles: the names of the columns of inputs from a table; else empty.
        groups: `[n]`, the group of each record, such as its patient, if whole groups were dealt: an integer or text.
            Equal values are one group, in all sets. The content hash does not depend on them.
        words: of a table, for each of its columns in order, the distinct words, which inputs hold as numbers; none of a
            column of numbers. A missing word is empty.
        gaps: of a table, the names of the columns in which inputs are NaN where a cell is empty. No network learns it.

    Guarantees: the arrays agree in length, are finite but for `gaps`, every label is a valid class index and there is
    at least one record; else an `InputError`. The arrays are read-only, so a computed hash stays valid.

    >>> import numpy as np
    >>> Examples(np.zeros((2, 3), np.float32), np.array([0, 1]), ("no", "yes"), "tiny")
    Examples(tiny: 2 records of shape (3,), 2 classes)
    """

    inputs: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...]
    name: str
    notes: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()
    groups: Shaped[np.ndarray, " n"] | None = None
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    gaps: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        inputs, labels = np.asarray(self.inputs), np.asarray(self.labels)
        outside = labels[(labels < 0) | (labels >= len(self.class_names))] if labels.dtype.kind in "iu" else labels
        allowed = np.isnan(inputs) if self.gaps else False
        finite = not np.issubdtype(inputs.dtype, np.floating) or bool((np.isfinite(inputs) | allowed).all())
        refuse_wrong(
            f"{self.name}: ",
            ("there are no records; an audit needs at least one. Is the file empty?", len(inputs) == 0),
            (
                f"{len(inputs)} inputs but {labels.dtype} labels of shape {labels.shape}; give one integer label for "
                "each input, in the same order.",
                labels.shape != (len(inputs),) or labels.dtype.kind not in "iu",
            ),
            (
                f"{len(outside)} labels are outside the {len(self.class_names)} classes; labels start at 0.",
                len(outside) > 0,
            ),
            ("records contain NaN or infinite values; clean or drop them first.", not finite),
            (
                "two classes have one name; give every class its own name.",
                len(set(self.class_names)) < len(self.class_names),
            ),
        )
        if self.groups is not None:
            groups = np.asarray(self.groups)
            if groups.shape != labels.shape:
                raise InputError(
                    f"{self.name}: groups have shape {groups.shape}, but there are {len(inputs)} records; give one "
                    "integer or text for each."
                )
            object.__setattr__(self, "groups", groups)
        inputs, labels = inputs.view(), labels.astype(np.int32)
        inputs.flags.writeable = labels.flags.writeable = False
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "labels", labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return (
            f"Examples({self.name}: {len(self)} records of shape {self.inputs.shape[1:]}, "
            f"{len(self.class_names)} classes)"
        )

    def take(self, indices: np.ndarray | slice, name: str | None = None) -> "Examples":
        """The records at `indices`, in that order."""
        groups = None if self.groups is None else self.groups[indices]
        return replace(
            self, inputs=self.inputs[indices], labels=self.labels[indices], name=name or self.name, groups=groups
        )

    @cached_property
    def record_hashes(self) -> np.ndarray:
        """`V16[n]`: a 128-bit BLAKE2b digest of every record's input: its shape, type and values, not its label."""
        return _hash_rows(self.inputs)

    @cached_property
    def content_hash(self) -> str:
        """`blake2b:...` over records, labels and class names, in order: the same data give the same hash."""
        names = "\0".join(self.class_names).encode()
        return hash_of([self.record_hashes.tobytes(), self.labels.astype("<i4").tobytes(), names])


def _hash_rows(inputs: np.ndarray) -> np.ndarray:
    inputs = inputs.astype(inputs.dtype.newbyteorder("<"), copy=False)
    prefix = hashlib.blake2b(f"{inputs.dtype.str}{inputs.shape[1:]}".encode(), digest_size=16)
    digests = np.empty(len(inputs), "V16")
    step = max(1, 2**24 // max(1, inputs[0].nbytes))
    for start in range(0, len(inputs), step):
        part = np.ascontiguousarray(inputs[start : start + step])
        rows = part.reshape(len(part), -1)
        if rows.dtype.kind == "f":
            # -0.0 equals 0.0 but has a different byte pattern.
            rows = rows + rows.dtype.type(0)
        for i, row in enumerate(rows, start):
            digest = prefix.copy()
            digest.update(row.data)
            digests[i] = digest.digest()
    return digests


def concatenate(parts: Sequence[Examples], name: str) -> Examples:
    """All records of `parts`, in order, which must agree in record shape, number type, classes, and names of columns
    where they have any.

    Groups are numbered from 0 as they first occur; a record of a part without groups is its own group.
    """
    first, titles = parts[0], next((part.titles for part in parts if part.titles), ())
    for part in parts:
        for property_name, part_value, ours in (
            ("the shape of records", part.inputs.shape[1:], first.inputs.shape[1:]),
            ("the type of numbers", part.inputs.dtype, first.inputs.dtype),
            ("classes, or their order", part.class_names, first.class_names),
            ("columns, or their order", part.titles or titles, titles),
        ):
            if part_value != ours:
                values_text = "" if property_name.endswith("order") else f" ({part_value} and {ours})"
                raise InputError(
                    f"{part.name} and {first.name} differ in {property_name}{values_text}; make both alike first."
                )
    titles = titles if all(part.titles for part in parts) else ()
    columns = first.words if titles else ()
    return Examples(
        np.concatenate([part.inputs for part in parts]),
        np.concatenate([part.labels for part in parts]),
        first.class_names,
        name,
        tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        titles,
        _groups_of_all(parts),
        {
            column: tuple(dict.fromkeys(word for part in parts for word in part.words.get(column, ())))
            for column in columns
        },
        gaps_of(parts),
    )


def gaps_of(parts: Sequence[Examples]) -> tuple[str, ...]:
    """The columns in which any of these has gaps."""
    return tuple(dict.fromkeys(name for part in parts for name in part.gaps))


def joined(parts: Sequence[Examples], name: str) -> Examples:
    """The records of `parts` one after another."""
    return parts[0].take(slice(None), name) if len(parts) == 1 else concatenate(parts, name)


def _groups_of_all(parts: Sequence[Examples]) -> Int[np.ndarray, " n"] | None:
    values = [part.groups for part in parts if part.groups is not None]
    if not values:
        return None
    has_group = np.concatenate([np.full(len(part), part.groups is not None) for part in parts])
    groups = len(has_group) + np.arange(len(has_group))
    groups[has_group] = join_groups(values)
    return number_groups(groups)


Value = TypeVar("Value")
Changed = TypeVar("Changed")


class Role(StrEnum):
    """The role of a set of records. The value is its key in files and results, and its keyword argument.

    Attributes:
        QUERY: the records in question.
        CALIBRATION: data of the same domain without any query record, on which shadow models are trained.
        HOLDOUT: records of the query set's provider that the target was not trained on.
        MEMBERS: known members: records that the target was trained on, sampled as the query set was.
    """

    QUERY = "query"
    CALIBRATION = "calibration"
    HOLDOUT = "holdout"
    MEMBERS = "members"

    @property
    def words(self) -> str:
        """The set's name in messages."""
        return {Role.QUERY: "query set", Role.CALIBRATION: "calibration set"}.get(self, self.value)


class Sets(Mapping[Role, Value], Generic[Value]):
    """One value for each role that is present, in the order of `Role`.

    >>> sizes = Sets(query=300, holdout=200, members=None)
    >>> sizes[Role.QUERY], sizes.get(Role.MEMBERS), Role.HOLDOUT in sizes, sum(sizes.values())
    (300, None, True, 500)
    >>> sizes | Sets(holdout=250)
    Sets(query=300, holdout=250)
    """

    def __init__(
        self,
        *,
        query: Value | None = None,
        calibration: Value | None = None,
        holdout: Value | None = None,
        members: Value | None = None,
    ) -> None:
        values = (query, calibration, holdout, members)
        present = {role: value for role, value in zip(Role, values, strict=True) if value is not None}
        self._values: Mapping[Role, Value] = MappingProxyType(present)

    def __getitem__(self, role: Role) -> Value:
        return self._values[role]

    def __iter__(self) -> Iterator[Role]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Sets({', '.join(f'{role}={value!r}' for role, value in self.items())})"

    def __or__(self, other: "Sets[Value]") -> "Sets[Value]":
        return Sets(**{**self, **other})

    def map(self, function: Callable[[Role, Value], Changed | None]) -> "Sets[Changed]":
        """The results of a function of role and value; a role whose result is None is absent."""
        return Sets(**{role: function(role, value) for role, value in self.items()})

    def only(self, *roles: Role) -> "Sets[Value]":
        """The values of these roles."""
        return Sets(**{role: value for role, value in self.items() if role in roles})
