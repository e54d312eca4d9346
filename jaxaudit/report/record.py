"""What every result has as JSON: its numbers, its provenance, its schema."""

from typing import Any, Literal, TypeVar

import msgspec

from jaxaudit.json_types import Number as Number
from jaxaudit.json_types import StrictStruct, from_builtins, to_builtins
from jaxaudit.json_types import number as number

VERSION = 2
"""Of all schemas: runs of other versions are refused."""

Kind = TypeVar("Kind", bound=msgspec.Struct)


class Provenance(StrictStruct, frozen=True, kw_only=True):
    """The facts needed to repeat a run.

    Attributes:
        jaxaudit: version of this package; `versions` of the libraries it used.
        device, devices, cores: what it ran on.
        environment: variables that affect a number.
        command: the command that repeats the run.
        options: every option, with defaults filled in.
        data: names, sizes and content hashes of the data.
        model_hash, weights_hash, reference_hashes: of your own network, and of weights.
        code_hashes: of the files of further code of your own, by option, such as `tests 1`.
        targets, holdout_targets: files of outputs; `calibration_targets`, `reference_targets`: on the reference, which
            is the calibration set or a set of its own; `before`, `holdout_before`: before a deletion.
        challenge: commitment of the blind challenge that the targets' outputs answer.
        plan: the plan for a time budget.
        mixed_devices: machines that rounded differently and trained some of the models, in words.
        started: date and time, UTC; `seconds` how long it took.
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
    code_hashes: dict[str, str] | None = None
    targets: list[dict[str, str]] | None = None
    holdout_targets: list[dict[str, str]] | None = None
    members_targets: list[dict[str, str]] | None = None
    calibration_targets: list[dict[str, str]] | None = None
    reference_targets: list[dict[str, str]] | None = None
    before: list[dict[str, str]] | None = None
    holdout_before: list[dict[str, str]] | None = None
    challenge: str | None = None
    plan: dict[str, Any] | None = None
    mixed_devices: list[str] | None = None


class Paper(StrictStruct, frozen=True):
    """A paper that numbers rest on.

    Attributes:
        source: as it is cited, such as `Carlini et al. 2022`.
        key, bibtex: its entry; null for words of your own test or attack that name no paper known here.
    """

    source: str
    key: str | None = None
    bibtex: str | None = None


def record_type(name: str, result: type[StrictStruct]) -> type[msgspec.Struct]:
    """A result as it stands in JSON: with its schema, the papers that it rests on, and what repeats it.

    Args:
        name: of the kind of runs.
        result: the type of what their audit finds.
    """
    schema: Any = f"jaxaudit.{name}/{VERSION}"
    fields = [("schema", Literal[schema], schema), ("papers", list[Paper] | None, None), ("provenance", Provenance)]
    title = f"{result.__name__.removesuffix('Result')}Record"
    return msgspec.defstruct(title, fields, bases=(result,), kw_only=True)


def to_json(record: msgspec.Struct) -> dict[str, Any]:
    """The record as JSON can hold it."""
    fields = to_builtins(record)
    last = {name: fields.pop(name) for name in ("papers", "provenance")}
    return {"schema": fields.pop("schema"), **fields, **last}


def from_json(kind: type[Kind], value: Any) -> Kind:
    """The record that JSON holds, strictly: no other keys, no other types.

    Raises:
        msgspec.ValidationError: what is wrong, and where.
    """
    return from_builtins(kind, value)
