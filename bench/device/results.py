"""The files of pieces: `results/device-DEVICE/PIECE.json`."""

import json
import re
import time
from pathlib import Path
from typing import Any

from bench.device.measuring import Outcome
from bench.harness import RESULTS, content, device_slug, machine, write_json

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "torch", "peft", "cupy", "opacus", "backpack-for-pytorch")


REDUCED = "-reduced"
"""Ends the name of the folder of what was measured in reduced sizes, which no page shows."""


def folder(parent: Path | None, reduced: bool) -> Path:
    """Of this device; what was measured in reduced sizes has one of its own."""
    return (parent or RESULTS) / f"device-{device_slug()}{REDUCED if reduced else ''}"


def file(folder: Path, piece: str) -> Path:
    return folder / f"{re.sub(r'[^a-z0-9]+', '-', piece.lower()).strip('-')}.json"


def read(folder: Path, piece: str) -> dict[str, Any]:
    """What is written of the piece; empty where nothing is, or no JSON."""
    try:
        return json.loads(file(folder, piece).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def is_current(result: dict[str, Any]) -> bool:
    """Whether the piece has ended, and nothing has changed since; `older_than` is put into a file by hand."""
    return bool(result.get("finished")) and not result.get("older_than")


def write(folder: Path, outcome: Outcome, began: float, error: str | None) -> Path:
    """Writes what came out, whether or not the piece has ended."""
    added = {
        "piece": outcome.piece,
        "finished": error is None,
        "error": error,
        "seconds": time.monotonic() - began,
        "left_out": outcome.left_out,
        "tables": outcome.tables,
        "chosen": outcome.chosen,
    }
    packages = [name for name, number in machine(PACKAGES)["versions"].items() if number != "not installed"]
    return write_json(content(outcome.bench, machine(packages)) | added, file(folder, outcome.piece))
