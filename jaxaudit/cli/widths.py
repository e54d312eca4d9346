"""Widths measured before on this machine, so that the same command gives the same numbers again.

A width is a measurement: two runs may measure differently, and models trained at different widths differ by rounding.
So the first run's choice is kept beside the cached data sets, under a hash of what it depends on.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from jaxaudit.data.cache import cache_dir
from jaxaudit.report.provenance import describe_machine


def recall_width(work: dict[str, Any]) -> int | None:
    """The width remembered for this work on this machine, if any."""
    width = _read().get(_name(work))
    return width if type(width) is int and width > 0 else None


def remember_width(work: dict[str, Any], width: int) -> None:
    """Keeps a width for next time; a cache that cannot be written is no failure."""
    known = {**_read(), _name(work): width}
    with contextlib.suppress(OSError):
        _path().parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=_path().parent)
        try:
            with os.fdopen(handle, "w") as file:
                json.dump(known, file)
            os.replace(draft, _path())
        finally:
            Path(draft).unlink(missing_ok=True)


def _path() -> Path:
    return cache_dir() / "widths.json"


def _read() -> dict[str, Any]:
    try:
        known = json.loads(_path().read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def _name(work: dict[str, Any]) -> str:
    text = json.dumps({**work, "seed": None, "width": None, "machine": describe_machine()}, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
