"""What `jaxaudit pdtp` does between its options and its result."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import RenderableType

from jaxaudit.audits.left_out import measured_models_per_batch, models_trained
from jaxaudit.audits.pdtp.audit import PDTPAudit, Reduction, audit_pdtp, check_steps, reduce_pdtp
from jaxaudit.cli.classifier import describe, make_classifier, read_table
from jaxaudit.cli.progress import duration, progress_on_stderr, say
from jaxaudit.cli.repeat import Options, plain
from jaxaudit.cli.show import as_text
from jaxaudit.cli.table_run import settled, table_provenance
from jaxaudit.cli.widths import recall_width, remember_width
from jaxaudit.cli.work import Begin
from jaxaudit.data import Table, describe_record
from jaxaudit.ensemble import Execution
from jaxaudit.errors import InputError
from jaxaudit.learners import LeavesOneOut
from jaxaudit.learners.learner import Progress
from jaxaudit.report.pdtp.record import pdtp_columns, pdtp_json
from jaxaudit.report.pdtp.table import riskiest
from jaxaudit.runs.directory import write
from jaxaudit.runs.identity import run_identity
from jaxaudit.runs.row_files import record_files

TIMED_SECONDS, LONG_SECONDS = 3, 60


class Answer(NamedTuple):
    """What the command found.

    Attributes:
        audit: of every measured record.
        reduction: what `--reduce` did, if asked.
        class_names: in label order.
        provenance: what repeats the run.
        bound: nats that no record can move any output by, whatever the data; None where there is no such number.
        table: what was given.
    """

    audit: PDTPAudit
    reduction: Reduction | None
    class_names: tuple[str, ...]
    provenance: dict[str, Any]
    bound: float | None
    table: Table

    def json(self) -> dict[str, Any]:
        """As one JSON object."""
        return pdtp_json(self.audit, self.reduction, self.class_names, self.provenance, self.bound)

    def own_values(self, top: int) -> dict[int, str]:
        """What stands in the riskiest records."""
        records = self.audit.records[riskiest(self.audit, top)]
        everyone = self.table.in_file(np.arange(len(self.table))).tolist()
        return {record: describe_record(self.table, everyone.index(record)) for record in records.tolist()}


def run(options: Options, begin: Begin) -> Answer:
    """The answer of `jaxaudit pdtp` with these options; see `lasting_work` for `begin`."""
    started = time.time()
    if options["reduce"] and options["records"] is not None:
        raise InputError("--reduce measures all that remain after each removal; leave out --records.")
    whole = read_table(options)
    describe(whole, columns=options["csv"] is not None)
    generator = np.random.default_rng(options["seed"])
    drawn = _draw(generator, len(whole), options["sample"], f"--sample {options['sample']}", whole.name)
    table = whole if drawn is None else whole.take(drawn)
    if options["reduce"]:
        check_steps(options["reduce"], len(table))
    measured = _draw(generator, len(table), options["records"], f"--records {options['records']}", table.name)
    examples, learner, bound = make_classifier(options, table)
    key = jax.random.key(options["seed"])
    count = len(table) if measured is None else len(measured)
    work = {**plain(options), "shape": examples.inputs.shape}
    if options["width"] is None and not isinstance(learner, LeavesOneOut):
        options["width"] = recall_width(work)
        if options["width"] is None:
            options["width"] = measured_models_per_batch(key, examples, learner, count)
            remember_width(work, options["width"])
    models = 0
    if options["width"] is not None:
        counts = [count] * options["measurements"]
        counts += [len(table) - step for step in range(options["reduce"] + 1) if options["reduce"]]
        models = sum(models_trained(each, options["width"]) for each in counts) + options["floor_seeds"]
    line = f"{count:,} records, {options['learner']}, on {jax.default_backend()}"
    identity = run_identity("pdtp", settled(options), {"table": table.content_hash}, {})
    checkpoints = begin(identity, models, line)
    execution = Execution(options["width"], checkpoints=checkpoints)
    with progress_on_stderr("measuring") as progress:
        audit = audit_pdtp(
            key,
            examples,
            learner,
            records=measured,
            measurements=options["measurements"],
            seeds=options["floor_seeds"],
            bins=options["bins"],
            execution=replace(execution, progress=foretold(progress)),
        )
    reduction = None
    if options["reduce"]:
        with progress_on_stderr("reducing") as progress:
            steps, told = options["reduce"], replace(execution, progress=progress)
            reduction = reduce_pdtp(key, examples, learner, steps, bins=options["bins"], execution=told)
    # Records are known by their place in what the person gave.
    places = whole.in_file(np.arange(len(whole)) if drawn is None else drawn)
    audit = audit._replace(records=places[audit.records])
    reduction = reduction and reduction._replace(removed=places[reduction.removed])
    provenance = table_provenance("pdtp", options, whole, table, "training", started)
    return Answer(audit, reduction, table.class_names, provenance, bound, whole)


def foretold(progress: Progress) -> Progress:
    """The same, and one line that says how long it will take, if it is minutes, once some seconds were timed."""
    begun: tuple[float, float] | None = None
    said = False

    def show(done: int, total: int) -> None:
        nonlocal begun, said
        progress(done, total)
        if said or not 0 < done < total:
            return
        now = time.monotonic()
        # What comes before is compiling.
        begun = begun or (now, done / total)
        passed, share = now - begun[0], done / total - begun[1]
        if passed >= TIMED_SECONDS and share > 0:
            said = True
            left = passed * (1 - done / total) / share
            if left > LONG_SECONDS:
                say(f"about {duration(left)} left; --records N measures so many only, --sample N trains on so many")

    return show


def arrays_of(answer: Answer) -> dict[str, np.ndarray]:
    """PDTP and seed floor of every record, of which the result lists the riskiest only."""
    return {"pdtp": answer.audit.values, "seed_floor": answer.audit.floor.mean}


def save(directory: Path, answer: Answer, table: RenderableType) -> None:
    """Writes the run directory: the JSON result, the table, and a row a record as CSV and as Parquet."""
    files = record_files(pdtp_columns(answer.audit, answer.class_names))
    write(directory, answer.json(), files, as_text(table))
    say(f"written: {directory}/result.json, records.csv and records.parquet")


def _draw(generator: np.random.Generator, records: int, count: int | None, option: str, name: str) -> Any:
    """So many distinct places of `records`, in ascending order; None for all."""
    if count is None:
        return None
    if count > records:
        raise InputError(f"{option} asks for more than the {records:,} records of {name}; leave it out to take all.")
    return np.sort(generator.choice(records, count, replace=False))
