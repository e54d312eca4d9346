"""What the `pdtp` audit concludes: by the values, from every record, one rule for every output."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.saved_runs.pdtp import audit_of

from jaxaudit.audits.finding import Checked
from jaxaudit.audits.pdtp.audit import PDTPAudit
from jaxaudit.audits.pdtp.result import EDGES, distribution
from jaxaudit.metrics.pdtp import SeedFloor

NATS = st.sampled_from([0.0, 0.5, 1.0, math.nextafter(1.0, 2.0), 1.4, math.inf])
BELOW = [0.1, 0.2, 0.3]


def check(audit: PDTPAudit, name: str) -> Checked:
    """The check of this name, of which there is one."""
    (found,) = [each for each in audit.finding.checks if each.name == name]
    return found


@st.composite
def audits(draw: st.DrawFn) -> Callable[[], PDTPAudit]:
    count = draw(st.integers(1, 8))

    def column(of: Any) -> list[Any]:
        return draw(st.lists(of, min_size=count, max_size=count))

    return partial(
        audit_of,
        column(NATS),
        exact=np.array(column(NATS)),
        dtp_bound=draw(st.none() | st.just(np.array(column(NATS)))),
        floor=SeedFloor(np.array(column(NATS)), np.array(column(NATS))),
        duplicates=np.array(column(st.integers(1, 3))),
        only_member=np.array(column(st.booleans())),
        train_accuracy=draw(st.floats(0, 1)),
        bins=draw(st.sampled_from([0, 2, 100])),
        seeded=draw(st.booleans()),
        largest_possible=draw(st.none() | st.sampled_from([0.5, 1.0, 2.0, math.inf])),
        examples=draw(st.integers(count, count + 1)),
    )


@given(audits())
@settings(max_examples=150)
def test_nothing_but_values_and_how_many_were_measured_decides(make: Callable[[], PDTPAudit]):
    audit = make()
    above = [(value, exact) for value, exact in zip(audit.values, audit.exact, strict=True) if value > 1]
    expected = "records exposed" if above else "no record exposed"
    if all(exact <= 1 for _, exact in above) and (above or len(audit.records) < audit.examples):
        expected = "inconclusive"
    tone = {"no record exposed": "good", "records exposed": "bad"}.get(expected, "open")
    assert (audit.finding.verdict, audit.finding.tone) == (expected, tone)
    # The sentence says whose model it is of, and what leads to the user's own.
    assert audit.finding.sentence.startswith("In models (naive Bayes) that jaxaudit trained here: ")
    assert "attack the bank" in audit.finding.would_change[-1]
    assert (audit.finding.confidence.word == "none") is (expected == "inconclusive")
    bare = audit_of(audit.values, exact=audit.exact, examples=audit.examples)
    assert bare.finding.verdict == expected
    failed = [each.name for each in audit.finding.checks if each.state == "failed"]
    partly = len(audit.records) < audit.examples
    assert failed == (["records measured"] if partly and expected == "inconclusive" else [])


@given(audits())
@settings(max_examples=50)
def test_counts_are_those_of_a_loop_over_the_records(make: Callable[[], PDTPAudit]):
    audit = make()
    above = floor = without = within = made = copies = alone = 0
    for place in range(len(audit.records)):
        value, exact, largest = audit.values[place], audit.exact[place], audit.floor.largest[place]
        floor += value > largest
        without += exact > 1
        above += value > 1
        within += 1 < value <= largest
        made += value > 1 >= exact
        copies += audit.duplicates[place] > 1
        alone += bool(audit.only_member[place])
    found = audit.result
    counted = (found.above_1, found.seed_floor.above, found.above_1_without_bins, found.above_1_within_floor)
    assert counted == (above, floor, without, within)
    assert (found.copies, found.lone_members) == (copies, alone)
    artefacts = [f"{made} of {above} records above 1"] if made and audit.bins else ["because of", "without bins"]
    assert any(words in check(audit, "bins").message for words in artefacts)


@given(st.lists(st.floats(0, 8) | st.sampled_from([*EDGES, 1.0000001]), min_size=1, max_size=50))
@settings(max_examples=50)
def test_every_record_is_in_one_bar_and_dtp_1_between_two(values: list[float]):
    bars = distribution(np.array(values), np.array(values[::-1]))
    assert bars[0].records == sum(value == 0 for value in values)
    for bar in bars[1:]:
        assert bar.records == bar.by_seed_floor == sum(bar.above < value <= bar.up_to for value in values)
    assert sum(bar.records for bar in bars) == len(values)
    assert sum(bar.records for bar in bars if bar.breaks_dtp_1) == sum(value > 1 for value in values)


NO_FLOOR = SeedFloor(np.zeros(3), np.zeros(3))
FLOOR = SeedFloor(np.array([0.0, 0.0, 1.0]), np.array([0.0, 0.0, 2.0]))


@pytest.mark.parametrize(
    ("values", "known", "name", "state"),
    [
        (BELOW, {}, "records measured", "passed"),
        (BELOW, {"examples": 9}, "records measured", "failed"),
        ([1.5], {"examples": 9}, "records measured", "passed"),
        ([1.5] * 3, {"floor": NO_FLOOR, "seeded": False}, "seed floor", "passed"),
        # It is asked of the records above 1 alone: the first two are above their floor in each case.
        ([0.5, 0.5, 1.5], {"floor": FLOOR}, "seed floor", "warning"),
        ([0.5, 1.2, 1.5], {"floor": FLOOR}, "seed floor", "warning"),
        ([0.5, 1.2, 2.5], {"floor": FLOOR}, "seed floor", "passed"),
        ([0.5, 0.5, 0.9], {"floor": FLOOR}, "seed floor", "passed"),
        ([math.log(3), 0.1], {"exact": np.array([0.2, 1.3])}, "bins", "warning"),
        ([1.5, 1.5], {}, "bins", "passed"),
        ([0.5, 0.5], {"exact": np.array([0.1, 1.1])}, "bins", "passed"),
        ([1.5, 1.5], {"bins": 0}, "bins", "passed"),
        # A learner that always passes the rule; nothing is said of one without a largest value.
        (BELOW, {"largest_possible": 0.69}, "DTP-1 can fail", "warning"),
        (BELOW, {"largest_possible": 1.0}, "DTP-1 can fail", "warning"),
        (BELOW, {"largest_possible": 1.01}, "DTP-1 can fail", "passed"),
        (BELOW, {}, "DTP-1 can fail", None),
        (BELOW, {}, "copies", "passed"),
        (BELOW, {"duplicates": np.array([2, 2, 1])}, "copies", "warning"),
        (BELOW, {}, "classes", "passed"),
        (BELOW, {"only_member": np.array([True, False, False])}, "classes", "warning"),
    ],
)
def test_checks(values: list[float], known: dict[str, Any], name: str, state: str | None):
    found = [each.state for each in audit_of(values, **known).finding.checks if each.name == name]
    assert found == [state] * (state is not None)


@pytest.mark.parametrize(
    ("values", "known", "word"),
    [
        (BELOW, {"examples": 4}, "none"),
        (BELOW, {}, "fair"),
        (BELOW, {"dtp_bound": np.array([0.1, 0.2, 2.0])}, "fair"),
        (BELOW, {"dtp_bound": np.array([0.1, 0.2, math.inf])}, "fair"),
        (BELOW, {"dtp_bound": np.array([0.1, 0.2, 1.0])}, "strong"),
        ([0.1, 0.2, 1.1], {"exact": np.array(BELOW)}, "none"),
        ([0.1, 0.2, 1.1], {"floor": SeedFloor(np.full(3, 1.0), np.full(3, 1.1))}, "fair"),
        ([0.1, 0.2, 1.1], {}, "strong"),
        ([0.1, 0.2, math.inf], {"bins": 0}, "strong"),
        ([0.1, 0.2, 1.1], {"seeded": False, "floor": SeedFloor(np.zeros(3), np.zeros(3))}, "strong"),
    ],
)
def test_how_far_to_trust_it(values: list[float], known: dict[str, Any], word: str):
    assert audit_of(values, **known).finding.confidence.word == word
