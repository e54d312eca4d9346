"""Targets that no shadow model is like: of scikit-learn and PyTorch, and networks trained in other manners.

Each recipe is a function of a seed, training records and the number of classes to a function of inputs to
log-probabilities. `error_rates_targets` trains them on the same sets as its own targets.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

LogProbs = Callable[[np.ndarray], np.ndarray]
Recipe = Callable[[int, np.ndarray, np.ndarray, int], LogProbs]
HIDDEN, BATCH, STEPS = 64, 32, 2500
PYTORCH = "PyTorch"
KEPT = 0.7
"""Dropout: the share of hidden units that a step keeps."""
CLIP, NOISE = 1.0, 0.8
"""DP-SGD: the norm that gradients of single records are cut to, and the noise of their sum in units of it."""


def of_scikit_learn(make: Callable[[int], Any]) -> Recipe:
    """A classifier of scikit-learn; a class that it was shown no record of has probability 0."""

    def train(seed: int, inputs: np.ndarray, labels: np.ndarray, classes: int) -> LogProbs:
        fitted = make(seed).fit(inputs.reshape(len(inputs), -1), labels)

        def log_probs(asked: np.ndarray) -> np.ndarray:
            found = np.full((len(asked), classes), -np.inf)
            with np.errstate(divide="ignore"):
                found[:, fitted.classes_] = np.log(fitted.predict_proba(asked.reshape(len(asked), -1)))
            return found

        return log_probs

    return train


def of_network(manner: str) -> Recipe:
    """A network of one hidden layer, trained with dropout, on shifted or noisy copies, or by DP-SGD."""

    def train(seed: int, inputs: np.ndarray, labels: np.ndarray, classes: int) -> LogProbs:
        image = inputs.ndim == 4
        width = int(np.prod(inputs.shape[1:]))
        start, key = jax.random.split(jax.random.key(seed))
        first, second = jax.random.split(start)
        params = {
            "in": jax.random.normal(first, (width, HIDDEN)) * np.sqrt(2 / width),
            "in_bias": jnp.zeros(HIDDEN),
            "out": jax.random.normal(second, (HIDDEN, classes)) * np.sqrt(1 / HIDDEN),
            "out_bias": jnp.zeros(classes),
        }
        optimizer = optax.sgd(0.3) if manner == "DP-SGD" else optax.adam(1e-3)
        x, y = jnp.asarray(inputs), jnp.asarray(labels)

        def logits(params: Any, x: jax.Array, keep: jax.Array | None = None) -> jax.Array:
            hidden = jax.nn.relu(x.reshape(len(x), -1) @ params["in"] + params["in_bias"])
            hidden = hidden if keep is None else hidden * keep / KEPT
            return hidden @ params["out"] + params["out_bias"]

        def loss(params: Any, x: jax.Array, y: jax.Array, keep: jax.Array | None = None) -> jax.Array:
            return optax.softmax_cross_entropy_with_integer_labels(logits(params, x, keep), y).mean()

        def moved(key: jax.Array, x: jax.Array) -> jax.Array:
            if not image:
                return x + 0.1 * jax.random.normal(key, x.shape)
            shifts = jax.random.randint(key, (len(x), 2), -1, 2)
            return jax.vmap(lambda one, by: jnp.roll(one, by, axis=(0, 1)))(x, shifts)

        def private(key: jax.Array, params: Any, x: jax.Array, y: jax.Array) -> Any:
            each = jax.vmap(lambda x, y: jax.grad(loss)(params, x[None], y[None]))(x, y)
            norms = jnp.sqrt(sum((leaf**2).reshape(len(x), -1).sum(axis=1) for leaf in jax.tree.leaves(each)))
            scale = jnp.minimum(1.0, CLIP / norms)
            leaves, shape = jax.tree.flatten(each)
            keys = jax.random.split(key, len(leaves))
            return shape.unflatten(
                (jnp.tensordot(scale, leaf, 1) + CLIP * NOISE * jax.random.normal(own, leaf.shape[1:])) / len(x)
                for own, leaf in zip(keys, leaves, strict=True)
            )

        def step(carry: Any, key: jax.Array) -> tuple[Any, None]:
            params, state = carry
            choice, other = jax.random.split(key)
            rows = jax.random.choice(choice, len(x), (BATCH,), replace=False)
            if manner == "DP-SGD":
                gradient = private(other, params, x[rows], y[rows])
            elif manner == "dropout":
                keep = jax.random.bernoulli(other, KEPT, (BATCH, HIDDEN))
                gradient = jax.grad(loss)(params, x[rows], y[rows], keep)
            else:
                gradient = jax.grad(loss)(params, moved(other, x[rows]), y[rows])
            change, state = optimizer.update(gradient, state, params)
            return (optax.apply_updates(params, change), state), None

        fit = jax.jit(lambda params, keys: jax.lax.scan(step, (params, optimizer.init(params)), keys)[0][0])
        fitted = fit(params, jax.random.split(key, STEPS))
        return lambda asked: np.asarray(jax.nn.log_softmax(logits(fitted, jnp.asarray(asked))), np.float64)

    return train


def of_pytorch(seed: int, inputs: np.ndarray, labels: np.ndarray, classes: int) -> LogProbs:
    """A network as PyTorch's users train them: batch norm, dropout, AdamW with weight decay on a cosine schedule."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    x = torch.from_numpy(np.ascontiguousarray(inputs.reshape(len(inputs), -1), np.float32))
    y = torch.from_numpy(labels.astype(np.int64))
    width = 2 * HIDDEN
    net = nn.Sequential(
        nn.Linear(x.shape[1], width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(1 - KEPT), nn.Linear(width, classes)
    )
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        rows = torch.randint(len(x), (BATCH,), generator=generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
        optimizer.step()
        schedule.step()
    net.eval()

    def log_probs(asked: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            flat = torch.from_numpy(np.ascontiguousarray(asked.reshape(len(asked), -1), np.float32))
            return nn.functional.log_softmax(net(flat), dim=1).double().numpy()

    return log_probs


def _forest(seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(200, random_state=seed)


def _boosted(seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(max_iter=20, max_leaf_nodes=15, random_state=seed)


def _logistic(seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=300, random_state=seed)


def _early_stopped(seed: int) -> Any:
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier((64,), early_stopping=True, max_iter=60, random_state=seed)


RECIPES: dict[str, Recipe] = {
    "random forest": of_scikit_learn(_forest),
    "boosted trees": of_scikit_learn(_boosted),
    "logistic regression": of_scikit_learn(_logistic),
    "early stopped": of_scikit_learn(_early_stopped),
    "dropout": of_network("dropout"),
    "augmented": of_network("augmented"),
    "DP-SGD": of_network("DP-SGD"),
    PYTORCH: of_pytorch,
}
