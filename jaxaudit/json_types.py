"""The building blocks of results: frozen structs, which define their own JSON, and numbers that JSON cannot express.

The type of a struct is its encoder, its strict decoder and its JSON Schema. JSON has no infinite number and no NaN:
infinite numbers are written as `infinity`, and NaN as null. Only this module decides that, and how contents are hashed.
"""

import hashlib
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

Kind = TypeVar("Kind")
Number = float | None
"""A number; null if missing."""
Count = Annotated[int, msgspec.Meta(ge=0)]

if TYPE_CHECKING:
    Extended = Nats = NumberOrNaN = float
else:
    # msgspec calls `_read` and `_described` only for a type of its own.
    class Extended(float):
        """A number that may be infinite."""

    class Nats(Extended):
        """A number of at least 0 that may be infinite."""

    class NumberOrNaN(float):
        """A number; NaN if missing, which is null in JSON."""


class StrictStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a result: an object in JSON, decoded with no other keys and no other types."""


def number(value: Any) -> Number:
    """A number; None if it is not finite.

    >>> number(0.5), number(math.nan)
    (0.5, None)
    """
    return float(value) if math.isfinite(value) else None


def to_builtins(value: Any) -> Any:
    """A struct in types that JSON supports.

    >>> class Two(StrictStruct, frozen=True):
    ...     most: Extended
    ...     share: Number
    >>> to_builtins(Two(math.inf, math.nan))
    {'most': 'infinity', 'share': None}
    """
    return _written(msgspec.to_builtins(value, enc_hook=_plain))


def from_builtins(kind: type[Kind], value: Any) -> Kind:
    """The struct decoded from JSON strictly (no other keys or types); a `msgspec.ValidationError` says where not."""
    return msgspec.convert(value, kind, dec_hook=_read)


def schema(kind: type) -> dict[str, Any]:
    """The JSON Schema of a struct."""
    return msgspec.json.schema(kind, schema_hook=_described)


def hash_of(contents: Iterable[bytes | memoryview]) -> str:
    """`blake2b:...`, 128 bits of the BLAKE2b digest of these contents, one after another: equal ones have equal hashes.

    >>> hash_of([b"ab"]) == hash_of([b"a", b"b"])
    True
    """
    digest = hashlib.blake2b(digest_size=16)
    for content in contents:
        digest.update(content)
    return f"blake2b:{digest.hexdigest()}"


def demand(holds: bool, wrong: str) -> None:
    """Raises a `ValueError` with the message `wrong` unless a condition of a result holds."""
    if not holds:
        raise ValueError(wrong)


def _plain(value: Any) -> float:
    """A plain float from a number of a subtype."""
    if not isinstance(value, float):
        raise TypeError(f"{type(value).__name__} is no part of a result")
    return float(value)


def _written(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "infinity" if value > 0 else None
    if isinstance(value, dict):
        return {name: _written(part) for name, part in value.items()}
    return [_written(part) for part in value] if isinstance(value, list | tuple) else value


def _read(kind: type, value: Any) -> Any:
    if value is None and kind is NumberOrNaN:
        return kind(math.nan)
    if value == "infinity" and issubclass(kind, Extended):
        return kind(math.inf)
    if not isinstance(value, int | float) or isinstance(value, bool) or 2**1023 < abs(value) < math.inf:
        raise ValueError(f"Expected a number or `infinity`, got `{type(value).__name__}`")
    if issubclass(kind, Nats) and not value >= 0:
        raise ValueError("Expected a number of at least 0")
    return kind(value)


def _described(kind: type) -> dict[str, Any]:
    if kind is NumberOrNaN:
        return {"anyOf": [{"type": "number"}, {"type": "null"}]}
    least = {"minimum": 0} if issubclass(kind, Nats) else {}
    return {"anyOf": [{"type": "number", **least}, {"enum": ["infinity"]}]}
