"""How to repeat a run, the same for every kind of run."""

import shlex
from collections.abc import Sequence
from typing import Any

from jaxaudit.errors import visible
from jaxaudit.report.numbers import text
from jaxaudit.report.page import PageTable, Repeat
from jaxaudit.report.record import Provenance


def repeat(provenance: Provenance) -> Repeat:
    """The command, seed, versions, and hashes of the data."""
    devices = f", {text(provenance.devices)} devices" if provenance.devices != 1 else ""
    facts = [
        ("Seed", str(provenance.seed)),
        ("Started", f"{visible(provenance.started)} and took {provenance.seconds:,.0f} seconds"),
        ("Device", f"{visible(provenance.device)}{devices}, {text(provenance.cores)} cores"),
        ("Program", f"jaxaudit {visible(provenance.jaxaudit)}, Python {text(provenance.python)}"),
    ]
    hashes = (
        ("Weights", provenance.weights_hash),
        ("Reference weights", provenance.reference_hashes),
        ("Source of the model", provenance.model_hash),
        ("Sources of your own code", provenance.code_hashes),
        ("Commitment of the challenge", provenance.challenge),
        ("Environment", provenance.environment),
    )
    facts += [(name, text(value)) for name, value in hashes if value]
    versions = tuple((visible(name), visible(value)) for name, value in sorted(provenance.versions.items()))
    options = tuple((visible(name), text(value)) for name, value in sorted(provenance.options.items()))
    return Repeat(
        tuple(_pieces(provenance.command)),
        tuple(facts),
        PageTable("Data", ("part", "what", "value"), tuple(_data(provenance))),
        PageTable("Library versions", ("library", "version"), versions, folded=True),
        PageTable("All options of the run", ("option", "value"), options, folded=True),
    )


def _pieces(words: Sequence[str]) -> list[str]:
    """The command as text, in pieces of an option with its value.

    >>> _pieces(["jaxaudit", "ks", "--query", "my data.npz", "--gray"])
    ['jaxaudit ks', "--query 'my data.npz'", '--gray']
    """
    pieces: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not pieces:
            pieces.append([])
        pieces[-1].append(word)
    return [visible(shlex.join(piece)) for piece in pieces]


def _data(provenance: Provenance) -> list[tuple[str, str, str]]:
    """One row per fact of each data set; the command's facts may concern one set, or several by role."""
    rows = []
    sets = {role: one_set for role, one_set in provenance.data.items() if one_set is not None}
    if all(isinstance(one_set, dict | list) for one_set in sets.values()):
        for role, one_set in sets.items():
            for part in one_set if isinstance(one_set, list) else [one_set]:
                rows += _facts(role, part)
    else:
        rows += _facts("table", sets)
    for role in (name for name in provenance.__struct_fields__ if name.endswith(("targets", "before"))):
        for file in getattr(provenance, role) or ():
            rows += _facts(role, file)
    return rows


def _facts(role: str, facts: Any) -> list[tuple[str, str, str]]:
    role = visible(str(role)).replace("_", " ")
    if not isinstance(facts, dict):
        return [(role, "value", text(facts))]
    return [(role, visible(str(name)).replace("_", " "), text(value)) for name, value in facts.items()]
