"""Stores the shadow models of a `ks` run as a bank in the run's directory, for later audits of the same sets."""

from collections import Counter
from collections.abc import Mapping
from importlib.metadata import version

import numpy as np

from jaxaudit.audits.ks.result import KSAudit
from jaxaudit.cli.dealt_groups import group_columns
from jaxaudit.cli.ks.command import as_given
from jaxaudit.cli.ks.inputs import AuditInputs, positions
from jaxaudit.cli.ks.options import KSOptions
from jaxaudit.cli.options import command_line
from jaxaudit.data.bank.bank import CORRECT, DESIGNS, DROPPED, GROUPS, LABELS, MEMBERSHIP
from jaxaudit.data.bank.description import MOST_CLASSES, Counts, Description, Hashes, SampledAlike
from jaxaudit.data.bank.outputs import WHOLE
from jaxaudit.data.bank.writing import Writer, bank_files
from jaxaudit.data.roles import Role
from jaxaudit.shadow_models import BUILT_IN_KINDS, OF_QUERY, Kind
from jaxaudit.version import __version__

ROLES = (Role.QUERY, Role.HOLDOUT, Role.CALIBRATION)
OF_BANK = (Kind.MIXED, *OF_QUERY)
"""Built-in kinds of models that a bank can hold, beside all kinds of your own tests."""


def files_of_bank(options: KSOptions, sets: AuditInputs, audit: KSAudit) -> Mapping[str, Writer]:
    """A writer for each file of the bank; empty if there is no model that a bank can hold.

    Records that the audit dropped or did not sample have columns in the bank, too, so that outputs of a later target
    have one row for every record of the given sets.
    """
    shadows_kept = audit.shadows
    if shadows_kept is None or len(sets.query.class_names) > MOST_CLASSES:
        return {}
    own_kinds = {kind: count for kind, count in Counter(shadows_kept.kinds).items() if kind not in BUILT_IN_KINDS}
    built_in = [index for index, kind in enumerate(shadows_kept.kinds) if kind in OF_BANK]
    indices = np.concatenate([shadows_kept.of(*own_kinds), np.array(built_in, int)])
    if not len(indices):
        return {}
    shadows = shadows_kept.take(indices)
    parts = (sets.query, sets.holdout, sets.calibration)
    counts = [len(sets.read[role].record_hashes) if role in sets.read else 0 for role in ROLES]
    starts = np.cumsum([0, *counts])
    kept = [
        start + positions(sets.read[role], part)
        for role, part, start in zip(ROLES, parts, starts, strict=False)
        if part is not None
    ]
    columns, records = np.concatenate(kept), int(starts[-1])
    dropped = np.ones(records, bool)
    dropped[columns] = False
    labels = np.full(records, -1, np.int32)
    labels[columns] = np.concatenate([part.labels for part in parts if part is not None])
    models, kinds, texts = len(shadows.membership), (bool, bool, np.float32), shadows.pool.classless
    membership, correct, outputs = (np.zeros((models, records), kind) for kind in kinds)
    arrays: dict[str, np.ndarray] = {MEMBERSHIP: membership, WHOLE: outputs}
    arrays |= {} if texts else {LABELS: labels, CORRECT: correct}
    # Of a text the log-odds are those of its mean log-likelihood.
    stored_outputs = -np.logaddexp(0, -shadows.log_odds.astype(np.float64)) if texts else shadows.log_odds
    for array, of_models in zip(
        (membership, correct, outputs), (shadows.membership, shadows.correct, stored_outputs), strict=True
    ):
        # A separate reference, members and records used only by targets have no column in the bank.
        array[:, columns] = of_models[:, : len(columns)]
    measured = None
    if audit.sampled_alike is not None:
        # Of records without classes the labels are not compared, and all are equal.
        found_alike = audit.sampled_alike._asdict().items()
        measured = {
            name: 1.0 if np.isnan(p_value) else p_value for name, p_value in found_alike if name != "difficulty"
        }
    description = Description(
        format=1,
        outputs="log_likelihood" if texts else "log_odds",
        direction="higher" if texts else None,
        classes=len(sets.query.class_names),
        class_names=() if texts else sets.query.class_names,
        records=records,
        models=models,
        counts=Counts(**dict(zip(ROLES, counts, strict=True))),
        hashes=Hashes(**{role: source_set.content_hash for role, source_set in sets.read.items()}),
        sampled_alike=None if measured is None else SampledAlike(**measured),
        image_size=options.data.image_size or "none",
        gray=options.data.gray,
        seed=options.audit.seed,
        groups=sets.read_groups is not None,
        group_columns=group_columns(options.data),
        own_kinds=own_kinds,
        designs=shadows.design_names if len(shadows.design_names) > 1 else (),
        versions={"jaxaudit": __version__, "numpy": version("numpy")},
        command=tuple(command_line("ks", as_given(options))),
    )
    if dropped.any():
        arrays[DROPPED] = dropped
    if sets.read_groups is not None:
        arrays[GROUPS] = sets.read_groups.dealt_sets.astype(np.int64)
    if description.designs:
        arrays[DESIGNS] = shadows.designs.astype(np.int64)
    return bank_files(description, arrays)
