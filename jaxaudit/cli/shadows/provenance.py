"""A bank and its sets, for the provenance of an audit."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxaudit.data.bank.bank import Bank
from jaxaudit.places import without_folders


def described_bank(path: Path, bank: Bank, names: Mapping[str, str], models: int, content_hash: str) -> dict[str, Any]:
    """Facts of each set by role, and of the bank.

    Args:
        path: of the bank.
        bank: the bank.
        names: of the sets where they were given again.
        models: how many are used.
        content_hash: of what is used of them.
    """
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
        "models": models,
        "planned": len(bank),
        "outputs": said.outputs,
        "dropped": int(bank.dropped.sum()),
        "recipe": said.recipe,
        "designs": ", ".join(said.designs),
        "seed": "not dealt by jaxaudit" if said.seed is None else said.seed,
        "content_hash": content_hash,
    }
    return {**sets, "shadows": shadows}
