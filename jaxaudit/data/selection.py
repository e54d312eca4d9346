"""`NAME[@SPLIT]`: the selected part of a data set, and the arrays of a file that belong to a split."""

import difflib
import re
from collections.abc import Callable, Iterable, Sequence, Sized
from typing import NamedTuple, TypeVar

from jaxaudit.errors import InputError, MissingSplit

Whole = TypeVar("Whole", bound=Sized)
SPLITS = {"train": "train", "training": "train", "test": "test", "testing": "test"} | dict.fromkeys(
    ("val", "valid", "validation"), "validation"
)
INPUT_NAMES = {"x", "images", "image", "inputs", "input", "data", "features"}
LABEL_NAMES = {"y", "labels", "label", "targets", "target"}
CLASS_NAMES = ("class_names", "classes", "label_names")
# No set has more records than 18 digits can count, and Python rejects numbers of thousands of digits.
_PART = re.compile(r"([\w.\-]+)(?:\[(\d{0,18}):(\d{0,18})\])?")
_HOW = "write a split or a slice of one (train, train[:1000], train[1000:2000]), joined by '+'"


class SplitSlice(NamedTuple):
    """One split or a slice of it, with its bounds as written: record numbers, or empty."""

    split: str
    start: str = ""
    stop: str = ""

    def span(self, records: int, name: str) -> range:
        """The record numbers of this part in a split of `records` records; `name` says of which set, in messages.

        >>> SplitSlice("train", "", "25").span(255, "mnist")
        range(0, 25)
        """
        start, stop = int(self.start or 0), int(self.stop or records)
        if not start < stop <= records:
            raise InputError(
                f"{name}: `{self}` selects none of the {records} records of `{self.split}`, or reaches outside them; "
                "choose bounds within them, the lower one first."
            )
        return range(start, stop)

    def __str__(self) -> str:
        return f"{self.split}[{self.start}:{self.stop}]" if self.start or self.stop else self.split


def split_name(text: str) -> tuple[str, str]:
    """`NAME[@SPLIT]` as (name, split); the last `@` counts, and without one the split is empty.

    >>> split_name("mnist@train[:10000]")
    ('mnist', 'train[:10000]')
    """
    before, at, split = text.rpartition("@")
    name, split = (before, split) if at else (text, "")
    if not name.strip() or (at and not split.strip()):
        raise InputError(f"`{text}` is not NAME or NAME@SPLIT, such as mnist@train[:10000]; {_HOW}.")
    return name, split


def parse_split(text: str) -> tuple[SplitSlice, ...]:
    """The parts that a SPLIT names, in the order written.

    >>> parse_split("train[:10]+extra")
    (SplitSlice(split='train', start='', stop='10'), SplitSlice(split='extra', start='', stop=''))
    """
    matches = [_PART.fullmatch(part) for part in text.split("+")]
    if None in matches:
        raise InputError(f"`{text}` is not a split; {_HOW}.")
    return tuple(SplitSlice(*match.groups("")) for match in matches if match)


def choose_parts(split: str, available: tuple[str, ...], name: str) -> tuple[SplitSlice, ...]:
    """The parts to read of a set with the splits `available`; `split` is in the syntax of `parse_split`, or empty.

    >>> choose_parts("", ("test", "train"), "mnist")
    (SplitSlice(split='train', start='', stop=''),)
    """
    if not split or (split == "all" and "all" not in available):
        return tuple(SplitSlice(part_name) for part_name in choose_splits(available, split, name))
    parts = parse_split(split)
    for part in parts:
        if part.split not in available:
            raise MissingSplit(f"{name} has no split '{part.split}'; it has: {', '.join(available)}.")
    return parts


def choose_splits(available: Iterable[str], split: str, source: str) -> list[str]:
    """The splits to read: the requested one; "all"; or, for "", the unnamed one (also train), train, the only one."""
    available = list(available)
    if split == "all":
        return available
    requested = SPLITS.get(split, split)
    for name in (requested,) if requested else ("", "train"):
        if name in available:
            return [name]
    if len(available) == 1 and (not requested or (requested == "train" and not available[0])):
        return available
    names_text = ", ".join(filter(None, available))
    if requested:
        raise MissingSplit(f"{source}: has no split {split!r}; it has {names_text or 'only one set of records'}.")
    raise InputError(f"{source}: has several splits and none is train; name one of {names_text}, or all.")


def read_slices(parts: Sequence[SplitSlice], read: Callable[[str], Whole], name: str) -> list[tuple[Whole, slice]]:
    """The split of each part, each split read only once, and the slice of its records; raises as `Part.span`."""
    wholes = {part.split: read(part.split) for part in parts}
    spans = [part.span(len(wholes[part.split]), name) for part in parts]
    return [(wholes[part.split], slice(span.start, span.stop)) for part, span in zip(parts, spans, strict=True)]


def nearest_names(text: str, names: Sequence[str]) -> str:
    """A question for the message on an unknown name: the most similar known names.

    >>> nearest_names("Mnits", ["digits", "mnist"])
    'Did you mean mnist?'
    """
    by_lower = {name.lower(): name for name in names}
    near = [by_lower[match] for match in difflib.get_close_matches(text.lower(), by_lower, n=4)]
    return f"Did you mean {', '.join(near)}?" if near else "Is it spelled right?"


def role_of(name: str) -> tuple[str, str] | None:
    """(split, "inputs" or "labels") for a usual array name, None for any other.

    >>> role_of("X_train"), role_of("test_labels"), role_of("y"), role_of("index_in_train")
    (('train', 'inputs'), ('test', 'labels'), ('', 'labels'), None)
    """
    splits, further_words = _words(name)
    if len(splits) > 1 or len(further_words) != 1 or further_words[0] not in INPUT_NAMES | LABEL_NAMES:
        return None
    return (splits[0] if splits else ""), ("inputs" if further_words[0] in INPUT_NAMES else "labels")


def named_in(names: Iterable[str], key: str, split: str) -> str | None:
    """The array in `names` called `key` in this split, matched as inputs and labels are; None if there is none.

    >>> named_in(["x_train", "patient_test", "train_patient"], "patient", "train")
    'train_patient'
    """
    splits, further_words = _words(key)
    split_words = [split] if split else []
    return next(
        (name for name in names if splits in ([], split_words) and _words(name) == (split_words, further_words)), None
    )


def _words(name: str) -> tuple[list[str], list[str]]:
    words = re.split(r"[_\-. ]", name.lower())
    return [SPLITS[word] for word in words if word in SPLITS], [word for word in words if word not in SPLITS]


def find_pairs(names: Iterable[str], source: str) -> dict[str, tuple[str, str]]:
    """The names of the arrays of inputs and labels of each split; "" for arrays whose names mention no split."""
    names = list(names)
    names_of: dict[tuple[str, str], str] = {}
    for name in names:
        role = role_of(name)
        if role is not None and names_of.setdefault(role, name) != name:
            raise InputError(f"{source}: {names_of[role]!r} and {name!r} could both be the {role[1]}; keep one.")
    pairs: dict[str, tuple[str, str]] = {}
    for (split, kind), name in names_of.items():
        if kind != "inputs":
            continue
        if (split, "labels") not in names_of:
            raise InputError(
                f"{source}: {name!r} has no labels beside it; add them under the matching name (y, train_labels, ...)."
            )
        pairs[split] = name, names_of[split, "labels"]
    if not pairs:
        raise InputError(
            f"{source}: found no inputs and labels among {', '.join(map(repr, names[:10])) or 'no arrays'}; name them "
            "x and y, images and labels or inputs and labels, with train or test in front if there are splits."
        )
    return pairs
