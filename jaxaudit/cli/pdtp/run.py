"""Runs `jaxaudit pdtp`: from its options to its result."""

from dataclasses import replace

import jax
import numpy as np

from jaxaudit.audits.left_out import models_trained
from jaxaudit.audits.pdtp.audit import PDTPAudit, measure_pdtp
from jaxaudit.cli.classifiers import DEFAULT_DATA, drawn, make_classifier, read_table_options, table_data
from jaxaudit.cli.pdtp import PDTPOptions
from jaxaudit.cli.read_sets import group_columns, with_dealt_groups
from jaxaudit.cli.show import Job, Outcome
from jaxaudit.data.examples import Sets
from jaxaudit.data.groups import hash_of_groups, load_groups, number_sets
from jaxaudit.ensemble import Execution
from jaxaudit.learners import LeavesOneOut
from jaxaudit.metrics.pdtp import SOURCE
from jaxaudit.runs.directory import record_files


def prepare(options: PDTPOptions) -> Job[PDTPAudit]:
    """The work for these options."""
    options = with_dealt_groups(options, options.data or "")
    columns = group_columns(options.groups) if options.is_file else ()
    whole = read_table_options(replace(options, drop=(*options.drop, *columns)))
    generator = np.random.default_rng(options.seed)
    chosen = drawn(generator, len(whole), options.sample, "--sample", whole.name)
    table = whole if len(chosen) == len(whole) else whole.take(chosen)
    records = drawn(generator, len(table), options.measured_records, "--measured-records", table.name)
    options, examples, learner = make_classifier(options, table)
    key = jax.random.key(options.seed)
    groups = None
    if options.groups is not None:
        groups = load_groups(options.groups, options.data or DEFAULT_DATA, len(whole), "training set")[chosen]
        examples = replace(examples, groups=groups)
    closed_form = groups is None and isinstance(learner, LeavesOneOut)
    left_out = len(records) if groups is None else len(np.unique(groups[records]))

    def models(models_per_batch: int) -> int:
        if closed_form:
            return 0
        return options.measurements * models_trained(left_out, models_per_batch) + options.floor_seeds

    def audit(execution: Execution) -> PDTPAudit:
        audit = measure_pdtp(
            key,
            examples,
            learner,
            records=records,
            bins=options.bins,
            measurements=options.measurements,
            seeds=options.floor_seeds,
            execution=execution,
        )
        # Records are identified by their index in the given table.
        return replace(audit, records=chosen[audit.records])

    held = {} if groups is None else {"groups": hash_of_groups(number_sets(Sets(query=groups)))}

    return Job(
        options=options,
        data=table_data(whole, table, "training"),
        hashes={"table": table.content_hash, **held},
        audit=audit,
        outcome=lambda audit: Outcome(audit.result, [SOURCE], {"pdtp": audit.values}, record_files(audit.columns)),
        models=models,
        line=f"{len(records):,} records, {options.model}, on {jax.default_backend()}",
        label="measuring",
    )
