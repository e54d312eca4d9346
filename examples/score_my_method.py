"""Scores an unlearning method by the outputs of models: makes the files that `jaxaudit unlearn --outputs` reads.

    python score_my_method.py    # half a minute

A demonstration with 48 small networks of scikit-learn, which should forget 100 mislabelled digits, by fine-tuning on
the others. Of your own models only `outputs` differs; for PyTorch, stack `logits_of_pytorch` of each.
"""

import copy
import warnings
from typing import Any

import jax
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import jaxaudit as ja

MODELS = 16
FORGET, OTHERS = slice(0, 100), {"retain": slice(100, 1000), "test": slice(1000, None)}


def logits_of_pytorch(module: Any, records: Any) -> np.ndarray:
    """The logits [records, classes] of a PyTorch module."""
    import torch

    with torch.inference_mode():
        return module.eval()(records).double().cpu().numpy()


def outputs(models: list[Any], inputs: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Log-probabilities of the records to forget [models, records, classes], and accuracies on the others [models]."""
    forget = np.stack([model.predict_log_proba(inputs[FORGET]) for model in models])
    accuracies = {
        name: np.array([model.score(inputs[rows], labels[rows]) for model in models]) for name, rows in OTHERS.items()
    }
    return {"forget": forget, **accuracies}


def main() -> None:
    warnings.simplefilter("ignore")
    inputs, labels = map(np.asarray, load_digits(return_X_y=True))
    inputs, labels[FORGET] = inputs / 16, (labels[FORGET] + 1) % 10

    def trained(seed: int, start: int) -> Any:
        return MLPClassifier((32,), max_iter=60, random_state=seed).fit(inputs[start:1000], labels[start:1000])

    original = [trained(seed, 0) for seed in range(MODELS)]
    tuned = copy.deepcopy(original)
    for model in tuned:
        for _ in range(30):
            model.partial_fit(inputs[OTHERS["retain"]], labels[OTHERS["retain"]])
    retrained = [trained(seed, 100) for seed in range(100, 100 + 2 * MODELS)]

    sides = {"tuned": tuned, "original": original, "retrained": retrained}
    arrays = {name: outputs(models, inputs, labels) for name, models in sides.items()}
    for name, of_side in arrays.items():
        np.savez(f"{name}.npz", **of_side)  # pyright: ignore[reportArgumentType]
    np.save("labels.npy", labels[FORGET])

    # In Python the arrays are enough; the command reads the files.
    audit = ja.score_unlearning(
        jax.random.key(7),
        {"tuned": arrays["tuned"]},
        arrays["retrained"],
        labels[FORGET],
        original=arrays["original"],
    )
    print(audit.finding.sentence)


if __name__ == "__main__":
    main()
