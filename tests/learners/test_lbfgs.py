"""The minimiser against functions whose lowest point is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxaudit.learners.lbfgs import minimise

MODELS, SIZE = 3, 6


def bowls(seed, spread):
    """Quadratic functions with curvatures from 1 to `spread`, and where they are lowest."""
    random = np.random.default_rng(seed)
    turned = np.stack([np.linalg.qr(random.normal(size=(SIZE, SIZE)))[0] for _ in range(MODELS)])
    hessian = (turned * np.geomspace(1, spread, SIZE)) @ turned.transpose(0, 2, 1)
    return hessian, random.normal(size=(MODELS, SIZE))


@jax.jit
def lowest_of_bowls(hessian, middle, start, scale):
    def function(point):
        slope = jnp.einsum("mij,mj->mi", hessian, point - middle)
        return 0.5 * jnp.sum(slope * (point - middle), axis=1), slope

    return minimise(function, start, lambda vector: scale * vector, tolerance=1e-9, evaluations=400, memory=8)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(1, 300), st.sampled_from([1e-4, 1.0, 1e4]))
def test_the_lowest_point_of_a_quadratic(seed, spread, scale):
    """Whatever the preconditioner's scale: first steps far too short or long are mended."""
    hessian, middle = bowls(seed, spread)
    with jax.enable_x64(True):
        found = lowest_of_bowls(hessian, middle, np.zeros_like(middle), scale)
    assert np.all(np.asarray(found.gradient_norm) <= 1e-9)
    # The gradient's norm bounds the distance: the smallest curvature is 1.
    assert np.linalg.norm(np.asarray(found.point) - middle, axis=1).max() <= 1e-9 * 1.01
    assert np.all(np.asarray(found.evaluations) <= 400)


def test_many_functions_are_as_each_alone():
    hessian, middle = bowls(1, 300.0)
    start = np.random.default_rng(2).normal(size=middle.shape)
    with jax.enable_x64(True):
        together = lowest_of_bowls(hessian, middle, start, 1.0)
        alone = [
            lowest_of_bowls(hessian[[m] * MODELS], middle[[m] * MODELS], start[[m] * MODELS], 1.0) for m in range(3)
        ]
    for m, one in enumerate(alone):
        np.testing.assert_allclose(together.point[m], one.point[0], rtol=1e-12)
        assert together.evaluations[m] == one.evaluations[0]
    assert len(set(np.asarray(together.evaluations).tolist())) > 1


def steep(point):
    """Convex, flat on one side and exponentially steep on the other; lowest at log 2 (once a coordinate)."""
    value = jnp.exp(point) - 2 * point
    return jnp.sum(value, axis=1), jnp.exp(point) - 2


@pytest.mark.parametrize("start", [-30.0, 0.0, 20.0])
def test_steep_and_flat_starts(start):
    with jax.enable_x64(True):
        found = minimise(
            steep, jnp.full((1, 2), start), lambda vector: vector, tolerance=1e-10, evaluations=300, memory=4
        )
    np.testing.assert_allclose(found.point, np.log(2), rtol=0, atol=1e-10)


def test_a_start_at_the_lowest_point_is_the_answer():
    hessian, middle = bowls(3, 10.0)
    with jax.enable_x64(True):
        found = lowest_of_bowls(hessian, middle, middle, 1.0)
    np.testing.assert_array_equal(found.point, middle)
    assert np.asarray(found.evaluations).tolist() == [1, 1, 1]


def test_what_cannot_be_reached_is_told():
    few = minimise(steep, jnp.full((1, 2), 5.0), lambda vector: vector, tolerance=1e-3, evaluations=3, memory=4)
    assert few.evaluations[0] == 3
    assert few.gradient_norm[0] > 1e-3
    # float32 knows log 2 to 6e-8 only: it stops by itself, long before the limit, next to it.
    rounded = minimise(steep, jnp.full((1, 2), 5.0), lambda vector: vector, tolerance=0.0, evaluations=9999, memory=4)
    assert rounded.evaluations[0] < 1000
    np.testing.assert_allclose(rounded.point, np.log(2), rtol=0, atol=1e-5)
    # A function without a lowest value here: infinite beyond a wall, the gradient never zero.
    wall = minimise(
        lambda x: (jnp.where(x[:, 0] < 1, -x[:, 0], jnp.inf), -jnp.ones_like(x)),
        jnp.zeros((1, 1)),
        lambda vector: vector,
        tolerance=1e-3,
        evaluations=500,
        memory=4,
    )
    assert wall.gradient_norm[0] == 1
    assert np.isfinite(wall.point).all()
