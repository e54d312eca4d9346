"""The mean gradient against gradients of single examples; records of several arrays."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from support.gradient_twins import CLASSES, examples, gradients_by_loop, nnx_log_prob, of_label, wide

from jaxaudit.errors import InputError
from jaxaudit.kernels import fisher_diagonal, mean_gradient, squared_grad_norms
from jaxaudit.models import MLP

X, Y = examples(7, 4)
LOG_PROB, PARAMS = nnx_log_prob(MLP((4,), CLASSES, hidden=(5,), rngs=nnx.Rngs(2)))
RANDOM = np.random.default_rng(3)
WEIGHTS = {"first": RANDOM.normal(size=(4, 5)), "second": RANDOM.normal(size=(5, 3))}


def flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree)])


def outputs(params: Any, inputs: Any) -> Any:
    return jnp.tanh(inputs @ params["first"]) @ params["second"]


@jax.custom_vjp
def doubled(x: Any) -> Any:
    return 2 * x


doubled.defvjp(lambda x: (2 * x, None), lambda _, g: (2 * g,))


def backwards_only(params: Any, x: Any, y: Any) -> Any:
    return of_label(doubled(outputs(params, x)), y)


@pytest.mark.parametrize("chunk", [None, 3])
@pytest.mark.parametrize(
    ("log_prob", "params"),
    [(LOG_PROB, PARAMS), (backwards_only, WEIGHTS)],
    ids=["forward mode", "a derivative of its own"],
)
def test_the_mean_gradient_is_that_of_single_gradients(log_prob: Any, params: Any, chunk: int | None):
    with jax.enable_x64(True):
        params, x = wide(params), X.astype(np.float64)
        each = np.stack([flat(gradient) for gradient in gradients_by_loop(log_prob, params, x, Y)])
        found = mean_gradient(log_prob, params, x, Y, chunk=chunk)
        np.testing.assert_allclose(flat(found), each.mean(axis=0), rtol=1e-10)


def test_records_of_several_arrays():
    """A batch of a dictionary; and the norms are those of the same arrays side by side."""

    def split(params: Any, inputs: Any, labels: Any) -> Any:
        return of_label(outputs(params, jnp.concatenate([inputs["left"], inputs["right"]], axis=1)), labels["class"])

    params, apart = jax.tree.map(jnp.float32, WEIGHTS), {"left": X[:, :1], "right": X[:, 1:]}
    wanted = squared_grad_norms(lambda p, x, y: of_label(outputs(p, x), y), params, X, Y).total
    for chunk in (None, 3):
        found = squared_grad_norms(split, params, apart, {"class": Y}, chunk=chunk).total
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    diagonal = fisher_diagonal(split, params, apart, {"class": Y}, chunk=3)
    np.testing.assert_allclose(sum(leaf.sum() for leaf in jax.tree.leaves(diagonal)), wanted.mean(), rtol=1e-5)
    with pytest.raises(InputError, match="there are 2 or 7 inputs and 7 labels"):
        squared_grad_norms(split, params, {**apart, "left": X[:2, :1]}, {"class": Y})


def test_of_nothing_there_is_no_gradient():
    with pytest.raises(InputError, match="`examples` must be at least 1; got 0"):
        mean_gradient(LOG_PROB, PARAMS, X[:0], Y[:0])
