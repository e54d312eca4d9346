"""A bank and its sets, for the provenance of an audit."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxaudit.audits.ks.bank.evidence import content_hash
from jaxaudit.audits.ks.evidence import Evidence
from jaxaudit.data.bank.bank import Bank
from jaxaudit.places import without_folders


def described_bank(path: Path, bank: Bank, evidence: Evidence, names: Mapping[str, str]) -> dict[str, Any]:
    """Facts of each set by role, and of the bank; `names` of the sets where they were given again."""
    said = bank.description
    sets = {
        role: {
            "name": names.get(role, f"{role} of {path.resolve().name}"),
            "records": count,
            "classes": said.classes,
            "content_hash": getattr(said.hashes, role) or "unknown",
        }
        for role, count in said.sizes._asdict().items()
        if count
    }
    shadows = {
        "name": without_folders(str(path)),
        "models": sum(len(rows) for rows in evidence.roles.values()),
        "planned": len(bank),
        "outputs": said.outputs,
        "dropped": int(bank.dropped.sum()),
        "recipe": said.recipe,
        "designs": ", ".join(said.designs),
        "seed": "not dealt by jaxaudit" if said.seed is None else said.seed,
        "content_hash": content_hash(evidence),
    }
    return {**sets, "shadows": shadows}
