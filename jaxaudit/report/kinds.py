"""The kinds of runs there are, by name; each is imported when first asked for, with what its audit alone needs."""

from importlib import import_module
from typing import Any

import msgspec

from jaxaudit.report.kind import Kind
from jaxaudit.report.record import Record

NAMES = ("ks", "power", "pdtp", "attack", "record-attack", "efficacy", "unlearn")
"""Of `report/NAME/kind.py`, where the kind stands in capitals; in the order of a page."""


def kind_of(name: str) -> Kind:
    """The kind of this name.

    Raises:
        KeyError: there is none.
    """
    if name not in NAMES:
        raise KeyError(name)
    place = name.replace("-", "_")
    return getattr(import_module(f"jaxaudit.report.{place}.kind"), place.upper())


def name_of(record: Record) -> str:
    """The name of the kind of a record: what its schema says between `jaxaudit.` and the version."""
    return str(getattr(record, "schema", "")).removeprefix("jaxaudit.").partition("/")[0]


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of a command's result.

    >>> schema_of("attack")["title"]
    'jaxaudit attack'
    """
    kind = kind_of(name)
    schema = msgspec.json.schema(kind.record)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"jaxaudit {name}", **schema}
