"""The bridge from any NNX module to two pure functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from support.pure_modules import KEY, compiled, images, plain, words

from jaxaudit.errors import InputError
from jaxaudit.models import MLP, LiuCNN, MedicalCNN, pure_module


class WithDropout(nnx.Module):
    def __init__(self, input_shape: tuple[int, ...], classes: int, *, rngs: nnx.Rngs) -> None:
        self.dense = nnx.Linear(input_shape[0], classes, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, inputs):
        return self.drop(self.dense(inputs))


class WithCounter(nnx.Module):
    """A user's module that keeps something of its own."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, rngs: nnx.Rngs) -> None:
        self.dense = nnx.Linear(input_shape[0], classes, rngs=rngs)
        self.seen = nnx.Variable(jnp.zeros((), jnp.int32))

    def __call__(self, inputs):
        self.seen[...] = self.seen[...] + 1
        return self.dense(inputs)


@pytest.mark.parametrize(
    ("factory", "shape", "coupled"),
    [
        (MLP, (3,), False),
        (WithDropout, (3,), False),
        (WithCounter, (3,), True),
        (LiuCNN, (4, 4, 1), True),
        (MedicalCNN, (4, 4, 1), True),
    ],
)
def test_batch_coupling_is_seen_in_the_state(factory, shape, coupled):
    assert pure_module(factory, shape, 2).batch_coupled is coupled


@pytest.mark.parametrize(("factory", "shape"), [(WithDropout, (4,)), (LiuCNN, (4, 4, 1))])
def test_init_and_apply_are_pure_under_jit_and_vmap(factory, shape):
    net = pure_module(factory, shape, 3)
    keys = jax.random.split(KEY, 3)
    inputs = images(3, 5, *shape)

    def run(key, x):
        params, state = net.init(key)
        first, state = net.apply(params, state, x, True)
        second, _ = net.apply(params, state, x, True)
        return first, second, net.apply(params, state, x, False)[0]

    batched, alone = jax.jit(jax.vmap(run))(keys, inputs), jax.jit(run)
    for m in range(3):
        for ours, theirs in zip(alone(keys[m], inputs[m]), batched, strict=True):
            np.testing.assert_allclose(ours, theirs[m], rtol=0, atol=1e-5)
    assert not np.allclose(batched[0][0], batched[0][1], atol=1e-2)


@pytest.mark.parametrize(("factory", "shape"), [(WithDropout, (4,)), (WithCounter, (4,)), (LiuCNN, (4, 4, 1))])
def test_the_state_changes_in_training_only_and_in_the_open(factory, shape):
    net = pure_module(factory, shape, 3)
    params, state = jax.jit(net.init)(KEY)
    before = [words(leaf).copy() for leaf in jax.tree.leaves(state)]
    inputs = jnp.asarray(images(5, *shape))
    _, kept = net.apply(params, state, inputs, False)
    _, moved = jax.jit(net.apply, static_argnums=3)(params, state, inputs, True)
    for old, was, same in zip(before, jax.tree.leaves(state), jax.tree.leaves(kept), strict=True):
        assert np.array_equal(old, words(was))
        assert was is same
    assert jax.tree.structure(moved) == jax.tree.structure(state)
    assert any(not np.array_equal(old, words(new)) for old, new in zip(before, jax.tree.leaves(moved), strict=True))


def test_dropout_draws_from_its_state_and_is_off_in_evaluation():
    net = compiled(WithDropout, (4,), 200)
    params, state = net.init(KEY)
    dense = plain(params)["dense"]
    inputs = images(6, 4)
    whole = inputs @ dense["kernel"] + dense["bias"]
    first, after = net.apply(params, state, inputs, True)
    again, _ = net.apply(params, state, inputs, True)
    second, _ = net.apply(params, after, inputs, True)
    assert np.array_equal(first, again)
    assert not np.array_equal(first == 0, second == 0)
    kept = np.asarray(first) != 0
    # 1,200 fair draws: further than 0.1 from a half has a chance under 1e-11.
    assert abs(kept.mean() - 0.5) < 0.1
    np.testing.assert_allclose(np.asarray(first)[kept], 2 * np.asarray(whole)[kept], rtol=1e-5, atol=1e-6)
    for any_state in (state, after):
        np.testing.assert_allclose(net.apply(params, any_state, inputs, False)[0], whole, rtol=1e-5, atol=1e-6)


def test_keys_alone_decide_the_parameters():
    net = compiled(MLP, (4,))
    first, again, other = (jax.tree.leaves(net.init(jax.random.key(seed))[0]) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[1], other[1])


class TwoOutputs(WithDropout):
    def __call__(self, inputs):
        return super().__call__(inputs), inputs


class Linen(linen.Module):
    @linen.compact
    def __call__(self, inputs):
        return linen.Dense(3)(inputs)


def fixed(width: int, classes: int):
    return lambda input_shape, num_classes, *, rngs: nnx.Linear(width, classes, rngs=rngs)


@pytest.mark.parametrize(
    ("factory", "shape", "message"),
    [
        (lambda input_shape: None, (4,), r"returned a NoneType, not a flax\.nnx\.Module"),
        (LiuCNN, (784,), r"LiuCNN could not build a network: .*called as LiuCNN\(input_shape=\(784,\), classes=3"),
        (LiuCNN, (1, 2, 1), "LiuCNN could not build a network: ValueError: pooling by 2 leaves nothing of .* 1x2 pixe"),
        (lambda input_shape, classes, *, rngs: {}["x"], (4,), "could not build a network: KeyError"),
        (lambda input_shape, classes, *, rngs: 3, (4,), r"a int, not a flax\.nnx\.Module or flax\.linen\.Module"),
        (fixed(7, 3), (4,), r"does not accept records of shape \(4,\): TypeError: dot_general"),
        (MedicalCNN, (5,), r"MedicalCNN does not accept records of shape \(5,\)"),
        (fixed(4, 7), (4,), r"maps 2 records to outputs of shape \(2, 7\)"),
        (TwoOutputs, (4,), r"TwoOutputs maps 2 records to a tuple; it must return logits of shape \(2, 3\)"),
    ],
)  # fmt: skip
def test_a_module_that_does_not_fit_is_refused_in_one_line(factory, shape, message):
    with pytest.raises(InputError, match=message) as caught:
        pure_module(factory, shape, 3)
    assert "\n" not in str(caught.value)


def test_a_linen_module_works_once_wrapped():
    def factory(input_shape, classes, *, rngs):
        return nnx.bridge.ToNNX(Linen(), rngs=rngs).lazy_init(jnp.zeros((1, *input_shape)))

    net = compiled(factory, (4,))
    params, state = net.init(KEY)
    dense = plain(params)["Dense_0"]
    inputs = images(2, 4)
    np.testing.assert_allclose(
        net.apply(params, state, inputs, True)[0], inputs @ dense["kernel"] + dense["bias"], rtol=1e-5, atol=1e-6
    )
