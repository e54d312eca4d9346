"""`NAME[@SPLIT]`: parses the selected part of a data set, and selects it."""

import difflib
import re
from collections.abc import Callable, Sequence, Sized
from typing import NamedTuple, TypeVar

from jaxaudit.errors import InputError, MissingSplit

Whole = TypeVar("Whole", bound=Sized)
# No set has more records than 18 digits can count, and Python rejects numbers of thousands of digits.
_BOUND = r"\s*(-?\d{1,18}%?)?\s*"
_PART = re.compile(rf"\s*([\w.\-]+)\s*(?:\[{_BOUND}:{_BOUND}\])?\s*")
_HOW = "write a split or a slice of one (train, train[:1000], train[1000:2000], train[:10%]), joined by '+'"


class Part(NamedTuple):
    """One split or a slice of it, with its bounds as written: record numbers, percentages, or empty."""

    split: str
    start: str = ""
    stop: str = ""

    def span(self, records: int, name: str) -> range:
        """The record numbers of this part in a split of `records` records.

        Raises:
            InputError: the slice is empty or reaches outside the split; `name` says of which set.

        >>> Part("train", "", "10%").span(255, "mnist")
        range(0, 26)
        """
        start = _position(self.start, records) if self.start else 0
        stop = _position(self.stop, records) if self.stop else records
        if not (0 <= start <= records and 0 <= stop <= records):
            raise InputError(
                f"{name}: `{self}` reaches outside the {records} records of `{self.split}`; choose bounds within them."
            )
        if start >= stop:
            raise InputError(
                f"{name}: `{self}` selects none of the {records} records of `{self.split}`; is the slice backwards?"
            )
        return range(start, stop)

    def __str__(self) -> str:
        return f"{self.split}[{self.start}:{self.stop}]" if self.start or self.stop else self.split


def _position(bound: str, records: int) -> int:
    """The absolute record number, with a percentage rounded to the closest record as TFDS does."""
    amount = int(bound.rstrip("%"))
    shift = round(amount * records / 100) if bound.endswith("%") else amount
    return records + shift if amount < 0 else shift  # the sign as written: -1% of 25 is the end, not 0


def split_name(text: str) -> tuple[str, str | None]:
    """`NAME[@SPLIT]` as (name, split); the last `@` counts, and without one the split is None.

    Raises:
        InputError: there is nothing before or after the `@`.

    >>> split_name("mnist@train[:10000]")
    ('mnist', 'train[:10000]')
    """
    name, at, split = text.rpartition("@")
    if not at:
        name, split = text, None
    if not name.strip():
        raise InputError(f"`{text}` does not name a data set; write NAME or NAME@SPLIT, such as mnist@train[:10000].")
    if split is not None and not split.strip():
        raise InputError(f"`{text}` has nothing after the '@'; {_HOW}.")
    return name, split


def parse_split(text: str) -> tuple[Part, ...]:
    """The parts that a SPLIT names, in the order written: the syntax of TensorFlow Datasets.

    Raises:
        InputError: `text` is not in that syntax, or a percentage is over 100.

    >>> parse_split("train[:10%]+extra")
    (Part(split='train', start='', stop='10%'), Part(split='extra', start='', stop=''))
    """
    parts = []
    for each in text.split("+"):
        match = _PART.fullmatch(each)
        if match is None:
            raise InputError(f"`{text}` is not a split; {_HOW}.")
        parts.append(Part(*match.groups("")))
        for bound in parts[-1][1:]:
            if bound.endswith("%") and abs(int(bound[:-1])) > 100:
                raise InputError(f"`{text}` contains {bound}; a percentage must be from -100% to 100%.")
    return tuple(parts)


def choose_parts(split: str | None, available: tuple[str, ...], name: str) -> tuple[Part, ...]:
    """The parts to read of a set with the splits `available`.

    Args:
        split: in the syntax of `parse_split`, or `all` for every split; None for the only split, else `train`.
        available: the splits of the set `name`, in their order.

    Raises:
        MissingSplit: no such split.
        InputError: none is named, and the choice is unclear.

    >>> choose_parts(None, ("test", "train"), "mnist")
    (Part(split='train', start='', stop=''),)
    """
    if split is None:
        if len(available) == 1:
            return (Part(available[0]),)
        if "train" in available:
            return (Part("train"),)
        raise InputError(f"{name} has several splits and none is `train`; name one of: {', '.join(available)}.")
    if split == "all" and "all" not in available:
        return tuple(Part(each) for each in available)
    parts = parse_split(split)
    for part in parts:
        if part.split not in available:
            raise MissingSplit(f"{name} has no split '{part.split}'; it has: {', '.join(available)}.")
    return parts


def read_parts(parts: Sequence[Part], read: Callable[[str], Whole], name: str) -> list[tuple[Whole, slice]]:
    """The split of each part, each split read only once, and the slice of its records.

    Raises:
        InputError: as `Part.span`, of the set `name`.
    """
    wholes = {part.split: read(part.split) for part in parts}
    spans = [part.span(len(wholes[part.split]), name) for part in parts]
    return [(wholes[part.split], slice(span.start, span.stop)) for part, span in zip(parts, spans, strict=True)]


def shown_name(text: str) -> str:
    """The name of a set for a message: without line breaks and NUL, and shortened."""
    text = text if text.isprintable() else repr(text)[1:-1]
    return f"'{text if len(text) <= 100 else text[:100] + '...'}'"


def nearest(text: str, names: Sequence[str]) -> str:
    """A question for the message on an unknown name: the most similar known names.

    >>> nearest("Mnits", ["digits", "mnist"])
    'Did you mean mnist?'
    """
    near = near_names(text, names)
    return f"Did you mean {', '.join(near)}?" if near else "Is it spelled right?"


def near_names(text: str, names: Sequence[str]) -> list[str]:
    """The most similar names to a text, ignoring case, the best match first."""
    by_lower = {name.lower(): name for name in names}
    return [by_lower[match] for match in difflib.get_close_matches(text.lower(), by_lower, n=4)]
