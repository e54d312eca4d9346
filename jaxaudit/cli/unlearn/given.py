"""Runs `jaxaudit unlearn --outputs METHOD=FILE.npz`: from files of outputs to the result, with no training."""

from pathlib import Path
from typing import Any

import jax

from jaxaudit.audits.unlearn.given_models import (
    RETRAINED,
    GivenModels,
    Labels,
    check_name,
    check_together,
    labels_by_part,
    read_models_of,
)
from jaxaudit.audits.unlearn.outputs_finding import models_compared, shortfalls_of
from jaxaudit.audits.unlearn.outputs_result import UnlearnOutputsAudit
from jaxaudit.audits.unlearn.result import ORIGINAL
from jaxaudit.audits.unlearn.score_outputs import score_given
from jaxaudit.cli.job import Job, Outcome
from jaxaudit.cli.parsers import parse_outputs
from jaxaudit.cli.progress import say
from jaxaudit.cli.unlearn.command import UnlearnOptions
from jaxaudit.data.formats.arrays import NpzArrays, read_npy
from jaxaudit.data.formats.parsing import refuse_pickle
from jaxaudit.data.paths import exists
from jaxaudit.ensemble import Execution
from jaxaudit.errors import InputError, visible
from jaxaudit.report.kinds import recorded
from jaxaudit.report.record import Provenance

KIND = "unlearn_outputs"


def prepare_given(options: UnlearnOptions) -> Job[UnlearnOutputsAudit]:
    """The work for these options."""
    files, audit_flags = options.files, options.audit
    paths = dict(map(parse_outputs, files.outputs))
    for name in paths:
        check_name(name)
    paths |= {RETRAINED: files.retrained or Path()} | ({} if files.original is None else {ORIGINAL: files.original})
    labels = _read_labels(files.labels or Path())
    sides = {name: read_models_of(name, _read_arrays(path), labels, files.outputs_kind) for name, path in paths.items()}
    data = {name: _described(paths[name], side) for name, side in sides.items()}
    retrained, original = sides.pop(RETRAINED), sides.get(ORIGINAL)
    methods = {name: side for name, side in sides.items() if name != ORIGINAL}
    check_together(methods, retrained, original)
    for line in shortfalls_of(sides, retrained, models_compared(sides, retrained)):
        say(f"too few models: {visible(line)}")

    def audit(execution: Execution) -> UnlearnOutputsAudit:
        return score_given(jax.random.key(audit_flags.seed), methods, retrained, original, audit_flags.level, execution)

    def outcome(audit: UnlearnOutputsAudit, provenance: Provenance) -> Outcome:
        return Outcome(recorded(KIND, audit.result, audit.sources, provenance), {}, {}, kind=KIND)

    return Job(options=options, data=data, audit=audit, outcome=outcome, label="comparing")


def _read_arrays(path: Path) -> dict[str, Any]:
    """The arrays of an .npz by name; rows of uncompressed ones are read when they are needed."""
    refuse_pickle(path)
    if not (exists(path) and path.is_file()):
        raise InputError(f"{path}: there is no such file; is the path right?")
    if path.suffix.lower() != ".npz":
        raise InputError(f"{path}: outputs of several models are read from .npz files; save them with np.savez.")
    archive = NpzArrays(path, opened=True)
    return {name: archive.open(name) for name in archive.names}


def _read_labels(path: Path) -> Labels:
    """The labels in an .npz by set, or in a .npy of the records to forget."""
    if path.suffix.lower() == ".npy" and exists(path) and path.is_file():
        return labels_by_part(read_npy(path))
    return labels_by_part(_read_arrays(path))


def _described(path: Path, side: GivenModels) -> dict[str, Any]:
    return {
        "name": path.name,
        "models": len(side),
        "records": side.log_odds.shape[1],
        "classes": side.classes,
        "outputs": f"{side.kind}, {side.dtype}",
        "content_hash": side.content_hash,
    }
