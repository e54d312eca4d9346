"""Parameters within scans, whatever a step does with them, against a loop of gradients in float64."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.gradient_twins import examples, fisher_by_loop, gradients_by_loop, norms_by_loop, of_label, wide

from jaxaudit.kernels import fisher_diagonal, squared_grad_norms

LAYERS, WIDTH, WORDS = 5, 4, 7
X, Y = examples(5, 6, 3)
TOKENS, OF_TOKENS = examples(4, 6, words=WORDS)


def parameters() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shapes = {
        "input": (3, WIDTH), "gates": (WIDTH, 4 * WIDTH), "gates of x": (3, 4 * WIDTH), "gate bias": (4 * WIDTH,),
        "first": (WIDTH,), "layers": (LAYERS, WIDTH, WIDTH), "biases": (LAYERS, WIDTH), "scales": (LAYERS,),
        "steps": (2, WIDTH), "table": (WORDS, WIDTH), "columns": (WIDTH, WORDS), "places": (9, WIDTH),
        "cube": (9, 2, 5), "output": (WIDTH, 3), "experts": (2, WIDTH, WIDTH),
    }  # fmt: skip
    return {name: 0.5 * random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def lstm(p: Any, x: Any, y: Any) -> Any:
    """Its first state is learned; its steps are under remat."""

    @jax.checkpoint
    def step(carry: Any, now: Any) -> Any:
        h, memory = carry
        i, f, g, o = jnp.split(now @ p["gates of x"] + h @ p["gates"] + p["gate bias"], 4, axis=-1)
        memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(memory), memory), None

    first = jnp.broadcast_to(p["first"], (len(x), WIDTH))
    (h, _), _ = jax.lax.scan(step, (first, jnp.zeros_like(first)), jnp.moveaxis(x, 1, 0))
    return of_label(h @ p["output"], y)


def backwards(p: Any, x: Any, y: Any) -> Any:
    """A product of two parameters in every step, and all outputs are used."""

    def step(h: Any, now: Any) -> Any:
        h = jnp.tanh(now @ p["input"] + h @ p["output"] @ p["output"].T)
        return h, h * p["first"]

    h, every = jax.lax.scan(step, jnp.zeros((len(x), WIDTH)), jnp.moveaxis(x, 1, 0), reverse=True, unroll=2)
    return of_label((every.sum(0) + h) @ p["output"], y)


def counted(p: Any, x: Any, y: Any) -> Any:
    """A counter finds the layer."""

    def layer(i: Any, h: Any) -> Any:
        return jnp.tanh(h @ p["layers"][i] + p["biases"][i] * i)

    return of_label(jax.lax.fori_loop(0, LAYERS, layer, x[:, 0] @ p["input"]) @ p["output"], y)


def layers_in_steps(p: Any, x: Any, y: Any) -> Any:
    """A loop over layers in one over steps: shared outside and apart inside, and the other way round; one layer also
    in every step of both."""

    def step(h: Any, given: Any) -> Any:
        now, scale = given
        now = now @ p["input"]

        def layer(h: Any, of: Any) -> Any:
            h = jnp.tanh(h @ of[0] + of[1] + now * scale + h @ p["layers"][0])
            return h, h @ p["output"]

        h, every = jax.lax.scan(layer, h, (p["layers"], p["biases"]))
        return h, every.sum(0)

    _, every = jax.lax.scan(step, jnp.zeros((len(x), WIDTH)), (jnp.moveaxis(x, 1, 0)[:2], p["steps"]))
    return of_label(every.mean(0), y)


def steps_in_layers(p: Any, x: Any, y: Any) -> Any:
    """What a layer makes of its parameters alone is an output, too."""

    def layer(h: Any, of: Any) -> Any:
        made = jnp.sin(of[0]) * of[2]

        def step(h: Any, now: Any) -> Any:
            return jnp.tanh(h @ made + h @ of[0].T + now @ p["input"] + of[1]), made

        h, every = jax.lax.scan(step, h, jnp.moveaxis(x, 1, 0))
        return h, every.sum(0)

    layers = (p["layers"], p["biases"], p["scales"])
    h, every = jax.lax.scan(layer, jnp.zeros((len(x), WIDTH)), layers)
    return of_label(h @ p["output"], y) + every.sum()


def words(p: Any, x: Any, y: Any) -> Any:
    """Rows, columns and windows at places that the example decides, in steps, in a map within them, and outside."""

    def step(h: Any, token: Any) -> Any:
        h = jnp.tanh(p["table"][token] + h @ p["layers"][0] + p["columns"][:, token].T)
        return h, jax.lax.map(lambda each: p["places"][each % 9], token).sum(0)

    h, every = jax.lax.scan(step, jnp.zeros((len(x), WIDTH)), x.T)
    zero = jnp.int32(0)
    window = jax.lax.dynamic_slice(p["places"], (x[0, 0], zero), (3, WIDTH)).sum(0)
    box = jax.lax.dynamic_slice(p["cube"], (x[0, 0], zero, x[0, 1]), (3, 2, 2)).sum()
    return of_label((h + every.sum(0) + window + box) @ p["output"], y)


def branches(p: Any, x: Any, y: Any) -> Any:
    """No rule is known for what is in a branch."""

    def step(h: Any, now: Any) -> Any:
        h = jax.lax.cond(now.sum() > 0, lambda h: h @ p["layers"][0], lambda h: h * p["first"], h)
        return jnp.tanh(h + now @ p["input"]), None

    h, _ = jax.lax.scan(step, jnp.zeros((len(x), WIDTH)), jnp.moveaxis(x, 1, 0))
    return of_label(h @ p["output"], y)


def experts(p: Any, x: Any, y: Any) -> Any:
    """An operation that JAX cannot differentiate for many examples at a time."""
    tokens = jnp.tanh(x.reshape(-1, 3) @ p["input"])
    second = tokens[:, 0] > 0
    sizes = jnp.bincount(second.astype(jnp.int32), length=2).astype(jnp.int32)
    made = jax.lax.ragged_dot(tokens[jnp.argsort(second)], p["experts"], sizes)
    return of_label(made.reshape(len(x), -1, WIDTH).sum(1) @ p["output"], y)


def added(p: Any, x: Any, y: Any) -> Any:
    """Sums whose parts have one cotangent, and sums whose parts have others: doubled, used again, of another shape."""
    outside = x[:, 0] @ p["input"]

    def step(h: Any, now: Any) -> Any:
        first, again, twice = now @ p["input"], h @ p["steps"].T @ p["steps"], h * p["first"]
        total = first + again + p["first"] + outside
        return jnp.tanh(total + (twice + twice) + (h * p["first"]).sum(-1, keepdims=True)) + again, first + 1

    h, every = jax.lax.scan(step, jnp.zeros((len(x), WIDTH)), jnp.moveaxis(x, 1, 0))
    return of_label((h + every.sum(0)) @ p["output"] + h[:, :3], y)


NETWORKS = (added, lstm, backwards, counted, layers_in_steps, steps_in_layers, words, branches, experts)
DIFFERENTIATED: dict[Any, set[str]] = {branches: {"layers", "first"}, experts: {"experts"}}


def agree(log_prob: Callable[..., Any], params: Any, x: Any, y: Any) -> set[str]:
    """Norms and diagonal are those of single gradients; names of the leaves that were not contracted."""
    with jax.enable_x64(True):
        params, x = wide(params), jnp.asarray(wide(x))
        gradients = gradients_by_loop(log_prob, params, x, y)
        found, weights = squared_grad_norms(log_prob, params, x, y, chunk=3), np.linspace(1, 2, len(y))
        fisher = fisher_diagonal(log_prob, params, x, y, weights=weights)
        pairs = [(jax.tree.leaves(found.leaves), norms_by_loop(gradients))]
        pairs.append((jax.tree.leaves(fisher), fisher_by_loop(gradients, weights)))
        for ours, slow in pairs:
            for mine, other in zip(ours, slow, strict=True):
                np.testing.assert_allclose(np.asarray(mine), other, rtol=1e-9, atol=1e-20)
    return {name for name, how in found.paths.items() if how != "contracted"}


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
def test_every_loop_equals_a_loop_of_gradients(network: Callable[..., Any]):
    x, y = (TOKENS, OF_TOKENS) if network is words else (X, Y)
    assert agree(network, parameters(), x, y) == DIFFERENTIATED.get(network, set())


def equations(jaxpr: Any) -> int:
    bodies = [value for eqn in jaxpr.eqns for value in eqn.params.values() if hasattr(value, "jaxpr")]
    return len(jaxpr.eqns) + sum(equations(body.jaxpr) for body in bodies)


def test_a_loop_stays_a_loop():
    """The program of 40 steps is no longer than that of 6."""
    sizes = []
    for steps in (6, 40):
        x, y = examples(2, steps, 3)
        sizes.append(equations(jax.make_jaxpr(lambda p: squared_grad_norms(lstm, p, x, y).total)(parameters()).jaxpr))  # noqa: B023
    assert sizes[0] == sizes[1]


def test_what_is_too_large_for_all_steps_is_left_to_jax(monkeypatch: pytest.MonkeyPatch):
    """A kernel that every step scales anew would be held once a step."""
    monkeypatch.setattr("jaxaudit.kernels.gradient_norms.program.MOST_STACKED", 0)

    def scaled(p: Any, x: Any, y: Any) -> Any:
        def step(h: Any, given: Any) -> Any:
            now, number = given
            return jnp.tanh(h @ (p["output"] @ p["output"].T * number) + now @ p["input"]), None

        slices = (jnp.moveaxis(x, 1, 0), jnp.arange(x.shape[1]) / 5)
        h, _ = jax.lax.scan(step, jnp.zeros((len(x), WIDTH)), slices)
        return of_label(h @ p["output"], y)

    assert agree(scaled, parameters(), X, Y) == {"input", "output"}


def test_thousands_of_steps_are_summed_as_precisely_as_few():
    steps = 5_000

    def log_prob(bias: Any, x: Any, y: Any) -> Any:
        return jax.lax.scan(lambda total, each: (total + 0.01 * (each + bias), None), jnp.zeros(len(x)), x.T)[0]

    found = squared_grad_norms(log_prob, jnp.zeros(()), jnp.ones((2, steps)), jnp.zeros(2)).total
    np.testing.assert_allclose(found, (steps * float(np.float32(0.01))) ** 2, rtol=1e-6)
