"""Runs every command: checks, resumable work, provenance, saving, report, exit status.

All errors of a command line are reported at once, before anything heavy is imported or any data are read. A command
reads its data in `prepare`, which returns a `Summary` to print, or a `Job`: long work with a result or a `Summary`.
"""

import datetime
import gc
import os
import re
import stat
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from jaxaudit.cli.options import (
    PLACES,
    ModelSource,
    OptionField,
    as_parameters,
    command_line,
    fields_of,
    identity_of,
    json_options,
    models_source,
    refuse_without_effect,
)
from jaxaudit.cli.parsers import parse_workers
from jaxaudit.cli.progress import say
from jaxaudit.cli.shared_options import RecipeFlags
from jaxaudit.cli.show import Job, Outcome, Summary
from jaxaudit.data.formats import OF_SETS
from jaxaudit.errors import InputError, InputErrors, few

if TYPE_CHECKING:
    import msgspec

    from jaxaudit.ensemble.workers import Pulling
    from jaxaudit.report.kinds import Provenance


@dataclass(frozen=True)
class Command:
    """A command of `jaxaudit`.

    Attributes:
        prepare: the place in `cli/` of a function that reads the data and returns the work, or does it and returns a
            summary; if it depends on the source of models, a place for some. By default `prepare` of its `run`.
        checks: functions that raise `InputError` for contradicting options; called before any data are read.
        first: names of the options that most people need, listed first in the help.
        compiles: whether it compiles so much that programs are stored for the next run.
    """

    name: str
    options: type[Any]
    prepare: str | Mapping[ModelSource, str] = ""
    doc: str = ""
    checks: tuple[Callable[[Any], object], ...] = ()
    first: tuple[str, ...] = ()
    compiles: bool = True

    def as_function(self) -> Callable[..., None]:
        """The command as a function for Typer."""
        return as_parameters(self.options, lambda options: run(self, options), self.doc, self.first)


def run(command: Command, options: Any) -> None:
    """Runs a command and prints or writes its result; exits with status 3 for a verdict in `--fail-on`."""
    out, as_json = getattr(options, "out", None), getattr(options, "as_json", False)
    refuse_bad_options(options, command.checks)
    before_jax(_recipe(options))
    # What is imported stays, so no search for garbage need look at it, nor the one at the end of the process.
    gc.disable()
    try:
        from jaxaudit.cli.progress import lasting_work
        from jaxaudit.cli.show import show, show_summary, text_at_80_columns

        if command.compiles:
            from jaxaudit.cli.programs import keep_programs

            keep_programs()
        started = time.time()
        prepare = command.prepare
        place = prepare if isinstance(prepare, str) else prepare.get(models_source(options))
        module, _, name = (place or f"{command.name}.run:prepare").partition(":")
        prepared = getattr(import_module(f"jaxaudit.cli.{module}"), name)
    finally:
        gc.freeze()
        gc.enable()
    job: Job[Any] | Summary = prepared(options)
    if isinstance(job, Summary):
        return show_summary(job, as_json)
    with lasting_work(out, job.kept) as begin:
        outcome, provenance = _done(command.name, job, begin, started)
        if isinstance(outcome, Summary):
            return show_summary(outcome, as_json)
        from jaxaudit.report.kinds import Run, part_of, recorded
        from jaxaudit.report.terminal import as_terminal

        kind = outcome.kind or command.name
        record = recorded(kind, outcome.result, outcome.sources, provenance)
        run_result = Run(out.resolve().name if out else command.name, kind, record, outcome.arrays)
        part = part_of(run_result)
        try:
            if out:
                _save(out, record, outcome, text_at_80_columns(as_terminal(part)))
            if options.report:
                from jaxaudit.cli.report import save_page

                say("drawing the report")
                save_page(options.report, run_result)
        finally:
            # Printed even if the directory cannot be written, so that the work is not lost.
            hint = "" if options.details else "--details prints all checks and numbers."
            show(as_terminal(part, hint), record if as_json else None)
    if part.conditions & set(getattr(options, "fail_on", ())):
        raise typer.Exit(3)


def _done(name: str, job: Job[Any], begin: Any, started: float) -> "tuple[Outcome | Summary, Provenance]":
    from jaxaudit.cli.own_code import model_hash
    from jaxaudit.cli.progress import progress_on_stderr
    from jaxaudit.ensemble import Execution
    from jaxaudit.report.kinds import Provenance
    from jaxaudit.runs.provenance import describe_machine
    from jaxaudit.runs.unfinished import run_identity

    source = model_hash(job.options)
    recipe, checkpoints = _recipe(job.options), None
    number = recipe.models_per_batch
    if job.models is not None and job.kept is None:
        identity = run_identity(name, identity_of(job.options), job.hashes, {"model": source})
        models = job.models(number or 1)
        counted = f": {models:,} model{'' if models == 1 else 's'}" if models else ""
        checkpoints = begin(identity, models, f"{job.line}{counted}")
    with crew(recipe) as workers:
        pace = workers.pace if workers else str
        with progress_on_stderr(job.label, job.after, pace) as progress:
            audit = job.audit(Execution(number, progress, checkpoints, workers))
    provenance = Provenance(
        **describe_machine(),
        command=command_line(name, job.repeats or job.options),
        seed=job.options.seed,
        options=json_options(job.options),
        data=dict(job.data),
        form=getattr(audit, "form", None),
        started=datetime.datetime.fromtimestamp(started, datetime.UTC).isoformat(timespec="seconds"),
        seconds=round(time.time() - started, 1),
        **{"model_hash": source, **job.extra},
    )
    return job.outcome(audit), provenance


def _recipe(options: Any) -> RecipeFlags:
    """The options of training of a command, or the defaults if it does not train."""
    return options if isinstance(options, RecipeFlags) else RecipeFlags()


def _save(out: Path, record: "msgspec.Struct", outcome: Outcome, table: str) -> None:
    from jaxaudit.report.kinds import to_json
    from jaxaudit.runs.directory import write

    write(out, to_json(record), outcome.files, table)
    say(f"written: {few([f'{out}/{name}' for name in ('result.json', *outcome.files)], 4)}")
    if outcome.note:
        say(outcome.note)


SET_NAME = re.compile(r"[\w\-]+(/[\w\-.+]+)?(:\d+\.\d+\.\d+)?", re.ASCII)
NO_SETS = (*OF_SETS, ".npy", ".tsv", ".mat", ".gz", ".zip", ".safetensors")
"""Endings of names that are those of files, and of no set that is known by name."""
LONGEST = 100


def refuse_bad_options(options: Any, together: Sequence[Callable[[Any], object]] = ()) -> None:
    """Checks that the options of a command are consistent and that every path they name exists.

    All that is wrong is told at once.
    """
    inherited = [vars(kind)["check"] for kind in type(options).__mro__ if "check" in vars(kind)]
    problems: dict[str, None] = {}
    for check, *arguments in [
        *_checks(options),
        *((check, options) for check in (*inherited, refuse_without_effect, *together)),
    ]:
        try:
            check(*arguments)
        except InputErrors as errors:
            problems |= dict.fromkeys(errors.problems)
        except InputError as error:
            problems[str(error)] = None
    if len(problems) == 1:
        raise InputError(*problems)
    if problems:
        raise InputErrors(tuple(problems))


def _checks(options: Any) -> Iterator[tuple[Any, ...]]:
    """Functions that raise an `InputError` for invalid arguments, each with its arguments."""
    fields = [field for field in fields_of(options) if field.value is not None]
    out, page = getattr(options, "out", None), getattr(options, "report", None)
    for field in fields:
        for value in field.value if isinstance(field.value, tuple) else (field.value,):
            if field.declared.check:
                yield field.declared.check, value
            if field.declared.names in PLACES:
                yield _check_place, field, value
    if page:
        from jaxaudit.runs.directory import claim_report

        yield claim_report, page, out
    if out:
        # Imported here because it takes half a second.
        from jaxaudit.runs.directory import claim

        yield claim, out


def _check_place(field: OptionField, value: Any) -> None:
    path = field.declared.place(value) if field.declared.place else value
    if path is None:
        return
    if field.declared.names == "file":
        _check_path(field.flag, path)
    else:
        _check_data(field.flag, str(path))


def _check_data(option: str, name: str) -> None:
    """Rejects a path that does not exist; `NAME[@SPLIT]` as in `jaxaudit.data.load`."""
    source = name.rpartition("@")[0] if "@" in name and not _mode(name) else name
    folder = os.environ.get("JAXAUDIT_DATA", "")
    for path in (source, os.path.join(folder, source)):
        if source and _mode(path):
            return _check_path(option, path)
    is_set = SET_NAME.fullmatch(source) and not source.lower().endswith(NO_SETS)
    if source.strip() and not is_set:
        raise InputError(_missing(option, source, f" here or in {folder}" if folder else ""))


def _check_path(option: str, path: str | Path) -> None:
    mode = _mode(path)
    if not mode:
        raise InputError(_missing(option, str(path), ""))
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise InputError(f"{option} {path} is neither a file nor a folder; name the file itself.")


def _missing(option: str, path: str, where: str) -> str:
    shown = path if len(path) <= LONGEST else f"{path[:LONGEST]}..."
    return f"{option} {shown}: there is no such file or folder{where}; is the path right?"


def _mode(path: str | Path) -> int:
    """The kind of file at a path; 0 if there is none or the path is invalid."""
    try:
        return os.stat(os.path.expanduser(path)).st_mode
    except (OSError, ValueError):
        return 0


def before_jax(recipe: RecipeFlags) -> None:
    """Preparations that must precede JAX's initialisation of devices.

    With workers this process uses one GPU, as each worker does, and does not preallocate memory. A Ray of this machine
    is started by forking, which a process with initialised JAX devices does not survive.
    """
    if not recipe.workers:
        return
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    # The first GPU that CUDA sees; workers, and a Ray started by this process, still see all.
    jax.config.update("jax_cuda_visible_devices", "0")
    _, cluster = parse_workers(recipe.workers)
    if cluster:
        from jaxaudit.ensemble.workers import connect

        connect(_address(cluster))


@contextmanager
def crew(recipe: RecipeFlags) -> "Iterator[Pulling | None]":
    """The workers within this context, or None if this process trains; their failures are printed on stderr."""
    if not recipe.workers:
        yield None
        return
    from jaxaudit.ensemble import LocalWorkers, RayWorkers

    count, cluster = parse_workers(recipe.workers)
    with warnings.catch_warnings():
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = lambda message, *_, **__: say(str(message))
        with RayWorkers(_address(cluster), count) if cluster else LocalWorkers(count or 1) as workers:
            yield workers


def _address(cluster: str) -> str | None:
    """The address of Ray's client server; None for the cluster of `RAY_ADDRESS`, or a Ray of this machine."""
    return None if cluster == "ray" else cluster
