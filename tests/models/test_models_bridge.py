"""The bridge from any NNX module to two pure functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from support.pure_modules import KEY, compiled, images, is_key, plain

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


@pytest.mark.parametrize(("factory", "shape"), [(WithDropout, (4,)), (WithCounter, (4,)), (LiuCNN, (4, 4, 1))])
def test_init_and_apply_are_pure_under_jit_and_vmap(factory, shape):
    net = pure_module(factory, shape, 3)
    keys, inputs = jax.random.split(KEY, 3), images(3, 5, *shape)

    def run(key, x):
        params, state = net.init(key)
        first, moved = net.apply(params, state, x, True)
        second, _ = net.apply(params, moved, x, True)
        shown, kept = net.apply(params, state, x, False)
        # The state changes in training only, and in the open.
        assert jax.tree.structure(moved) == jax.tree.structure(kept) == jax.tree.structure(state)
        assert all(was is same for was, same in zip(jax.tree.leaves(state), jax.tree.leaves(kept), strict=True))
        return (first, second, shown), (jax.tree.map(as_words, state), jax.tree.map(as_words, moved))

    batched, (before, after) = jax.jit(jax.vmap(run))(keys, inputs)
    alone = jax.jit(run)
    for m in range(3):
        for ours, theirs in zip(alone(keys[m], inputs[m])[0], batched, strict=True):
            np.testing.assert_allclose(ours, theirs[m], rtol=0, atol=1e-5)
    assert any(not np.array_equal(*each) for each in zip(*map(jax.tree.leaves, (before, after)), strict=True))
    assert np.allclose(batched[0], batched[1], atol=1e-2) is (factory is not WithDropout)


def as_words(leaf):
    return jax.random.key_data(leaf) if is_key(leaf) else leaf


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


class TwoOutputs(WithDropout):
    def __call__(self, inputs):
        return super().__call__(inputs), inputs


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
