"""The kinds of runs by name; each is imported on first use, with only what its audit needs."""

from collections.abc import Iterable
from importlib import import_module
from typing import Any, TypeVar

import msgspec

from jaxaudit.json_types import StrictStruct, schema
from jaxaudit.report.kind import Kind
from jaxaudit.report.papers import cited
from jaxaudit.report.record import Provenance

Result = TypeVar("Result", bound=StrictStruct)
NAMES = ("ks", "power", "pdtp", "attack", "efficacy", "unlearn")
"""Names of kinds in the order of a page; `report/NAME/view.py` defines each, under its name in capitals."""


def kind_of(name: str) -> Kind:
    """The kind of this name.

    Raises:
        KeyError: there is none.
    """
    if name not in NAMES:
        raise KeyError(name)
    return getattr(import_module(f"jaxaudit.report.{name}.view"), name.upper())


def recorded(name: str, result: Result, sources: Iterable[str], provenance: Provenance) -> Result:
    """The result of an audit with its papers and provenance, as a run stores it.

    Args:
        name: of the kind of runs.
        result: the result of the audit.
        sources: the papers that it rests on, as named by tests, methods and metrics.
        provenance: the facts needed to repeat the run.
    """
    fields = {field: getattr(result, field) for field in result.__struct_fields__}
    found: Any = kind_of(name).record(**fields, papers=cited(sources), provenance=provenance)
    return found


def name_of(record: msgspec.Struct) -> str:
    """The name of the kind of a record: the part of its schema between `jaxaudit.` and the version."""
    return str(getattr(record, "schema", "")).removeprefix("jaxaudit.").partition("/")[0]


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of a command's result.

    >>> schema_of("attack")["title"]
    'jaxaudit attack'
    """
    version = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"jaxaudit {name}"}
    return {**version, **schema(kind_of(name).record)}
