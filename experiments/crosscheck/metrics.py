"""Metrics and an attack on other tools' code: `python -m experiments.crosscheck NAME`, of these functions' names.

pip install "adversarial-robustness-toolbox<2" jax-privacy torch
git clone https://github.com/google-deepmind/unlearning_evaluation
git clone https://github.com/xcadet/deepunlearn
python -m experiments.crosscheck unlearning_scores unlearning_evaluation deepunlearn
"""

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
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier

from experiments.crosscheck import Check
from experiments.crosscheck.record_attacks import functions_of
from jaxaudit.attacks import AttackInputs, PooledShadows, Untargeted, attack_examples
from jaxaudit.kernels.ranking import auc, power, rank, running_counts
from jaxaudit.metrics import log_odds, u_lira
from jaxaudit.metrics.forgetting_quality import Answers, challenge_score, epsilons
from jaxaudit.metrics.pdtp import pdtp as pdtp_of

# PDTP in 100 bins against IBM's Adversarial Robustness Toolbox. Its PDTP of a record is the largest ratio of
# probabilities over *all* records given, in both directions; that is our `dtp` over these inputs, whose logarithm it
# is. Its `num_iter=1` is a single pair of models. Both are scikit-learn's here, refitted once by the toolbox and once
# by us.
#
# The toolbox turns its inputs into float32, so ours are too: an optimiser that stops early ends elsewhere in float64.
# And the definitions differ in one place: a probability within a relative 1e-6 below the edge of a bin is in the next
# bin for us, since float32 outputs do not know better, and in the one below for the toolbox. Records one of whose many
# probabilities lies there are counted and left out.

FEW = 6


def by_toolbox(model: Any, inputs: np.ndarray, labels: np.ndarray, records: np.ndarray) -> np.ndarray:
    from art.estimators.classification.scikitlearn import ScikitlearnClassifier
    from art.metrics import PDTP

    audited, spare = ScikitlearnClassifier(clone(model)), ScikitlearnClassifier(clone(model))
    for one in (audited, spare):
        one.fit(inputs, np.eye(labels.max() + 1)[labels])
    return PDTP(audited, spare, inputs, labels, indexes=records, num_iter=1)[0]


def refit_outputs(model: Any, inputs: np.ndarray, labels: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Log-probabilities of a refit."""
    fresh: Any = clone(model)
    with np.errstate(divide="ignore"):  # a probability of 0
        return np.log(fresh.fit(inputs, labels).predict_proba(asked).astype(np.float64))


def below_an_edge(log_probs: np.ndarray) -> np.ndarray:
    """Where a probability is within a relative 1e-6 below the edge of one of 100 bins; 1 is no edge."""
    places = 100 * np.exp(log_probs)
    return np.minimum(np.floor(places), 99) != np.minimum(np.floor(places * (1 + 1e-6)), 99)


def pdtp(full: bool = True) -> list[Check]:
    found = []
    for name, loaded in (("iris", load_iris), ("wine", load_wine)):
        raw, labels = map(np.asarray, loaded(return_X_y=True))
        inputs = ((raw - raw.mean(axis=0)) / raw.std(axis=0)).astype(np.float32)
        records = np.arange(len(labels)) if full else np.arange(0, len(labels), len(labels) // FEW)
        for model in (GaussianNB(), LogisticRegression()):
            whole = refit_outputs(model, inputs, labels, inputs)
            ours, shared = [], []
            for record in records:
                others = np.arange(len(labels)) != record
                without = refit_outputs(model, inputs[others], labels[others], inputs)
                ours.append(pdtp_of(whole, without).values.max())
                shared.append(not (below_an_edge(whole) | below_an_edge(without)).any())
            difference = np.abs(np.array(ours) - np.log(by_toolbox(model, inputs, labels, records)))
            found.append(
                Check(
                    "metrics.pdtp.pdtp",
                    "log of art.metrics.PDTP(num_iter=1)",
                    f"nats, {type(model).__name__}, {sum(shared)} of {len(records)} records of {name} (others have a "
                    f"probability just below an edge), each over {len(labels)} inputs",
                    float(difference[shared].max()),
                    1e-10,
                    "float64; their bins' centres are rounded",
                )
            )
    return found


# The untargeted attack against the toolbox's `MembershipInferenceBlackBox`, which sees a record's probabilities and its
# one-hot label; ours (Long et al. 2017, algorithm 1) the inputs too, and probabilities in bins. The definitions agree
# where the inputs are left out and there are no bins. Compared are what the attack network is shown, and how well an
# attack with one and the same recipe does (32 ReLU units, plain gradient descent at 0.01 in batches of 32, 30 epochs),
# trained here by us and, around `BlackBoxClassifier`, by the toolbox with scikit-learn's network.

CLASSES, HIDDEN, BATCH, RATE = 3, 32, 32, 0.01


def made_outputs(random: np.random.Generator, models: int, records: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-probabilities of models that are surer of their members, labels, and who is a member."""
    labels = random.integers(0, CLASSES, records).astype(np.int32)
    member = random.permuted(np.tile(np.arange(records) < records // 2, (models, 1)), axis=1)
    logits = random.normal(size=(models, records, CLASSES))
    logits += (1 + 1.5 * member)[:, :, None] * np.eye(CLASSES)[labels]
    return np.asarray(jax.nn.log_softmax(logits), np.float32), labels, member


def toolbox(shown: np.ndarray, labels: np.ndarray, member: np.ndarray, epochs: int, seed: int) -> Any:
    """The toolbox's attack, fitted to probabilities `shown` of members and of others."""
    from art.attacks.inference.membership_inference import MembershipInferenceBlackBox
    from art.estimators.classification import BlackBoxClassifier

    recipe: dict[str, Any] = {"solver": "sgd", "learning_rate_init": RATE, "momentum": 0.0, "alpha": 0.0}
    recipe["batch_size"] = BATCH
    net = MLPClassifier((HIDDEN,), max_iter=epochs, tol=0, random_state=seed, **recipe)
    black_box = BlackBoxClassifier(lambda x: x, (CLASSES,), CLASSES)
    # Version 1.20 takes no model of one's own that it can also ask: so the network takes the place of its own.
    attack = MembershipInferenceBlackBox(black_box, attack_model_type="lr", scaler_type=None)
    attack.attack_model = net
    y = np.eye(CLASSES)[labels]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is to stop after so many epochs
        attack.fit(None, y[member], None, y[~member], pred=shown[member], test_pred=shown[~member])
    return attack


def seen(attack: Any, shown: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """What the toolbox's attack model is given."""
    given = []
    net = attack.attack_model
    answer, net.predict_proba = net.predict_proba, lambda x: given.append(x) or answer(x)
    attack.infer(None, np.eye(CLASSES)[labels], pred=shown, probabilities=True)
    net.predict_proba = answer
    return np.concatenate(given)


def untargeted_attack(full: bool = True) -> list[Check]:
    models, records, epochs, seeds = (20, 500, 30, 5) if full else (2, 100, 1, 1)
    random = np.random.default_rng(4)
    log_probs, labels, member = made_outputs(random, models, records)
    fresh, fresh_labels, fresh_member = made_outputs(random, 1, 5000)
    nothing, none = np.zeros((records, 0), np.float32), np.zeros((len(fresh_labels), 0), np.float32)
    shown, many = np.exp(log_probs.reshape(-1, CLASSES)), np.tile(labels, models)
    examples = attack_examples(nothing, labels, log_probs, bins=0)
    shadows, asked = PooledShadows(log_probs, member, nothing, labels), AttackInputs(fresh, none, fresh_labels, bins=0)
    here, there, difference = [], [], 0.0
    for seed in range(seeds):
        theirs = toolbox(shown, many, member.reshape(-1), epochs, seed)
        answers = theirs.infer(None, np.eye(CLASSES)[fresh_labels], pred=np.exp(fresh[0]), probabilities=True)
        there.append(auc(answers[:, -1].astype(np.float64), fresh_member[0]))
        here.append(auc(Untargeted().scores(jax.random.key(seed), asked, shadows)[0], fresh_member[0]))
        # Theirs puts the probabilities first, ours the label.
        difference = max(difference, np.abs(seen(theirs, shown, many) - np.roll(examples, CLASSES, axis=1)).max())
    found = [
        Check(
            "attacks.attack_examples",
            "MembershipInferenceBlackBox",
            f"what the attack network is shown of {len(examples):,} outputs and labels",
            float(difference),
            2.0**-23,
            "one rounding of a probability to float32",
        )
    ]
    if full:
        found.append(
            Check(
                "attacks.Untargeted",
                "MembershipInferenceBlackBox",
                f"AUC on {len(fresh_labels):,} fresh records, mean of {seeds} seeds",
                float(abs(np.mean(here) - np.mean(there))),
                0.01,
                f"initialisation and order of records differ; theirs is {np.mean(there):.4f}, ours {np.mean(here):.4f}",
            )
        )
    return found


# AUC and true positive rates against `jax_privacy.auditing`. Its attacker may toss a coin between two thresholds, so
# its curve is the concave hull of ours. Where scores have few levels, the higher the more telling, the curve is its own
# hull and all must agree.

LEVELS, OTHERS = 6, 1000


def concave(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Scores of members and others on levels 0, 1, ..: each level is more a member's than the one below."""
    cuts = np.sort(random.choice(np.arange(1, OTHERS), LEVELS - 1, replace=False))
    others = np.diff([0, *cuts, OTHERS])
    members = np.round(others * np.arange(1, LEVELS + 1) ** 2).astype(int)
    return np.repeat(np.arange(LEVELS), members) * 1.0, np.repeat(np.arange(LEVELS), others) * 1.0


def ranking_jax_privacy(full: bool = True) -> list[Check]:
    # Not installed where types are checked.
    CanaryScoreAuditor = import_module("jax_privacy.auditing").CanaryScoreAuditor
    random = np.random.default_rng(8)
    areas, powers = [], []
    for _ in range(200 if full else 5):
        members, others = concave(random)
        theirs = CanaryScoreAuditor(members, others)
        scores, truth = np.concatenate([members, others]), np.arange(len(members) + len(others)) < len(members)
        areas.append(abs(auc(scores, truth) - float(theirs.attack_auroc())))
        # At the curve's corners, where the hull tosses no coin.
        limits = tuple(float((others >= level).mean()) for level in range(1, LEVELS))
        running = running_counts(rank(scores, truth), np.ones((1, len(scores)), np.int64))
        powers += [abs(power(*running, limit)[0, 0] - float(theirs.tpr_at_given_fpr(limit))) for limit in limits]
    sizes = 100_000 if full else 1000
    members, others = random.normal(1, 1, sizes), random.normal(0, 1, sizes)
    hull = float(CanaryScoreAuditor(members, others).attack_auroc())
    scores, truth = np.concatenate([members, others]), np.repeat([True, False], sizes)
    return [
        Check(
            "kernels.ranking.auc",
            "CanaryScoreAuditor.attack_auroc",
            f"area on {len(areas)} curves that are their own hull",
            max(areas),
            1e-12,
            "float64",
        ),
        Check(
            "kernels.ranking.power",
            "CanaryScoreAuditor.tpr_at_given_fpr",
            f"true positive rate at every corner of these {len(areas)} curves",
            max(powers),
            1e-12,
            "float64",
        ),
        Check(
            "kernels.ranking.auc",
            "CanaryScoreAuditor.attack_auroc",
            f"area for {sizes:,} of N(1, 1) against as many of N(0, 1), where theirs is a hull, and so a little larger",
            abs(auc(scores, truth) - hull),
            0.5 / np.sqrt(sizes),
            "a hull gains less than the area's standard error",
        ),
    ]


# Forgetting quality and U-LiRA, against the code that scored the 2023 challenge and that of a benchmark. Of the
# challenge all of `metric.py` is run, on a CPU, and without its `assert` on an array of thresholds, which fails on more
# than one. Hayes et al. published no code of U-LiRA that could be found; Deep Unlearn (Cadet et al. 2024) did:
# `predicted_membership_probability` of `munl/lira/consolidate_predictions.py`, the rule by which a model is called
# unlearned, is what is taken of it.

MODELS, RECORDS, LOGITS = 32, 60, 10
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


def unlearning_scores(challenge: Path, deep: Path) -> list[Check]:
    random = np.random.default_rng(9)
    with warnings.catch_warnings(), patch.object(import_module("torch").Tensor, "cuda", lambda tensor: tensor):
        warnings.simplefilter("ignore", RuntimeWarning)  # of logarithms of 0, which their code expects
        found = list(of_challenge(challenge / "metric.py", random))
    return [*found, of_deep_unlearn(deep / RULE, random)]


def of_challenge(path: Path, random: np.random.Generator) -> Iterable[Check]:
    theirs: dict[str, Any] = {}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec", optimize=1), theirs)
    logits, labels = random.normal(size=(1000, LOGITS)) * 5, random.integers(0, LOGITS, 1000)
    ours = log_odds(log_softmax(logits, axis=-1), labels)
    _, confidence = theirs["compute_logit_scaled_confidence"](logits.copy(), labels)
    yield Check(
        "metrics.scores.log_odds",
        f"{CHALLENGE} compute_logit_scaled_confidence",
        f"log-odds (nats) of {len(labels):,} outputs on {LOGITS} classes",
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
        "metrics.over_models.u_lira",
        f"{DEEP} predicted_membership_probability",
        f"share of right answers for each of {RECORDS} records by {MODELS} models a side, each left out in turn; their "
        "script leaves none out, and asks about answers that are right or wrong in place of log-odds",
        np.abs(ours - np.mean(right, axis=0)).max(),
        1e-12,
        "float64",
    )
