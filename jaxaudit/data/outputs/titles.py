"""Which classes the titles of columns name, and the forms in which programs write these names."""

import re
from collections.abc import Sequence
from functools import lru_cache

from jaxaudit.data.outputs.expected import LONGEST_NAME, Expected

_KIND = r"(?:p|pred|prob|proba|probability|logit|score|class)s?"
_BEFORE = re.compile(rf"\.?{_KIND}(?:[\s_.:(\[-]+(?:of[\s_]+)?(.+?)[)\]]?|(\d+))")
_AFTER = re.compile(rf"(.+?)[\s_.-]+{_KIND}")


def classes_named(titles: Sequence[str], expected: Expected) -> list[int]:
    """The class that each of these titles names, in whatever case, as `2.0`, `002`, `P(cat)` or `cat_prob`, or by its
    number (`p0`, or all from `p1`) if no class is named by a number; empty if one names none.
    """
    names = _names(expected)
    for written in (str, str.casefold, _plain):
        index_of_name = {written(name): index for index, name in enumerate(names)}
        if len(index_of_name) == len(names) and all(written(title) in index_of_name for title in titles):
            return [index_of_name[written(title)] for title in titles]
    if any(map(_number, names)) or any(title[:1].isdigit() for title in titles):
        return []
    numbers = [int(number) for number in map(_number, titles) if number]
    if numbers and sorted(numbers) == list(range(1, len(names) + 1)):
        return [number - 1 for number in numbers]
    return numbers if len(numbers) == len(titles) and max(numbers, default=0) < len(names) else []


def class_within(title: str, expected: Expected) -> int | None:
    """The only class whose name stands in a title as a whole word; None if none or several do."""
    words = title.casefold()
    within = [
        index
        for index, name in enumerate(_names(expected))
        if re.search(rf"(?<![^\W_]){re.escape(name.casefold())}(?![^\W_])", words)
    ]
    return within[0] if len(within) == 1 else None


def _names(expected: Expected) -> list[str]:
    return list(expected.class_names or map(str, range(expected.classes)))


def _number(title: str) -> str:
    """The number that is left of a title; empty if none is."""
    name = _plain(title)
    return name if re.fullmatch("[0-9]{1,9}", name) else ""


@lru_cache(1 << 14)
def _plain(title: str) -> str:
    """A title without what programs write around the name of a class; a whole number without zeros before it."""
    name = title.casefold()
    # Each turn takes as long as the title, and shortens it by two characters.
    while len(name) <= LONGEST_NAME and (inner := _BEFORE.fullmatch(name) or _AFTER.fullmatch(name)):
        name = next(group for group in inner.groups() if group)
    number = re.fullmatch(r"0*(\d+)(?:\.0)?", name)
    return number[1] if number else name
