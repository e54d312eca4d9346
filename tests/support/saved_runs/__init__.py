"""Small audits, and the runs they would leave, without training anything."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxaudit.report import ARRAYS, Run, run_kind, to_json
from jaxaudit.runs import arrays, write
from support.saved_runs.attack import attack_run
from support.saved_runs.efficacy import efficacy_run
from support.saved_runs.ks import ks_run
from support.saved_runs.pdtp import pdtp_run
from support.saved_runs.power import power_run
from support.saved_runs.unlearn import unlearn_run
from support.saved_runs.unlearn_outputs import unlearn_outputs_run

RUNS: dict[str, Callable[..., Run[Any]]] = {
    "ks": ks_run,
    "power": power_run,
    "pdtp": pdtp_run,
    "attack": attack_run,
    "efficacy": efficacy_run,
    "unlearn": unlearn_run,
    "unlearn_outputs": unlearn_outputs_run,
}
"""A run of every command, on data of the name that is given."""


def save(run: Run[Any], directory: Path, result: dict[str, Any] | None = None) -> Path:
    """The run as `--out` leaves it, or with another result."""
    files = {ARRAYS: arrays(run.arrays)} if run_kind(run.kind).stored(run.result) and run.arrays else {}
    write(directory, to_json(run.result) if result is None else result, files)
    return directory


def as_json(run: Run[Any]) -> dict[str, Any]:
    """What `--json` prints of it."""
    return json.loads(json.dumps(to_json(run.result), allow_nan=False))
