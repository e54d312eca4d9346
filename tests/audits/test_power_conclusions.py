"""What could be concluded with known members and without, as `power` says it."""

from dataclasses import replace

import pytest
from support.saved_runs.power import KNOWN, power_audit

from jaxaudit.audits.power.conclusions import REMEMBERS, conclusions
from jaxaudit.metrics.power import detection_probability
from jaxaudit.metrics.power_members import Memory, forgotten_probability, memory_in_errors, remembering

MEMORY = Memory(KNOWN._replace(outside=0.3), KNOWN._replace(outside=0.2), 0.5)


def test_each_row_is_what_its_functions_say():
    found = conclusions(KNOWN, MEMORY, [(300, 200, 400), (600, 400, 800)])
    assert len(found) == 2 * 3 * len(REMEMBERS)
    for each in found:
        sizes = each.query, each.holdout
        score = {"members": MEMORY.alone}.get(each.by, KNOWN)
        tested = remembering(score, each.remembers)
        assert (each.all_used, each.part_used) == tuple(detection_probability(tested, *sizes, f) for f in (1.0, 0.25))
        if each.by == "holdout":
            assert (each.members, each.memory, each.forgotten) == (0, None, None)
            continue
        limited = remembering(MEMORY.alone if each.by == "members" else MEMORY.helped, each.remembers)
        assert each.forgotten == forgotten_probability(limited, *sizes, each.members, units=0.5)
        assert each.memory == memory_in_errors(limited, each.holdout, each.members)


def test_without_known_members_nothing_is_forgotten_however_many_records_there_are():
    found = conclusions(KNOWN, MEMORY, [(10**6, 10**6, 10**6)])
    assert {each.forgotten is None for each in found if each.by == "holdout"} == {True}
    assert all((each.forgotten or 0) > 0.9 for each in found if each.by != "holdout")


@pytest.mark.parametrize(("members", "possible"), [(49, False), (50, True)])
def test_fewer_members_than_the_test_takes(members: int, possible: bool):
    found = conclusions(KNOWN, MEMORY, [(300, 300, members)])
    assert {each.forgotten is not None for each in found if each.by != "holdout"} == {possible}


def test_the_finding_says_it():
    finding = power_audit().finding
    assert "called `forgotten` with 95% probability, given 500 known members and shadow models" in finding.sentence
    assert "Without known members, or shadow models of the target's own recipe, no target is." in finding.sentence
    few = power_audit(1.0, 20, 20).finding
    assert "takes known members (50 or more), or shadow models of the target's own recipe" in few.sentence
    reduced = replace(power_audit(), reduced=("models 40 to 19", "query records 5,000 to 400")).finding.caveats
    assert "models 40 to 19; query records 5,000 to 400" in reduced[0]
    assert not any("less than there is" in each for each in finding.caveats)
    assert any("Nobody knows how much a target remembers" in each for each in finding.caveats)
