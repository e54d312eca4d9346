"""Scores an unlearning method by the outputs of your own models: U-LiRA and the unlearning challenge's score.

    python score_my_method.py                          # a demonstration, half a minute
    python score_my_method.py unlearned.npz retrained.npz forget_labels.npy

An .npz holds `logits` [models, records, classes] of the models on the forget set (logits, or log-probabilities), and
their `remaining_accuracy` [models] and `test_accuracy` [models], from 0 to 1. `forget_labels.npy` holds the class of
each record. Twice as many models must be retrained as unlearned, and no two models may share a seed.
"""

import copy
import sys
from typing import Any

import jax
import numpy as np
from scipy.special import log_softmax

import jaxaudit as ja

KEY = jax.random.key(1)


def answers(logits: np.ndarray, labels: np.ndarray, remaining: np.ndarray, test: np.ndarray) -> ja.metrics.Answers:
    """The log-odds of one side's models on the forget set, and their accuracies on other records."""
    if (logits >= 0).all() and np.allclose(logits.sum(axis=-1), 1, atol=1e-3):
        sys.exit("These are probabilities: save logits, or log-probabilities, which tell small ones apart.")
    return ja.metrics.Answers(ja.metrics.log_odds(log_softmax(logits, axis=-1), labels), remaining, test)


def logits_of_pytorch(module: Any, records: Any) -> np.ndarray:
    """The logits [records, classes] of a PyTorch module: stack those of your models, and save them."""
    import torch

    with torch.inference_mode():
        return module.eval()(records).double().cpu().numpy()


def score(method: str, unlearned: ja.metrics.Answers, retrained: ja.metrics.Answers) -> None:
    """Prints a line: how distinguishable these models are from as many retrained ones."""
    challenge = ja.metrics.challenge_score(KEY, unlearned, retrained)
    lira = ja.metrics.u_lira(KEY, unlearned.log_odds, retrained.log_odds).accuracy
    verdict = "distinguishable" if lira.low > 0.5 else "inconclusive"
    numbers = (
        f"{each.value:.2f} ({each.low:.2f} to {each.high:.2f})"
        for each in (lira, challenge.quality, challenge.score)
        if each
    )
    print(f"{len(unlearned.log_odds):2} {method:16}", *(f"{each:20}" for each in numbers), verdict)


def first(models: int, side: ja.metrics.Answers) -> ja.metrics.Answers:
    return ja.metrics.Answers(*(each[:models] for each in side))


def demonstration() -> tuple[dict[str, ja.metrics.Answers], ja.metrics.Answers]:
    """Networks that should forget 100 mislabelled digits: by fine-tuning on the others, or by nothing at all."""
    from sklearn.datasets import load_digits
    from sklearn.neural_network import MLPClassifier

    inputs, labels = load_digits(return_X_y=True)
    inputs, labels[:100] = inputs / 16, (labels[:100] + 1) % 10
    forget, remain, test = slice(0, 100), slice(100, 1000), slice(1000, None)

    def asked(models: list[Any]) -> ja.metrics.Answers:
        logits = np.array([model.predict_log_proba(inputs[forget]) for model in models])
        remaining, others = ([model.score(inputs[part], labels[part]) for model in models] for part in (remain, test))
        return answers(logits, labels[forget], np.array(remaining), np.array(others))

    def trained(seed: int, start: int) -> Any:
        return MLPClassifier((32,), max_iter=60, random_state=seed).fit(inputs[start:1000], labels[start:1000])

    original = [trained(seed, 0) for seed in range(16)]
    tuned = copy.deepcopy(original)
    for model in tuned:
        for _ in range(30):
            model.partial_fit(inputs[remain], labels[remain])
    retrained = asked([trained(seed, 100) for seed in range(100, 132)])
    again, references = (ja.metrics.Answers(*(each[part] for each in retrained)) for part in (slice(16), slice(16, 32)))
    return {"retrained again": again, "fine-tuned": asked(tuned), "nothing done": asked(original)}, references


def from_files(unlearned: str, retrained: str, labels: str) -> tuple[dict[str, ja.metrics.Answers], ja.metrics.Answers]:
    classes = np.load(labels)
    mine, theirs = (
        answers(side["logits"], classes, side["remaining_accuracy"], side["test_accuracy"])
        for side in map(np.load, (unlearned, retrained))
    )
    models = len(mine.log_odds)
    if len(theirs.log_odds) < 2 * models:
        sys.exit(f"{len(theirs.log_odds)} retrained models are too few for {models} unlearned: train {2 * models}.")
    again = first(models, theirs)
    references = ja.metrics.Answers(*(each[models : 2 * models] for each in theirs))
    return {"retrained again": again, "my method": mine}, references


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    methods, references = from_files(*sys.argv[1:]) if sys.argv[1:] else demonstration()
    print("models, method      U-LiRA (95%)         forgetting quality F challenge's score    verdict")
    for models in sorted({4, len(references.log_odds)}):
        for method, said in methods.items():
            score(method, first(models, said), first(models, references))
