"""One finished run as a report takes it: the result as JSON holds it, and the arrays its charts need."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from jaxaudit.errors import visible
from jaxaudit.report.record import Record

Result = TypeVar("Result", bound=Record, covariant=True)


@dataclass(frozen=True, eq=False)
class Run(Generic[Result]):
    """One finished run.

    Attributes:
        name: what it is called on the page.
        kind: the command that made it.
        result: what that command prints with `--json`.
        arrays: what it keeps beside it, by name; empty where only the result was given.
    """

    name: str
    kind: str
    result: Result
    arrays: Mapping[str, np.ndarray]


def named(run: Run[Record]) -> str:
    """Its name, safe to show."""
    return visible(run.name)
