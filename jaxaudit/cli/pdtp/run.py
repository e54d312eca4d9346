"""Runs `jaxaudit pdtp`: from its options to its result."""

from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np

from jaxaudit.audits.left_out import measured_models_per_batch, models_in_pieces, models_trained
from jaxaudit.audits.pdtp.audit import audit_pdtp, check_steps, reduce_pdtp
from jaxaudit.audits.pdtp.result import PDTPAudit, Reduction
from jaxaudit.cli.classifiers import make_classifier
from jaxaudit.cli.harness import Job, Outcome
from jaxaudit.cli.pdtp.command import PDTPOptions
from jaxaudit.cli.tables import describe, drawn, read_table, table_data
from jaxaudit.data import Table, describe_record
from jaxaudit.ensemble import Execution
from jaxaudit.errors import visible
from jaxaudit.learners import LeavesOneOut
from jaxaudit.report.pdtp.record import pdtp_columns, pdtp_record
from jaxaudit.report.pdtp.view import riskiest
from jaxaudit.report.record import Provenance
from jaxaudit.runs.row_files import record_files


class Measured(NamedTuple):
    """The audit, and the result of `--reduce`, if any."""

    audit: PDTPAudit
    reduction: Reduction | None
    models_per_batch: int | None = None


def prepare(options: PDTPOptions) -> Job[Measured]:
    """The work that these options mean."""
    asked = options.audit
    whole = read_table(options.data)
    describe(whole, columns=options.data.csv is not None)
    generator = np.random.default_rng(asked.seed)
    chosen = drawn(generator, len(whole), options.data.sample, "--sample", whole.name)
    table = whole if chosen is None else whole.take(chosen)
    if asked.reduce:
        check_steps(asked.reduce, len(table))
    records = drawn(generator, len(table), asked.measured_records, "--measured-records", table.name)
    examples, learner = make_classifier(options.model, options.recipe, table)
    key = jax.random.key(asked.seed)
    count = len(table) if records is None else len(records)
    closed_form = isinstance(learner, LeavesOneOut)
    # Records are known by their place in what the person gave.
    places = whole.in_file(np.arange(len(whole)) if chosen is None else chosen)

    def models(models_per_batch: int) -> int:
        counts = [count] * (1 if closed_form else asked.measurements)
        counts += [len(table) - step for step in range(asked.reduce + 1) if asked.reduce]
        if closed_form:
            return sum(each for each in counts if models_in_pieces(learner, each))
        return sum(models_trained(each, models_per_batch) for each in counts) + asked.floor_seeds

    def audit(execution: Execution) -> Measured:
        measuring, reducing = execution.split(asked.measurements, asked.reduce and asked.reduce + 1)
        found = audit_pdtp(
            key,
            examples,
            learner,
            records=records,
            bins=asked.bins,
            measurements=asked.measurements,
            seeds=asked.floor_seeds,
            execution=measuring,
        )
        reduction = None
        if asked.reduce:
            reduction = reduce_pdtp(key, examples, learner, asked.reduce, bins=asked.bins, execution=reducing)
            reduction = reduction._replace(removed=places[reduction.removed])
        return Measured(replace(found, records=places[found.records]), reduction)

    def outcome(found: Measured, provenance: Provenance) -> Outcome:
        names = table.class_names
        columns = pdtp_columns(found.audit, names)
        record = pdtp_record(found.audit, found.reduction, names, provenance)
        aside = _values(whole, found.audit, options.output.top) if options.output.show_values else ""
        return Outcome(record, {"pdtp": found.audit.values}, record_files(columns), aside)

    return Job(
        options=options,
        data=table_data(whole, table, "training"),
        hashes={"table": table.content_hash},
        audit=audit,
        outcome=outcome,
        models=models,
        line=f"{count:,} records, {options.model.model}, on {jax.default_backend()}",
        label="measuring",
        shorter="--measured-records N measures N records only, --sample N trains on N",
        record_shape=examples.inputs.shape[1:],
        classes=len(table.class_names),
        measure=None if closed_form else lambda: measured_models_per_batch(key, examples, learner, count),
    )


def _values(table: Table, audit: PDTPAudit, top: int) -> str:
    """The values of the riskiest records, one line each."""
    everyone = table.in_file(np.arange(len(table))).tolist()
    records = audit.records[riskiest(audit, top)].tolist()
    return "".join(
        visible(f"  {record}: {describe_record(table, everyone.index(record))}") + "\n" for record in records
    )
