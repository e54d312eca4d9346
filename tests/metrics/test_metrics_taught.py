"""Who learns from which records, against slow twins, and what no order of the records changes."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxaudit.metrics.difficulty import difficulty
from jaxaudit.metrics.taught import MODELS, PARTS, ROUNDS, odds_without, order_of_contents, taught_rows, units_of

GENERATOR = np.random.default_rng(4)


def hashes_of(contents: list[int]) -> np.ndarray:
    return np.array([bytes([content, 0] * 8) for content in contents], "S16").view("V16")


CONTENTS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 4)), min_size=1, max_size=20)


@settings(max_examples=100)
@given(CONTENTS)
def test_records_are_in_the_order_of_their_contents(drawn: list[tuple[int, int, int]]) -> None:
    contents, labels, _ = (list(column) for column in zip(*drawn, strict=True))
    order = order_of_contents(hashes_of(contents), np.array(labels))
    assert sorted(order.tolist()) == list(range(len(drawn)))
    turned = order_of_contents(hashes_of(contents[::-1]), np.array(labels[::-1]))
    in_order = [(contents[index], labels[index]) for index in order]
    assert in_order == [(contents[::-1][index], labels[::-1][index]) for index in turned]
    # Equal records are neighbours.
    assert len(set(in_order)) == 1 + sum(one != next_one for one, next_one in pairwise(in_order))


@settings(max_examples=100)
@given(CONTENTS, st.booleans())
def test_a_unit_has_all_copies_and_whole_groups_and_nothing_else(
    drawn: list[tuple[int, int, int]], whole: bool
) -> None:
    contents, _, groups = (list(column) for column in zip(*drawn, strict=True))
    found = units_of(hashes_of(contents).view("S16"), np.array(groups) if whole else None)
    # A slow twin: the least number of what is connected, until nothing changes.
    twin = list(range(len(drawn)))
    for _ in drawn:
        for one in range(len(drawn)):
            for other in range(len(drawn)):
                if contents[one] == contents[other] or (whole and groups[one] == groups[other]):
                    twin[one] = twin[other] = min(twin[one], twin[other])
    assert found.tolist() == [sorted(set(twin)).index(unit) for unit in twin]


@pytest.mark.parametrize(("count", "size"), [(90, 1), (91, 1), (30, 4), (2, 1)])
def test_each_record_is_left_out_once_a_round_with_its_whole_unit(count: int, size: int) -> None:
    units = np.sort(GENERATOR.integers(0, count, count * size)) if size > 1 else np.arange(count)
    units = np.unique(units, return_inverse=True)[1]
    rows = taught_rows(np.random.default_rng(1), units)
    assert rows.shape == (MODELS, len(units))
    assert ((~rows).reshape(ROUNDS, PARTS, -1).sum(axis=1) == 1).all()
    for row in rows:
        assert {bool(row[units == unit].all()) for unit in units[row]} <= {True}
        assert abs(len(np.unique(units[~row])) - (units.max() + 1) / PARTS) < 1
    other = taught_rows(np.random.default_rng(2), units)
    assert count < 10 or (other != rows).any()


def test_of_many_records_whole_units_of_about_so_many_teach() -> None:
    units = np.repeat(np.arange(500), 4)
    rows = taught_rows(np.random.default_rng(1), units, most=402)
    teaches = rows.any(axis=0)
    assert teaches.sum() == 404
    assert (teaches.reshape(-1, 4).std(axis=1) == 0).all()
    assert (rows[:, teaches].reshape(ROUNDS, PARTS, -1).sum(axis=1) == PARTS - 1).all()
    assert taught_rows(np.random.default_rng(1), units, most=2000).any(axis=0).all()


def test_what_a_model_says_of_its_own_records_is_no_more_than_how_much_they_gain() -> None:
    """Equal gains are taken off; and a record that nobody learned from is judged by all."""
    rows = taught_rows(np.random.default_rng(3), np.arange(60))
    difficult = GENERATOR.normal(size=60)
    assert odds_without(difficult + 2.0 * rows, rows) == pytest.approx(difficult)
    nobody = np.concatenate([rows, np.zeros((MODELS, 1), bool)], axis=1)
    odds = np.concatenate([difficult + 2.0 * rows, np.arange(MODELS)[:, None]], axis=1)
    assert odds_without(odds, nobody)[-1] == pytest.approx(np.arange(MODELS).mean())


def test_each_way_of_teaching_has_five_predictors() -> None:
    labels, odds = np.arange(40) % 2, GENERATOR.normal(size=(3, 40))
    told = difficulty(None, labels, taught=odds)
    assert told.shape == (40, 2 + 3 * 5)
    assert told[:, :2].tolist() == difficulty(None, labels).tolist()
    assert np.allclose(told[:, [2, 7, 12]].T, odds)
    assert told[:, 6] == pytest.approx(np.tanh(odds[0] / 3))
    assert told[:, 5] == pytest.approx(1 / (1 + np.exp(-odds[0])))
    assert told[:, 4] == pytest.approx(np.log(told[:, 5]))
