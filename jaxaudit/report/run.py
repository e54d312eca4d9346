"""One finished run as a report takes it: the result as JSON holds it, and the arrays its pictures need."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxaudit.errors import visible


class Run(NamedTuple):
    """One finished run.

    Attributes:
        name: what it is called on the page.
        kind: the command that made it.
        result: what that command prints with `--json`.
        arrays: what it keeps beside it, by name; empty where only the result was given.
    """

    name: str
    kind: str
    result: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]


def named(run: Run) -> str:
    """Its name, safe to show."""
    return visible(run.name)
