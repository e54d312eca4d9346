"""Gradient norms of tables that are looked up and multiplied, and of a part of the weights beside constants."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaudit.errors import InputError
from jaxaudit.kernels.gradient_norms import (
    examples_at_a_time,
    fisher_diagonal,
    gradient_similarity,
    mean_gradient,
    squared_grad_norms,
)

N, LENGTH, TOKENS, WIDTH = 3, 4, 40, 30
"""The table is large beside the positions, so that no gradient of it need be made."""
IDS = np.random.default_rng(1).integers(0, TOKENS, (N, LENGTH))
IDS[0] = 7  # one row for all positions
NEXT = np.random.default_rng(2).integers(0, TOKENS, (N, LENGTH))


def transposed(table: Any, hidden: Any) -> Any:
    return hidden @ table.T


def contracted(table: Any, hidden: Any) -> Any:
    return jnp.einsum("nld,vd->nlv", hidden, table)


def turned_round(table: Any, hidden: Any) -> Any:
    return jnp.moveaxis(jnp.einsum("vd,nld->vnl", table, hidden), 0, -1)


def log_prob_of(product: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    def log_prob(params: Any, x: Any, y: Any) -> Any:
        logits = product(params.get("output", params["table"]), jnp.tanh(params["table"][x] @ params["kernel"]))
        return jnp.sum(jnp.take_along_axis(jax.nn.log_softmax(logits), y[..., None], -1), axis=(1, 2))

    return log_prob


def parameters(width: int = WIDTH) -> dict[str, Any]:
    random = np.random.default_rng(3)
    return {"table": random.normal(size=(TOKENS, width)), "kernel": random.normal(size=(width, width))}


def loop(log_prob: Any, params: Any, *constants: Any) -> Any:
    """The slow twin: one gradient after another, squared."""
    gradient = jax.grad(lambda params, i: log_prob(params, IDS[i : i + 1], NEXT[i : i + 1], *constants)[0])
    return [jax.tree.map(np.asarray, gradient(params, i)) for i in range(N)]


def entries(jaxpr: Any) -> int:
    """Entries of the largest array that a program makes, in any part of it."""
    sizes = [variable.aval.size for eqn in jaxpr.eqns for variable in eqn.outvars]
    bodies = [value for eqn in jaxpr.eqns for value in eqn.params.values() if hasattr(value, "jaxpr")]
    return max([0, *sizes, *(entries(body.jaxpr) for body in bodies)])


@pytest.mark.parametrize("product", [transposed, contracted, turned_round])
@pytest.mark.parametrize("width", [2, WIDTH])
def test_both_uses_of_a_table_add_before_squaring(product: Any, width: int):
    """Whichever way the product is written; a narrow table's gradient is made, a wide one's is not."""
    log_prob, params = log_prob_of(product), parameters(width)
    with jax.enable_x64(True):
        found = squared_grad_norms(log_prob, params, IDS, NEXT)
        each = loop(log_prob, params)
        for name in params:
            slow = [np.square(gradient[name]).sum() for gradient in each]
            np.testing.assert_allclose(found.leaves[name], slow, rtol=1e-12)
            mean = np.mean([np.square(gradient[name]) for gradient in each], axis=0)
            np.testing.assert_allclose(fisher_diagonal(log_prob, params, IDS, NEXT)[name], mean, rtol=1e-10, atol=1e-14)
        untied = squared_grad_norms(log_prob, {**params, "output": params["table"]}, IDS, NEXT).leaves
        assert not np.allclose(found.leaves["table"], untied["table"] + untied["output"], rtol=1e-3)
    assert set(found.paths_of_leaves) == {"contracted"}


@pytest.mark.parametrize("product", [transposed, contracted])
def test_no_gradient_of_a_wide_table_is_stored(product: Any):
    log_prob, params = log_prob_of(product), jax.tree.map(jnp.asarray, parameters())
    program = jax.make_jaxpr(lambda params: squared_grad_norms(log_prob, params, IDS, NEXT).total)(params)
    assert entries(program.jaxpr) < N * TOKENS * WIDTH


def test_a_table_is_looked_up_twice_and_multiplied():
    def log_prob(table: Any, x: Any, y: Any) -> Any:
        return jnp.sum((jnp.tanh(table[x] + 2 * table[y]) @ table.T) ** 2, axis=(1, 2))

    table = parameters()["table"]
    with jax.enable_x64(True):
        found = squared_grad_norms(log_prob, table, IDS, NEXT).total
        np.testing.assert_allclose(found, [np.square(each).sum() for each in loop(log_prob, table)], rtol=1e-12)


def test_uses_that_cancel_have_a_norm_of_zero_and_not_below():
    def log_prob(table: Any, x: Any, y: Any) -> Any:
        one_hot = jax.nn.one_hot(x, TOKENS)
        return jnp.sum(table[x] ** 1 - one_hot @ table, axis=(1, 2))

    found = np.asarray(squared_grad_norms(log_prob, jnp.asarray(parameters()["table"], jnp.float32), IDS, NEXT).total)
    assert ((found >= 0) & (found < 1e-4)).all()


def test_constants_have_no_gradient_and_are_not_compiled_in():
    """The low-rank part of a layer is measured, the rest is frozen; another rest is another number."""

    def log_prob(params: Any, x: Any, y: Any, base: Any) -> Any:
        kernel = base["kernel"] + params["b"] @ params["a"]
        logits = jnp.tanh(base["table"][x] @ kernel) @ base["table"].T
        return jnp.sum(jnp.take_along_axis(jax.nn.log_softmax(logits), y[..., None], -1), axis=(1, 2)) * base["scale"]

    random = np.random.default_rng(4)
    params = {"a": random.normal(size=(2, WIDTH)), "b": random.normal(size=(WIDTH, 2))}
    with jax.enable_x64(True):
        totals = []
        for scale in (1, 2):
            base = {**parameters(), "scale": np.int32(scale)}
            how: Any = {"constants": (base,)}
            found = squared_grad_norms(log_prob, params, IDS, NEXT, **how)
            each = loop(log_prob, params, base)
            for name in params:
                slow = [np.square(gradient[name]).sum() for gradient in each]
                np.testing.assert_allclose(found.leaves[name], slow, rtol=1e-12)
            mean = mean_gradient(log_prob, params, IDS, NEXT, **how)
            for name in params:
                np.testing.assert_allclose(mean[name], np.mean([g[name] for g in each], axis=0), rtol=1e-10)
            similar = gradient_similarity(log_prob, params, IDS, NEXT, **how)
            length = np.sqrt(sum(np.square(leaf).sum() for leaf in mean.values()))
            assert np.mean(similar.along) == pytest.approx(length, rel=1e-10)
            totals.append(np.asarray(found.total))
            assert examples_at_a_time(log_prob, params, IDS, NEXT, **how) == N
        np.testing.assert_allclose(totals[1], 4 * totals[0], rtol=1e-12)


def test_how_many_at_a_time_follows_from_memory(monkeypatch: pytest.MonkeyPatch):
    from jaxaudit.kernels.gradient_norms import chunks

    log_prob, params = log_prob_of(transposed), parameters()
    assert examples_at_a_time(log_prob, params, IDS, NEXT) == N
    monkeypatch.setattr(chunks, "BUDGETS", {})
    monkeypatch.setattr(chunks, "ELSEWHERE", 1)
    assert examples_at_a_time(log_prob, params, IDS, NEXT) == 1
    with pytest.raises(InputError):
        examples_at_a_time(log_prob, params, IDS[:0], NEXT[:0])
