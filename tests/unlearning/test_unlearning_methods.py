"""Methods that train on, SCRUB and SSD: each against a loop over records in Python."""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.forgetters import (
    COUNT,
    FORGET,
    INPUTS,
    KEY,
    LABELS,
    PARAMS,
    asked,
    assert_close,
    cross_entropy,
    gradient_of,
    log_probs,
)

from jaxaudit.errors import InputError
from jaxaudit.learners.batch_order import own_batches
from jaxaudit.randomness import stream
from jaxaudit.unlearning import fine_tune, gradient_ascent, negative_gradient, scrub, selective_dampening

RECIPE: dict[str, Any] = {"epochs": 3, "learning_rate": 0.05, "batch_size": 4}
METHODS = {
    "fine-tuning": partial(fine_tune, **RECIPE),
    "gradient-ascent": partial(gradient_ascent, **RECIPE),
    "negative-gradient": partial(negative_gradient, beta=0.8, **RECIPE),
    "scrub": partial(scrub, max_epochs=2, **RECIPE),
    "scrub without maximisation": partial(scrub, max_epochs=0, **RECIPE),
    "ssd": partial(selective_dampening, selection=0.9),
    "ssd that is weak": partial(selective_dampening, selection=0.5, strength=0.3),
    "ssd that is strong": partial(selective_dampening, selection=1.2, strength=5.0),
}
FIVE = ["fine-tuning", "gradient-ascent", "negative-gradient", "scrub", "ssd"]
TEMPERATURE = 2.0


@cache
def compiled(name: str) -> Any:

    def one(key: Any, params: Any, inputs: Any, forget: Any) -> Any:
        return METHODS[name](key, log_probs, params, inputs, jnp.asarray(LABELS), forget)

    return jax.jit(one)


def forgotten_by(method: Any) -> Any:
    return method(KEY, log_probs, PARAMS, *asked())


def mean(parts: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: sum(leaves) / np.float32(len(leaves)), *parts)


def mean_gradient(loss: Any, params: Any, records: Any) -> Any:
    """Over these records, one at a time."""
    return mean([gradient_of(loss, params, int(record)) for record in records])


def minibatches(purpose: str, epoch: int, rows: Any) -> list[np.ndarray]:
    """The records of every step of a pass, as a network would take them."""
    members = np.flatnonzero(rows)
    bits = np.asarray(jax.random.bits(stream(KEY, purpose, epoch), (COUNT,)))[: len(members)]
    records, real = own_batches(bits, members, RECIPE["batch_size"])
    return [batch[weights > 0] for batch, weights in zip(records, real, strict=True)]


def combined(weights: tuple[float, ...], *trees: Any) -> Any:
    """The sum of these, weighted."""
    return jax.tree.map(
        lambda *leaves: sum(np.float32(w) * leaf for w, leaf in zip(weights, leaves, strict=True)), *trees
    )


def trained_on(rows: Any, sign: float) -> Any:
    params = PARAMS
    for epoch in range(RECIPE["epochs"]):
        for records in minibatches("pass", epoch, rows):
            gradient = mean_gradient(cross_entropy, params, records)
            params = combined((1, -sign * RECIPE["learning_rate"]), params, gradient)
    return params


def of_both_sides(beta: float) -> Any:
    params = PARAMS
    for epoch in range(RECIPE["epochs"]):
        others = minibatches("forget", epoch, FORGET)
        for place, records in enumerate(minibatches("pass", epoch, ~FORGET)):
            both = (mean_gradient(cross_entropy, params, each) for each in (records, others[place % len(others)]))
            rate = RECIPE["learning_rate"]
            params = combined((1, -rate * beta, rate * (1 - beta)), params, *both)
    return params


def by_adam(params: Any, gradient: Any, state: tuple[Any, Any, int], rate: float) -> tuple[Any, Any]:
    """Kingma & Ba (2015), algorithm 1."""
    first, second, count = state
    count += 1
    first = combined((0.9, 0.1), first, gradient)
    second = jax.tree.map(lambda s, g: np.float32(0.999) * s + np.float32(0.001) * g**2, second, gradient)

    def moved(leaf: Any, m: Any, s: Any) -> Any:
        return leaf - np.float32(rate) * (m / (1 - 0.9**count)) / (np.sqrt(s / (1 - 0.999**count)) + 1e-8)

    return jax.tree.map(moved, params, first, second), (first, second, count)


def distance(params: Any, x: Any, y: Any) -> Any:
    """Of the student from the teacher: their softened divergence."""
    p, q = (jax.nn.softmax(log_probs(each, x[None])[0] / TEMPERATURE) for each in (PARAMS, params))
    return TEMPERATURE**2 * sum(p[c] * jnp.log(p[c] / q[c]) for c in range(3))


def scrubbed(max_epochs: int) -> Any:
    zeros = jax.tree.map(np.zeros_like, PARAMS)
    student, state = PARAMS, (zeros, zeros, 0)
    for epoch in range(RECIPE["epochs"]):
        # Of three epochs: half of them passed after the second, 80% and 90% never.
        rate = RECIPE["learning_rate"] * (0.1 if epoch == 2 else 1)
        for records in minibatches("forget", epoch, FORGET) if epoch < max_epochs else []:
            gradient = combined((-1,), mean_gradient(distance, student, records))
            if epoch == 0:
                # 0 at the teacher, but for rounding.
                assert all(np.abs(leaf).max() < 1e-6 for leaf in jax.tree.leaves(gradient))
                gradient = zeros
            student, state = by_adam(student, gradient, state, rate)
        for records in minibatches("pass", epoch, ~FORGET):
            both = (mean_gradient(loss, student, records) for loss in (distance, cross_entropy))
            student, state = by_adam(student, combined((0.5, 1), *both), state, rate)
    return student


def dampened(selection: float, strength: float) -> Any:
    def fisher(records: Any) -> Any:
        gradients = [gradient_of(cross_entropy, PARAMS, int(record)) for record in records]
        return mean([jax.tree.map(lambda g: np.float64(g) ** 2, each) for each in gradients])

    of_all, of_forgotten = fisher(range(COUNT)), fisher(np.flatnonzero(FORGET))

    def one(leaf: Any, d: Any, f: Any) -> Any:
        new = np.array(leaf, np.float64)
        for place in np.ndindex(new.shape):
            if f[place] > selection * d[place]:
                new[place] *= min(strength * d[place] / f[place], 1)
        return new

    return jax.tree.map(one, PARAMS, of_all, of_forgotten)


TWINS = {
    "fine-tuning": partial(trained_on, ~FORGET, 1),
    "gradient-ascent": partial(trained_on, FORGET, -1),
    "negative-gradient": partial(of_both_sides, 0.8),
    "scrub": partial(scrubbed, 2),
    "scrub without maximisation": partial(scrubbed, 0),
    "ssd": partial(dampened, 0.9, 1.0),
    "ssd that is weak": partial(dampened, 0.5, 0.3),
    "ssd that is strong": partial(dampened, 1.2, 5.0),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_its_formula(name: str):
    found = compiled(name)(KEY, PARAMS, INPUTS, FORGET)
    assert_close(found, TWINS[name](), rtol=2e-3 if "scrub" in name else 2e-4)


@pytest.mark.parametrize("name", FIVE)
def test_a_method_is_vmapped_over_models_and_sets_and_keeps_the_types_of_parameters(name: str):
    models = jax.tree.map(lambda leaf: np.stack([leaf, np.float32(1.5) * leaf]), PARAMS)
    sets = np.stack([FORGET, np.arange(COUNT) < 9])
    keys = jax.random.split(KEY, 2)
    together = jax.jit(jax.vmap(compiled(name), in_axes=(0, 0, None, 0)))(keys, models, INPUTS, sets)
    for index in range(2):
        mine, theirs = (jax.tree.map(lambda leaf, i=index: leaf[i], each) for each in (together, models))
        assert_close(mine, compiled(name)(keys[index], theirs, INPUTS, sets[index]), rtol=1e-3)
    with jax.enable_x64(True):
        found = jax.eval_shape(partial(forgotten_by, METHODS[name]))
    assert jax.tree.map(lambda leaf: str(leaf.dtype), found) == jax.tree.map(lambda leaf: str(leaf.dtype), PARAMS)


@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        (fine_tune, {"epochs": 0}, "got 0, 64 and 0.01"),
        (gradient_ascent, {"learning_rate": 0.0}, "got 10, 64 and 0"),
        (negative_gradient, {"batch_size": 0}, "got 10, 0 and 0.01"),
        (negative_gradient, {"beta": 1.5}, "got 1.5"),
        (scrub, {"learning_rate": float("nan")}, "got 10, 64 and nan"),
        (selective_dampening, {"selection": -1.0}, "got -1 and 1"),
        (selective_dampening, {"strength": float("nan")}, "got 10 and nan"),
    ],
)
def test_a_recipe_that_does_nothing_is_refused(method: Any, options: Any, said: str):
    with pytest.raises(InputError, match=said):
        forgotten_by(partial(method, **options))
