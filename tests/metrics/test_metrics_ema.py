"""EMA against a slow twin and SciPy's t-test."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from jaxaudit.errors import InputError
from jaxaudit.metrics.ema import all_members_p_value, ema, ema_rule, member_flags, signals


def slow_threshold(signal: list[float], members: list[bool]) -> float:
    """Tries every value, from the smallest."""
    best, found = -1.0, float("nan")
    inside = [s for s, member in zip(signal, members, strict=True) if member]
    outside = [s for s, member in zip(signal, members, strict=True) if not member]
    if not inside or not outside:
        return float("nan")
    for value in sorted(set(signal)):
        # Of a common denominator, so that ties are ties.
        accuracy = sum(s >= value for s in inside) * len(outside) + sum(s < value for s in outside) * len(inside)
        if accuracy > best:
            best, found = accuracy, value
    return found


def slow_ema(target, labels, calibration, calibration_labels, members) -> list[bool]:
    """The flags, record by record."""

    def signals(row: np.ndarray, label: int) -> tuple[float, float]:
        return float(row[label]), float(sum(p * np.log(p) for p in row if p > 0))

    flags = []
    for row, label in zip(target, labels, strict=True):
        own = [i for i, other in enumerate(calibration_labels) if other == label]
        flag = bool(np.argmax(row) == label)
        for k, mine in enumerate(signals(row, label)):
            theirs = [signals(calibration[i], label)[k] for i in own]
            flag |= bool(mine >= slow_threshold(theirs, [bool(members[i]) for i in own]))
        flags.append(flag)
    return flags


def outputs(rng: np.random.Generator, records: int, classes: int, grid: int) -> np.ndarray:
    """Probabilities in steps of 1 / grid, so that values tie."""
    return rng.multinomial(grid, rng.dirichlet(np.ones(classes)), records) / grid


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.tuples(st.integers(1, 12), st.integers(2, 25), st.integers(2, 4)),
    grid=st.sampled_from([2, 8, 64]),
)
def test_flags_agree_with_the_slow_twin(seed, sizes, grid):
    records, others, classes = sizes
    rng = np.random.default_rng(seed)
    target, calibration = outputs(rng, records, classes, grid), outputs(rng, others, classes, grid)
    labels, calibration_labels = rng.integers(classes, size=records), rng.integers(classes, size=others)
    members = np.concatenate([[True, False], rng.random(others - 2) < 0.5])
    answer = ema(target, labels, calibration, calibration_labels, members)
    known = signals(calibration, calibration_labels)
    flags = member_flags(signals(target, labels), labels, known, calibration_labels, members, classes)
    assert flags.tolist() == slow_ema(target, labels, calibration, calibration_labels, members)
    assert (answer.member_share, answer.member_shares) == (flags.mean(), (flags.mean(),))
    assert (answer.p_value, answer.p_values) == (all_members_p_value(flags), (all_members_p_value(flags),))


@pytest.mark.parametrize(("flagged", "records"), [(1, 2), (1, 5), (4, 5), (17, 40), (39, 40), (1999, 2000)])
def test_p_value_is_scipys_t_test(flagged, records):
    flags = np.arange(records) < flagged
    # By the moments: SciPy warns of ones that do not vary.
    spread = float(flags.std(ddof=1))
    expected = stats.ttest_ind_from_stats(flags.mean(), spread, records, 1.0, 0.0, records).pvalue
    assert all_members_p_value(flags) == pytest.approx(expected, rel=1e-9)


def test_p_value_where_the_test_has_no_variance():
    assert all_members_p_value(np.ones(7, bool)) == all_members_p_value(np.ones(1, bool)) == 1
    assert all_members_p_value(np.zeros(7, bool)) == all_members_p_value(np.zeros(1, bool)) == 0


def test_rule():
    assert ema_rule(1.0) == ema_rule(0.051) == "not forgotten"
    assert ema_rule(0.05) == ema_rule(0.0) == ema_rule(0.3, level=0.3) == "forgotten"


FAIR = {
    "probabilities": np.full((2, 2), 0.5),
    "labels": np.array([0, 1]),
    "calibration": np.full((2, 2), 0.5),
    "calibration_labels": np.array([0, 1]),
    "members": np.array([True, False]),
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": np.array([0])}, "1 labels for 2 outputs"),
        ({"probabilities": np.zeros((0, 2)), "labels": np.zeros(0, int)}, "0 labels for 0 outputs"),
        ({"calibration": np.full((2, 3), 0.5)}, r"outputs of 2 classes, .* got outputs of shape \(2, 3\)"),
        ({"calibration_labels": np.array([0])}, "1 labels and 2 memberships"),
        ({"members": np.array([True])}, "2 labels and 1 memberships"),
        ({"probabilities": np.array([[np.nan, 0.5], [0.5, 0.5]])}, "1 outputs of the target model are NaN"),
        ({"calibration": np.array([[0.5, 0.5], [np.inf, 0.5]])}, "1 outputs of the calibration model are NaN"),
        ({"labels": np.array([0, 2])}, "label 2, but there are 2 classes"),
        ({"calibration_labels": np.array([-1, 0])}, "label -1, but there are 2 classes"),
        ({"members": np.array([True, True])}, "2 of 2 calibration records are members.*`subsample`"),
        ({"members": np.array([False, False])}, "0 of 2 calibration records are members"),
    ],
)
def test_what_does_not_fit_is_refused(monkeypatch, change, words):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as outside tests
    with pytest.raises(InputError, match=words):
        ema(**{**FAIR, **change})
