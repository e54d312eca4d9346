"""How models are trained, as a value: parts of the work report their shares of one whole."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxaudit.ensemble import Execution
from jaxaudit.ensemble.execution import WHOLE
from jaxaudit.errors import InputError

WEIGHTS = st.lists(st.one_of(st.just(0), st.integers(1, 1000), st.floats(1e-3, 1e6)), min_size=1, max_size=8).filter(
    lambda weights: sum(weights) > 0
)
REPORTS = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 12), st.integers(0, 10)), max_size=40)


def watched(models_per_batch: int | None = None) -> tuple[list[tuple[int, int]], Execution]:
    seen: list[tuple[int, int]] = []
    return seen, Execution(models_per_batch, lambda done, total: seen.append((done, total)), Path("kept"))


def tell(part: Execution, done: int, total: int) -> None:
    assert part.progress is not None
    part.progress(done, total)


@given(WEIGHTS, REPORTS)
def test_what_is_reported_never_falls_and_ends_at_the_whole(weights: list[float], reports: list[tuple[int, int, int]]):
    """Whatever parts report, in any order, again, less than before, or more than there is."""
    seen, whole = watched()
    parts = whole.split(*weights)
    for part, done, total in reports:
        tell(parts[part % len(parts)], done, total)
    for part in parts:
        tell(part, 3, 3)
    assert seen == sorted(seen)
    assert {total for _, total in seen} == {WHOLE}
    assert seen[0][0] >= 0
    assert seen[-1] == (WHOLE, WHOLE)


@given(WEIGHTS, WEIGHTS)
def test_parts_of_parts_count_for_the_part(outer: list[float], inner: list[float]):
    seen, whole = watched()
    parts = whole.split(*outer)
    for part in parts[0].split(*inner):
        tell(part, 1, 1)
    assert abs(seen[-1][0] - WHOLE * outer[0] / sum(outer)) <= 1
    for part in parts[1:]:
        tell(part, 1, 1)
    assert seen[-1] == (WHOLE, WHOLE)


def test_parts_may_report_at_the_same_time():
    seen, whole = watched()
    parts = whole.split(*[1] * 4)

    def work(part: Execution) -> None:
        for done in range(201):
            tell(part, done, 200)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, parts))
    assert seen == sorted(seen)
    assert seen[-1] == (WHOLE, WHOLE)


@pytest.mark.parametrize("progress", [None, lambda done, total: None])
@pytest.mark.parametrize("weights", [(1, -1), (0, 0), (0,), (1, float("nan")), (1, float("inf"))])
def test_weights_that_are_none_are_refused(weights: tuple[float, ...], progress):
    with pytest.raises(InputError, match="give finite numbers of at least 0"):
        Execution(progress=progress).split(*weights)
