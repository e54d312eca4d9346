"""Sets held against one another: classes by name, records that both have, and groups, which stand on one side alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from jaxaudit.data import (
    Examples,
    Role,
    Sets,
    align_classes,
    align_dealt,
    concatenate,
    drop_overlap,
    find_overlap,
    groups_by_role,
    groups_file,
    hash_of_groups,
    load_groups,
    number_sets,
    refuse_held,
)
from jaxaudit.errors import InputError


def make(records, class_names, name):
    """`records` is a text with one letter, the class, a record; a record's input is its place."""
    labels = np.array([class_names.index(letter) for letter in records])
    return Examples(np.arange(len(records), dtype=np.float32)[:, None], labels, tuple(class_names), name)


def valued(values, name):
    """Records of these values, all of one class."""
    return Examples(np.asarray(values, np.float32).reshape(len(values), -1), np.zeros(len(values), int), ("a",), name)


def letters(examples):
    return "".join(examples.class_names[label] for label in examples.labels)


def test_aligned_by_name():
    other = align_classes(make("abc", "abc", "query"), make("ccab", "cab", "other"))
    assert (other.class_names, letters(other)) == (("a", "b", "c"), "ccab")
    assert other.inputs.ravel().tolist() == [0, 1, 2, 3]
    # Names without records do not matter.
    other = align_classes(make("ab", "abx", "query"), make("ba", "yba", "other"))
    assert (other.class_names, letters(other)) == (("a", "b", "x"), "ba")


@pytest.mark.parametrize(
    ("query", "other", "message"),
    [
        (
            ("ab", "ab"),
            ("cd", "cd"),
            "only query has records of class 'a', 'b' and only other has .* 'c', 'd'",
        ),
        (("abc", "abc"), ("ab", "abc"), "differ: only query has records of class 'c'"),
        (("ab", "ab"), ("abc", "abc"), "other has records of class 'c'"),
        (("abcdefg", "abcdefg"), ("h", "h"), "'a', 'b', 'c', 'd', 'e' and 2 more"),
    ],
)
def test_refused(query, other, message):
    query, other = make(query[0], query[1], "query"), make(other[0], other[1], "other")
    with pytest.raises(InputError, match=message):
        align_classes(query, other)


def with_titles(titles: str, values: list[list[float]], name: str) -> Examples:
    return Examples(np.array(values), np.arange(len(values)), ("a", "b"), name, titles=tuple(titles))


def test_dealt_sets_are_matched_by_the_names_of_classes():
    query = make("ab", "abc", "query")
    assert align_dealt(query, make("ba", "ba", "holdout")).labels.tolist() == [1, 0]
    # All names differ: nothing says which is which, however many there are.
    for names in ("xy", "01", "ax"):
        with pytest.raises(InputError, match="does not name"):
            align_dealt(query, make(names, names, "holdout"))


def test_dealt_sets_are_matched_by_the_names_of_columns():
    query = with_titles("pq", [[1.0, 2.0], [3.0, 4.0]], "query")
    exchanged = with_titles("qp", [[2.0, 1.0], [4.0, 3.0]], "holdout")
    for aligned in (align_dealt(query, exchanged), align_classes(query, exchanged)):
        assert aligned.inputs.tolist() == query.inputs.tolist()
        assert aligned.titles == query.titles
        assert "by name" in aligned.notes[-1]
    for titles in ("pr", "p"):
        values = [[1.0] * len(titles)] * 2
        with pytest.raises(InputError, match="same columns"):
            align_dealt(query, with_titles(titles, values, "holdout"))
    # Arrays name no columns, and nobody knows their order.
    bare = replace(query, titles=())
    for pair in ((query, bare), (bare, query)):
        with pytest.raises(InputError, match=r"query names its columns and query does not"):
            align_dealt(*pair)
    # Of records of another shape that is not the trouble.
    assert align_dealt(query, make("ab", "ab", "holdout")).titles == ()


values = st.lists(st.integers(0, 12), min_size=1, max_size=30)


@given(values, values)
def test_equals_the_double_loop(mine, others):
    query, calibration = valued(mine, "query"), valued(others, "calibration")
    slow = [(mine.index(value), j) for j, value in enumerate(others) if value in mine]
    rows_of_query, rows = find_overlap(query, calibration)
    assert list(zip(rows_of_query.tolist(), rows.tolist(), strict=True)) == slow
    remaining = [value for value in others if value not in mine]
    if remaining:
        assert drop_overlap(query, calibration).inputs[:, 0].tolist() == remaining


def test_labels_do_not_hide_an_overlap():
    query = valued([1, 2], "query")
    relabelled = Examples(query.inputs, np.array([1, 1]), ("a", "b"), "calibration")
    assert [rows.tolist() for rows in find_overlap(query, relabelled)] == [[0, 1], [0, 1]]


def test_refused_with_counts_and_first_indices():
    query, calibration = valued([1, 2, 3, 4, 5], "query"), valued([9, 5, 4, 3, 2, 8], "calibration")
    first = r"\(the first is record 1 there and 4 here, from 0\).*`drop_overlap`"
    with pytest.raises(InputError, match=f"4 of the 6 records of calibration also occur in query {first}"):
        refuse_held(query, calibration, "query set")
    rest = drop_overlap(query, calibration)
    refuse_held(query, rest, "query set")
    assert drop_overlap(query, rest) is rest
    with pytest.raises(InputError, match="all 3 records of calibration also occur in query"):
        drop_overlap(query, valued([2, 2, 1], "calibration"))


@pytest.mark.parametrize("other", [np.zeros((2, 2), np.float32), np.zeros((2, 1))])
def test_unlike_records_cannot_be_compared(other):
    other = Examples(other, np.zeros(2, int), ("a",), "calibration")
    with pytest.raises(InputError, match="shape and type first"):
        find_overlap(valued([1], "query"), other)


VALUES = np.array(["anna", "bob", "anna", "7"])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez("set.npz", x=np.zeros((4, 2)), y=np.arange(4), patient=VALUES, wide=np.zeros((4, 2), int))
    np.savez("splits.npz", x_train=np.zeros((4, 2)), y_train=np.arange(4), x_test=np.zeros((4, 2)), patient=VALUES)
    np.save("g.npy", VALUES)
    np.save("floats.npy", np.zeros(4))
    np.save("objects.npy", np.array([{}, 1, 2, 3], object), allow_pickle=True)
    np.save("long.npy", np.array(["x" * (200 + 1)] * 4))
    Path("plain.csv").write_text("anna\nbob\nanna\n7\n")
    Path("table.csv").write_text(
        "age,patient,twice,twice,label\n1,anna,1,1,0\n2, bob,1,1,1\n3,anna ,1,1,0\n4,7,1,1,1\n"
    )
    columns = {"age": [1, 2, None, 4], "patient": [" anna", "bob", "anna", "7"]}
    parquet.write_table(pyarrow.table(columns), "table.parquet")
    arrays: dict[str, Any] = {"patient_train": VALUES, "test_patient": VALUES[::-1][:3], "short_train": VALUES[:3]}
    arrays |= {f"{name}_{split}": np.zeros(n) for split, n in (("train", 4), ("test", 3)) for name in "xy"}
    np.savez("named.npz", **arrays)
    return tmp_path


@pytest.mark.parametrize("text", ["g.npy", "patient"])
def test_every_form_gives_the_same_values(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    assert load_groups(text, "set.npz", 4, "query set").tolist() == VALUES.tolist()
    assert (groups_file(text) is None) == (text == "patient")
    with pytest.raises(InputError, match="values, but it has 6 records"):
        load_groups(text, "set.npz", 6, "holdout")
    if text == "patient":
        monkeypatch.chdir("/")
        monkeypatch.setenv("JAXAUDIT_DATA", str(folder))
        assert load_groups(text, "set.npz", 4, "query set").tolist() == VALUES.tolist()


@pytest.mark.parametrize(
    ("text", "data"),
    [
        *((text, "set.npz") for text in ("floats.npy", "objects.npy", "long.npy", "plain.csv", "missing", "wide")),
        ("missing.npy", "set.npz"),
        # An array of three values beside the four records of which two are selected would be of others.
        *(("short", f"named.npz@{split}") for split in ("train", "train[:2]", "all")),
        ("patient_train", "named.npz@test"),
        ("patient_train", "named.npz@all"),
        *(("patient", f"set.npz@{split}") for split in ("test", "train[:9]", "train[")),
        ("patient", "splits.npz"),
        *((column, "table.csv") for column in ("twice", "Patient", "nobody")),
        *((column, "table.parquet") for column in ("age", "Patient", "nobody")),
        ("patient", "plain.csv"),
        ("patient", "mnist"),
    ],
)
def test_what_cannot_be_used_is_refused_without_a_value(folder: Path, text: str, data: str) -> None:
    with pytest.raises(InputError) as error:
        load_groups(text, data, 4, "query set")
    assert not any(value in str(error.value) for value in ("anna", "bob", "xxx"))


@pytest.mark.parametrize(
    ("key", "data", "places"),
    [
        ("patient", "set.npz@train[1:3]+train[:1]", [1, 2, 0]),
        ("patient", "table.csv@all[2:]", [2, 3]),
        ("patient", "named.npz", [0, 1, 2, 3]),
        ("test_patient", "named.npz@test[1:]", [2, 1]),
        ("patient", "named.npz@all", [0, 1, 2, 3, 3, 2, 1]),
        ("patient", "named.npz@test[:1]+train[2:]", [3, 2, 3]),
    ],
)
def test_a_name_in_the_sets_own_file_is_of_the_records_that_are_selected(
    folder: Path, key: str, data: str, places: list[int]
) -> None:
    assert load_groups(key, data, len(places), "query set").tolist() == VALUES[places].tolist()


def numbered(query: list[Any], holdout: list[Any], members: list[Any] | None = None) -> Sets[np.ndarray]:
    third = None if members is None else np.array(members)
    return number_sets(Sets(query=np.array(query), holdout=np.array(holdout), members=third))


def test_equal_values_are_equal_numbers_whatever_they_are_called() -> None:
    groups = numbered([30, 10, 30], ["20", "5", "20"])
    assert [each.tolist() for each in groups.values()] == [[0, 1, 0], [2, 3, 2]]
    assert hash_of_groups(numbered(["b", "a", "b"], ["z", "y", "z"])) == hash_of_groups(groups)
    # Other groups, the same numbers dealt otherwise, and further sets are other partitions.
    others = numbered([1, 1, 2], [3, 4, 3]), numbered([30, 10], ["20", "5", "20"]), numbered([7, 7], [8])
    further = numbered([7, 7], [8], ["9", "11", "9"])
    assert len({hash_of_groups(each) for each in (groups, *others, further)}) == 5
    assert number_sets(Sets()) == {}


def test_groups_belong_to_records() -> None:
    one = Examples(np.arange(3.0)[:, None], np.zeros(3, int), ("a",), "one", groups=np.array(["b", "a", "b"]))
    plain = replace(one, groups=None)
    for parts, numbers in (
        ([plain, one.take(np.array([1, 0])), plain.take(slice(1))], [0, 1, 2, 3, 4, 5]),
        ([one, plain], [0, 1, 0, 2, 3, 4]),
        ([one, replace(one, groups=np.array([7, 8, 7]))], [0, 1, 0, 2, 3, 2]),
    ):
        groups = concatenate(parts, "all").groups
        assert groups is not None
        assert groups.tolist() == numbers
    assert concatenate([plain, plain], "all").groups is None
    assert one.content_hash == plain.content_hash
    apart = replace(one, groups=np.array(["c", "c", "d"]))
    assert groups_by_role(Sets(query=one, holdout=apart, calibration=plain))[Role.HOLDOUT].tolist() == [2, 2, 3]
    with pytest.raises(InputError, match="one integer or text"):
        replace(one, groups=np.array([1, 2]))
    with pytest.raises(InputError, match="those of holdout have none"):
        groups_by_role(Sets(query=one, holdout=plain, calibration=plain))


def test_groups_on_two_sides_are_refused_and_known_members_have_their_own() -> None:
    groups = numbered([7, 7], [8], ["9", "11", "9"])
    assert [each.tolist() for each in groups.values()] == [[0, 0], [1], [2, 3, 2]]
    for query, holdout in ((9, 8), (7, 11)):
        with pytest.raises(InputError) as error:
            numbered([query], [holdout], [9, 11])
        assert not {"9", "11"} & set(str(error.value).split())
    with pytest.raises(InputError, match=r"^2 of 3 groups") as error:
        numbered([4711, 4712, 4713], [4712, 4713, 4713])
    assert "471" not in str(error.value)
