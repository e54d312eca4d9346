"""One way to run every command: checks, lasting work, models per batch, provenance, saving, report, exit status."""

import datetime
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import typer

from jaxaudit.cli import preflight
from jaxaudit.cli.options import as_parameters, command_line, identity_of, plain

if TYPE_CHECKING:
    import numpy as np

    from jaxaudit.ensemble import Execution
    from jaxaudit.report.record import Provenance, Record
    from jaxaudit.runs.directory import Writer

Audit = TypeVar("Audit")


class Outcome(NamedTuple):
    """What a command found, in all forms that it is given out in.

    Attributes:
        record: the result.
        arrays: what the page's charts need beside it.
        files: what `--out` writes beside it.
        aside: printed below the table and written nowhere.
    """

    record: "Record"
    arrays: "Mapping[str, np.ndarray]"
    files: "Mapping[str, Writer]"
    aside: str = ""


@dataclass(frozen=True)
class Job(Generic[Audit]):
    """What a command has to do, once its data are read.

    Attributes:
        options: as they were settled: the command that they spell repeats the run.
        data: of the provenance: names, sizes and content hashes.
        hashes: contents that decide a number.
        audit: does the work.
        outcome: what came of it.
        models: how many are trained at so many per batch, where finished ones are kept; None keeps nothing.
        line: what is said before the work.
        label: of its progress, and
        after: what is said once that is through.
        shorter: what a person may do where it takes long.
        record_shape, classes: what decides the best number of models per batch beside the options.
        measure: finds that number; None leaves it to the audit.
        extra: further facts of the provenance.
    """

    options: Any
    data: Mapping[str, Any]
    hashes: Mapping[str, str]
    audit: "Callable[[Execution], Audit]"
    outcome: "Callable[[Audit, Provenance], Outcome]"
    models: Callable[[int], int] | None = None
    line: str = ""
    label: str = "training"
    after: str | None = None
    shorter: str = ""
    record_shape: tuple[int, ...] = ()
    classes: int = 0
    measure: Callable[[], int] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Planned:
    """What a dry run says: a plan in numbers and in lines."""

    numbers: Mapping[str, Any]
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Command:
    """A command of `jaxaudit`.

    Attributes:
        name: as it is called.
        options: the dataclass of its options, which has a group `output`.
        prepare: reads the data and says what is to be done; imports what is heavy.
        doc: its help.
        check: raises `InputError` where options do not go together; asked before any data are read.
    """

    name: str
    options: type[Any]
    prepare: Callable[[Any], Job[Any] | Planned]
    doc: str
    check: Callable[[Any], None] = lambda _: None

    def as_function(self) -> Callable[..., None]:
        """The command as Typer takes it."""
        return as_parameters(self.options, lambda options: run(self, options), self.doc)


def run(command: Command, options: Any) -> None:
    """Runs a command and gives out what it found.

    Raises:
        InputError: what the options name cannot be used.
        Exit: with status 3, for a verdict in `--fail-on`.
    """
    output = options.output
    preflight.check(options, command.check)
    from jaxaudit.cli.work import lasting_work

    with lasting_work(output.out) as begin:
        from jaxaudit.cli.show import as_text, show, show_planned, show_text

        started = time.time()
        job = command.prepare(options)
        if isinstance(job, Planned):
            show_planned(job, output.as_json)
            return
        job, outcome = _done(command.name, job, begin, started)
        from jaxaudit.report.build import part_of
        from jaxaudit.report.run import Run
        from jaxaudit.report.terminal import as_terminal

        found = Run(output.out.resolve().name if output.out else command.name, command.name, *outcome[:2])
        part = part_of(found, getattr(output, "top", 0))
        table = as_terminal(part)
        try:
            if output.out is not None:
                _save(output.out, outcome, as_text(table))
            if output.report is not None:
                _write_report(output.report, found)
        finally:
            # Whatever becomes of the directory, the work is not lost.
            show(table, outcome.record if output.as_json else None)
            if outcome.aside and not output.as_json:
                show_text(outcome.aside)
    verdicts = {answer.finding.verdict.replace(" ", "-") for answer in part.answers}
    if verdicts & set(output.fail_on):
        raise typer.Exit(3)


def _done(name: str, job: Job[Any], begin: Any, started: float) -> tuple[Job[Any], Outcome]:
    from jaxaudit.cli.own_model import source_hash
    from jaxaudit.cli.progress import progress_on_stderr
    from jaxaudit.cli.tuning import recall_models_per_batch, remember_models_per_batch
    from jaxaudit.ensemble import Execution
    from jaxaudit.report.record import Provenance
    from jaxaudit.runs.identity import run_identity
    from jaxaudit.runs.provenance import describe_machine

    facts = {**plain(job.options), "command": name, "record": list(job.record_shape), "classes": job.classes}
    recipe = getattr(job.options, "recipe", None)
    wanted = recipe and recipe.models_per_batch
    number = wanted or (recipe and recall_models_per_batch(facts))
    if recipe and number is None and job.measure is not None:
        number = job.measure()
        remember_models_per_batch(facts, number)
    source = source_hash(facts.get("model") or "")
    checkpoints = None
    if job.models is not None:
        identity = run_identity(name, identity_of(job.options), job.hashes, {"model": source})
        models = job.models(number or 1)
        checkpoints = begin(identity, models, f"{job.line}: {models:,} models")
    with progress_on_stderr(job.label, job.after, job.shorter) as progress:
        audit = job.audit(Execution(models_per_batch=number, progress=progress, checkpoints=checkpoints))
    number = number or getattr(audit, "models_per_batch", None)
    if recipe and number is not None and wanted is None:
        remember_models_per_batch(facts, number)
        job = replace(job, options=replace(job.options, recipe=replace(recipe, models_per_batch=number)))
    provenance = Provenance(
        **describe_machine(),
        command=command_line(name, job.options),
        seed=plain(job.options)["seed"],
        options=plain(job.options),
        data=dict(job.data),
        model_hash=source,
        started=datetime.datetime.fromtimestamp(started, datetime.UTC).isoformat(timespec="seconds"),
        seconds=round(time.time() - started, 1),
        **job.extra,
    )
    return job, job.outcome(audit, provenance)


def _save(out: Path, outcome: Outcome, table: str) -> None:
    from jaxaudit.cli.progress import say
    from jaxaudit.report.record import to_json
    from jaxaudit.runs.directory import write

    write(out, to_json(outcome.record), outcome.files, table)
    others = [f"{out}/{name}" for name in outcome.files]
    shown = others if len(others) <= 3 else [*others[:3], f"{len(others) - 3} more"]
    say(f"written: {', '.join([f'{out}/result.json', *shown])}")


def _write_report(report: Path, found: Any) -> None:
    from jaxaudit.cli.progress import say
    from jaxaudit.runs.report_file import write_report

    say("drawing the report")
    write_report(report, [found])
    say(f"written: {report}")
