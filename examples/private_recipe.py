"""Trains the models of a differentially private recipe for a bank dealt by coins, and says what the recipe claims.

    jaxaudit shadows plan --query q.npz --coins --models 64 --out coins
    python private_recipe.py coins q.npz
    jaxaudit attack --shadows coins --delta 1e-5

The recipe: each record is scaled to norm 1, and noise is added to the sum of the records of each class. A record more
or less moves the sums by 1 at most. So epsilon follows from the noise and delta alone (Balle & Wang 2018, theorem 8).
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
from scipy.optimize import root_scalar
from scipy.stats import norm

DELTA = 1e-5
NOISE = 2.0
"""Standard deviation of what is added to each number of a sum. Forget it, and the claim below is false."""


def claimed(noise: float, delta: float) -> float:
    """The epsilon of a sum that one record moves by at most 1."""

    def beyond(epsilon: float) -> float:
        here, there = 1 / (2 * noise) - epsilon * noise, -1 / (2 * noise) - epsilon * noise
        return float(norm.cdf(here) - np.exp(epsilon + norm.logcdf(there)) - delta)

    return root_scalar(beyond, bracket=(0.0, 100.0)).root


bank, file = map(Path, sys.argv[1:])
inputs = np.load(file)["x"]
inputs = inputs.reshape(len(inputs), -1).astype(float)
inputs /= np.linalg.norm(inputs, axis=1, keepdims=True)
labels = np.load(bank / "labels.npy")
classes = json.loads((bank / "bank.json").read_text())["classes"]
(bank / "outputs").mkdir(exist_ok=True)
membership, seeds = np.load(bank / "membership.npy", mmap_mode="r"), np.load(bank / "seeds.npy")

for model, (members, seed) in enumerate(zip(membership, seeds, strict=True)):
    path = bank / "outputs" / f"{model:05}.npy"
    if path.exists():
        continue
    sums = np.stack([inputs[members & (labels == each)].sum(axis=0) for each in range(classes)])
    sums += np.random.default_rng(int(seed)).normal(0, NOISE, sums.shape)
    # From here on only the noisy sums are used, which cannot make anything less private.
    outputs = 30 * inputs @ (sums / np.linalg.norm(sums, axis=1, keepdims=True)).T
    # Whatever has this name counts, so a file gets it when it is whole.
    draft = path.with_suffix(".writing")
    with draft.open("wb") as out:
        np.save(out, outputs)
    os.replace(draft, path)
    print(f"model {model}: accuracy {(outputs[members].argmax(axis=1) == labels[members]).mean():.1%} on its records")

print(f"the recipe claims epsilon {claimed(NOISE, DELTA):.2f} at delta {DELTA:g}")
