"""A run: its result as JSON, with papers, provenance and schema; its kind; and its content, how to repeat it included.

Each kind is imported on first use. A command has one, but `unlearn` two: of models that it trained, and of outputs that
it was given. A run that was read from disk was decoded strictly, and its arrays held against it, before it comes here.
"""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, Literal, NamedTuple, TypeVar, cast

import msgspec
import numpy as np
from msgspec import structs

from jaxaudit.errors import visible
from jaxaudit.json_types import StrictStruct, schema, to_builtins
from jaxaudit.report.numbers import text
from jaxaudit.report.page import PageTable, Repeat, RunContent
from jaxaudit.report.sources import Paper, cited

VERSION = 3
"""Version of all schemas; runs of other versions are rejected."""
FIRST_LINES = "<!DOCTYPE html>\n<!-- a report of jaxaudit -->\n"
"""The first lines of a page; only such a file may be overwritten by another."""


DescribedFiles = list[dict[str, str]] | None
"""Name, kind and content hash of each file; None if there are none."""


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
    targets: DescribedFiles = None
    holdout_targets: DescribedFiles = None
    members_targets: DescribedFiles = None
    calibration_targets: DescribedFiles = None
    before: DescribedFiles = None
    holdout_before: DescribedFiles = None
    challenge: str | None = None
    plan: dict[str, Any] | None = None


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


AnyResult = TypeVar("AnyResult", bound=StrictStruct)
NAMES = ("ks", "power", "pdtp", "attack", "efficacy", "unlearn", "unlearn_outputs")
"""`report/NAME`, the command, defines each, under its name in capitals."""


Arrays = Mapping[str, np.ndarray]


ARRAYS = "confidences.npz"
"""The file of the arrays beside the result in a run directory."""


class RunKind(NamedTuple):
    """The runs of one command: the type of its results; what makes the content of one run; what raises ValueError if a
    result contradicts itself; the names of the arrays beside it; and what raises ValueError if these do not fit it.
    """

    name: str
    record: type[msgspec.Struct]
    view: Callable[[Run[Any]], RunContent]
    check: Callable[[Any], None]
    stored: Callable[[Any], tuple[str, ...]] = lambda _: ()
    check_arrays: Callable[[Any, Arrays], None] = lambda *_: None


def run_kind(name: str) -> RunKind:
    """The kind of this name; a KeyError if there is none."""
    if name not in NAMES:
        raise KeyError(name)
    return getattr(import_module(f"jaxaudit.report.{name.partition('_')[0]}"), name.upper())


def recorded(name: str, result: AnyResult, sources: Iterable[str], provenance: Provenance) -> AnyResult:
    """The result of an audit with its papers and provenance, as a run stores it."""
    record: Any = run_kind(name).record(**structs.asdict(result), papers=cited(sources), provenance=provenance)
    return record


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of a command's result.

    >>> schema_of("attack")["title"]
    'jaxaudit attack'
    """
    title = f"jaxaudit {name.replace('_', ' --')}"
    version = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return {**version, **schema(run_kind(name).record)}


def part_of(run: Run[Any]) -> RunContent:
    """The content of one run."""
    return run_kind(run.kind).view(run)._replace(name=visible(run.name), repeat=repeat(run.provenance))


def repeat(provenance: Provenance) -> Repeat:
    """The command, and everything else that is known of the run."""
    devices = f", {text(provenance.devices)} devices" if provenance.devices != 1 else ""
    facts = [
        ("Seed", str(provenance.seed)),
        ("Started", f"{visible(provenance.started)} and took {provenance.seconds:,.0f} seconds"),
        ("Device", f"{visible(provenance.device)}{devices}, {text(provenance.cores)} cores"),
        ("Program", f"jaxaudit {visible(provenance.jaxaudit)}, Python {text(provenance.python)}"),
    ]
    values = {name: value for name, value in structs.asdict(provenance).items() if name != "command"}
    record = PageTable("Everything that the run was made of", ("what", "value"), tuple(_flat("", values)))
    return Repeat(tuple(_pieces(provenance.command)), tuple(facts), record)


def _pieces(words: Sequence[str]) -> list[str]:
    """The command as text, in pieces of an option with its value, such as `--query 'my data.npz'`."""
    pieces: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not pieces:
            pieces.append([])
        pieces[-1].append(word)
    return [visible(shlex.join(piece)) for piece in pieces]


def _flat(name: str, value: Any) -> list[tuple[str, str]]:
    """A row for each fact within a value, with the names that lead to it; none for what there is not."""
    if isinstance(value, dict):
        return [row for key, part in value.items() for row in _flat(f"{name} {key}".replace("_", " "), part)]
    if isinstance(value, list) and any(isinstance(part, dict) for part in value):
        return [row for part in value for row in _flat(name, part)]
    return [] if value in (None, []) else [(visible(name.strip()), text(value))]
