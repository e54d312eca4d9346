"""Runs `jaxaudit ks --members` without a calibration set: from its options to its result, with no training."""

from dataclasses import replace

import jax

from jaxaudit.audits.ks.audit import audit_ks
from jaxaudit.audits.ks.result import KSAudit
from jaxaudit.audits.ks.tests import MembersTest
from jaxaudit.cli.harness import Job, Outcome
from jaxaudit.cli.ks.inputs import read_given
from jaxaudit.cli.ks.options import KSOptions
from jaxaudit.cli.ks.run import arrays_of, described_files, described_sets, hashes_of
from jaxaudit.cli.networks import IMAGE_SIZE
from jaxaudit.ensemble import Execution
from jaxaudit.errors import InputError
from jaxaudit.report.ks.record import ks_record
from jaxaudit.report.record import Provenance
from jaxaudit.runs.directory import arrays


def prepare_by_members(options: KSOptions) -> Job[KSAudit]:
    """The work that these options mean.

    Raises:
        InputError: a set or a file of outputs cannot be used, or a test is asked for that needs shadow models.
    """
    if options.audit.tests not in (None, "all", MembersTest.name):
        raise InputError(
            f"--tests {options.audit.tests}: without --calibration no shadow model is trained, and only the members "
            "test can be made; give --calibration, or leave --tests out."
        )
    options = replace(
        options,
        audit=replace(options.audit, tests=MembersTest.name),
        data=replace(options.data, image_size=options.data.image_size or IMAGE_SIZE),
    )
    sets, audit_options = read_given(options), options.audit
    test = MembersTest(stated=audit_options.stated_share, question=audit_options.question)

    def audit(execution: Execution) -> KSAudit:
        return audit_ks(
            jax.random.key(audit_options.seed),
            sets.query,
            None,
            None,
            sets.targets,
            tests=(test,),
            holdout=sets.holdout,
            members=sets.members,
            groups=sets.groups,
            level=audit_options.level,
        )

    def outcome(found: KSAudit, provenance: Provenance) -> Outcome:
        kept = arrays_of(found)
        return Outcome(ks_record(found, provenance), kept, {"confidences.npz": arrays(kept)})

    return Job(
        options=options,
        data=described_sets(sets),
        hashes=hashes_of(sets),
        audit=audit,
        outcome=outcome,
        label="comparing",
        extra={
            "targets": described_files([target.outputs for target in sets.files]),
            "holdout_targets": described_files([target.on_holdout for target in sets.files]),
            "members_targets": described_files([target.on_members for target in sets.files]),
        },
    )
