"""The identity of a run: stored work is used only by a run with the same identity."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jaxaudit
from jaxaudit.version import __version__

Identity = dict[str, dict[str, Any]]
"""Facts by section; messages name the sections that differ."""

SECTIONS = {
    "command": "another command",
    "options": "other options",
    "data": "other data",
    "code": "another version of the code",
    "machine": "another machine or other libraries",
}
SHOWN = 3
LONGEST = 60


def run_identity(
    command: str, options: Mapping[str, Any], data: Mapping[str, str], code: Mapping[str, str | None]
) -> Identity:
    """Everything that affects a run's numbers."""
    identity = {
        "command": {"command": command},
        "options": options,
        "data": data,
        "code": {"jaxaudit": __version__, "sources": sources_hash(), **code},
        "machine": machine_facts(),
    }
    # As read back from a file: tuples as lists, paths as text.
    return json.loads(json.dumps(identity, default=str))


def differences(there: Mapping[str, Any], here: Identity) -> str | None:
    """The differences between the identity `there`, from a file, and `here`, in words; None if there are none."""
    found = []
    for section, words in SECTIONS.items():
        old, new = there.get(section), here[section]
        facts = list(_differing(old if isinstance(old, dict) else {}, new))
        if facts:
            more = [f"{len(facts) - SHOWN} more"] if len(facts) > SHOWN else []
            found.append(f"{words} ({'; '.join([*facts[:SHOWN], *more])})")
    return " and ".join(found) or None


def identity_hash(identity: Identity) -> str:
    """32 hexadecimal digits, the same for the same identity."""
    return hashlib.blake2b(json.dumps(identity, sort_keys=True).encode(), digest_size=16).hexdigest()


def sources_hash() -> str:
    """`blake2b:...` of the package's own Python files, by name and content."""
    root = Path(jaxaudit.__file__).parent
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return f"blake2b:{digest.hexdigest()}"


def machine_facts() -> dict[str, Any]:
    """Facts on which the rounding of a number depends: devices, libraries, and JAX's settings."""
    from jaxaudit.ensemble.concurrency import device_facts

    facts = device_facts() | {name: version(name) for name in ("jax", "jaxlib", "flax", "optax", "numpy", "scipy")}
    # Cache folders of compiled programs change no number.
    settings = {name for name in os.environ if name.startswith("JAX_") and "CACHE" not in name}
    return facts | {name: os.environ[name] for name in sorted(settings | ({"XLA_FLAGS"} & set(os.environ)))}


def _differing(there: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*here, *there]):
        if there.get(name) != here.get(name):
            yield f"{name}: {_short(there.get(name))} there, {_short(here.get(name))} here"


def _short(value: Any) -> str:
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    text = "none" if value is None or value == "" else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
