"""The cases of a test that trains: the first of them is of the inner circle."""

from collections.abc import Iterable
from typing import Any

import pytest


def first_of(cases: Iterable[Any]) -> list[Any]:
    """`cases` with all but the first in the outer circle: each network and optimizer is compiled anew."""
    first, *others = cases
    return [first, *(pytest.param(*_values(case), marks=pytest.mark.outer) for case in others)]


def _values(case: Any) -> tuple[Any, ...]:
    return case if type(case) is tuple else (case,)
