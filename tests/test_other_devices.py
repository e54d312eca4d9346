"""Programs of every kind are lowered for GPUs and TPUs on a machine that has neither: none needs what only a CPU has.

What is lowered compiles there, as far as can be told here; numbers and times need the device.
"""

import inspect
import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from support.tiny_learners import Convolved, learner

from jaxaudit.attacks import learned
from jaxaudit.audits import left_out
from jaxaudit.ensemble import batches, chunk, train
from jaxaudit.kernels import bootstrap_ks_paired, ks_distance, squared_grad_norms
from jaxaudit.kernels.gradient_norms import norms
from jaxaudit.learners import network
from jaxaudit.models import LiuCNN, ViT

KEYS = jax.random.split(jax.random.key(3), 3)
INIT: Any = inspect.unwrap(batches.init_chunk)
HOST = re.compile(r"callback|lapack|cpu|eigen", re.IGNORECASE)
"""In the name of what a program calls: it is there on a CPU alone."""


def words(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def whole(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def a_block(one: Any, shape: tuple[int, ...]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Three models' minibatches of four records, as `fit_many` has them trained."""
    states = jax.eval_shape(partial(INIT, one), KEYS)
    run = partial(batches.run_block, one, shared=False, uneven=False)
    arrays = words(9, *shape), whole(9), whole(2, 3, 4), words(2, 3, 4)
    return lambda states, inputs, labels, indices, weights: run(
        states, (KEYS, 0, 0), (inputs, labels), indices, weights, 0, 2
    ), (states, *arrays)


def a_gradient(one: Any, shape: tuple[int, ...]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """One model's, as it is trained from the host."""
    state = jax.eval_shape(one.init, KEYS[0])
    arrays = state.params, (words(9, *shape), whole(9)), (whole(4), words(4))
    return lambda state, *arrays: chunk._gradient(one, state, *arrays, (KEYS[0], 0, 0)), (state, *arrays)


def of_network(kernel: Callable[..., Any], one: Any, shape: tuple[int, ...]) -> tuple[Callable[..., Any], Any]:
    """A kernel of gradients, at a network's log-probability."""
    params = jax.eval_shape(lambda key: one.finish(one.init(key)), KEYS[0])

    def log_prob(params: Any, inputs: Any, labels: Any) -> Any:
        return jnp.take_along_axis(one.log_probs(params, inputs), labels[:, None], axis=1)[:, 0]

    return lambda *arrays: kernel(log_prob, *arrays), (params, words(6, *shape), whole(6))


def models(one: Any) -> Any:
    return jax.eval_shape(lambda keys: jax.vmap(lambda key: one.finish(one.init(key)))(keys), KEYS)


@cache
def trained(make: Any, *shape: int) -> Any:
    return network(make, shape, 10, optimizer=optax.adamw(1e-3), epochs=1, batch_size=4)


def a_learned_attack() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    state = jax.eval_shape(lambda keys: inspect.unwrap(learned._start)(keys, 5, 3), KEYS)
    used = jax.ShapeDtypeStruct((3, 40), bool)
    return lambda *arrays: learned._epoch(KEYS, 0, *arrays, 3), (state, words(3, 40, 5), whole(40), words(3, 40), used)


PROGRAMS: dict[str, Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]] = {
    "ks": lambda: (ks_distance, (words(50), words(40))),
    "bootstrap": lambda: (
        lambda *each: bootstrap_ks_paired(KEYS[0], *each, replicates=9),
        (words(50), words(2, 50)),
    ),
    "initial weights": lambda: (partial(INIT, trained(LiuCNN, 28, 28, 1)), (KEYS,)),
    "block of a perceptron": lambda: a_block(learner(), (4,)),
    "block of Liu's network": lambda: a_block(trained(LiuCNN, 28, 28, 1), (28, 28, 1)),
    "block of a transformer": lambda: a_block(trained(ViT, 16, 16, 1), (16, 16, 1)),
    "gradient": lambda: a_gradient(learner(Convolved, (5, 5, 1)), (5, 5, 1)),
    "outputs": lambda: (partial(train._log_probs, learner()), (models(learner()), words(7, 4))),
    "own outputs": lambda: (partial(left_out._log_probs_each, learner()), (models(learner()), words(3, 1, 4))),
    "squared norms": lambda: of_network(squared_grad_norms, trained(LiuCNN, 28, 28, 1), (28, 28, 1)),
    "summed gradient": lambda: of_network(partial(norms._summed_gradient, constants=()), learner(), (4,)),
    "a learned attack": a_learned_attack,
}


def of_the_host(fn: Callable[..., Any], arrays: tuple[Any, ...], *platforms: str) -> list[str]:
    """What the programs call that only a CPU has."""
    traced = jax.jit(fn).trace(*arrays)
    text = "".join(traced.lower(lowering_platforms=(platform,)).as_text() for platform in platforms)
    return [name for name in set(re.findall(r"custom_call @([\w.$]+)", text)) if HOST.search(name)]


@pytest.mark.outer
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_needs_nothing_of_a_cpu(name: str):
    assert of_the_host(*PROGRAMS[name](), "cuda", "tpu") == []


def test_what_a_cpu_alone_has_is_seen():
    assert of_the_host(*PROGRAMS["ks"](), "cpu")
