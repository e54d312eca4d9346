"""Becker & Liebig (2022): tables 1 and 2, figures 1 to 8, and their two hypotheses.

    JAXAUDIT_DATA=DATA python -m experiments.becker2022 --data mnist       # table 1, figures 1 to 4
    JAXAUDIT_DATA=DATA python -m experiments.becker2022 --data cifar10     # table 2, figures 5 to 8
    JAXAUDIT_DATA=DATA python -m experiments.becker2022 --data cifar10-scrambled

The paper: 100 images a class, an MLP N-512-256-128-10, plain gradient descent at 0.1 (MNIST 50 epochs of 32, CIFAR-10
200 of 64), 20 seeds; 1, 10, 25, 50, 80, 100 images of class 3 (8) are forgotten by retraining, amnesiac unlearning and
Fisher forgetting. H1: forgetting always lowers the efficacy. H2: a lower efficacy means a less successful attack. Both
were rejected, because of amnesiac unlearning. On two busy CPU cores MNIST takes about 20 minutes, CIFAR-10 half an
hour; with `--checkpoints DIR` a run that was stopped goes on. Writes `results/becker2022_DATA-DEVICE.json`, `.md`
and `.png`.
"""

import argparse
import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np

from experiments.becker2022_data import COUNTS, FORGET, forget_sets, make_learner, read
from experiments.becker2022_figures import drawing
from experiments.becker2022_page import lines
from experiments.becker2022_tests import hypotheses
from experiments.figures import write
from experiments.record import RESULTS, describe_run
from jaxaudit.audits.unlearn.audit import compare_unlearning
from jaxaudit.audits.unlearn.result import MethodScores, UnlearnAudit
from jaxaudit.ensemble import Execution
from jaxaudit.unlearning import becker_code, forget_by_noise, golatkar, paper

FISHER = "fisher"
VARIANTS = {
    "becker-code, alpha 3e-6": partial(forget_by_noise, noise=becker_code, alpha=3e-6),
    "golatkar, alpha 3e-6": partial(forget_by_noise, noise=golatkar, alpha=3e-6),
    "golatkar, alpha 1e-7": partial(forget_by_noise, noise=golatkar, alpha=1e-7),
    "paper, alpha 3e-6": partial(forget_by_noise, noise=paper, alpha=3e-6),
    "paper, alpha 1e-14": partial(forget_by_noise, noise=paper, alpha=1e-14),
}
NONMEMBERS = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", choices=["mnist", "cifar10", "cifar10-scrambled"], default="mnist")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--nonmembers", type=int, default=NONMEMBERS, help="test images the attacks learn from")
    parser.add_argument(
        "--attack",
        choices=["each", "originals"],
        default="each",
        help="train an attack network on every model, as the paper does, or on the originals alone",
    )
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--checkpoints", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()

    train, test = read(arguments.data)
    learner, forget = make_learner(arguments.data, train), forget_sets(train, arguments.data)
    key = jax.random.key(arguments.seed)
    checkpoints = arguments.checkpoints or Path(tempfile.mkdtemp())
    clock = Clock(checkpoints)
    execution = Execution(progress=clock.progress, checkpoints=checkpoints)
    how: dict[str, Any] = {"seeds": arguments.seeds, "execution": execution}
    methods = {FISHER: VARIANTS["becker-code, alpha 3e-6"]}
    call = key, train, test, learner, forget
    how["nonmembers"] = arguments.nonmembers
    audit = compare_unlearning(*call, methods=methods, attack_each=arguments.attack == "each", **how)
    seconds = clock.seconds()
    by_originals = compare_unlearning(*call, methods=VARIANTS, **how)
    reference = Path(__file__).parent / "becker2022_paper.json"
    record = {
        "experiment": "becker2022",
        "data": arguments.data,
        "class": FORGET[arguments.data.partition("-")[0]],
        "counts": list(COUNTS),
        **describe_run(vars(arguments), seconds),
        "content_hash": {"train": train.content_hash, "test": test.content_hash},
        "members_share": audit.result.protocol.members_share,
        "threshold": audit.result.protocol.p_value_threshold,
        "methods": {name: scores(audit, name) for name in audit.models},
        "attack_by_originals": {
            name: plain(by_originals.scores(name, "attack")) for name in by_originals.models if name != "untrained"
        },
        "variants": variants_of(by_originals),
        "hypotheses": hypotheses(np.random.default_rng(arguments.seed), audit),
        "paper": json.loads(reference.read_text())[arguments.data.partition("-")[0]],
    }
    name = f"becker2022_{arguments.data}"
    print(write(arguments.out, name, record, lines(record), drawing(record)).read_text())


def scores(audit: UnlearnAudit, name: str) -> dict[str, Any]:
    """One method's scores (a row a set, a column a seed) and places, as JSON takes them: null for NaN and infinity."""
    arrays = {field: plain(audit.scores(name, field)) for field in MethodScores.__struct_fields__}
    places: dict[str, list[dict[str, Any]]] = {}
    for result in audit.results:
        for field, where in result[name].places.items():
            places.setdefault(field, []).append(msgspec.structs.asdict(where))
    return {**arrays, "places": json.loads(json.dumps(places).replace("Infinity", "null"))}


def plain(array: np.ndarray) -> list[list[float | None]]:
    """Rounded to seven digits."""
    return [[float(f"{number:.7g}") if np.isfinite(number) else None for number in row] for row in array]


def variants_of(audit: UnlearnAudit) -> dict[str, Any]:
    """Accuracies, efficacy and attack probability of every variant of Fisher forgetting, for the whole class."""
    kept = ("remaining_accuracy", "forgotten_accuracy", "test_accuracy", "efficacy", "attack")
    return {
        name: {field: plain(audit.scores(name, field)[-1:])[0] for field in kept}
        for name in ("original", "retraining", *VARIANTS)
    }


class Clock:
    """Says every minute how far a run is, and how long it took with all that was done before it was stopped."""

    def __init__(self, checkpoints: Path) -> None:
        self.started = self.shown = time.time()
        self.file = checkpoints / "seconds"
        self.before = float(self.file.read_text()) if self.file.exists() else 0.0

    def seconds(self) -> float:
        return self.before + time.time() - self.started

    def progress(self, done: int, total: int) -> None:
        if time.time() - self.shown > 20:
            self.shown = time.time()
            print(f"{done} of {total} after {self.seconds():.0f} s", file=sys.stderr, flush=True)
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text(str(self.seconds()))


if __name__ == "__main__":
    main()
