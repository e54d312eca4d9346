"""The kinds of runs there are: a line for each command."""

from typing import Any

import msgspec

from jaxaudit.report.attack.kind import ATTACK
from jaxaudit.report.efficacy.kind import EFFICACY
from jaxaudit.report.kind import Kind
from jaxaudit.report.ks.kind import KS
from jaxaudit.report.pdtp.kind import PDTP
from jaxaudit.report.power.kind import POWER
from jaxaudit.report.unlearn.kind import UNLEARN

KINDS = (KS, POWER, PDTP, ATTACK, EFFICACY, UNLEARN)


def kind_of(name: str) -> Kind:
    """The kind of this name.

    Raises:
        KeyError: there is none.
    """
    return {kind.name: kind for kind in KINDS}[name]


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of a command's result.

    >>> schema_of("attack")["title"]
    'jaxaudit attack'
    """
    kind = kind_of(name)
    schema = msgspec.json.schema(kind.record)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"jaxaudit {name}", **schema}
