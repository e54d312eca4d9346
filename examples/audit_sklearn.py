"""Has a scikit-learn model used the records of a provider? From two arrays to a verdict, without a shadow model.

    python audit_sklearn.py

The provider deals its records at random, and shares the query set and the members. The model's owner hands over nothing
but the outputs of the model on all three sets.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

import jaxaudit as ja

images, labels = map(np.asarray, load_digits(return_X_y=True))
records = ja.Examples((images / 16).astype(np.float32), labels, tuple("0123456789"), "my records")
deal = ja.deal(records, holdout=0.3, members=0.4, seed=1)

# The model's owner: one model that used the query set, and one that was trained anew without it.
used = np.concatenate([deal.query.inputs, deal.members.inputs])
classes = np.concatenate([deal.query.labels, deal.members.labels])
forests = {
    "first": RandomForestClassifier(random_state=2).fit(used, classes),
    "anew": RandomForestClassifier(random_state=2).fit(deal.members.inputs, deal.members.labels),
}
outputs = {
    name: {role: model.predict_proba(part.inputs) for role, part in deal.items()} for name, model in forests.items()
}

# The auditor: the deal, and the outputs.
print(ja.ks(deal, outputs))
