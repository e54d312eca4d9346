"""A learner of your own: nearest class means. Two pure JAX functions, and every audit can train it.

    python own_learner.py

A record of weight 0 is not in the training set, and must not touch the result.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import jaxaudit as ja


@dataclass(frozen=True)
class NearestMean:
    """Log-probabilities fall with the squared distance to the mean of each class.

    Attributes:
        classes: their number.
        sharpness: how fast they fall.
    """

    classes: int
    sharpness: float = 1.0

    def fit(self, key: Any, inputs: Any, labels: Any, weights: Any) -> Any:
        flat = inputs.reshape(len(inputs), -1)
        member = weights[:, None] * jax.nn.one_hot(labels, self.classes)
        return member.T @ flat / jnp.maximum(member.sum(axis=0), 1)[:, None]

    def log_probs(self, params: Any, inputs: Any) -> Any:
        flat = inputs.reshape(len(inputs), -1)
        return jax.nn.log_softmax(-self.sharpness * jnp.sum((flat[:, None] - params) ** 2, axis=2))


if __name__ == "__main__":
    people = ja.one_hot(ja.load_table("breast-cancer"))
    audit = ja.measure_pdtp(jax.random.key(1), people, NearestMean(2, sharpness=0.1))
    print(f"{audit.finding.verdict}: {audit.finding.sentence}")
