"""Learners that know how far a record can move any output: no refit moves one further."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaudit.learners import (
    BoundsDTP,
    LeavesOneOut,
    LeftOut,
    arithmetic_mean,
    logistic_regression,
    naive_bayes,
    nearest_neighbours,
    random_trees,
    unnormalised_geometric_mean,
)
from jaxaudit.metrics.pdtp import every_input

KEY = jax.random.key(5)
RECORDS, COUNTS, CLASSES = 9, (2, 3), 3
EVERYTHING = every_input(COUNTS)
UNIT = np.array([1, 2], np.float32)
"""What brings every input into [0, 1], as neighbours want it."""
LABELS = np.array([0, 1, 2, 0, 1, 0])
ROUNDING = 1e-5  # refits are float32


def trees(**options: Any) -> Any:
    return random_trees(COUNTS, CLASSES, trees=3, depth=2, **options)


BOUNDED = {
    "trees": trees(smoothing=0.3),
    "neighbours": nearest_neighbours(CLASSES, neighbours=2, smoothing=0.3),
    "naive bayes": naive_bayes(COUNTS, CLASSES, smoothing=0.3),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_no_refit_moves_an_output_on_any_input_by_more(name: str):
    made, rng = BOUNDED[name], np.random.default_rng(2)
    assert isinstance(made, BoundsDTP)
    scale = UNIT if name == "neighbours" else np.float32(1)
    less = jnp.ones((RECORDS, RECORDS)) - jnp.eye(RECORDS)

    @jax.jit
    def outputs(inputs: Any, labels: Any) -> Any:
        def of(weights: Any) -> Any:
            return made.log_probs(made.fit(KEY, inputs, labels, weights), jnp.asarray(EVERYTHING / scale))

        return of(jnp.ones(RECORDS)), jax.vmap(of)(less)

    share = 0.0
    for _ in range(60):
        inputs = (EVERYTHING[rng.integers(len(EVERYTHING), size=RECORDS)] / scale).astype(np.float32)
        labels = np.concatenate([np.repeat(np.arange(CLASSES), 2), rng.integers(CLASSES, size=RECORDS - 2 * CLASSES)])
        full, without = outputs(inputs, labels.astype(np.int32))
        moved = np.abs(np.asarray(full) - np.asarray(without)).max(axis=(1, 2))
        left = cast(LeavesOneOut, made).leave_one_out(KEY, inputs, labels, np.arange(RECORDS))
        bound = made.dtp_bound(labels, labels, left)
        assert bound is not None
        assert bound.shape == (RECORDS,)
        assert (moved <= bound + ROUNDING).all()
        if made.largest_dtp is not None:
            assert (bound <= made.largest_dtp + 1e-12).all()
        share = max(share, float((moved / bound).max()))
    assert share > 0.5  # it is no idle bound


@pytest.mark.parametrize("smoothing", [1e-3, 1.0, 2.0])
def test_the_largest_is_what_smoothing_leaves(smoothing: float):
    same = np.log(np.full((4, CLASSES), 1 / CLASSES))
    for made in (trees(smoothing=smoothing), nearest_neighbours(CLASSES, neighbours=3, smoothing=smoothing)):
        assert made.largest_dtp == np.log1p(1 / smoothing)
    bound = nearest_neighbours(CLASSES, neighbours=3, smoothing=smoothing).dtp_bound(
        LABELS, LABELS[:4], LeftOut(same, same)
    )
    np.testing.assert_array_equal(cast(Any, bound), np.full(4, np.log1p(1 / smoothing)))


def test_nothing_is_said_where_nothing_is_proven():
    same = np.log(np.full((4, CLASSES), 1 / CLASSES))
    for made in (
        naive_bayes((2, 0, 2), CLASSES),
        trees(smoothing=0.0),
        trees(aggregate=arithmetic_mean),
        trees(aggregate=unnormalised_geometric_mean),
        nearest_neighbours(CLASSES, neighbours=3, smoothing=0.0),
    ):
        assert made.dtp_bound(LABELS, LABELS[:4], LeftOut(same, same)) is None
        assert made.largest_dtp is None
    assert naive_bayes(COUNTS, CLASSES).largest_dtp is None
    assert not isinstance(logistic_regression(2, CLASSES), BoundsDTP)
