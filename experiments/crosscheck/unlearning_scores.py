"""Forgetting quality and U-LiRA, against the code that scored the 2023 challenge and that of a benchmark.

    git clone https://github.com/google-deepmind/unlearning_evaluation
    git clone https://github.com/xcadet/deepunlearn
    python -m experiments.crosscheck.unlearning_scores unlearning_evaluation deepunlearn

Needs PyTorch. Of the challenge all of `metric.py` is run, on a CPU, and without its `assert` on an array of thresholds,
which fails on more than one. Hayes et al. published no code of U-LiRA that could be found; Deep Unlearn (Cadet et al.
2024) did: `predicted_membership_probability` of `munl/lira/consolidate_predictions.py`, the rule by which a model is
called unlearned, is what is taken of it.
"""

import sys
import warnings
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
from scipy.special import log_softmax
from scipy.stats import norm

from experiments.crosscheck.record import Check, run
from experiments.crosscheck.record_attacks_tools import functions_of
from jaxaudit.metrics import log_odds, u_lira
from jaxaudit.metrics.forgetting_quality import Answers, challenge_score, epsilons

MODELS, RECORDS, CLASSES = 32, 60, 10
STEP = 0.06
"""Log-odds lie on this grid, in nats: wider than theirs of thresholds, and no divisor of their limit of 2 nats."""
RULE = Path("munl/lira/consolidate_predictions.py")
CHALLENGE, DEEP = "unlearning_evaluation", "Deep Unlearn"


def sides(random: np.random.Generator, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds of unlearned and of retrained models: records that differ in place, in width, in both, in neither."""
    gap, width = random.choice([0.0, 0.5, 1.0, 3.0], RECORDS), np.exp(random.choice([-0.7, 0.0, 0.7], RECORDS))
    found = [random.normal(size=(MODELS, RECORDS)) * width + gap, random.normal(size=(MODELS, RECORDS))]
    one, other = (each if not step else step * np.round(each / step) for each in found)
    return one, other


def check() -> list[Check]:
    challenge, deep = (Path(each) for each in sys.argv[1:3])
    random = np.random.default_rng(9)
    with warnings.catch_warnings(), patch.object(import_module("torch").Tensor, "cuda", lambda tensor: tensor):
        warnings.simplefilter("ignore", RuntimeWarning)  # of logarithms of 0, which their code expects
        found = list(of_challenge(challenge / "metric.py", random))
    return [*found, of_deep_unlearn(deep / RULE, random)]


def of_challenge(path: Path, random: np.random.Generator) -> Iterable[Check]:
    theirs: dict[str, Any] = {}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec", optimize=1), theirs)
    logits, labels = random.normal(size=(1000, CLASSES)) * 5, random.integers(0, CLASSES, 1000)
    ours = log_odds(log_softmax(logits, axis=-1), labels)
    _, confidence = theirs["compute_logit_scaled_confidence"](logits.copy(), labels)
    yield Check(
        "metrics.scores.log_odds",
        f"{CHALLENGE} compute_logit_scaled_confidence",
        f"log-odds (nats) of {len(labels):,} outputs on {CLASSES} classes",
        np.abs(ours - confidence).max(),
        1e-9,
        "float64; they go through probabilities",
    )
    where = f"{RECORDS} records by {MODELS} models a side"
    exact, free = sides(random, STEP), sides(random, 0.0)
    positive = np.median(exact[1], axis=0) > np.median(exact[0], axis=0)
    given = np.where(positive, exact[1], exact[0]), np.where(positive, exact[0], exact[1])
    yield Check(
        "metrics.forgetting_quality.epsilons",
        f"{CHALLENGE} _get_epsilons",
        f"epsilon of {where}, whose log-odds are multiples of {STEP} nats",
        np.abs(epsilons(*exact) - theirs["_get_epsilons"](*given, delta=theirs["DELTA"])).max(),
        1e-5,
        "their error rates are float32",
    )
    for (unlearned, retrained), what, most, because in (
        (exact, f", whose log-odds are multiples of {STEP} nats", 1e-12, "float64"),
        (free, "; theirs misses thresholds between models that differ by less than 0.01 nats", 0.01, "their grid"),
    ):
        accuracies = np.ones(MODELS), np.ones(MODELS)
        answers = Answers(unlearned, *accuracies), Answers(retrained, *accuracies)
        ours = challenge_score(jax.random.key(1), *answers, replicates=2).quality.value
        yield Check(
            "metrics.forgetting_quality.challenge_score",
            f"{CHALLENGE} compute_forget_score_from_confs",
            f"forgetting quality F of {where}{what}",
            abs(ours - theirs["compute_forget_score_from_confs"](unlearned, retrained)),
            most,
            because,
        )


def of_deep_unlearn(path: Path, random: np.random.Generator) -> Check:
    """Each model is left out in turn, and the others' means and deviations are given to their rule."""
    rule = functions_of(path, {"np": np, "norm": norm})["predicted_membership_probability"]
    both = sides(random, 0.0)
    right = []
    for side, unlearned in zip(both, (True, False), strict=True):
        for index, asked in enumerate(side):
            left = [np.delete(each, index, axis=0) if each is side else each for each in both]
            moments = [moment for each in left for moment in (each.mean(axis=0), each.std(axis=0, ddof=1))]
            right.append((rule(asked, *moments) > 0.5) == unlearned)
    ours = u_lira(jax.random.key(1), *both, replicates=2).per_record
    return Check(
        "metrics.u_lira.u_lira",
        f"{DEEP} predicted_membership_probability",
        f"share of right answers for each of {RECORDS} records by {MODELS} models a side, each left out in turn; their "
        "script leaves none out, and asks about answers that are right or wrong in place of log-odds",
        np.abs(ours - np.mean(right, axis=0)).max(),
        1e-12,
        "float64",
    )


if __name__ == "__main__":
    run("unlearning_scores", check, ("torch", "scipy"))
