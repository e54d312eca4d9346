"""What a command gives to `cli/harness.py`: a `Job` to do, the `Outcome` of a job, or a `Summary` to print."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    import msgspec
    import numpy as np

    from jaxaudit.ensemble import Execution
    from jaxaudit.report.record import Provenance
    from jaxaudit.runs.directory import Writer

Audit = TypeVar("Audit")


class Outcome(NamedTuple):
    """The result of a command in all of its output forms: the record, arrays for charts, and further files of `--out`.

    `aside` is printed below the table and never written to a file, `note` when `--out` is written. `kind` is that of
    the run, if the command has several.
    """

    record: "msgspec.Struct"
    arrays: "Mapping[str, np.ndarray]"
    files: "Mapping[str, Writer]"
    aside: str = ""
    note: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Summary:
    """The output of a command without a result, a plan or what was done: for people, and for `--json`."""

    lines: tuple[str, ...]
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Job(Generic[Audit]):
    """The work of a command after its data were read.

    Attributes:
        options: the options with defaults filled in; as a command line they repeat the run.
        repeats: the options of the command that repeats the run, if `options` have the choices of a plan, too.
        audit: does the work.
        outcome: converts its result to output.
        data: names, sizes and content hashes, for the provenance.
        hashes: further hashes of contents that affect a number.
        models: the number of models for a given number per batch, if finished models are stored; None stores nothing.
        kept: for an audit that stores finished models itself: a phrase with their number.
        line: printed before the work.
        label: of the progress bar.
        after: printed when training is done.
        shorter: advice if the work takes long.
        record_shape, classes: facts that affect the best number of models per batch, apart from the options.
        measure: measures that number; None leaves it to the audit.
        extra: further facts for the provenance.
    """

    options: Any
    audit: "Callable[[Execution], Audit]"
    outcome: "Callable[[Audit, Provenance], Outcome | Summary]"
    data: Mapping[str, Any] = field(default_factory=dict)
    hashes: Mapping[str, str] = field(default_factory=dict)
    models: Callable[[int], int] | None = None
    kept: Callable[[], str] | None = None
    line: str = ""
    label: str = "training"
    after: str | None = None
    shorter: str = ""
    record_shape: tuple[int, ...] = ()
    classes: int = 0
    measure: Callable[[], int] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    repeats: Any = None
