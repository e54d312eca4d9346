"""Runs `jaxaudit attack --query TEXTS`: deals texts by fair coins, trains language models, and attacks every text."""

import tempfile
from dataclasses import fields, replace
from pathlib import Path

from jaxaudit.audits.attack.records import USUAL, attack_records, open_for_attacks
from jaxaudit.audits.attack.result import AttackAudit
from jaxaudit.cli.attack.by_bank import attacks_of, outcome_of
from jaxaudit.cli.attack.command import AttackOptions
from jaxaudit.cli.classifiers import network_of_texts
from jaxaudit.cli.groups import Recipe
from jaxaudit.cli.harness import Job, Outcome, Summary
from jaxaudit.cli.sets import GUESS, ShadowNetwork, ShadowRecipe
from jaxaudit.cli.shadows import train
from jaxaudit.cli.shadows.options import BankData, BankNetwork, TrainedModels, TrainOptions
from jaxaudit.cli.tables import read_training_set
from jaxaudit.data import Examples
from jaxaudit.data.bank.bank import Bank
from jaxaudit.ensemble import Execution
from jaxaudit.report.record import Provenance
from jaxaudit.runs.provenance import describe_examples


def prepare_of_texts(options: AttackOptions) -> Job[tuple[AttackAudit, Bank]] | Summary:
    """The work for these options: that of `shadows train --coins` into a temporary bank, and of `attack --shadows`.

    Raises:
        InputError: the texts or an attack cannot be used.
    """
    attacks, texts = attacks_of(options), read_training_set(options.data, network_of_texts(options.model))
    assert isinstance(texts, Examples)
    folder = tempfile.TemporaryDirectory(prefix="jaxaudit-")
    work = train.prepare(_training(options, Path(folder.name) / "bank"))
    if isinstance(work, Summary):
        folder.cleanup()
        return work
    settled = {each.name: getattr(work.options.recipe, each.name) for each in fields(Recipe)}

    def audit(execution: Execution) -> tuple[AttackAudit, Bank]:
        with folder:
            # What is trained is kept in the bank, which no later call finds.
            bank = work.audit(replace(execution, checkpoints=None))
            known = open_for_attacks(bank, len(USUAL if attacks is None else attacks))
            return attack_records(known, attacks=attacks, level=options.audit.level), bank

    def outcome(found: tuple[AttackAudit, Bank], provenance: Provenance) -> Outcome:
        return outcome_of(*found, len(texts), provenance)

    return Job(
        options=replace(
            options,
            model=replace(options.model, model=work.options.model.model),
            recipe=replace(options.recipe, **settled),
        ),
        data={"query": describe_examples(texts)},
        hashes={"query": texts.content_hash},
        audit=audit,
        outcome=outcome,
        after="attacking every text",
        record_shape=work.record_shape,
        classes=work.classes,
    )


def _training(options: AttackOptions, bank: Path) -> TrainOptions:
    """The options of `shadows train` for a bank of these texts."""
    recipe = {each.name: getattr(options.recipe, each.name) for each in fields(Recipe)}
    network = network_of_texts(options.model)
    return TrainOptions(
        data=BankData(query=options.data.data, data_dir=options.data.data_dir, coins=True, drop_overlap=True),
        models=TrainedModels(seed=options.audit.seed, models=options.audit.pooled_shadow_models, designs=GUESS),
        model=BankNetwork(**{each.name: getattr(network, each.name) for each in fields(ShadowNetwork)}),
        recipe=ShadowRecipe(**recipe),
        bank=bank,
    )
