"""A finished run as input of a report: its result, and the arrays that its charts need."""

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
        name: its name on the page.
        kind: the command that made it.
        result: the output of that command with `--json`.
        arrays: the arrays stored beside it, by name; empty if only the result was given.
    """

    name: str
    kind: str
    result: Result
    arrays: Mapping[str, np.ndarray]

    @property
    def provenance(self) -> Provenance:
        """The facts needed to repeat it."""
        return cast(Any, self.result).provenance

    @property
    def papers(self) -> list[Paper] | None:
        """The papers that its numbers rest on; None if unknown."""
        return cast(Any, self.result).papers


def named(run: Run[Any]) -> str:
    """Its name, safe to show."""
    return visible(run.name)
