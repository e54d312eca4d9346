"""Methods that train on, SCRUB and SSD: each against a loop over records in Python, and what its formula implies."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaudit.errors import InputError
from jaxaudit.learners.batch_order import own_batches
from jaxaudit.randomness import stream
from jaxaudit.unlearning import fine_tune, gradient_ascent, negative_gradient, scrub, selective_dampening
from jaxaudit.unlearning.passes import one_pass

KEY = jax.random.key(3)
RANDOM = np.random.default_rng(4)
COUNT, FORGOTTEN = 17, 5
INPUTS = jnp.asarray(RANDOM.normal(size=(COUNT, 4)), jnp.float32)
LABELS = jnp.asarray(RANDOM.integers(0, 3, COUNT), jnp.int32)
FORGET = jnp.zeros(COUNT, bool).at[jnp.array([1, 4, 5, 11, 16])].set(True)
PARAMS = {
    "hidden": {"kernel": jnp.asarray(RANDOM.normal(size=(4, 6)), jnp.float32), "bias": jnp.zeros(6)},
    "output": {"kernel": jnp.asarray(RANDOM.normal(size=(6, 3)), jnp.float32), "bias": jnp.zeros(3)},
}
RECIPE: dict[str, Any] = {"epochs": 3, "learning_rate": 0.05, "batch_size": 4}
METHODS = {
    "fine-tuning": partial(fine_tune, **RECIPE),
    "gradient-ascent": partial(gradient_ascent, **RECIPE),
    "negative-gradient": partial(negative_gradient, beta=0.8, **RECIPE),
    "scrub": partial(scrub, max_epochs=2, **RECIPE),
    "ssd": partial(selective_dampening, selection=0.9),
}


def log_probs(params: Any, inputs: Any) -> Any:
    hidden = jnp.tanh(inputs @ params["hidden"]["kernel"] + params["hidden"]["bias"])
    return jax.nn.log_softmax(hidden @ params["output"]["kernel"] + params["output"]["bias"])


def forgotten_by(method: Any, key: Any = KEY, params: Any = PARAMS, forget: Any = FORGET) -> Any:
    return method(key, log_probs, params, INPUTS, LABELS, forget)


def assert_close(found: Any, expected: Any, rtol: float = 2e-4) -> None:
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=2e-6)


def losses(records: Any, weigh: Callable[[Any, Any, int], Any], params: Any) -> Any:
    """The mean over these records, one at a time."""
    return sum(weigh(params, INPUTS[i][None], int(LABELS[i])) for i in records) / len(records)


def cross_entropy(params: Any, x: Any, y: int) -> Any:
    return -log_probs(params, x)[0, y]


def minibatches(purpose: str, epoch: int, rows: Any) -> list[np.ndarray]:
    """The records of every step of a pass, as a network would take them."""
    members = np.flatnonzero(rows)
    bits = np.asarray(jax.random.bits(stream(KEY, purpose, epoch), (COUNT,)))[: len(members)]
    records, real = own_batches(bits, members, RECIPE["batch_size"])
    return [batch[weights > 0] for batch, weights in zip(records, real, strict=True)]


def step(params: Any, loss: Callable[[Any], Any], rate: float) -> Any:
    return jax.tree.map(lambda leaf, g: leaf - rate * g, params, jax.grad(loss)(params))


def trained_on(rows: Any, sign: float) -> Any:
    params = PARAMS
    for epoch in range(RECIPE["epochs"]):
        for records in minibatches("pass", epoch, rows):
            params = step(params, partial(losses, records, cross_entropy), sign * RECIPE["learning_rate"])
    return params


def of_both_sides(beta: float) -> Any:
    params = PARAMS
    for epoch in range(RECIPE["epochs"]):
        others = minibatches("forget", epoch, FORGET)
        for place, records in enumerate(minibatches("pass", epoch, ~FORGET)):
            other = others[place % len(others)]

            def loss(p: Any, records: Any = records, other: Any = other) -> Any:
                return beta * losses(records, cross_entropy, p) - (1 - beta) * losses(other, cross_entropy, p)

            params = step(params, loss, RECIPE["learning_rate"])
    return params


def by_adam(params: Any, gradient: Any, state: tuple[Any, Any, int], rate: float) -> tuple[Any, Any]:
    """Kingma & Ba (2015), algorithm 1."""
    mean, square, count = state
    count += 1
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
    square = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g**2, square, gradient)

    def moved(leaf: Any, m: Any, s: Any) -> Any:
        return leaf - rate * (m / (1 - 0.9**count)) / (jnp.sqrt(s / (1 - 0.999**count)) + 1e-8)

    return jax.tree.map(moved, params, mean, square), (mean, square, count)


def scrubbed(max_epochs: int, temperature: float = 2.0) -> Any:
    zeros = jax.tree.map(jnp.zeros_like, PARAMS)
    student, state = PARAMS, (zeros, zeros, 0)

    def distance(params: Any, x: Any, y: int) -> Any:
        p, q = (jax.nn.softmax(log_probs(each, x)[0] / temperature) for each in (PARAMS, params))
        return temperature**2 * sum(p[c] * jnp.log(p[c] / q[c]) for c in range(3))

    for epoch in range(RECIPE["epochs"]):
        # Of three epochs: half of them passed after the second, 80% and 90% never.
        rate = RECIPE["learning_rate"] * (0.1 if epoch == 2 else 1)
        for records in minibatches("forget", epoch, FORGET) if epoch < max_epochs else []:
            gradient = jax.grad(lambda p, r=records: -losses(r, distance, p))(student)
            if epoch == 0:
                # 0 at the teacher, but for rounding.
                assert all(float(jnp.abs(leaf).max()) < 1e-6 for leaf in jax.tree.leaves(gradient))
                gradient = zeros
            student, state = by_adam(student, gradient, state, rate)
        for records in minibatches("pass", epoch, ~FORGET):
            gradient = jax.grad(lambda p, r=records: 0.5 * losses(r, distance, p) + losses(r, cross_entropy, p))(
                student
            )
            student, state = by_adam(student, gradient, state, rate)
    return student


def dampened(selection: float, strength: float) -> Any:
    def fisher(records: Any) -> Any:
        squares = [jax.grad(cross_entropy)(PARAMS, INPUTS[i][None], int(LABELS[i])) for i in records]
        return jax.tree.map(lambda *g: sum(np.asarray(each, np.float64) ** 2 for each in g) / len(records), *squares)

    of_all, of_forgotten = fisher(range(COUNT)), fisher(np.flatnonzero(FORGET))

    def one(leaf: Any, d: Any, f: Any) -> Any:
        new = np.array(leaf, np.float64)
        for place in np.ndindex(new.shape):
            if f[place] > selection * d[place]:
                new[place] *= min(strength * d[place] / f[place], 1)
        return new

    return jax.tree.map(one, PARAMS, of_all, of_forgotten)


@pytest.mark.parametrize(
    ("name", "twin"),
    [
        ("fine-tuning", partial(trained_on, ~FORGET, 1)),
        ("gradient-ascent", partial(trained_on, FORGET, -1)),
        ("negative-gradient", partial(of_both_sides, 0.8)),
        ("ssd", partial(dampened, 0.9, 1.0)),
    ],
)
def test_a_method_is_its_formula(name: str, twin: Any):
    assert_close(forgotten_by(METHODS[name]), twin())


@pytest.mark.parametrize("max_epochs", [0, 1, 2, 3])
def test_scrub_is_its_algorithm(max_epochs: int):
    method = partial(scrub, max_epochs=max_epochs, **RECIPE)
    assert_close(forgotten_by(method), scrubbed(max_epochs), rtol=2e-3)


@pytest.mark.parametrize(("selection", "strength"), [(0.5, 0.3), (1.2, 1.0), (1.2, 5.0), (0.0, 1.0)])
def test_ssd_is_its_formula_at_other_strengths(selection: float, strength: float):
    method = partial(selective_dampening, selection=selection, strength=strength)
    assert_close(forgotten_by(method), dampened(selection, strength))


def test_ssd_by_hand():
    """One weight a record: F_f is 1 where F_D is 1/2, so that it is halved; what only the others use stays."""

    def two_weights(params: Any, inputs: Any) -> Any:
        # Gradients of log p(0) and log p(1) of p = softmax(0, -x . w) at w = 0 are +-x / 2.
        score = inputs @ params
        return jax.nn.log_softmax(jnp.stack([jnp.zeros(len(inputs)), -score], axis=1))

    inputs, labels = 2 * jnp.eye(2), jnp.array([0, 1])
    dampen = partial(selective_dampening, selection=1.5, strength=1.0)
    found = dampen(KEY, two_weights, jnp.zeros(2), inputs, labels, jnp.array([True, False]))
    np.testing.assert_array_equal(found, 0)

    def shifted(params: Any, inputs: Any) -> Any:
        return two_weights(params - jnp.array([4.0, 3.0]), inputs)

    found = dampen(KEY, shifted, jnp.array([4.0, 3.0]), inputs, labels, jnp.array([True, False]))
    np.testing.assert_allclose(found, [2.0, 3.0], rtol=1e-6)


def test_ssd_cannot_select_above_the_ratio_of_numbers():
    """F_D is at least F_f times the share of the records to forget."""
    unchanged = forgotten_by(partial(selective_dampening, selection=COUNT / FORGOTTEN))
    assert_close(unchanged, PARAMS, rtol=0)


def test_one_batch_of_all_records_is_a_gradient_step():
    """Where a pass is one minibatch of a side, the step is the formula of the docstring, for any order."""
    recipe: Any = {"epochs": 1, "learning_rate": 0.1, "batch_size": COUNT}
    remaining, forgotten = np.flatnonzero(~FORGET), np.flatnonzero(FORGET)
    for beta in (0.3, 1.0):
        expected = step(
            PARAMS,
            lambda p, b=beta: b * losses(remaining, cross_entropy, p) - (1 - b) * losses(forgotten, cross_entropy, p),
            0.1,
        )
        assert_close(forgotten_by(partial(negative_gradient, beta=beta, **recipe)), expected)
    assert_close(forgotten_by(partial(fine_tune, **recipe)), expected)


@pytest.mark.parametrize("name", METHODS)
def test_records_that_are_not_its_own_leave_no_trace(name: str):
    """Fine-tuning never looks at what is forgotten, gradient ascent at nothing else; the others look at both."""
    changed = jnp.where(FORGET[:, None], INPUTS + 1, INPUTS)
    others = jnp.where(FORGET[:, None], INPUTS, INPUTS + 1)
    found, of_forget, of_rest = (
        METHODS[name](KEY, log_probs, PARAMS, inputs, LABELS, FORGET) for inputs in (INPUTS, changed, others)
    )

    def same(one: Any, other: Any) -> bool:
        return all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(other)))

    assert same(found, of_forget) == (name == "fine-tuning")
    assert same(found, of_rest) == (name == "gradient-ascent")


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_jitted_and_vmapped_over_models_and_sets(name: str):
    models = jax.tree.map(lambda leaf: jnp.stack([leaf, 1.5 * leaf]), PARAMS)
    sets = jnp.stack([FORGET, jnp.arange(COUNT) < 9])
    keys = jax.random.split(KEY, 2)

    def one(key: Any, params: Any, forget: Any) -> Any:
        return forgotten_by(METHODS[name], key, params, forget)

    together = jax.jit(jax.vmap(one))(keys, models, sets)
    for index in range(2):
        alone = one(keys[index], jax.tree.map(lambda leaf, i=index: leaf[i], models), sets[index])
        assert_close(jax.tree.map(lambda leaf, i=index: leaf[i], together), alone, rtol=1e-3)


@pytest.mark.parametrize("name", METHODS)
def test_parameters_keep_their_types_where_jax_is_told_to_use_64_bits(name: str):
    with jax.enable_x64(True):
        found = jax.eval_shape(partial(forgotten_by, METHODS[name]))
    assert jax.tree.map(lambda leaf: str(leaf.dtype), found) == jax.tree.map(lambda leaf: str(leaf.dtype), PARAMS)


@pytest.mark.parametrize("count", [0, 1, 4, 5, 17])
def test_a_pass_is_every_record_of_the_set_once(count: int):
    chosen = jnp.zeros(COUNT, bool).at[jnp.asarray(RANDOM.permutation(COUNT)[:count], int)].set(True)
    over = jax.jit(one_pass, static_argnums=3)(KEY, 0, chosen, 4)
    assert int(over.steps) == -(-count // 4)
    assert over.minibatches.records.shape == (5, 4)
    taken = [
        np.asarray(batch.records)[np.asarray(batch.weights) > 0] for batch in (over[s] for s in range(int(over.steps)))
    ]
    assert sorted(np.concatenate([np.zeros(0, int), *taken])) == np.flatnonzero(chosen).tolist()


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
