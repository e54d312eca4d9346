"""Parameters within scans and other operations that JAX differentiates, against a loop of gradients in float64."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.gradient_twins import examples, fisher_by_loop, gradients_by_loop, norms_by_loop, of_label, wide

from jaxaudit.kernels.gradient_norms import fisher_diagonal, squared_grad_norms

LAYERS, WIDTH = 5, 4
X, Y = examples(5, 6, 3)


def parameters() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shapes = {
        "input": (3, WIDTH), "gates": (WIDTH, 4 * WIDTH), "gates of x": (3, 4 * WIDTH), "gate bias": (4 * WIDTH,),
        "first": (WIDTH,), "layers": (LAYERS, WIDTH, WIDTH), "biases": (LAYERS, WIDTH), "scales": (LAYERS,),
        "output": (WIDTH, 3), "experts": (2, WIDTH, WIDTH),
    }  # fmt: skip
    return {name: 0.5 * random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def lstm(p: Any, x: Any, y: Any) -> Any:
    """Its first state is learned."""

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


def stacked(p: Any, x: Any, y: Any) -> Any:
    """A layer a step, under remat; the kernel turned and scaled."""

    def layer(h: Any, of: Any) -> Any:
        return jax.checkpoint(lambda h: jnp.tanh(h @ of[0].T * of[2] + of[1]))(h), None

    h, _ = jax.lax.scan(layer, x[:, 0] @ p["input"], (p["layers"], p["biases"], p["scales"]))
    return of_label(h @ p["output"], y)


def counted(p: Any, x: Any, y: Any) -> Any:
    """A counter finds the layer."""

    def layer(i: Any, h: Any) -> Any:
        return jnp.tanh(h @ p["layers"][i] + p["biases"][i] * i)

    return of_label(jax.lax.fori_loop(0, LAYERS, layer, x[:, 0] @ p["input"]) @ p["output"], y)


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


def of_one_step(p: Any, x: Any, y: Any) -> Any:
    """A map over the records, of which there is one at a time."""
    return jax.lax.map(lambda one: of_label(jnp.tanh(one[0][:1] @ p["input"]) @ p["output"], one[1][None])[0], (x, y))


NETWORKS = (lstm, backwards, stacked, counted, steps_in_layers, branches, experts, of_one_step)
DIFFERENTIATED: dict[Any, set[str]] = {
    lstm: {"first", "gates", "gates of x", "gate bias"},
    backwards: {"input", "output", "first"},
    stacked: {"layers", "biases", "scales"},
    counted: {"layers", "biases"},
    steps_in_layers: {"input", "layers", "biases", "scales"},
    branches: {"layers", "first", "input"},
    experts: {"experts"},
}


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
    assert agree(network, parameters(), X, Y) == DIFFERENTIATED.get(network, set())
