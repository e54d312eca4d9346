"""Squared gradient norms of single examples, and their mean gradient, against a loop of gradients in float64."""

import json
import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from support.gradient_twins import (
    CLASSES,
    Images,
    Recurrent,
    Words,
    examples,
    fisher_by_loop,
    gradients_by_loop,
    largest,
    nnx_log_prob,
    norms_by_loop,
    of_label,
    wide,
)

from jaxaudit.errors import InputError
from jaxaudit.kernels import fisher_diagonal, mean_gradient, precise_log_softmax, squared_grad_norms
from jaxaudit.kernels.gradient_norms import chunks
from jaxaudit.models import LiuCNN


def close(ours: list[Any], theirs: list[Any], rtol: float = 1e-5, atol: float = 1e-9) -> None:
    """float32: terms are some times larger than their sums."""
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.asarray(mine), np.asarray(other), rtol=rtol, atol=atol)


def linear_outputs(params: Any, inputs: Any) -> Any:
    return inputs @ params["kernel"] + params["bias"]


def linear(params: Any, inputs: Any, labels: Any) -> Any:
    return of_label(linear_outputs(params, inputs), labels)


PARAMS = {"bias": np.array([0.1, -0.2, 0.3], np.float32), "kernel": np.arange(12, dtype=np.float32).reshape(4, 3) / 10}
X, Y = examples(6, 4)


@pytest.mark.parametrize(
    ("build", "shape", "words", "rtol", "atol"),
    [
        (Images, (7, 6, 2), 0, 1e-9, 1e-20),
        # Whatever its parameters, Flax takes the softmax of attention and a row of a table in float32. So rounding
        # depends on the processor, and is all there is of one gradient: a bias of all keys changes no softmax.
        (Words, (5,), 7, 1e-5, 1e-14),
        (Recurrent, (4, 2), 0, 1e-9, 1e-20),
    ],
    ids=["Images", "Words", "Recurrent"],
)
def test_every_layer_equals_a_loop_of_gradients(build: Any, shape: Any, words: int, rtol: float, atol: float):
    """To rounding, in float64 where the layers allow it; and everything is contracted."""
    log_prob, params = nnx_log_prob(nnx.eval_shape(lambda: build(rngs=nnx.Rngs(5))))
    x, y = examples(2, *shape, words=words)
    weights = np.array([1.0, 2.5])
    with jax.enable_x64(True):
        params, x = wide(params), np.asarray(wide(x))
        gradients = gradients_by_loop(log_prob, params, x, y)
        found = squared_grad_norms(log_prob, params, x, y)
        close(jax.tree.leaves(found.leaves), norms_by_loop(gradients), rtol=rtol, atol=atol)
        if build is Recurrent:  # the others compile for long, and have no path that rules and loops have not
            fisher = fisher_diagonal(log_prob, params, x, y, weights=weights)
            close(jax.tree.leaves(fisher), fisher_by_loop(gradients, weights), rtol=rtol, atol=atol)
    assert set(found.paths_of_leaves) == {"contracted"}


def test_single_precision_has_the_stated_error():
    """Against float64, for a convolutional network, whose kernel sums over all positions, and a certain one at that.

    Logits of size 20 are off by 2e-6, and so is, of itself, the probability of all other classes.
    """
    made = nnx.eval_shape(lambda: LiuCNN((6, 6, 1), CLASSES, rngs=nnx.Rngs(5)))
    log_prob, params = nnx_log_prob(made, log_softmax=precise_log_softmax)
    x, y = examples(5, 6, 6, 1)
    x = 15 * x
    found = squared_grad_norms(log_prob, params, x, y)
    with jax.enable_x64(True):
        gradients = gradients_by_loop(log_prob, wide(params), x.astype(np.float64), y)
    close(jax.tree.leaves(found.leaves), norms_by_loop(gradients), rtol=5e-5, atol=0)
    assert found.total.min() < 1e-6
    assert set(found.paths_of_leaves) == {"contracted"}


def odd(params: dict[str, Any], x: Any, y: Any) -> Any:
    """Parameters as no layer takes them."""
    h = x @ params["both"] + (x @ params["both"].T) * params["temperature"]  # one array both ways round
    h = h + params["stack"][0] * h @ params["stack"][1:]  # parts of an array, of two kinds of use
    h = jax.lax.stop_gradient(params["stopped"]) * h + jnp.where(h > params["threshold"], h, params["threshold"])
    h = jax.lax.cond(x.sum() > 0, lambda h: h * params["branch"], lambda h: h, h)
    h = smooth(h, params["own"])
    # Complex, an argument of a comparison only, and taken by the label alone.
    h = h + jnp.abs(jnp.fft.fft(h) * params["complex"]) + params["by_label"][y][:, None]
    return of_label(h[:, :CLASSES], y) + jnp.sum(params["alone"] ** 2)


@jax.custom_vjp
def smooth(h: Any, own: Any) -> Any:
    return jnp.tanh(h * own)


smooth.defvjp(
    lambda h, own: (smooth(h, own), (h, own)), lambda kept, g: (g * kept[1], 3 * jnp.sum(g * kept[0], axis=0))
)

ODD = {
    "both": jnp.linspace(-1, 1, 16).reshape(4, 4),
    "temperature": jnp.float32(0.7),
    "stack": jnp.linspace(-0.5, 1, 20).reshape(5, 4),
    "stopped": jnp.ones(4),
    "threshold": jnp.linspace(-0.2, 0.2, 4),
    "branch": jnp.linspace(0.5, 1, 4),
    "own": jnp.linspace(0.2, 0.5, 4),
    "complex": jnp.linspace(0.1, 0.3, 4),
    "by_label": jnp.arange(3.0),
    "alone": jnp.arange(2.0),
    "unused": jnp.ones((2, 2)),
}


def test_parameters_that_no_rule_knows_are_exact_all_the_same():
    """And those in a branch or below a derivative of its own say that they were differentiated."""
    with jax.enable_x64(True):
        params, x = wide(ODD), X.astype(np.float64)
        gradients = gradients_by_loop(odd, params, x, Y)
        weights = np.arange(6.0)
        found = squared_grad_norms(odd, params, x, Y, chunk=4)
        close(jax.tree.leaves(found.leaves), norms_by_loop(gradients), rtol=1e-9, atol=1e-20)
        close(
            jax.tree.leaves(fisher_diagonal(odd, params, x, Y, weights=weights, chunk=4)),
            fisher_by_loop(gradients, weights),
            rtol=1e-9,
            atol=1e-20,
        )
    assert {name for name, how in found.paths.items() if how == "vmap(grad)"} >= {"branch", "own"}
    assert {found.paths[name] for name in ("both", "temperature", "stack", "threshold", "alone", "unused")} == {
        "contracted"
    }
    assert not found.leaves["unused"].any()
    assert not found.leaves["stopped"].any()


def test_jit_and_vmap_over_models_change_nothing():
    many = jax.tree.map(lambda leaf: np.stack([leaf, 2 * leaf]), PARAMS)
    weights = np.arange(6, dtype=np.float32)

    def both(params: Any) -> Any:
        norms = squared_grad_norms(linear, params, X, Y, chunk=4)
        return norms, fisher_diagonal(linear, params, X, Y, weights=weights, chunk=4)

    norms, fisher = jax.jit(jax.vmap(both))(many)
    assert norms.paths == {"bias": "contracted", "kernel": "contracted"}
    for model in range(2):
        one = jax.tree.map(lambda leaf, model=model: leaf[model], many)
        alone, diagonal = both(one)
        close([leaf[model] for leaf in jax.tree.leaves(norms.leaves)], jax.tree.leaves(alone.leaves))
        np.testing.assert_allclose(norms.total[model], alone.total, rtol=1e-5)
        close([leaf[model] for leaf in jax.tree.leaves(fisher)], jax.tree.leaves(diagonal))


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="of a CPU's compiler")
def test_patches_of_one_convolution_stand_in_memory_at_a_time():
    layers, channels, side = 12, 8, 16
    kernels = [jnp.full((3, 3, channels, channels), 0.01)] * layers
    images = np.ones((4, side, side, channels), np.float32)

    def log_prob(kernels: Any, x: Any, y: Any) -> Any:
        for kernel in kernels:
            x = jnp.tanh(
                jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            )
        return x.mean((1, 2, 3))

    def norms(kernels: Any, images: Any) -> Any:
        return squared_grad_norms(log_prob, kernels, images, jnp.zeros(4), chunk=4).total

    plain, ours = (chunks.forms(norms)[within].lower(kernels, images).compile() for within in (True, False))
    np.testing.assert_array_equal(plain(kernels, images), ours(kernels, images))
    patches = layers * images.nbytes * 9
    assert plain.memory_analysis().temp_size_in_bytes > 0.8 * patches
    assert ours.memory_analysis().temp_size_in_bytes < 0.5 * patches


def test_values_may_be_closed_over_and_the_chunk_changes_nothing():
    alone = np.asarray(squared_grad_norms(linear, PARAMS, X, Y, chunk=4).total)
    scaled = jax.jit(lambda s: squared_grad_norms(lambda p, x, y: linear(p, s * x, y), PARAMS, X / 2, Y).total)
    close([scaled(2.0)], [alone])
    for chunk in (1, 100):
        close([squared_grad_norms(linear, PARAMS, X, Y, chunk=chunk).total], [alone], rtol=1e-6)


def test_a_look_up_keeps_examples_apart():
    """NaN stays with its example, and one of weight 0 leaves no trace."""
    table = jnp.ones((50, 3)).at[7].set(jnp.nan)
    tokens = np.array([[1, 1, 2], [7, 4, 4], [9, 9, 9]], np.int32)

    def log_prob(table: Any, x: Any, y: Any) -> Any:
        return jnp.square(table[x]).sum((1, 2))

    found = squared_grad_norms(log_prob, table, tokens, np.zeros(3)).total
    close([found[::2]], [[4.0 * 3 * (4 + 1), 4.0 * 3 * 9]])
    assert jnp.isnan(found).tolist() == [False, True, False]
    diagonal = np.zeros((50, 3))
    diagonal[[1, 2, 9]] = np.array([[16.0], [4.0], [36.0]]) / 2
    close([fisher_diagonal(log_prob, table, tokens, np.zeros(3), weights=np.array([1.0, 0.0, 1.0]))], [diagonal])


def test_one_function_is_traced_once():
    traces = []

    def counted(params: Any, x: Any, y: Any) -> Any:
        traces.append(x.shape)
        return linear(params, x, y)

    for _ in range(3):
        squared_grad_norms(counted, PARAMS, X, Y, chunk=2)
    assert traces == [(1, 4)]


def test_no_gradient_of_a_dense_layer_is_stored():
    """Of all arrays that the program makes, none has a kernel's entries an example."""
    params, (x, y) = {"kernel": np.ones((50, 60)), "bias": np.zeros(60)}, examples(8, 50)
    for of in (lambda p: squared_grad_norms(linear, p, x, y).total, lambda p: fisher_diagonal(linear, p, x, y)):
        assert 8 * 60 <= largest(jax.make_jaxpr(of)(params).jaxpr) < 8 * 50 * 60


def test_a_nan_stays_with_its_example():
    broken = X.copy()
    broken[2] = np.nan
    found = squared_grad_norms(linear, PARAMS, broken, Y, chunk=4)
    others = np.arange(6) != 2
    assert np.isnan(found.total[2])
    close([found.total[others]], [np.asarray(squared_grad_norms(linear, PARAMS, X, Y).total)[others]])
    without = fisher_diagonal(linear, PARAMS, broken, Y, weights=others.astype(np.float32), chunk=4)
    close(jax.tree.leaves(without), jax.tree.leaves(fisher_diagonal(linear, PARAMS, X[others], Y[others])))
    nothing = fisher_diagonal(linear, PARAMS, X, Y, weights=np.zeros(6, np.float32), chunk=4)
    assert not any(leaf.any() for leaf in jax.tree.leaves(nothing))


def test_half_precision_is_summed_in_single():
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), PARAMS)
    found = squared_grad_norms(linear, params, X, Y)
    assert found.total.dtype == jnp.float32
    close([found.total], [np.asarray(squared_grad_norms(linear, PARAMS, X, Y).total)], rtol=0.1)


def backwards_only(params: Any, x: Any, y: Any) -> Any:
    return of_label(smooth(linear_outputs(params, x), params["bias"]), y)


@pytest.mark.parametrize("chunk", [None, 4])
@pytest.mark.parametrize("log_prob", [linear, backwards_only])
def test_the_mean_gradient_is_that_of_single_gradients(log_prob: Any, chunk: int | None):
    """By forward mode, and below a derivative of its own, which has none."""
    with jax.enable_x64(True):
        params, x = wide(PARAMS), X.astype(np.float64)
        gradients = gradients_by_loop(log_prob, params, x, Y)
        found = mean_gradient(log_prob, params, x, Y, chunk=chunk)
        for name, mine in found.items():
            np.testing.assert_allclose(mine, np.mean([each[name] for each in gradients], axis=0), rtol=1e-10)


def test_records_of_several_arrays():
    """A batch of a dictionary; and the norms are those of the same arrays side by side."""

    def split(params: Any, inputs: Any, labels: Any) -> Any:
        return linear(params, jnp.concatenate([inputs["left"], inputs["right"]], axis=1), labels["class"])

    apart, classes = {"left": X[:, :1], "right": X[:, 1:]}, {"class": Y}
    wanted = squared_grad_norms(linear, PARAMS, X, Y, chunk=4).total
    close([squared_grad_norms(split, PARAMS, apart, classes, chunk=4).total], [wanted])
    diagonal = fisher_diagonal(split, PARAMS, apart, classes, chunk=4)
    np.testing.assert_allclose(sum(np.sum(leaf) for leaf in jax.tree.leaves(diagonal)), np.mean(wanted), rtol=1e-5)
    with pytest.raises(InputError, match="there are 2 or 6 inputs and 6 labels"):
        squared_grad_norms(split, PARAMS, {**apart, "left": X[:2, :1]}, classes)


SPREAD = """
import json, jax, jax.numpy as jnp, numpy as np
from support.gradient_twins import examples, of_label
from jaxaudit.kernels import fisher_diagonal, squared_grad_norms
x, y = examples(6, 4)
log_prob = lambda p, x, y: of_label(x @ p, y)
params = jnp.arange(12.0).reshape(4, 3) / 10
seen = {shard.device.id for shard in squared_grad_norms(log_prob, params, x, y, chunk=4).leaves.addressable_shards}
print(json.dumps([len(jax.devices()), len(seen), squared_grad_norms(log_prob, params, x, y, chunk=4).total.tolist(),
                  fisher_diagonal(log_prob, params, x, y, chunk=3).tolist()]))
"""


@pytest.mark.outer
def test_several_devices_share_every_chunk():
    run = subprocess.run(
        [sys.executable, "-c", SPREAD],
        env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=3", "JAX_PLATFORMS": "cpu",
             "PYTHONPATH": os.path.dirname(os.path.dirname(__file__))},
        capture_output=True,
        text=True,
        check=True,
    )  # fmt: skip
    devices, seen, norms, fisher = json.loads(run.stdout)
    log_prob = lambda p, x, y: of_label(x @ p, y)  # noqa: E731
    gradients = gradients_by_loop(log_prob, PARAMS["kernel"], X, Y)
    assert devices == seen == 3
    close([np.array(norms)], norms_by_loop(gradients))
    close([np.array(fisher)], fisher_by_loop(gradients, np.ones(6)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": X[:0], "labels": Y[:0]}, "there are 0 inputs and 0 labels: give one label for each of at least"),
        ({"labels": Y[:5]}, "there are 6 inputs and 5 labels"),
        ({"params": {}}, "the model has no parameters"),
        ({"params": {**PARAMS, "steps": jnp.int32(3)}}, r"the parameter \['steps'\] is int32, not an array of real"),
        ({"params": {**PARAMS, "name": "x"}}, r"the parameter \['name'\] is str, not an array"),
        ({"chunk": 0}, "`chunk` must"),
        ({"log_prob": lambda p, x, y: x @ p["kernel"]}, r"maps one example to float32 of shape \(1, 3\); it must"),
        ({"log_prob": lambda p, x, y: linear(p, x, y).mean()}, r"maps one example to float32 of shape \(\)"),
        ({"log_prob": lambda p, x, y: 3.0}, "maps one example to a float;"),
    ],
)
def test_what_cannot_be_measured_says_why(change: dict[str, Any], message: str):
    call = {"log_prob": linear, "params": PARAMS, "inputs": X, "labels": Y, **change}
    with pytest.raises(InputError, match=message):
        squared_grad_norms(**call)
    with pytest.raises(InputError, match=message):
        fisher_diagonal(**call)
    with pytest.raises(InputError, match=r"`weights` has shape \(5,\) but must have \(6,\)"):
        fisher_diagonal(linear, PARAMS, X, Y, weights=np.ones(5, np.float32))
    with pytest.raises(InputError, match="`examples` must be at least 1; got 0"):
        mean_gradient(linear, PARAMS, X[:0], Y[:0])
