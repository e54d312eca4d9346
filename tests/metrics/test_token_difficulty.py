"""What tells how difficult a record is: its tokens, who learned it, its rank among scores; against slow twins."""

from collections import Counter
from collections.abc import Sequence
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxaudit import BYTES
from jaxaudit.errors import InputError
from jaxaudit.metrics import RankScale, difficulty, odds_without, rank_scale, taught_rows, token_difficulty, units_of
from jaxaudit.metrics.difficulty import ADDED, FOLDS, MODELS, ORDERS, PARTS, ROUNDS, ranks_of_units

Records = list[tuple[tuple[int, ...], int]]


def dialogue(random: np.random.Generator, units: int, size: int) -> tuple[Records, list[int]]:
    """Records of tokens of Zipf's frequencies, two of them a prompt; a unit has its own topic and a name of its own."""
    records: Records = []
    for unit in range(units):
        topic = int(random.integers(5, 40))
        for _ in range(size):
            tokens = np.minimum(random.zipf(1.5, random.integers(4, 15)), topic).tolist()
            records.append(((*tokens[:2], 1_000 + unit, *tokens, 99), 2))
    return records, np.repeat(np.arange(units), size).tolist()


def slow_difficulty(records: Records, folds: np.ndarray) -> list[list[float]]:
    """The formula, by dictionaries of tuples of tokens."""
    before, numbers = (None,) * (max(ORDERS) - 1), list[list[float]]()
    vocabulary = len({token for tokens, _ in records for token in tokens})
    for (tokens, start), fold in zip(records, folds, strict=True):
        after, together = Counter[tuple[int, Sequence[int | None]]](), Counter[Sequence[int | None]]()
        for text, _ in [record for record, other in zip(records, folds, strict=True) if other != fold]:
            whole = before + text
            for end in range(len(before) + 1, len(whole) + 1):
                for order in ORDERS:
                    after[order, whole[end - order : end - 1]] += 1
                    together[whole[end - order : end]] += 1
        whole, logs = before + tokens, []
        for end in range(len(before) + start + 1, len(whole) + 1):
            probability, of_orders = 1 / vocabulary, []
            for order in ORDERS:
                count, of = together[whole[end - order : end]], after[order, whole[end - order : end - 1]]
                probability = (count + ADDED * order * probability) / (of + ADDED * order)
                of_orders.append(-np.log(probability))
            logs.append(of_orders)
        numbers.append(np.mean(logs, axis=0).tolist())
    return numbers


def test_difficulty_is_that_of_a_slow_twin():
    records, units = dialogue(np.random.default_rng(1), 13, 3)
    for dealt in (units, None):
        folds = ranks_of_units(records, dealt) % FOLDS
        np.testing.assert_allclose(token_difficulty(records, dealt), slow_difficulty(records, folds), rtol=1e-12)


def test_one_token_by_hand():
    """Each of three records of one token is judged by the other two."""
    numbers = token_difficulty([((5,), 0), ((6,), 0), ((6, 6), 1)])
    unseen = (0 + 0.5 / 2) / (3 + 0.5)
    np.testing.assert_allclose(numbers[0, 0], -np.log(unseen))
    np.testing.assert_allclose(numbers[1, 0], -np.log((2 + 0.5 / 2) / (3 + 0.5)))
    # Of the third, the second 6 alone: after a 6, which nothing follows in the others.
    alone = (1 + 0.5 / 2) / (2 + 0.5)
    np.testing.assert_allclose(numbers[2], -np.log([alone] * 3))


def test_order_and_names_of_units_change_no_bit():
    """No number can tell the sets of a table, whose rows stand set after set."""
    random = np.random.default_rng(3)
    records, units = dialogue(random, 23, 3)
    # Copies of whole units, too.
    records, units = records + records[:6], [*units, 50, 50, 50, 51, 51, 51]
    numbers, order = token_difficulty(records, units), random.permutation(len(units)).tolist()
    again = token_difficulty([records[row] for row in order], [f"author {-units[row]}" for row in order])
    np.testing.assert_array_equal(again, numbers[order])
    np.testing.assert_array_equal(numbers[-6:], numbers[:6])


TEXTS = {
    "one": [""],
    "blank": ["", " \n", "word"],
    "repeated": ["one " * 500, "one", "one one"],
    "copies": ["same"] * 30,
    "no blanks": ["猫在睡觉。", "狗在睡觉。", "ไทย"],
    "odd": ["\ud800 lone", "\x00", "é́́́", "हिन्दी", "👍🏽"],
    "long": ["x" * 100_000, "y"],
}


@pytest.mark.parametrize("texts", TEXTS.values(), ids=TEXTS)
def test_any_text_has_finite_numbers(texts: list[str]):
    records = [(tokens.numbers, 0) for tokens in BYTES.encode(texts)]
    numbers = token_difficulty(records)
    assert numbers.shape == (len(texts), len(ORDERS))
    assert np.isfinite(numbers).all()
    assert ((numbers > 0) == np.array([bool(text) for text in texts])[:, None]).all() or len(set(texts)) == 1
    of_text = dict(zip(texts, numbers.tolist(), strict=True))
    assert [of_text[text] for text in texts] == numbers.tolist()
    assert not token_difficulty([(tokens, len(tokens)) for tokens, _ in records]).any()


def test_no_records_have_no_numbers_and_tokens_may_have_any():
    assert token_difficulty([]).shape == (0, len(ORDERS))
    records, units = dialogue(np.random.default_rng(6), 5, 3)
    other = [(tuple(2**40 - token for token in tokens), start) for tokens, start in records]
    # Folds go by contents: here every unit has a fold of its own.
    np.testing.assert_allclose(token_difficulty(other, units), token_difficulty(records, units), rtol=1e-12)


GENERATOR = np.random.default_rng(4)


def test_a_unit_has_all_copies_and_whole_groups_and_nothing_else() -> None:
    hashes = np.array(list("ccabad"), "S16").view("V16")
    assert units_of(hashes, None).tolist() == [0, 0, 1, 2, 1, 3]
    assert units_of(hashes, np.array([9, 4, 1, 1, 5, 4])).tolist() == [0, 0, 1, 1, 1, 0]


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


NUMBERS = st.lists(st.integers(-50, 50), min_size=1, max_size=30).map(lambda each: np.array(each) / 8)


def slow(known: np.ndarray, score: float) -> float:
    """Half a score is added below and above all of them, so that no share is 0 or 1."""
    below = sum(1.0 if each < score else 0.5 if each == score else 0.0 for each in known) + 0.5
    return float(np.log(below / (len(known) + 1 - below)))


@given(NUMBERS, NUMBERS)
def test_it_is_that_of_a_loop(known: np.ndarray, asked: np.ndarray):
    scale = rank_scale(known.reshape(1, 1, -1))
    np.testing.assert_allclose(scale(asked), [slow(known, each) for each in asked], rtol=1e-12, atol=1e-12)


def test_scores_that_are_rounded_further_than_models_differ_are_refused():
    scale = RankScale(np.zeros(1, np.float32), spread=0.1, step=1e-4)
    scale.refuse_coarse(1e-4, "as coarse as the bank")
    scale.refuse_coarse(0.01, "a tenth of what models differ by")
    with pytest.raises(InputError, match=r"^t.csv: its scores are rounded to about 0.1, while .* differ by 0.1 "):
        scale.refuse_coarse(0.1, "t.csv")


def test_units_are_whole_and_have_folds_of_equal_numbers():
    records, units = dialogue(np.random.default_rng(2), 35, 4)
    rank = ranks_of_units(records, units).reshape(35, 4)
    assert (rank == rank[:, :1]).all()
    assert np.bincount(rank[:, 0] % FOLDS).tolist() == [4] * 5 + [3] * 5
    # A unit without a name is a record; copies of a unit have its place.
    units = [unit if unit < 30 else None for unit in units]
    rank = ranks_of_units(records + records[:4] + records[-1:], [*units, *["again"] * 4, None])
    assert (rank[:120].reshape(30, 4) == rank[:120:4, None]).all()
    assert len(np.unique(rank)) == 30 + 20
    assert (rank[140:144] == rank[0]).all()
    assert rank[144] == rank[139]


def test_many_tokens_are_judged_in_parts_of_whole_units(monkeypatch: pytest.MonkeyPatch):
    records, units = dialogue(np.random.default_rng(7), 12, 3)
    module = import_module("jaxaudit.metrics.difficulty")
    monkeypatch.setattr(module, "MOST_TOKENS", 1 + sum(len(tokens) for tokens, _ in records) // 2)
    numbers, rank = token_difficulty(records, units), ranks_of_units(records, units)
    for part in (0, 1):
        rows = np.flatnonzero(rank % 2 == part)
        expected = slow_difficulty([records[row] for row in rows], rank[rows] // 2)
        np.testing.assert_allclose(numbers[rows], expected, rtol=1e-12)
