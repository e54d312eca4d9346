"""How a run is repeated: the same words for every kind of run."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from jaxaudit.errors import visible
from jaxaudit.report.numbers import text
from jaxaudit.report.page import Cells, Repeat


def repeat(provenance: Mapping[str, Any]) -> Repeat:
    """Command, seed, versions, and the content of the data."""
    facts = [
        ("Seed", str(provenance["seed"])),
        ("Started", f"{visible(provenance['started'])} and took {provenance['seconds']:,.0f} seconds"),
        ("Device", _device(provenance)),
        ("Program", f"jaxaudit {visible(provenance['jaxaudit'])}, Python {text(provenance.get('python'))}"),
    ]
    hashes = {"weights_hash": "Weights", "reference_hashes": "Weights beside", "model_hash": "Source of the model"}
    for name, said in hashes.items():
        if provenance.get(name):
            facts.append((said, text(provenance[name])))
    if provenance.get("environment"):
        facts.append(("Environment", text(provenance["environment"])))
    versions = sorted(provenance["versions"].items())
    options = sorted(provenance["options"].items())
    return Repeat(
        tuple(_pieces(provenance["command"])),
        tuple(facts),
        Cells("Data", ("part", "what", "value"), tuple(_data(provenance))),
        Cells(
            "Versions of what it used",
            ("library", "version"),
            tuple((visible(a), visible(b)) for a, b in versions),
            folded=True,
        ),
        Cells(
            "Every option as it was settled",
            ("option", "value"),
            tuple((visible(str(a)), text(b)) for a, b in options),
            folded=True,
        ),
    )


def _pieces(words: Sequence[str]) -> list[str]:
    """The command as text, an option with its value a piece.

    >>> _pieces(["jaxaudit", "ks", "--query", "my data.npz", "--gray"])
    ['jaxaudit ks', "--query 'my data.npz'", '--gray']
    """
    pieces: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not pieces:
            pieces.append([])
        pieces[-1].append(word)
    return [visible(shlex.join(piece)) for piece in pieces]


def _device(provenance: Mapping[str, Any]) -> str:
    count, cores = provenance.get("devices", 1), provenance.get("cores")
    said = visible(provenance["device"]) + (f", {text(count)} devices" if count != 1 else "")
    return said + (f", {text(cores)} cores" if cores else "")


def _data(provenance: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """A row a fact of each data set; the command's facts may be of one set or of several by role."""
    rows = []
    sets = {role: each for role, each in provenance["data"].items() if each is not None}
    if all(isinstance(each, dict | list) for each in sets.values()):
        for role, each in sets.items():
            for part in each if isinstance(each, list) else [each]:
                rows += _facts(role, part)
    else:
        rows += _facts("table", sets)
    for role in ("targets", "holdout_targets"):
        for target in provenance.get(role) or ():
            rows += _facts(role, target)
    return rows


def _facts(role: str, facts: Any) -> list[tuple[str, str, str]]:
    role = visible(str(role)).replace("_", " ")
    if not isinstance(facts, dict):
        return [(role, "value", text(facts))]
    return [(role, visible(str(name)).replace("_", " "), text(value)) for name, value in facts.items()]
