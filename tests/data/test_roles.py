"""One value for each role of a set."""

import pytest

from jaxaudit.data import Role, Sets


def test_the_order_is_that_of_roles_and_what_is_none_is_absent():
    sets = Sets(members=3, calibration=None, query=1)
    assert list(sets.items()) == [(Role.QUERY, 1), (Role.MEMBERS, 3)]
    assert Role.CALIBRATION not in sets
    with pytest.raises(KeyError):
        sets[Role.HOLDOUT]


def test_equal_sets_are_equal_and_nothing_changes_one():
    sets = Sets(query=1, holdout=2)
    assert sets == Sets(holdout=2, query=1) != Sets(query=1)
    assert sets.map(lambda role, value: 2 * value if role == Role.HOLDOUT else None) == Sets(holdout=4)
    assert sets.only(Role.QUERY, Role.MEMBERS) == Sets(query=1)
    with pytest.raises(TypeError):
        sets._values[Role.QUERY] = 2  # pyright: ignore[reportIndexIssue]


def test_a_role_is_its_key_and_has_words():
    assert Role("holdout") is Role.HOLDOUT
    assert [role.words for role in Role] == ["query set", "calibration set", "holdout", "members"]
