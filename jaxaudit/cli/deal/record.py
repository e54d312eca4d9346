"""The seed of a deal, and the file that documents it."""

import hashlib
import json
import platform
import secrets
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from jaxaudit.cli.deal.command import SEED_BITS, Deal
from jaxaudit.cli.deal.show import DealSide
from jaxaudit.cli.deal.units import DealtUnits
from jaxaudit.data.challenge import file_hash
from jaxaudit.randomness import stream
from jaxaudit.version import __version__

SCHEMA = "jaxaudit.deal/1"


def seed_of(how: Deal) -> int:
    """The seed that was asked for, or a new one that nobody can guess."""
    return secrets.randbits(SEED_BITS) if how.seed is None else how.seed


def key_of_deal(seed: int, how: Deal) -> Key[Array, ""]:
    """The key of a deal: of all 64 bits of its seed, since `jax.random.key` keeps 32, few enough to try them all."""
    key = jax.random.wrap_key_data(jnp.array([seed >> 32, seed & 0xFFFFFFFF], jnp.uint32), impl="threefry2x32")
    return key if how.withdraw is None else stream(key, "withdraw")


def record_of(
    how: Deal,
    seed: int,
    units: DealtUnits,
    source: Mapping[str, Any],
    out: Path,
    sides: Mapping[str, DealSide],
    hashes: Mapping[str, np.ndarray],
) -> bytes:
    """The file that documents a deal, as JSON: its options, its source, and the size and hashes of each side.

    `membership` of a side is the SHA-256 of the hashes of its records, in the file's order.

    Args:
        how, seed: the options of the deal.
        units: what was dealt.
        source: facts on the source, as they are written.
        out: the folder that contains the sides' files.
        sides, hashes: each side, and the hashes of its records, by its name.
    """

    def recorded(name: str, side: DealSide) -> dict[str, Any]:
        return {
            "file": side.file,
            "records": len(side.rows),
            "groups": side.groups,
            "sha256": file_hash(out / side.file),
            "membership": hashlib.sha256(hashes[name].tobytes()).hexdigest(),
        }

    facts = {
        "schema": SCHEMA,
        "seed": seed,
        "holdout_share": how.held if how.withdraw is None else None,
        "members_share": how.members_share,
        "withdraw": how.withdraw,
        "by_groups": units.whole,
        "within_groups": units.within,
        "copies": units.copied,
        "source": dict(source),
        **dict.fromkeys(("query", "members", "holdout")),
        **{name: recorded(name, side) for name, side in sides.items()},
        "versions": {"jaxaudit": __version__, "python": platform.python_version()}
        | {name: version(name) for name in ("jax", "numpy")},
    }
    return (json.dumps(facts, indent=1) + "\n").encode()
