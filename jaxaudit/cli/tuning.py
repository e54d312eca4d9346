"""A cache of models per batch and of forms of convolutions on this machine, so that a command repeats its numbers.

Both are measurements. Two runs may measure differently, and models trained in batches of another size differ by
rounding. So the first measurement is stored beside the cached data sets, under a hash of the model and of everything
else that affects it. The hash excludes the number of models, which must not change the
measurement. Of the records it includes only shape and number of classes, since nothing else affects the speed.

How many models are trained side by side is measured, and remembered. Models trained in chunks of different sizes differ
by the rounding of differently shaped products, and training amplifies that. The command line keeps the number it
measured beside the data cache and writes it into the result, so the same command gives the same numbers.
"""

import contextlib
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxaudit.cli.options import json_options
from jaxaudit.data.cache import cache_dir
from jaxaudit.data.paths import whole_file
from jaxaudit.runs.unfinished import machine_facts

DECIDING = (
    *("command", "model", "hidden", "batch_size", "optimizer", "classes", "models_per_batch", "record"),
    *("momentum", "dropout", "augment", "precision", "patience"),
    *("tokens", "source", "lora", "lora_layers"),
)
"""The facts that affect the speed, or the memory that a model takes; those that were not given are left out."""


def facts_of(
    command: str, options: Any, sources: Mapping[str, str], record: tuple[int, ...], classes: int
) -> dict[str, Any]:
    """The facts of the work of a command, with your own code of these hashes, on records of this shape."""
    facts = {"source": sources.get("model"), "command": command, "record": list(record), "classes": classes}
    return {**json_options(options), **facts}


def recall_models_per_batch(work: Mapping[str, Any]) -> int | None:
    """The cached number for this work on this machine, if any."""
    number = _read().get(_name(work))
    return number if type(number) is int and number > 0 else None


def remember_models_per_batch(work: Mapping[str, Any], number: int) -> None:
    """Caches a number; a cache that cannot be written is not an error."""
    _write(_name(work), number)


def in_known_form(learner: Any) -> Any:
    """The learner with its convolutions in the form that is the fastest on this machine, measured once and cached."""
    from jaxaudit.ensemble.forms import fastest_letters, with_decided_form
    from jaxaudit.kernels.convolutions import is_form

    def letters_of(convolution: Any) -> str:
        name = _name({"command": "form", "record": [*convolution.inputs], "model": repr(convolution)})
        letters = _read().get(name)
        if not isinstance(letters, str) or not letters or not is_form(letters):
            letters = fastest_letters(convolution)
            _write(name, letters)
        return letters

    return with_decided_form(learner, letters_of)


def _write(name: str, value: Any) -> None:
    kept_values = {**_read(), name: value}
    with contextlib.suppress(OSError):
        _path().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with whole_file(_path()) as file:
            file.write(json.dumps(kept_values).encode())


def _path() -> Path:
    return cache_dir() / "widths.json"


def _read() -> dict[str, Any]:
    try:
        kept_values = json.loads(_path().read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return kept_values if isinstance(kept_values, dict) else {}


def _name(work: Mapping[str, Any]) -> str:
    from jaxaudit.ensemble.concurrency import cores

    facts = {name: work[name] for name in DECIDING if work.get(name) not in (None, [], ())}
    # A limit on the number of cores changes no number, but changes how many chunks are trained at the same time.
    machine = {**machine_facts(), "cores": len(cores())}
    text = json.dumps({**facts, "machine": machine}, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
