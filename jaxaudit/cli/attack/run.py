"""Runs `jaxaudit attack`: from its options to its result, on classifiers that it trains."""

from typing import Any

import jax
import msgspec
import numpy as np

from jaxaudit.audits.attack.attack import attack
from jaxaudit.audits.attack.result import AttackAudit
from jaxaudit.audits.attack.train_splits import (
    ATTACKS,
    MEASURED,
    PAIRS,
    POOLED,
    draw,
    models_to_train,
    train_splits,
)
from jaxaudit.cli.attack import AttackOptions, named_attacks
from jaxaudit.cli.classifiers import make_classifier, read_table_options, refuse_more, table_data
from jaxaudit.cli.options import with_values
from jaxaudit.cli.show import Job, Outcome
from jaxaudit.data import Table, candidate_indices
from jaxaudit.ensemble import Execution
from jaxaudit.report.kinds import recorded
from jaxaudit.report.record import Provenance
from jaxaudit.runs.directory import arrays

CANDIDATES = 2000
SIZES = {"iterations": 100, "targets": 100}
DEMONSTRATION = {"iterations": 10, "targets": 20}
"""Defaults without --data."""


def prepare(options: AttackOptions) -> Job[Any]:
    """The work for these options."""
    audit_flags = options.audit
    attacks = named_attacks(audit_flags, ATTACKS)
    sizes = DEMONSTRATION if options.data.data is None else SIZES
    iterations = audit_flags.iterations or sizes["iterations"]
    # Only shadow models of a kind that some attack learns from are trained.
    pairs = PAIRS if any(attack.shadows == "paired" for attack in attacks) else 0
    pooled = POOLED if any(attack.shadows == "pooled" for attack in attacks) else 0
    whole = read_table_options(options.data)
    candidates = _candidates(options.data.sample, whole)
    targets = audit_flags.targets or min(sizes["targets"], candidates)
    chosen = candidate_indices(np.random.default_rng(audit_flags.seed), len(whole), candidates)
    table = whole.take(chosen)
    options, examples, learner = make_classifier(options, table)
    key = jax.random.key(audit_flags.seed)
    drawn = draw(key, examples, iterations, targets)
    how: dict[str, Any] = {"shadow_pairs": pairs, "pooled_shadows": pooled, "measured": min(MEASURED, iterations)}
    names = ",".join(attack.name for attack in attacks)
    settled = with_values(options, sample=candidates, attacks=names, iterations=iterations, targets=targets)

    def models(models_per_batch: int) -> int:
        *counts, left_out = models_to_train(drawn, learner, **how, models_per_batch=models_per_batch)
        return sum((*counts, *left_out))

    def audit(execution: Execution) -> AttackAudit:
        models = train_splits(
            key,
            examples,
            learner,
            **how,
            iterations=iterations,
            targets=targets,
            execution=execution,
        )
        return attack(models, attacks=attacks)

    def outcome(audit: AttackAudit, provenance: Provenance) -> Outcome:
        indices = chosen[audit.records]
        splits = audit.result.splits
        assert splits is not None
        listed = zip(splits.records, indices.tolist(), strict=True)
        in_file = tuple(msgspec.structs.replace(record, index=place) for record, place in listed)
        result = msgspec.structs.replace(audit.result, splits=msgspec.structs.replace(splits, records=in_file))
        kept = {"records": indices, "truth": audit.truth, "pdtp": audit.measurements, **audit.scores}
        return Outcome(recorded("attack", result, audit.sources, provenance), {}, {"scores.npz": arrays(kept)})

    return Job(
        options=settled,
        data=table_data(whole, table, "candidate"),
        hashes={"table": table.content_hash},
        audit=audit,
        outcome=outcome,
        models=models,
        line=f"attacking {targets:,} of {len(table):,} candidates {2 * iterations:,} times, "
        f"{options.model.model}, on {jax.default_backend()}",
        label="attacking",
    )


def _candidates(count: int | None, table: Table) -> int:
    """The number of candidates: as given, else the paper's number, or the largest possible even number."""
    if count is None:
        return min(CANDIDATES, len(table) // 2 * 2)
    refuse_more(len(table), count, "--sample", table.name)
    return count
