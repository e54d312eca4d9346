"""`jaxaudit ks` by files, without training, against a t-test of the same files: `python -m bench.ks_files` (2 minutes).

A deal of scikit-learn's digits as a table (539 records of the query set, 539 of the holdout, 719 members) and a
target's probabilities. `jaxaudit ks --deal --target` runs with an empty cache, where small models are taught how
difficult the records are, and again, which finds that kept. The t-test is a script of NumPy and `scipy.special`, on the
same log-odds and with the p-value of `scipy.stats`, which is slower to import; it answers less, without members, limits
and checks. Both must find the use. Each is a process of its own, start-up included.

Promised: the second run takes at most three times the processor time of the limit, a process that imports NumPy,
SciPy's special functions and JAX and ends. The notes have the parts of both runs, as `bench.demonstrations` takes them;
training is that of models that teach difficulty, statistics are the permutations and checks.
"""

import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.demonstrations import PARTS, Clock, follow

ROUNDS, SETS = 5, ("query", "holdout", "members")
FIRST, AGAIN, RIVAL, LIMIT = "jaxaudit, first run", "jaxaudit, again", "t-test", "imports alone"
ARGUMENTS = ("ks", "--deal", "deal", "--target", "outputs.npz", "--json")
T_TEST = """
import numpy as np
from scipy.special import logit, stdtr
def log_odds(name):
    p, y = np.load("outputs.npz")[name].astype(float), np.load(f"deal/{name}.npz")["y"]
    return logit(p[np.arange(len(y)), y].clip(1e-12, 1 - 1e-12))
a, b = log_odds("query"), log_odds("holdout")
of_a, of_b = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
t = (a.mean() - b.mean()) / (of_a + of_b) ** 0.5
print(2 * stdtr((of_a + of_b) ** 2 / (of_a**2 / (len(a) - 1) + of_b**2 / (len(b) - 1)), -abs(t)))
"""
CHECK = "from scipy.stats import ttest_ind; print(ttest_ind(a, b, equal_var=False).pvalue)"
COMMAND = "from jaxaudit.cli import main; main()"
CODE = {FIRST: COMMAND, AGAIN: COMMAND, RIVAL: T_TEST, LIMIT: "import numpy, scipy.special, jax"}
WITH_PARTS, ROOT = "from bench.ks_files import parts; parts()", str(Path(__file__).parents[1])


def write_files(folder: Path) -> None:
    """The deal and the target's outputs, of a network that was trained on query set and members."""
    from sklearn.datasets import load_digits
    from sklearn.neural_network import MLPClassifier

    x, y = load_digits(return_X_y=True)
    np.savez(folder / "records.npz", x=x.astype(np.float32), y=y)
    dealt = ["deal", "records.npz", "--members-share", "0.4", "--holdout-share", "0.3", "--seed", "0", "--out", "deal"]
    run(COMMAND, folder, folder / "kept", dealt)
    sets = {name: np.load(folder / "deal" / f"{name}.npz") for name in SETS}
    x, y = (np.concatenate([sets[name][part] for name in ("query", "members")]) for part in "xy")
    target = MLPClassifier((512,), max_iter=60, random_state=0).fit(x, y)
    outputs: Any = {name: target.predict_proba(part["x"]) for name, part in sets.items()}
    np.savez(folder / "outputs.npz", **outputs)


def run(code: str, folder: Path, kept: Path, arguments: Sequence[str] = ARGUMENTS) -> tuple[str, float, float]:
    """What a process of its own prints, with its seconds by the clock and of the processor."""
    known = os.environ | {"JAXAUDIT_CACHE": str(kept), "PYTHONPATH": ROOT}
    command, pipe = [sys.executable, "-c", code, *arguments], subprocess.PIPE
    start, before = time.perf_counter(), os.times()
    done = subprocess.run(command, cwd=folder, env=known, stdout=pipe, text=True, stderr=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - start, os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return done.stdout, wall, used


def parts() -> None:
    """The command in this process; the processor seconds of its parts as the last line."""
    clock = Clock()
    follow(clock)
    from jaxaudit.cli import main

    with contextlib.suppress(SystemExit):
        main()
    clock.begin("output")
    print(f"\n{json.dumps(clock.seconds)}")


def main() -> None:
    from bench.harness import Bench, Claim, Timings, report

    timings = [Timings(of, {name: [] for name in CODE}) for of in ("wall clock", "processor time")]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_files(folder)
        p_value, of_scipy = np.array(run(T_TEST + CHECK, folder, folder)[0].split(), float)
        np.testing.assert_allclose(p_value, of_scipy)
        verdict = json.loads(run(COMMAND, folder, folder / "kept")[0])["targets"][0]["finding"]["verdict"]
        notes = [f"t-test: p {p_value:.2g}; jaxaudit: {verdict}"]
        assert (p_value < 0.05, verdict) == (True, "not forgotten"), notes
        for turn in range(ROUNDS):
            for name in ((FIRST, AGAIN, RIVAL, LIMIT), (RIVAL, LIMIT, FIRST, AGAIN))[turn % 2]:
                _, *taken = run(CODE[name], folder, folder / f"kept {turn}")
                for case, seconds in zip(timings, taken, strict=True):
                    case.seconds[name].append(seconds)
        for name in (FIRST, AGAIN):
            seconds = json.loads(run(WITH_PARTS, folder, folder / "parts")[0].splitlines()[-1])
            shown = ", ".join(f"{part} {seconds[part]:.2f}" for part in PARTS if part in seconds)
            notes.append(f"{name}, processor seconds of parts: {shown}")
    claims = [Claim(f"processor time: {AGAIN} / {LIMIT}", timings[1].ratio(AGAIN, LIMIT), 3, at_least=False)]
    for case, own, other in itertools.product(timings, (FIRST, AGAIN), (RIVAL, LIMIT)):
        share = case.ratio(own, other)
        notes.append(f"{case.case}: {own} / {other} {share.median:.1f} ({share.low:.1f}..{share.high:.1f})")
    report(Bench("ks_files", timings, claims, notes), ["jax", "jaxlib", "numpy", "scipy", "scikit-learn"])


if __name__ == "__main__":
    main()
