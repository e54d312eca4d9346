"""The kinds of runs: what a report needs to know about them. Each is imported on first use.

A command has one kind, but `unlearn` two: of models that it trained, and of outputs that it was given.
"""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from jaxaudit.json_types import StrictStruct, schema
from jaxaudit.json_types import demand as demand
from jaxaudit.report.page import RunContent
from jaxaudit.report.record import Provenance, Run
from jaxaudit.report.sources import cited

Result = TypeVar("Result", bound=StrictStruct)
NAMES = ("ks", "power", "pdtp", "attack", "efficacy", "unlearn", "unlearn_outputs")
"""Names of kinds in the order of a page; `report/NAME` defines each, under its name in capitals."""


Arrays = Mapping[str, np.ndarray]


ARRAYS = "confidences.npz"
"""The file of the arrays beside the result in a run directory."""


class RunKind(NamedTuple):
    """The runs of one command.

    Attributes:
        record: the type of its results, with encoder, strict decoder and schema.
        view: makes the content of one run; the second argument is the number of records that a terminal lists.
        check: raises ValueError, with the reason, if a result and its arrays do not agree.
        stored: the names of the arrays that a result has beside it.
    """

    name: str
    record: type[msgspec.Struct]
    view: Callable[[Run[Any], int], RunContent]
    check: Callable[[Any, Arrays], None]
    stored: Callable[[Any], tuple[str, ...]] = lambda _: ()


def run_kind(name: str) -> RunKind:
    """The kind of this name; a KeyError if there is none."""
    if name not in NAMES:
        raise KeyError(name)
    return getattr(import_module(f"jaxaudit.report.{name}"), name.upper())


def recorded(name: str, result: Result, sources: Iterable[str], provenance: Provenance) -> Result:
    """The result of an audit with its papers and provenance, as a run stores it."""
    fields = {field: getattr(result, field) for field in result.__struct_fields__}
    record: Any = run_kind(name).record(**fields, papers=cited(sources), provenance=provenance)
    return record


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of a command's result.

    >>> schema_of("attack")["title"]
    'jaxaudit attack'
    """
    title = f"jaxaudit {name.replace('_', ' --')}"
    version = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return {**version, **schema(run_kind(name).record)}
