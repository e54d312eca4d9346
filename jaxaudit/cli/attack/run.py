"""Runs `jaxaudit attack`: from its options to its result; of texts by fair coins and language models."""

import tempfile
from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np

from jaxaudit.attacks import Attack
from jaxaudit.attacks.records import RECORD_ATTACKS
from jaxaudit.audits.attack.attack import attack
from jaxaudit.audits.attack.records import attack_records, open_for_attacks
from jaxaudit.audits.attack.result import AttackAudit
from jaxaudit.audits.attack.train_splits import (
    ATTACKS,
    attack_models_per_batch,
    check_attacks,
    draw,
    models_to_train,
    train_splits,
)
from jaxaudit.cli.attack import ON_RECORDS, ON_TARGETS, AttackFlags, AttackOptions, attacks_named
from jaxaudit.cli.attack.by_bank import attack_outcome, attacks_of
from jaxaudit.cli.classifiers import (
    make_classifier,
    network_of_texts,
    read_table_options,
    read_training_set,
    refuse_more,
    summarise_table,
    table_data,
)
from jaxaudit.cli.groups import RecipeFlags, ShadowRecipe
from jaxaudit.cli.options import with_values
from jaxaudit.cli.own_code import load_named, with_fields
from jaxaudit.cli.read_sets import read_groups, with_dealt_groups
from jaxaudit.cli.shadows import BankData, BankModels, BankNetwork, TrainOptions, train
from jaxaudit.cli.show import Job, Outcome, Summary
from jaxaudit.data import Examples, Table, candidate_indices
from jaxaudit.data.bank.bank import Bank
from jaxaudit.data.groups import as_groups
from jaxaudit.ensemble import Execution
from jaxaudit.report.kinds import recorded
from jaxaudit.report.record import Provenance
from jaxaudit.runs.directory import arrays
from jaxaudit.runs.provenance import describe_examples

CANDIDATES = 2000
SIZES = {"iterations": 100, "targets": 100}
DEMONSTRATION = {"iterations": 10, "targets": 20}
"""Defaults without --data."""


def prepare(options: AttackOptions) -> Job[Any]:
    """The work for these options."""
    if options.of_texts:
        return prepare_of_texts(options)
    audit_flags = options.audit
    names = attacks_named(audit_flags.attacks)
    attacks = attacks_on_targets(audit_flags)
    sizes = DEMONSTRATION if options.data.data is None else SIZES
    iterations = audit_flags.iterations or sizes["iterations"]
    # Only shadow models of a kind that some attack learns from are trained.
    pairs = audit_flags.shadow_pairs if any(attack.shadows == "paired" for attack in attacks) else 0
    pooled = audit_flags.pooled_shadow_models if any(attack.shadows == "pooled" for attack in attacks) else 0
    # Checks that need no data come first.
    check_attacks(attacks, audit_flags.bins, bool(pairs), bool(pooled))
    whole = read_table_options(options.data)
    summarise_table(whole, columns=options.data.is_file)
    candidates = _candidates(options.data.sample, whole)
    targets = audit_flags.targets or min(sizes["targets"], candidates)
    chosen = candidate_indices(np.random.default_rng(audit_flags.seed), len(whole), candidates)
    table = whole.take(chosen)
    examples, learner = make_classifier(options.model, options.recipe, table)
    key = jax.random.key(audit_flags.seed)
    drawn = draw(key, examples, iterations, targets)
    how: dict[str, Any] = {
        "shadow_pairs": pairs,
        "pooled_shadows": pooled,
        "measured": min(audit_flags.measured_iterations, iterations),
    }
    settled = with_values(options, sample=candidates, attacks=",".join(names), iterations=iterations, targets=targets)

    def models(models_per_batch: int) -> int:
        return models_to_train(drawn, learner, **how, models_per_batch=models_per_batch).total

    def audit(execution: Execution) -> AttackAudit:
        models = train_splits(
            key,
            examples,
            learner,
            **how,
            iterations=iterations,
            targets=targets,
            bins=audit_flags.bins,
            execution=execution,
        )
        return attack(models, attacks=attacks, level=audit_flags.level)

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
        record_shape=examples.inputs.shape[1:],
        classes=len(table.class_names),
        measure=lambda: attack_models_per_batch(key, examples, learner, targets),
    )


def attacks_on_targets(flags: AttackFlags) -> tuple[Attack, ...]:
    """The attacks that `--attacks` names: built-in ones in their order, then your own."""
    names, needs = attacks_named(flags.attacks), "a value with the fields and methods of jaxaudit.attacks.Attack"
    attacks_by_name = {attack.name: attack for attack in ATTACKS if attack.name in names}
    attacks_by_name |= load_named("--attacks", names, Attack, needs, (*ON_TARGETS, *ON_RECORDS))
    return tuple(with_fields("--attack-option", flags.attack_option, attacks_by_name).values())


def _candidates(count: int | None, table: Table) -> int:
    """The number of candidates: as given, else the paper's number, or the largest possible even number."""
    if count is None:
        return min(CANDIDATES, len(table) // 2 * 2)
    refuse_more(len(table), count, "--sample", table.name)
    return count


def prepare_of_texts(options: AttackOptions) -> Job[tuple[AttackAudit, Bank]]:
    """The work for these options: that of `shadows train --coins`, and of `attack --shadows`.

    The bank is in the folder of unfinished work, so that the same command goes on after a stop, or in a temporary one.
    """
    options = with_dealt_groups(options, options.data.data or "")
    attacks, texts = attacks_of(options), read_training_set(options.data, network_of_texts(options.model))
    assert isinstance(texts, Examples)
    network = BankNetwork(**vars(network_of_texts(options.model)))
    train_options = TrainOptions(
        data=BankData(
            query=options.data.data,
            data_dir=options.data.data_dir,
            groups=options.audit.groups,
            coins=True,
            drop_overlap=True,
        ),
        models=BankModels(seed=options.audit.seed, models=options.audit.pooled_shadow_models),
        model=network,
        recipe=ShadowRecipe(**vars(options.recipe)),
    )
    work = train.prepare(train_options)
    assert not isinstance(work, Summary), "this is no dry run"
    whole, data = options.audit.groups, {"query": describe_examples(texts)}
    hashes = {"query": texts.content_hash}
    if whole is not None:
        groups = read_groups(whole, options.data.data or "", len(texts), "texts", options.data.data_dir)
        # Work that was begun with other groups, or with none, is other work.
        hashes["groups"] = as_groups(groups, groups[:0]).content_hash
        data["groups"] = {"query": len(np.unique(groups)), "content_hash": hashes["groups"]}
    settled = {field.name: getattr(work.options.recipe, field.name) for field in fields(RecipeFlags)}

    def audit(execution: Execution) -> tuple[AttackAudit, Bank]:
        kept = execution.checkpoints
        with tempfile.TemporaryDirectory(prefix="jaxaudit-") if kept is None else nullcontext(kept) as folder:
            bank = work.audit(replace(execution, checkpoints=Path(folder)))
            shadows = open_for_attacks(bank, len(RECORD_ATTACKS if attacks is None else attacks))
            return attack_records(shadows, attacks=attacks, level=options.audit.level), bank

    def outcome(audit_and_bank: tuple[AttackAudit, Bank], provenance: Provenance) -> Outcome:
        return attack_outcome(*audit_and_bank, len(texts), provenance)

    return Job(
        options=with_values(options, model=work.options.model.model, **settled),
        data=data,
        hashes=hashes,
        audit=audit,
        outcome=outcome,
        models=lambda _: options.audit.pooled_shadow_models,
        line=f"attacking {len(texts):,} texts, {work.options.model.model} on {jax.default_backend()}",
        after="attacking every text" if whole is None else "attacking every group of texts",
        record_shape=work.record_shape,
        classes=work.classes,
    )
