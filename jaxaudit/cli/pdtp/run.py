"""Runs `jaxaudit pdtp`: from its options to its result."""

from dataclasses import replace

import jax
import numpy as np

from jaxaudit.audits.left_out import models_trained
from jaxaudit.audits.pdtp.audit import PDTPAudit, measure_pdtp
from jaxaudit.cli.classifiers import DEFAULT_DATA, drawn, make_classifier, read_table_options, table_data
from jaxaudit.cli.pdtp import PDTPOptions
from jaxaudit.cli.read_sets import with_dealt_groups
from jaxaudit.cli.show import Job, Outcome
from jaxaudit.data.examples import Sets
from jaxaudit.data.groups import groups_file, hash_of_groups, load_groups, number_sets
from jaxaudit.ensemble import Execution
from jaxaudit.learners import LeavesOneOut
from jaxaudit.metrics.pdtp import SOURCE
from jaxaudit.report.kinds import Provenance, recorded
from jaxaudit.runs.directory import record_files


def prepare(options: PDTPOptions) -> Job[PDTPAudit]:
    """The work for these options."""
    options = with_dealt_groups(options, options.data.data or "")
    audit_flags, data, bins = options.audit, options.data, options.audit.bins
    if audit_flags.groups is not None and groups_file(audit_flags.groups) is None and data.is_file:
        data = replace(data, drop=(*data.drop, audit_flags.groups))
    whole = read_table_options(data)
    generator = np.random.default_rng(audit_flags.seed)
    chosen = drawn(generator, len(whole), options.data.sample, "--sample", whole.name)
    table = whole if len(chosen) == len(whole) else whole.take(chosen)
    records = drawn(generator, len(table), audit_flags.measured_records, "--measured-records", table.name)
    options, examples, learner = make_classifier(options, table)
    key = jax.random.key(audit_flags.seed)
    groups = None
    if audit_flags.groups is not None:
        groups = load_groups(audit_flags.groups, data.data or DEFAULT_DATA, len(whole), "training set")[chosen]
        examples = replace(examples, groups=groups)
    closed_form = groups is None and isinstance(learner, LeavesOneOut)
    left_out = len(records) if groups is None else len(np.unique(groups[records]))

    def models(models_per_batch: int) -> int:
        if closed_form:
            return 0
        return audit_flags.measurements * models_trained(left_out, models_per_batch) + audit_flags.floor_seeds

    def audit(execution: Execution) -> PDTPAudit:
        audit = measure_pdtp(
            key,
            examples,
            learner,
            records=records,
            bins=bins,
            measurements=audit_flags.measurements,
            seeds=audit_flags.floor_seeds,
            execution=execution,
        )
        # Records are identified by their index in the given table.
        return replace(audit, records=chosen[audit.records])

    held = {} if groups is None else {"groups": hash_of_groups(number_sets(Sets(query=groups)))}

    def outcome(audit: PDTPAudit, provenance: Provenance) -> Outcome:
        record = recorded("pdtp", audit.result, [SOURCE], provenance)
        return Outcome(record, {"pdtp": audit.values}, record_files(audit.columns))

    return Job(
        options=options,
        data=table_data(whole, table, "training"),
        hashes={"table": table.content_hash, **held},
        audit=audit,
        outcome=outcome,
        models=models,
        line=f"{len(records):,} records, {options.model.model}, on {jax.default_backend()}",
        label="measuring",
    )
