"""Training stability by brute force: which of the paper's claims hold, and what breaks the others."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from support.references import log_of

from experiments.stability import (
    AS_PUBLISHED,
    BAYES_INFERENCE,
    RANDOM_TREES,
    linear_queries_delta,
    lipschitz_dtp_bound,
    naive_bayes_delta,
    posterior_dtp_bound,
    softmax_regression_lipschitz,
)
from jaxaudit.errors import InputError
from jaxaudit.kernels import dtp_bound, log_odds_dtp_bound, smoothed_naive_bayes_delta
from jaxaudit.metrics.pdtp import dtp, every_input, pdtp

ROUNDING = 1e-12
LOG = {delta: math.log(delta) for delta in (AS_PUBLISHED, BAYES_INFERENCE)}


# Slow learners: counts of records, in float64. Each gives unnormalised outputs [inputs, classes].


def naive_bayes(x, y, counts, classes, smoothing=0.0):
    """The joint, prod p(x_i | y) p(y), at every input."""
    inputs = every_input(counts).astype(int)
    joint = np.zeros((len(inputs), classes))
    for label in set(y.tolist()):
        members = x[y == label]
        for i, each in enumerate(inputs):
            value = len(members) / len(y)
            for column, count in enumerate(counts):
                same = np.sum(members[:, column] == each[column])
                value *= (same + smoothing) / (len(members) + smoothing * count)
            joint[i, label] = value
    return joint


def random_trees(x, y, counts, classes, trees):
    """The geometric mean of trees, each the columns it splits on: a leaf is all records that agree there.

    One tree over all columns is Bayes inference.
    """
    inputs = every_input(counts).astype(int)
    mean = np.ones((len(inputs), classes))
    for columns in trees:
        for i, each in enumerate(inputs):
            leaf = y[(x[:, columns] == each[columns]).all(axis=1)]
            share = np.bincount(leaf, minlength=classes) / len(leaf) if len(leaf) else np.zeros(classes)
            mean[i] *= share ** (1 / len(trees))
    return mean


def normalised(outputs):
    """Posteriors; uniform where no class has any probability."""
    total = outputs.sum(axis=1, keepdims=True)
    return np.divide(outputs, total, out=np.full(outputs.shape, 1 / outputs.shape[1]), where=total > 0)


class Removal:
    """What removing record t does, in nats: at its own label, to any class at its input, and to any output at all."""

    def __init__(self, with_record, without_record, at, label):
        a, b = log_of(with_record), log_of(without_record)
        self.own = pdtp(a[[at]][:, [label]], b[[at]][:, [label]], bins=0).values[0]
        self.pdtp = pdtp(a[[at]], b[[at]], bins=0).values[0]
        self.dtp = dtp(a, b, bins=0).value

    def stable(self, delta):
        """Definition 6.1."""
        return self.dtp <= max(math.log(delta), self.own) + ROUNDING

    def bounded(self, delta):
        """The conclusion of theorem 6.2."""
        return self.dtp <= dtp_bound(np.array([self.pdtp]), delta)[0] + ROUNDING


def removal(learner, x, y, t, counts, classes, posterior=False, **options) -> Any:
    """The change when record t is removed; None where definition 6.1 leaves t out."""
    kept = np.arange(len(y)) != t
    with_record, without_record = (learner(x[k], y[k], counts, classes, **options) for k in (kept | True, kept))
    at = int(np.flatnonzero((every_input(counts) == x[t]).all(axis=1))[0])
    if with_record[at, y[t]] == 0 or without_record[at, y[t]] == 0:
        return None
    if posterior:
        with_record, without_record = normalised(with_record), normalised(without_record)
    return Removal(with_record, without_record, at, y[t])


def other_class_possible(learner, x, y, t, counts, classes, **options):
    outputs = learner(x, y, counts, classes, **options)
    at = int(np.flatnonzero((every_input(counts) == x[t]).all(axis=1))[0])
    return np.delete(outputs[at], y[t]).any()


def random_sets(seed, sets, columns, records=(3, 9)):
    """Small sets, half of them skewed to one class and one value."""
    random = np.random.default_rng(seed)
    for i in range(sets):
        counts = tuple(map(int, random.integers(2, 4, random.integers(1, columns + 1))))
        n, classes = int(random.integers(*records)), int(random.integers(2, 4))
        x = np.stack([random.integers(0, count, n) for count in counts], axis=1)
        y = random.integers(0, classes, n)
        if i % 2:
            x *= random.random(x.shape) < 0.4
            y *= random.random(n) < 0.5
        yield x, y, counts, classes


def removals(sets, learner, posterior=False, **options):
    for x, y, counts, classes in sets:
        for t in range(len(y)):
            found = removal(learner, x, y, t, counts, classes, posterior, **options)
            if found is not None:
                yield found, (x, y, t, counts, classes)


def smallest_class(y):
    counts = np.bincount(y)
    return int(counts[counts > 0].min())


def table(*rows):
    """Records from (count, inputs, label) rows."""
    x = np.array([inputs for count, inputs, _ in rows for _ in range(count)])
    return x, np.array([label for count, _, label in rows for _ in range(count)])


# Proposition 6.3: Bayes inference.

ONE_TREE: Any = {"trees": [[0]]}


def test_bayes_inference_is_stable_at_three_halves_and_not_below():
    """All sets of up to 7 records with 3 classes and one input; other inputs do not change."""
    worst = 0.0
    for n in range(2, 8):
        for labels in itertools.combinations_with_replacement(range(3), n):
            y, x = np.array(labels), np.zeros((n, 1), int)
            for t in range(n):
                found = removal(random_trees, x, y, t, (1,), 3, **ONE_TREE)
                if found is not None:
                    assert found.stable(BAYES_INFERENCE)
                    assert found.dtp == found.pdtp
                    worst = max(worst, found.dtp if found.dtp > found.own + ROUNDING else 0.0)
    np.testing.assert_allclose(worst, LOG[BAYES_INFERENCE])


# Propositions 6.4 and 6.5: naive Bayes.


@pytest.mark.parametrize("smoothing", [0.0, 1.0])
def test_the_joint_of_naive_bayes_is_stable_as_published(smoothing):
    checked = beyond_own = 0
    for found, (_, y, _, counts, _) in removals(random_sets(1, 60, 3), naive_bayes, smoothing=smoothing):
        values = max(counts) if smoothing else None
        delta = naive_bayes_delta(smallest_class(y), len(y), len(counts), smoothing_values=values)
        assert found.stable(delta)
        assert found.bounded(delta)
        checked += 1
        beyond_own += found.dtp > found.own + ROUNDING
    assert checked > 60
    assert beyond_own > 10  # delta was needed


def test_the_published_constant_of_naive_bayes_cannot_be_less():
    """One column: every other class changes by n / (n - 1)."""
    x, y = table((4, [0], 0), (2, [0], 1))
    found = removal(naive_bayes, x, y, 0, (2,), 2)
    np.testing.assert_allclose(found.dtp, math.log(6 / 5))
    assert found.stable(naive_bayes_delta(2, 6, 1))
    assert not found.stable(6 / 5 - 1e-9)


def test_the_posterior_of_naive_bayes_with_smoothing_is_not_stable_either():
    x = [[2, 0, 0, 1], [0, 1, 0, 0], [0, 1, 1, 1], [1, 2, 1, 0], [0, 1, 2, 1], [0, 0, 0, 0], [1, 1, 1, 1]]
    x += [[2, 2, 2, 0], [1, 1, 1, 1], [2, 1, 0, 0]]
    x, y = np.array(x), np.array([0, 1, 1, 0, 0, 1, 0, 1, 0, 1])
    delta = naive_bayes_delta(5, 10, 4, smoothing_values=3)
    found = removal(naive_bayes, x, y, 0, (3, 3, 3, 2), 2, posterior=True, smoothing=1.0)
    assert not found.stable(delta)
    assert not found.bounded(delta)
    assert found.dtp <= posterior_dtp_bound(np.array([found.pdtp]), delta)
    assert removal(naive_bayes, x, y, 0, (3, 3, 3, 2), 2, smoothing=1.0).stable(delta)


@pytest.mark.parametrize("smoothing", [0.0, 1.0])
def test_twice_pdtp_bounds_the_posterior_of_naive_bayes(smoothing):
    checked = 0
    for found, (x, y, t, counts, classes) in removals(
        random_sets(2, 60, 3), naive_bayes, posterior=True, smoothing=smoothing
    ):
        if other_class_possible(naive_bayes, x, y, t, counts, classes, smoothing=smoothing):
            values = max(counts) if smoothing else None
            delta = naive_bayes_delta(smallest_class(y), len(y), len(counts), smoothing_values=values)
            assert found.dtp <= posterior_dtp_bound(np.array([found.pdtp]), delta) + ROUNDING
            checked += 1
    assert checked > 60


def test_the_posterior_is_not_bounded_where_the_records_class_is_the_only_possible_one():
    """Class 1 is impossible at t in one column, so its posterior is 1 with t and without: PDTP is 0."""
    x, y = table((2, [1, 1], 0), (8, [1, 0], 0), (4, [0, 1], 1), (1, [0, 0], 0))
    assert not other_class_possible(naive_bayes, x, y, 0, (2, 2), 2)
    found = removal(naive_bayes, x, y, 0, (2, 2), 2, posterior=True)
    delta = naive_bayes_delta(4, 15, 2)
    assert found.pdtp == 0
    assert found.dtp > posterior_dtp_bound(np.array([found.pdtp]), delta) + 0.1


def bound_and_dtp(learner, x, y, t, counts, classes, delta, **options):
    """The bound that the outputs at record t give of its DTP, and its DTP over every input."""
    kept = np.arange(len(y)) != t
    a, b = (log_of(normalised(learner(x[k], y[k], counts, classes, **options))) for k in (kept | True, kept))
    at = np.flatnonzero((every_input(counts) == x[t]).all(axis=1))
    return log_odds_dtp_bound(a[at], b[at], y[[t]], delta)[0], dtp(a, b, bins=0).value


@pytest.mark.parametrize("smoothing", [0.2, 1.0, 3.0])
def test_log_odds_at_the_record_bound_the_posterior_of_naive_bayes(smoothing):
    checked, tightest = 0, 0.0
    for x, y, counts, classes in random_sets(8, 25, 3):
        delta = smoothed_naive_bayes_delta(smallest_class(y), counts, smoothing)
        for t in range(len(y)):
            bound, value = bound_and_dtp(naive_bayes, x, y, t, counts, classes, delta, smoothing=smoothing)
            assert value <= bound + ROUNDING
            if np.isfinite(value):
                checked += 1
                tightest = max(tightest, value / bound)
            else:
                assert (y == y[t]).sum() == 1  # the class goes with its only member
    assert checked > 60
    assert tightest > 0.8


def test_delta_is_needed():
    """All of class 0 agree: without one of them, an input that differs in every column is more likely of class 0."""
    x, y = table((10, [0] * 6, 0), (50, [1] * 6, 1))
    delta = smoothed_naive_bayes_delta(10, (2,) * 6, 1.0)
    bounds, values = zip(
        *(bound_and_dtp(naive_bayes, x, y, 0, (2,) * 6, 2, each, smoothing=1.0) for each in (1.0, delta)), strict=True
    )
    assert values[0] > bounds[0] + 0.1
    assert 0.7 * bounds[1] < values[1] <= bounds[1]


# Proposition 6.7: linear statistical queries, with naive Bayes as the example (a feature a column, and the prior).


def test_linear_queries_are_stable_at_powers_of_three_halves():
    checked = 0
    for found, (_, _, _, counts, _) in removals(random_sets(3, 60, 3), naive_bayes):
        assert found.stable(linear_queries_delta(len(counts) + 1))
        checked += 1
    assert checked > 60


# Proposition 6.8: random decision trees.


def forest(random, columns):
    return [np.flatnonzero(random.random(columns) < 0.5) for _ in range(random.integers(1, 5))]


@pytest.mark.parametrize("posterior", [False, True])
def test_random_trees_are_stable_at_three_halves_and_their_posteriors_bounded(posterior):
    random, checked = np.random.default_rng(4), 0
    for x, y, counts, classes in random_sets(5, 50, 3):
        trees = forest(random, len(counts))
        for t in range(len(y)):
            found = removal(random_trees, x, y, t, counts, classes, posterior, trees=trees)
            if found is None:
                continue
            if not posterior:
                assert found.stable(RANDOM_TREES)
            elif not other_class_possible(random_trees, x, y, t, counts, classes, trees=trees):
                continue
            else:
                assert found.dtp <= posterior_dtp_bound(np.array([found.pdtp]), 1.0) + ROUNDING
            checked += 1
    assert checked > 60


def test_log_odds_at_the_record_bound_the_posteriors_of_random_trees():
    random, checked, tightest = np.random.default_rng(9), 0, 0.0
    for x, y, counts, classes in random_sets(10, 40, 3):
        trees = forest(random, len(counts))
        for t in range(len(y)):
            bound, value = bound_and_dtp(random_trees, x, y, t, counts, classes, 1.0, trees=trees)
            if np.isfinite(bound):
                assert value <= bound + ROUNDING
                checked += 1
                tightest = max(tightest, value / bound)
    assert checked > 30
    assert tightest > 0.7


# What breaks the other claims.

# Class 0's record t and its twin are all ones. In column 0 the other class hardly ever is, in the others class 0.
UNBALANCED = table(
    (2, [1, 1, 1, 1, 1], 0),
    (17, [1, 0, 0, 0, 0], 0),
    (1, [0, 0, 0, 0, 0], 0),
    (1, [1, 1, 1, 1, 1], 1),
    (3, [0, 1, 1, 1, 1], 1),
    (16, [0, 0, 0, 0, 0], 1),
)
# Three records: each of the others agrees with t in two columns of four, and an input agrees in none.
AGREEING = np.array([[0, 0, 0, 0], [0, 0, 1, 1], [1, 1, 0, 0]]), np.array([0, 0, 0])
ONE_INPUT = table((2, [0], 0), (1, [0], 1))
# Three trees without a split, and one whose split hides the other class from t but not from another input.
HIDING: Any = {"trees": [[], [], [], [0]]}
# Five trees in which t weighs much, and one in which an input that shares those five is sure of t's class.
SURE = table((2, [1, 0], 0), (1, [1, 0], 1), (3, [0, 0], 1), (40, [0, 1], 0), (1, [0, 1], 1))
SIX_TREES: Any = {"trees": [[0]] * 5 + [[1]]}


@pytest.mark.parametrize(
    ("learner", "records", "counts", "classes", "posterior", "options", "delta", "dtp"),
    [
        (random_trees, ONE_INPUT, (1,), 2, False, ONE_TREE, AS_PUBLISHED, math.log(3 / 2)),
        (naive_bayes, UNBALANCED, (2,) * 5, 2, True, {}, naive_bayes_delta(20, 40, 5), None),
        (naive_bayes, AGREEING, (2,) * 4, 1, False, {}, AS_PUBLISHED**5, 4 * math.log(3 / 2)),
        (naive_bayes, UNBALANCED, (2,) * 5, 2, True, {}, linear_queries_delta(6), None),
        (random_trees, table((2, [0], 0), (1, [1], 1)), (2,), 2, False, HIDING, AS_PUBLISHED, 0.75 * math.log(3 / 2)),
        (random_trees, SURE, (2, 2), 2, True, SIX_TREES, RANDOM_TREES, None),
    ],
)
def test_what_is_not_stable_as_published(learner, records, counts, classes, posterior, options, delta, dtp):
    x, y = records
    found = removal(learner, x, y, 0, counts, classes, posterior, **options)
    assert not found.stable(delta)
    assert dtp is None or found.dtp == pytest.approx(dtp)
    if posterior:
        assert found.dtp > found.pdtp
        assert found.dtp <= posterior_dtp_bound(np.array([found.pdtp]), delta)


def test_one_tree_has_a_dtp_of_its_pdtp():
    sets = random_sets(6, 40, 2)
    for found, _ in removals(sets, random_trees, posterior=True, trees=[[0]]):
        assert found.dtp == found.pdtp


# Theorem 6.9.


def softmax_regression(params, inputs):
    scores = np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1) @ params
    return scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)


def test_the_lipschitz_bound_holds_for_softmax_regression():
    random, inputs = np.random.default_rng(7), every_input((2, 2, 3)).astype(float)
    constant = softmax_regression_lipschitz(inputs.sum(axis=1).max())
    params = random.normal(size=(4, 3))
    others = params + random.normal(size=(30, 4, 3)) * random.random((30, 1, 1))
    bounds = lipschitz_dtp_bound(constant, params.ravel(), others.reshape(30, -1))
    measured = [
        dtp(softmax_regression(params, inputs), softmax_regression(other, inputs), bins=0).value for other in others
    ]
    assert (measured <= bounds).all()
    assert max(measured / bounds) > 0.3


def test_no_smaller_lipschitz_constant_would_do():
    """A class with next to no probability gains, and all others lose, at the largest input."""
    inputs = np.array([[1.0, 1.0, 1.0]])
    params = np.full((4, 3), 20.0) * [-1.0, 1.0, 1.0]
    other = params + 0.1 * np.array([1.0, -1.0, -1.0])
    measured = dtp(softmax_regression(params, inputs), softmax_regression(other, inputs), bins=0).value
    bound = lipschitz_dtp_bound(softmax_regression_lipschitz(3.0), params.ravel(), other.reshape(1, -1))
    np.testing.assert_allclose(measured, bound[0], rtol=1e-9)


# The formulas, and what is refused.


def test_the_constants_by_hand():
    assert naive_bayes_delta(3, 10, 4) == pytest.approx((3 / 2) ** 3 * 10 / 9)
    assert naive_bayes_delta(3, 10, 4, smoothing_values=5) == pytest.approx((8 / 3) ** 3 * 10 / 9)
    assert naive_bayes_delta(1, 10, 1) == pytest.approx(10 / 9)
    assert naive_bayes_delta(1, 10, 2) == math.inf
    assert linear_queries_delta(3) == 27 / 8
    assert RANDOM_TREES == 3 / 2
    np.testing.assert_allclose(posterior_dtp_bound(np.array([0.1, 0.7]), 1.5), [math.log(1.5), 1.4])


@pytest.mark.parametrize(
    ("smallest", "records", "columns", "values"),
    [(1, 1, 1, None), (0, 5, 1, None), (6, 5, 1, None), (2, 5, 0, 2), (2, 5, 1, 0)],
)
def test_a_constant_of_nothing_is_refused(smallest, records, columns, values):
    with pytest.raises(InputError, match=rf"^no stability constant for {records} records, {smallest} in the smallest"):
        naive_bayes_delta(smallest, records, columns, smoothing_values=values)


def test_a_lipschitz_bound_from_impossible_numbers_is_refused(monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as outside tests
    params = np.zeros(3)
    for constant, others in ((-1.0, np.zeros((2, 3))), (np.nan, np.zeros((2, 3))), (1.0, np.zeros((2, 4)))):
        with pytest.raises(InputError, match=r"^a Lipschitz bound needs a constant of at least 0 and rows of 3 param"):
            lipschitz_dtp_bound(constant, params, others)
    with pytest.raises(InputError, match=r"^parameters are NaN or infinite; did training diverge"):
        lipschitz_dtp_bound(1.0, params, np.array([[0.0, np.nan, 0.0]]))
