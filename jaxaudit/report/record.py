"""A result as JSON: its numbers, provenance and schema; and a finished run, with the arrays that its charts need."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, cast

import msgspec
import numpy as np

from jaxaudit.json_types import StrictStruct, to_builtins

VERSION = 3
"""Version of all schemas; runs of other versions are rejected."""
FIRST_LINES = "<!DOCTYPE html>\n<!-- a report of jaxaudit -->\n"
"""The first lines of a page; only such a file may be overwritten by another."""


class Provenance(StrictStruct, frozen=True, kw_only=True):
    """The facts needed to repeat a run.

    Attributes:
        jaxaudit: version of this package. `versions`: of the libraries it used.
        environment: environment variables that affect a number.
        options: every option, with defaults filled in.
        data: names, sizes and content hashes of the data.
        model_hash, weights_hash, reference_hashes: of your own network, and of weights.
        targets, holdout_targets, members_targets, calibration_targets: files of outputs on each set. `before`,
            `holdout_before`: of outputs before a deletion.
        challenge: the commitment of the blind challenge that the targets' outputs answer.
        plan: the plan for the effort; None: everything as the options ask.
        form: how convolutions were computed in training (`kernels.convolutions`); None: as JAX has them, or none were.
        started: date and time, UTC. `seconds`: how long it took.
    """

    jaxaudit: str
    versions: dict[str, str]
    python: str
    device: str
    devices: int
    cores: int
    environment: dict[str, str]
    command: list[str]
    seed: int
    options: dict[str, Any]
    data: dict[str, Any]
    started: str
    seconds: float
    model_hash: str | None = None
    weights_hash: str | None = None
    reference_hashes: dict[str, str] | None = None
    form: str | None = None
    targets: list[dict[str, str]] | None = None
    holdout_targets: list[dict[str, str]] | None = None
    members_targets: list[dict[str, str]] | None = None
    calibration_targets: list[dict[str, str]] | None = None
    before: list[dict[str, str]] | None = None
    holdout_before: list[dict[str, str]] | None = None
    challenge: str | None = None
    plan: dict[str, Any] | None = None


class Paper(StrictStruct, frozen=True):
    """A paper that numbers rest on, by its citation; `key` is that of its entry in the bibliography, if it has one."""

    source: str
    key: str | None = None


def record_type(name: str, result: type[StrictStruct]) -> type[msgspec.Struct]:
    """The type of a result in JSON: with its schema, its papers, and its provenance."""
    schema: Any = f"jaxaudit.{name}/{VERSION}"
    fields = [("schema", Literal[schema], schema), ("papers", list[Paper]), ("provenance", Provenance)]
    title = f"{result.__name__.removesuffix('Result')}Record"
    return msgspec.defstruct(title, fields, bases=(result,), kw_only=True)


def to_json(record: msgspec.Struct) -> dict[str, Any]:
    fields = to_builtins(record)
    last = {name: fields.pop(name) for name in ("papers", "provenance")}
    return {"schema": fields.pop("schema"), **fields, **last}


Result = TypeVar("Result", covariant=True)


@dataclass(frozen=True, eq=False)
class Run(Generic[Result]):
    """One finished run: its name on a page, the command that made it (`kind`), its result, and the arrays beside it."""

    name: str
    kind: str
    result: Result
    arrays: Mapping[str, np.ndarray]

    @property
    def provenance(self) -> Provenance:
        return cast(Any, self.result).provenance

    @property
    def papers(self) -> list[Paper]:
        """The papers that its numbers rest on."""
        return cast(Any, self.result).papers
