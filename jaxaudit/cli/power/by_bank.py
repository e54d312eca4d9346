"""Runs `jaxaudit power --shadows BANK`: from its options to its result, with no training."""

from pathlib import Path

from jaxaudit.audits.ks.bank.evidence import open_bank
from jaxaudit.audits.power.audit import power_of_models
from jaxaudit.audits.power.result import Power
from jaxaudit.cli.harness import Job, Outcome
from jaxaudit.cli.power.command import OF_BANK, PowerOptions
from jaxaudit.cli.shadows.provenance import described_bank
from jaxaudit.data.bank.bank import load_bank
from jaxaudit.ensemble import Execution
from jaxaudit.report.power.record import power_record
from jaxaudit.report.record import Provenance


def prepare_by_bank(options: PowerOptions) -> Job[Power]:
    """The work that these options mean.

    Raises:
        InputError: the bank cannot be used.
    """
    path = options.audit.shadows or Path()
    bank = load_bank(path)
    models = open_bank(bank)

    def audit(execution: Execution) -> Power:
        data, asked = options.data, options.audit
        return power_of_models(
            models, holdout_size=data.holdout_size, members_size=data.members_size, fraction=asked.fraction
        )

    def outcome(found: Power, provenance: Provenance) -> Outcome:
        return Outcome(power_record(found, provenance), {}, {})

    return Job(
        options=options,
        data=described_bank(path, bank, {}, len(models), models.content_hash),
        hashes={},
        audit=audit,
        outcome=outcome,
        label="measuring",
        used=OF_BANK,
    )
