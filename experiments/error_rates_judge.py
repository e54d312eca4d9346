"""Six methods' answers on the targets of `error_rates_targets`, one row a target.

    python -m experiments.error_rates_judge --split report --cache FOLDER

The holdout test with shadow models of five designs, and of the guessed one alone; the reference test, the shadow test,
the paper's rule on rho (Liu & Tsaftaris 2020) and EMA (Huang et al. 2021). A target
that never used the query set is indifferent to which of the provider's records are called query and which holdout; so
they are dealt anew for each such target, and its holdout test is a trial of its own. Keeps `answers-WORLD.json` beside
the targets; call again to go on.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
from scipy import special

from experiments.error_rates_targets import FAMILY, SAME, SIZES, SPLITS, worlds
from experiments.error_rates_worlds import KINDS
from jaxaudit.metrics.checks import reference_like_target
from jaxaudit.metrics.ema import ema, ema_rule
from jaxaudit.metrics.holdout import holdout_test
from jaxaudit.metrics.ks import paper_rule, rho
from jaxaudit.metrics.reference import reference_test
from jaxaudit.metrics.shadow import shadow_test
from jaxaudit.metrics.usage import Usage

HALVES = 40
"""Shadow models of the holdout test, of five designs."""
ALONE = {"none": 40, "half": 20, "full": 20}
"""Those of the reference and the shadow test."""
NO_BOOTSTRAP = 2
"""The paper's rule needs no interval."""


def judge_world(world: dict[str, np.ndarray], seed: list[int]) -> list[dict[str, Any]]:
    """All methods' answers on all targets of one world."""
    roles, group = world["roles"], int(world["group"])
    shadows, targets = np.split(world["log_odds"], [len(roles)])
    size = len(world["labels"]) // 2
    both, place = slice(0, 2 * size), np.arange(shadows.shape[1])
    without_holdout = (place < size) | (place >= 2 * size)
    guessed = (roles == "halves") & (world["designs"] == SAME)
    halves = _mixed(world, "halves", HALVES)
    alone = np.concatenate([_mixed(world, role, count) for role, count in ALONE.items()])
    designs = np.unique(world["designs"], return_inverse=True)[1]
    query, calibration = (special.expit(shadows[roles == role, :size]) for role in ("query_only", "calibration_only"))
    generator = np.random.default_rng([*seed, 2])
    rows = []
    for index, (target, truth) in enumerate(zip(targets, world["truth"], strict=True)):
        fraction, rest, design = str(truth).split("|")
        key = jax.random.fold_in(jax.random.key(seed[-1]), index)
        groups = np.arange(2 * size).reshape(-1, group)
        order = generator.permutation(groups).ravel() if float(fraction) == 0 else groups.ravel()

        def by_holdout(chosen: np.ndarray, key: Any = key, order: Any = order, target: Any = target) -> Usage:
            dealt = target[order]
            return holdout_test(
                key,
                dealt[:size],
                dealt[size:],
                shadows[chosen][:, order],
                world["membership"][chosen][:, order],
                groups=None if group == 1 else np.arange(2 * size) // group,
            )

        referred = reference_test(
            target[without_holdout],
            shadows[alone][:, without_holdout],
            world["membership"][alone][:, without_holdout],
            size,
        )
        by_reference = referred.usage
        if not reference_like_target(referred.accuracy, referred.accuracies).passed:
            by_reference = msgspec.structs.replace(by_reference, verdict="inconclusive")
        by_shadow = shadow_test(
            target[:size], shadows[alone][:, :size], world["membership"][alone][:, :size], designs[alone]
        )
        ratio = rho(key, query, calibration, special.expit(target[None, :size]), bootstrap=NO_BOOTSTRAP).median
        membership = ema(
            np.exp(world["target_log_probs"][index].astype(np.float64)),
            world["labels"][:size],
            np.exp(world["calibration_log_probs"][0].astype(np.float64)),
            world["calibration_labels"],
            world["calibration_members"][0],
        )
        rows.append(
            {
                "fraction": float(fraction),
                "rest": rest,
                "design": design,
                "accuracy": round(float((target[both] > 0).mean()), 4),
                "holdout": plain(by_holdout(halves)),
                "guess": plain(by_holdout(np.flatnonzero(guessed))),
                "reference": plain(by_reference),
                "shadow": plain(by_shadow),
                "rho": {"verdict": paper_rule(ratio), "value": None if np.isnan(ratio) else round(float(ratio), 4)},
                "ema": {"verdict": ema_rule(membership.p_value), "p_value": membership.p_value},
            }
        )
    return rows


def _mixed(world: dict[str, np.ndarray], role: str, count: int) -> np.ndarray:
    """The places of this many models of a role, as many of each design."""
    of_role = world["roles"] == role
    each = count // len(FAMILY)
    return np.concatenate([np.flatnonzero(of_role & (world["designs"] == design))[:each] for design in FAMILY])


def plain(usage: Usage) -> dict[str, Any]:
    """For JSON: NaN becomes nothing, numbers are rounded."""
    return {
        name: (None if np.isnan(value) else round(value, 6)) if isinstance(value, float) else value
        for name, value in msgspec.structs.asdict(usage).items()
        if name != "method"
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--split", choices=list(SPLITS), required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--seeds", nargs="*", type=int, help="only these worlds: several runs may share the work")
    parser.add_argument("--sizes", nargs="*", type=int, choices=SIZES, default=list(SIZES))
    parser.add_argument("--seconds", type=float, default=500, help="start no world after this time; call again")
    arguments = parser.parse_args()
    started = time.time()
    for kind, size, seed in worlds(arguments.split):
        path = arguments.cache / f"answers-{kind}-{size}-{seed}.json"
        trained = arguments.cache / f"{kind}-{size}-{seed}.npz"
        mine = size in arguments.sizes and (not arguments.seeds or seed in arguments.seeds)
        if not mine or path.exists() or not trained.exists():
            continue
        if time.time() - started > arguments.seconds:
            sys.exit(3)
        with np.load(trained) as arrays:
            rows = judge_world(dict(arrays), [KINDS.index(kind), size, seed])
        path.write_text(json.dumps({"kind": kind, "size": size, "seed": seed, "targets": rows}))
        print(f"{path.name}: after {time.time() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
