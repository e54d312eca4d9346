"""Attacks on records, against the code of LiRA's authors and of RMIA's.

    git clone https://github.com/tensorflow/privacy
    git clone https://github.com/privacytrustlab/ml_privacy_meter
    python -m experiments.crosscheck.record_attacks privacy ml_privacy_meter

Only the functions that are compared are taken from their files: `generate_ours`, `generate_ours_offline` and
`generate_global` of `research/mi_lira_2021/plot.py`, and `run_rmia` of `modules/mia/attacks/rmia.py`.
"""

import ast
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Optional

import numpy as np
import scipy.stats
from scipy import special

from experiments.crosscheck.record import Check, run
from jaxaudit.attacks.records import RMIA, AttackP, LiRACode, RecordAttack, ShadowScores

ROUNDING, BECAUSE = 1e-10, "float64, relative to the largest score"
MODELS, RECORDS, VIEWS, TARGETS = 32, 400, 2, 4
LIRA, METER = Path("research/mi_lira_2021/plot.py"), Path("modules/mia/attacks/rmia.py")


def functions_of(path: Path, *names: str) -> dict[str, Callable[..., Any]]:
    """These functions of a file, without whatever else it does when it is imported."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: list[ast.stmt] = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    space: dict[str, Any] = {"np": np, "scipy": scipy, "Optional": Optional, "Any": Any}
    exec(compile(ast.Module(found, []), str(path), "exec", dont_inherit=True), space)
    return {name: space[name] for name in names}


def world() -> tuple[ShadowScores, np.ndarray]:
    """Models that have each record in exactly half, and targets."""
    random = np.random.default_rng(5)
    membership = np.stack([random.permutation(MODELS) < MODELS // 2 for _ in range(RECORDS)], axis=1)
    centre, width = random.normal(2, 2, RECORDS), np.exp(random.normal(0, 0.4, RECORDS))
    gap = np.abs(random.normal(0, 2, RECORDS))

    def odds(rows: np.ndarray) -> np.ndarray:
        noise = random.normal(size=(len(rows), VIEWS, RECORDS))
        return centre + width * noise + gap * rows[:, None]

    truth = random.random((TARGETS, RECORDS)) < 0.5
    return ShadowScores(odds(membership), membership, odds(truth)), truth


def check() -> list[Check]:
    privacy, meter = (Path(each) for each in sys.argv[1:3])
    shadowed, truth = world()
    theirs = functions_of(privacy / LIRA, "generate_ours", "generate_ours_offline", "generate_global")
    # Theirs have records, models and views in this order, and score members low.
    given = shadowed.membership, np.swapaxes(shadowed.models, 1, 2), truth, np.swapaxes(shadowed.attacked, 1, 2)
    found = []
    for online in (True, False):
        for fixed in (False, True):
            name = "generate_ours" if online else "generate_ours_offline"
            scores, _ = partial(theirs[name], fix_variance=fixed)(*given)
            found.append(compared(LiRACode(online, fixed), shadowed, -np.array(scores), f"plot.py {name}", fixed))
    scores, _ = theirs["generate_global"](*given)
    found.append(compared(AttackP(), shadowed, -np.array(scores), "plot.py generate_global", False))
    found.append(rmia(functions_of(meter / METER, "get_out_ref_signals", "run_rmia")["run_rmia"], shadowed))
    return found


def compared(attack: RecordAttack, shadowed: ShadowScores, theirs: np.ndarray, name: str, fixed: bool) -> Check:
    ours = attack.scores(shadowed).ravel()
    width = ", one width for all" if fixed else ""
    what = f"scores of {TARGETS} targets on {RECORDS} records by {MODELS} models, {VIEWS} views{width}"
    difference = np.abs(ours - theirs).max() / np.abs(theirs).max()
    of = f"{type(attack).__module__.removeprefix('jaxaudit.')}.{type(attack).__name__}"
    return Check(f"{of}, {attack.name}", f"tensorflow/privacy {name}", what, difference, ROUNDING, BECAUSE)


def rmia(theirs: Callable[..., np.ndarray], shadowed: ShadowScores) -> Check:
    """Of one view; their population is made of our records, and of the models that do not have each."""
    signals = special.expit(shadowed.models[:, 0])
    outside = np.stack([signals[~own, n] for n, own in enumerate(shadowed.membership.T)])
    first = ShadowScores(shadowed.models[:, :1], shadowed.membership, shadowed.attacked[:, :1])
    differences = []
    for scale in (0.0, 0.3, 1.0):
        ours = RMIA(online=False, gamma=1.0, scale=scale).scores(first)
        for row, target in zip(ours, special.expit(first.attacked[:, 0]), strict=True):
            half = MODELS // 2
            score = theirs(target, signals.T, shadowed.membership.T, target, outside, scale, half)
            differences.append(np.abs(row - score).max())
    what = (
        "shares of the records exceeded, offline, gamma 1, scales 0, 0.3 and 1; their population is given the models "
        "without each record, since their code takes the larger half of all"
    )
    because = "two ratios that are equal but for rounding may be counted either way: one record"
    most = 1 / RECORDS + 1e-12
    return Check(
        "attacks.records.rmia.RMIA, rmia-offline", "Privacy Meter run_rmia", what, max(differences), most, because
    )


if __name__ == "__main__":
    run("record_attacks", check, ("scipy",))
