"""An unlearning method of your own: a few gradient steps that make the outputs on the forgotten records uniform.

    python own_unlearning.py

A method is a pure function of a trained model. It is jitted and run on many models, so it prints nothing and has no
array whose size depends on which records are to be forgotten.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxaudit as ja


def to_uniform(
    key: Any, log_probs: Any, params: Any, inputs: Any, labels: Any, forget: Any, *, steps: int = 20, rate: float = 0.05
) -> Any:
    """Gradient descent on the mean cross-entropy between the uniform distribution and the outputs on `forget`."""

    def loss(params: Any) -> Any:
        each = -jnp.mean(log_probs(params, inputs), axis=1)
        return jnp.sum(jnp.where(forget, each, 0)) / jnp.sum(forget)

    def step(_: Any, params: Any) -> Any:
        return jax.tree.map(lambda old, slope: old - rate * slope, params, jax.grad(loss)(params))

    return jax.lax.fori_loop(0, steps, step, params)


if __name__ == "__main__":
    digits = ja.prepare_images(ja.load("digits"))
    train, test = digits.take(np.arange(400)), digits.take(np.arange(1000, 1400))
    forget = (train.labels == 3) & (np.arange(400) < 200)
    mlp = partial(ja.models.MLP, hidden=(32,))
    learner = ja.network(mlp, train.inputs.shape[1:], 10, optimizer=optax.adam(3e-3), epochs=20, batch_size=50)
    audit = ja.compare_unlearning(
        jax.random.key(1), train, test, learner, forget, methods={"to-uniform": to_uniform}, seeds=8, nonmembers=0
    )
    print(f"{audit.finding.verdict}: {audit.finding.sentence}")
