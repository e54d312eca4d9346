"""Sets the fields of tests and attacks, built-in ones and your own, by `NAME.FIELD=VALUE`."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_type_hints

import msgspec

from jaxaudit.errors import InputError

Value = TypeVar("Value")


def parse_field(flag: str, text: str) -> tuple[str, str, str]:
    """The name, the field and the value of `NAME.FIELD=VALUE`.

    >>> parse_field("--test-option", "sureness.models=39")
    ('sureness', 'models', '39')
    """
    match = re.fullmatch(r"([A-Za-z0-9-]+)\.([A-Za-z_]\w*)=(.*)", text)
    if match is None:
        raise InputError(
            f"{flag} {text}: must be NAME.FIELD=VALUE: a test or an attack by its name, a field of it, and the value."
        )
    name, field, value = match.groups()
    return name, field, value


def with_fields(flag: str, texts: Sequence[str], values: Mapping[str, Value]) -> dict[str, Value]:
    """These values, with the fields that `texts` set; the name before the point is the `name` of a value.

    Raises:
        InputError: there is no value of this name, it has no such field, or the text is no value of the field's type.
    """
    changed = dict(values)
    for text in texts:
        name, field, word = parse_field(flag, text)
        keys = {getattr(value, "name", key): key for key, value in changed.items()}
        if name not in keys:
            raise InputError(f"{flag} {text}: {name} is not made in this run; fields can be set of {', '.join(keys)}.")
        value: Any = changed[keys[name]]
        types = get_type_hints(type(value))
        fields = [option.name for option in dataclasses.fields(value) if option.init] if _is_record(value) else []
        if field not in fields:
            has = (
                f"it has {', '.join(fields)}"
                if fields
                else "it has none to set (one of your own has those of its dataclass)"
            )
            raise InputError(f"{flag} {text}: {name} has no field {field}; {has}.")
        try:
            changed[keys[name]] = dataclasses.replace(
                value, **{field: msgspec.convert(word, types[field], strict=False)}
            )
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            raise InputError(f"{flag} {text}: {word!r} is no value of {field}: {error}.") from error
    return changed


def _is_record(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)
