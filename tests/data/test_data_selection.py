"""`NAME[@SPLIT]`: a slice selects what Python's own slices select, or is refused."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxaudit.data.selection import Bound, Part, choose_parts, parse_split, split_name
from jaxaudit.errors import InputError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mnist", ("mnist", None)),
        ("mnist@test", ("mnist", "test")),
        ("a@b.npz@train[:5]", ("a@b.npz", "train[:5]")),
    ],
)
def test_the_last_at_sign_ends_the_name_and_something_stands_on_both_sides(text, expected):
    assert split_name(text) == expected
    for wrong, message in (("@x", "data set; write NAME or NAME@SPLIT"), (f"{text}@", "has nothing after the '@'")):
        with pytest.raises(InputError, match=message):
            split_name(wrong)


bounds = st.none() | st.builds(Bound, st.integers(-40, 40), st.just(False))


@given(start=bounds, stop=bounds, records=st.integers(1, 30))
def test_a_slice_selects_what_python_selects_or_is_refused(start, stop, records):
    part = Part("train", start, stop)
    (parsed,) = parse_split(str(part))
    assert parsed == part
    amounts = [bound.amount if bound else None for bound in (start, stop)]
    expected = range(records)[amounts[0] : amounts[1]]
    inside = all(amount is None or abs(amount) <= records for amount in amounts)
    if inside and len(expected):
        assert part.span(records, "set") == expected
    else:
        with pytest.raises(InputError, match=r"^set: `train.*` (reaches outside|selects none of) the \d+ records"):
            part.span(records, "set")


@given(records=st.integers(1, 1000), cuts=st.lists(st.integers(1, 99), unique=True).map(sorted))
def test_percentages_partition_a_split(records, cuts):
    ends = [0, *cuts, 100]
    found = []
    for start, stop in pairwise(ends):
        (part,) = parse_split(f"train[{start}%:{stop}%]")
        try:
            found += list(part.span(records, "set"))
        except InputError as error:
            assert "selects none" in str(error)  # noqa: PT017 - both outcomes are right, and both are checked
    assert found == list(range(records))


def test_a_percentage_rounds_to_the_closest_record_and_counts_from_the_end_as_written():
    assert Part("s", None, Bound(10, True)).span(255, "set") == range(26)
    assert Part("s", Bound(-10, True), None).span(255, "set") == range(229, 255)
    # One percent of 25 records is none of them: the last none, not (as 0 would have it) all.
    with pytest.raises(InputError, match="selects none of the 25 records"):
        Part("s", Bound(-1, True), None).span(25, "set")


def test_spaces_do_not_matter_and_parts_keep_their_order():
    parts = parse_split(" test [ : 5 ] + train[10%:] ")
    assert parts == (Part("test", None, Bound(5, False)), Part("train", Bound(10, True), None))


@pytest.mark.parametrize(
    "text",
    ["train[", "train[5]", "train[:1:2]", "train[a:]", "[:5]", "train+", "a b", "train[:1.5]", f"train[:{'9' * 5000}]"],
)
def test_what_is_no_split_is_refused(text):
    with pytest.raises(InputError, match=r"is not a split; write a split or a slice of one \(train, train\[:1000\]"):
        parse_split(text)
    with pytest.raises(InputError, match="101%; a percentage"):
        parse_split("train[:101%]")


def test_which_splits_are_meant():
    assert choose_parts(None, ("only",), "set") == (Part("only"),)
    assert choose_parts(None, ("test", "train"), "set") == (Part("train"),)
    with pytest.raises(InputError, match="set has several splits and none is `train`; name one of: a, b"):
        choose_parts(None, ("a", "b"), "set")
    assert choose_parts("all", ("train", "test"), "set") == (Part("train"), Part("test"))
    assert choose_parts("all[:3]", ("train", "all"), "set") == (Part("all", None, Bound(3, False)),)
    with pytest.raises(InputError, match="mnist has no split `tset`; it has: train, test"):
        choose_parts("train+tset", ("train", "test"), "mnist")
