"""The cases of a test that trains: the first of them is of the inner circle."""

from collections.abc import Iterable
from typing import Any

import pytest


def first_of(cases: Iterable[Any]) -> list[Any]:
    """`cases` with all but the first in the outer circle: each network and optimizer is compiled anew."""
    first, *others = (case if type(case) is tuple else (case,) for case in cases)
    return [pytest.param(*first), *(pytest.param(*other, marks=pytest.mark.outer) for other in others)]
