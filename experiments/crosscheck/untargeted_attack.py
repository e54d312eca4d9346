"""The untargeted attack against `MembershipInferenceBlackBox` of IBM's toolbox.

    python -m experiments.crosscheck.untargeted_attack      # needs pip install "adversarial-robustness-toolbox<2"

The toolbox's attack sees a record's probabilities and its one-hot label; ours (Long et al. 2017, algorithm 1) the
inputs too, and probabilities in bins. The definitions agree where the inputs are left out and there are no bins.
Compared are what the attack network is shown, and how well an attack with one and the same recipe does (32 ReLU units,
plain gradient descent at 0.01 in batches of 32, 30 epochs), trained here by us and, around `BlackBoxClassifier`, by the
toolbox with scikit-learn's network.
"""

import warnings
from typing import Any

import jax
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from experiments.crosscheck.record import Check, run
from jaxaudit.attacks import attack_examples, attack_network, fit_untargeted, untargeted_scores
from jaxaudit.kernels.ranking import auc

CLASSES, HIDDEN, BATCH, RATE = 3, 32, 32, 0.01


def outputs(random: np.random.Generator, models: int, records: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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


def check(full: bool = True) -> list[Check]:
    models, records, epochs, seeds = (20, 500, 30, 5) if full else (2, 100, 1, 1)
    random = np.random.default_rng(4)
    log_probs, labels, member = outputs(random, models, records)
    fresh, fresh_labels, fresh_member = outputs(random, 1, 5000)
    nothing, none = np.zeros((records, 0), np.float32), np.zeros((len(fresh_labels), 0), np.float32)
    shown, many = np.exp(log_probs.reshape(-1, CLASSES)), np.tile(labels, models)
    examples = attack_examples(nothing, labels, log_probs, bins=0)
    learner = attack_network(2 * CLASSES, hidden=HIDDEN, epochs=epochs, batch_size=BATCH)
    here, there, difference = [], [], 0.0
    for seed in range(seeds):
        theirs = toolbox(shown, many, member.reshape(-1), epochs, seed)
        answers = theirs.infer(None, np.eye(CLASSES)[fresh_labels], pred=np.exp(fresh[0]), probabilities=True)
        there.append(auc(answers[:, -1].astype(np.float64), fresh_member[0]))
        ours = fit_untargeted(jax.random.key(seed), learner, nothing, labels, log_probs, member, bins=0)
        here.append(auc(untargeted_scores(ours, none, fresh_labels, fresh[0]), fresh_member[0]))
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
                "attacks.fit_untargeted",
                "MembershipInferenceBlackBox",
                f"AUC on {len(fresh_labels):,} fresh records, mean of {seeds} seeds",
                float(abs(np.mean(here) - np.mean(there))),
                0.01,
                f"initialisation and order of records differ; theirs is {np.mean(there):.4f}, ours {np.mean(here):.4f}",
            )
        )
    return found


if __name__ == "__main__":
    run("untargeted_attack", check, ("adversarial-robustness-toolbox", "scikit-learn"))
