"""Trains the shadow models of a bank with scikit-learn: your own data, your own model, your own loop.

    jaxaudit deal records.npz --out deal
    jaxaudit shadows plan --deal deal --outputs probabilities --out bank
    python shadows_sklearn.py bank deal/query.npz deal/holdout.npz

The records are `x` of each file, as `jaxaudit deal` writes them. A calibration set comes last (--calibration), in a
file of the same form. Started again, the script continues with the models that are missing.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

bank, *files = map(Path, sys.argv[1:])
# In the order of the bank's columns: the query set, the holdout, the calibration set.
inputs = np.concatenate([np.load(file)["x"] for file in files])
inputs = inputs.reshape(len(inputs), -1)
labels = np.load(bank / "labels.npy")
classes = json.loads((bank / "bank.json").read_text())["classes"]
(bank / "outputs").mkdir(exist_ok=True)
membership, seeds = np.load(bank / "membership.npy", mmap_mode="r"), np.load(bank / "seeds.npy")

for model, (members, seed) in enumerate(zip(membership, seeds, strict=True)):
    path = bank / "outputs" / f"{model:05}.npy"
    if path.exists():
        continue
    # The target's own recipe, as far as you know it.
    learner = make_pipeline(StandardScaler(), MLPClassifier((32,), max_iter=1000, random_state=int(seed)))
    learner.fit(inputs[members], labels[members])
    outputs = np.zeros((len(inputs), classes))
    outputs[:, learner[-1].classes_] = learner.predict_proba(inputs)
    # Whatever has this name counts, so a file gets it when it is whole.
    draft = path.with_suffix(".writing")
    with draft.open("wb") as file:
        np.save(file, outputs)
    os.replace(draft, path)
    print(f"model {model}: accuracy {learner.score(inputs[members], labels[members]):.1%} on its training records")
