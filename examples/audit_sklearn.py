"""Has a scikit-learn model used the records of a provider? From two arrays to a verdict, with a holdout.

    python audit_sklearn.py

The provider deals its records at random, shares one half and keeps the other. The model's owner hands over nothing but
the outputs of the model on both halves.
"""

from functools import partial

import jax
import numpy as np
import optax
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import jaxaudit as ja

images, labels = load_digits(return_X_y=True)
inputs = (images / 16).astype(np.float32)
names = tuple("0123456789")
others, provided = np.arange(797), np.arange(797, 1797)
held_out = ja.deal(jax.random.key(1), len(provided))
shared, kept = provided[~held_out], provided[held_out]

# The model's owner: other data, and the records that were shared.
train = np.concatenate([others[:530], shared])
model = MLPClassifier((64,), max_iter=500, random_state=2).fit(inputs[train], labels[train])
np.savetxt("shared.csv", model.predict_proba(inputs[shared]), delimiter=",")
np.savetxt("kept.csv", model.predict_proba(inputs[kept]), delimiter=",")

# The auditor: the records, the two files, other data of the same kind, and a guess of how the model was trained.
query = ja.Examples(inputs[shared], labels[shared], names, "shared records")
holdout = ja.Examples(inputs[kept], labels[kept], names, "kept records")
calibration = ja.Examples(inputs[others], labels[others], names, "other digits")
target = ja.FileTarget(
    ja.load_outputs("shared.csv", names, rows=len(query)),
    on_holdout=ja.load_outputs("kept.csv", names, rows=len(holdout)),
)
network = partial(ja.models.MLP, hidden=(64,))
learner = ja.network(network, (64,), 10, optimizer=optax.adam(1e-3), epochs=60, batch_size=50)
key = jax.random.key(3)
shadows = ja.train_shadows(key, query, calibration, learner, [target], tests=[ja.HoldoutTest()], holdout=holdout)
answer = ja.judge(key, shadows, [target])
print(f"{answer.targets[0].verdict}: {answer.targets[0].finding.sentence}")
