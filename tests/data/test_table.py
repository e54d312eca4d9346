"""`Table`: its promises, the two forms that learners take, duplicates and candidates, each against a slow twin."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from jaxaudit.data import MISSING, Column, Examples, Table, candidate_indices, duplicates, join_tables, one_hot, ordinal
from jaxaudit.errors import InputError

AGE, SEX, RACE = Column("age"), Column("sex", ("F", "M")), Column("race", ("a", "b", "c", MISSING))
VALUES = np.array([[39, 1, 0], [50, 0, 3], [28.5, 1, 2]])


def make(values=VALUES, columns=(AGE, SEX, RACE), labels=(0, 1, 1), class_names=("no", "yes"), name="people", notes=()):
    return Table(np.asarray(values), tuple(columns), np.asarray(labels), class_names, name, notes)


def of_kinds(values, kinds, labels=None):
    """A table whose columns have so many categories, 0 for numbers."""
    columns = [Column(f"c{i}", tuple(map(str, range(kind)))) for i, kind in enumerate(kinds)]
    return make(values, columns, np.zeros(len(values), int) if labels is None else labels)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": VALUES[:0], "labels": np.zeros(0, int)}, "people: there are no records"),
        ({"values": VALUES[0]}, r"values are float64 of shape \(3,\), but there are 3 columns"),
        ({"values": VALUES[:, :0], "columns": ()}, "needs at least one beside the label"),
        ({"columns": (AGE, SEX, Column("age", ("a", "b", "c", "d")))}, "the column name 'age' occurs twice"),
        ({"values": VALUES * np.array([np.nan, 1, 1])}, "NaN or infinite"),
        ({"values": VALUES + np.array([0, 0, 1])}, "none of its 4 categories"),
        ({"values": VALUES + np.array([0, 0.5, 0])}, "none of its 2 categories"),
        ({"labels": (0, 1)}, r"3 inputs but int64 labels of shape \(2,\)"),
        ({"labels": (0, 1, 2)}, "outside the 2 classes"),
        ({"class_names": ("no", "no")}, "two classes have one name"),
    ],
)
def test_broken_tables_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        make(**change)


def test_the_hash_is_that_of_the_data():
    base = make()
    assert base.content_hash == make(VALUES.copy(order="F"), name="other", notes=("a",)).content_hash
    assert base.content_hash == make(VALUES.astype(">f8")).content_hash
    assert make(VALUES * 0).content_hash == make(-VALUES * 0).content_hash
    others = [
        *(make(VALUES + np.array([1, 0, 0])), make(VALUES[[1, 0, 2]]), make(VALUES.astype(np.float32))),
        *(make(labels=(1, 0, 1)), make(class_names=("no", "yes!"))),
        *(
            make(columns=(AGE, sex, race))
            for sex, race in ((Column("gender", ("F", "M")), RACE), (SEX, Column("race")))
        ),
    ]
    assert len({base.content_hash, *(other.content_hash for other in others)}) == 8


def test_the_scale_is_that_of_the_table_given():
    assert ordinal(make()).inputs[:, 0].max() == 1
    assert ordinal(make().take(np.array([0, 2]))).inputs[:, 0].tolist() == [1, 0]
    # The range itself may be too large for a float, or nothing.
    wide = of_kinds([[-1.5e308, 7, 0], [0, 7, 0], [1.5e308, 7, 0]], (0, 0, 1))
    assert ordinal(wide).inputs.tolist() == one_hot(wide).inputs.tolist() == [[0, 0, 0], [0.5, 0, 0], [1, 0, 0]]


@st.composite
def parts_of_tables(draw):
    kinds = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    records = draw(st.integers(1, 8))
    columns = [
        draw(npst.arrays(np.float64, records, elements=st.integers(0, kind - 1) if kind else st.floats(-1e3, 1e3)))
        for kind in kinds
    ]
    return np.stack(columns, axis=1), kinds


def forms_by_loop(table):
    """(binary, coded), written from the description."""
    binaries: list[list[float]] = []
    codes: list[list[float]] = []
    for row in table.values:
        inputs, code = [], []
        for place, column in enumerate(table.columns):
            if not column.categories:
                low, high = min(table.values[:, place]), max(table.values[:, place])
                scaled = 0.0 if low == high else (row[place] - low) / (high - low)
                inputs.append(scaled)
                code.append(scaled)
                continue
            code.append(row[place])
            if len(column.categories) <= 2:
                inputs.append(row[place])
            else:
                inputs += [1.0 if row[place] == category else 0.0 for category in range(len(column.categories))]
        binaries.append(inputs)
        codes.append(code)
    return np.array(binaries, np.float32), np.array(codes, np.float32)


@settings(max_examples=40, deadline=None)
@given(parts_of_tables())
def test_forms_are_those_of_a_loop(parts):
    table = of_kinds(*parts)
    inputs, codes = forms_by_loop(table)
    assert np.array_equal(one_hot(table).inputs, inputs)
    assert np.array_equal(ordinal(table).inputs, codes)


def test_too_wide_a_form_is_refused(monkeypatch):
    table = of_kinds([[0, 4], [1, 0]], (3, 5))
    assert one_hot(table).inputs.shape == (2, 8)
    monkeypatch.setattr("jaxaudit.data.table.MAX_BYTES", 63)
    with pytest.raises(InputError, match=r"categories \('c1' has 5\)"):
        one_hot(table)


def duplicates_by_counting(inputs, labels):
    rows = [(*row, label) for row, label in zip(inputs.reshape(len(inputs), -1).tolist(), labels.tolist(), strict=True)]
    counts = Counter(rows)
    return [counts[row] for row in rows]


@settings(max_examples=40, deadline=None)
@given(
    npst.arrays(
        st.sampled_from([np.float32, np.float64, np.uint8]),
        st.tuples(st.integers(1, 12), st.integers(1, 3)),
        elements=st.integers(0, 2),
    ),
    st.booleans(),
)
def test_duplicates_are_those_counted(inputs, one_class):
    labels = np.zeros(len(inputs), int) if one_class else np.arange(len(inputs)) % 2
    examples = Examples(inputs, labels, ("a", "b"), "set")
    assert duplicates(examples).tolist() == duplicates_by_counting(inputs, labels)
    kinds = [0] * inputs.shape[1]
    assert duplicates(of_kinds(inputs, kinds, labels)).tolist() == duplicates_by_counting(inputs, labels)
    assert duplicates(of_kinds([[0.0], [-0.0], [1.0]], [0])).tolist() == [2, 2, 1]


def test_candidates_are_a_random_subset_in_order():
    assert (np.diff(candidate_indices(np.random.default_rng(7), 50, 20)) > 0).all()
    assert candidate_indices(np.random.default_rng(7), 50, 50).tolist() == list(range(50))
    # Every record is drawn 0.4 * 2,000 times, with a standard deviation below 22: five of them, for 50 records
    # (error rate 3e-5, of a fixed stream).
    generator = np.random.default_rng(8)
    times = sum(np.bincount(candidate_indices(generator, 50, 20), minlength=50) for _ in range(2000))
    assert np.abs(times - 800).max() < 110
    assert len(candidate_indices(generator, 2001)) == 2000  # as in the paper
    for count in (0, 51):
        with pytest.raises(InputError, match=rf"^{count} candidate records .* 50"):
            candidate_indices(generator, 50, count)


def test_join_keeps_order_and_notes():
    both = join_tables([make(notes=("a", "b")), make().take(slice(1)), make(notes=("b", "c"))], "both")
    assert both.values.tolist() == [*VALUES.tolist(), VALUES[0].tolist(), *VALUES.tolist()]
    assert both.labels.tolist() == [0, 1, 1, 0, 0, 1, 1]
    assert (both.name, both.notes, both.class_names) == ("both", ("a", "b", "c"), ("no", "yes"))
    assert join_tables([make()], "one").name == "one"


@pytest.mark.parametrize("change", [{"columns": (AGE, SEX, Column("race"))}, {"class_names": ("yes", "no")}])
def test_join_refuses_unlike_parts(change):
    with pytest.raises(InputError, match="other and people differ in columns or classes"):
        join_tables([make(), make(**change, name="other")], "both")
