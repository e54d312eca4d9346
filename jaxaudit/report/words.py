"""The user's own words for the sets and the model, in texts of page and terminal. JSON keeps its own words."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import msgspec

from jaxaudit.errors import InputError, visible

PHRASES = {
    "query": ("query set",),
    "holdout": ("holdout",),
    "members": ("known members", "members"),
    "calibration": ("calibration set",),
    "target": ("target",),
}
"""What texts call each thing that can be named, with "the" in front."""
LONGEST = 100


def parse_name(text: str) -> tuple[str, str]:
    """The thing and its name, of `query=our 1,200 customers`.

    Raises:
        InputError: there is no such thing, or its name is empty, too long or of several lines.

    >>> parse_name("target=the supplier's churn model")
    ('target', "the supplier's churn model")
    """
    thing, sign, name = (part.strip() for part in text.partition("="))
    if thing not in PHRASES or not sign:
        raise InputError(f"`name` {text[:LONGEST]!r}: write ROLE=WORDS, with a role of {', '.join(PHRASES)}.")
    if not 0 < len(name) <= LONGEST or not name.isprintable():
        raise InputError(f"`name` {thing}: must be words on one line, at most {LONGEST} characters.")
    return thing, name


def in_words(content: Any, names: Sequence[str], alone: str = "") -> Any:
    """The same content with these names (`parse_name`) in all of its texts, however deep.

    The only target, which has the name of its file, is `alone`: a text that is no more than that is renamed, too.

    >>> in_words(("The query set was used.", 3), ["query=our customers"])
    ('Our customers was used.', 3)
    """
    if not names:
        return content
    name_of = {phrase: visible(name) for thing, name in map(parse_name, names) for phrase in PHRASES[thing]}
    target = name_of.get("target", alone)
    return _changed(content, lambda text: target if alone and text == alone else _renamed(text, name_of))


def _renamed(text: str, name_of: Mapping[str, str]) -> str:
    def name(match: re.Match[str]) -> str:
        words = name_of[match[2]]
        return words[:1].upper() + words[1:] if match[1] == "The" else words

    return re.sub(rf"\b([Tt]he) ({'|'.join(map(re.escape, name_of))})\b(?!['-])", name, text)


def _changed(content: Any, change: Callable[[str], str]) -> Any:
    if isinstance(content, str):
        return change(content)
    if isinstance(content, tuple | list):
        parts = [_changed(part, change) for part in content]
        return type(content)(*parts) if hasattr(content, "_fields") else type(content)(parts)
    if isinstance(content, msgspec.Struct):
        return msgspec.structs.replace(
            content, **{name: _changed(getattr(content, name), change) for name in content.__struct_fields__}
        )
    if is_dataclass(content) and not isinstance(content, type):
        return replace(
            content, **{field.name: _changed(getattr(content, field.name), change) for field in fields(content)}
        )
    return content
