"""One finished run as a report takes it: the result as JSON holds it, and the arrays its charts need."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import numpy as np

from jaxaudit.errors import visible
from jaxaudit.report.record import Paper, Provenance

Result = TypeVar("Result", covariant=True)


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

    @property
    def provenance(self) -> Provenance:
        """What repeats it."""
        return cast(Any, self.result).provenance

    @property
    def papers(self) -> list[Paper] | None:
        """What its numbers rest on; None if it does not say."""
        return cast(Any, self.result).papers


def named(run: Run[Any]) -> str:
    """Its name, safe to show."""
    return visible(run.name)
