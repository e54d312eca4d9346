"""The kinds of runs there are: a line for each."""

from typing import Any

import msgspec

from jaxaudit.report.attack.kind import ATTACK
from jaxaudit.report.efficacy.kind import EFFICACY
from jaxaudit.report.kind import Kind
from jaxaudit.report.ks.kind import KS
from jaxaudit.report.pdtp.kind import PDTP
from jaxaudit.report.power.kind import POWER
from jaxaudit.report.record import Record
from jaxaudit.report.record_attack.kind import RECORD_ATTACK
from jaxaudit.report.unlearn.kind import UNLEARN

KINDS = (KS, POWER, PDTP, ATTACK, RECORD_ATTACK, EFFICACY, UNLEARN)


def kind_of(name: str) -> Kind:
    """The kind of this name.

    Raises:
        KeyError: there is none.
    """
    return {kind.name: kind for kind in KINDS}[name]


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
