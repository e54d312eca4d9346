"""What the `power` audit concludes: both verdicts, what it takes, every check both ways; with members and without."""

from dataclasses import replace

import pytest
from support.findings import state
from support.saved_runs.power import KNOWN, power_audit

from jaxaudit.audits.power.conclusions import REMEMBERS, conclusions
from jaxaudit.audits.power.result import Power
from jaxaudit.metrics.power import MOST_RECORDS, Separation, detection_probability
from jaxaudit.metrics.power_members import Memory, forgotten_probability, memory_in_errors, remembering

NOTHING = Separation(0.0, 0.04, 0.04, 0.0, 31)
VARIED = Separation(0.3, 0.05, 0.04, 0.3**2, 31)
MEMORY = Memory(KNOWN._replace(outside=0.3), KNOWN._replace(outside=0.2), 0.5)


@pytest.mark.parametrize(
    ("audit", "verdict", "tone", "confidence"),
    [
        (power_audit(0.1), "sufficient", "good", "fair"),
        (power_audit(0.05), "insufficient", "bad", "fair"),
        (power_audit(1.0, 20, 20), "sufficient", "good", "fair"),
        (power_audit(1.0, measured=NOTHING), "insufficient", "bad", "fair"),
        (power_audit(0.1, measured=KNOWN._replace(models=6)), "sufficient", "good", "weak"),
    ],
)
def test_verdicts(audit: Power, verdict: str, tone: str, confidence: str):
    finding = audit.finding
    assert (finding.verdict, finding.tone, finding.confidence.word) == (verdict, tone, confidence)
    assert (verdict == "insufficient") == bool(finding.would_change)


def test_the_verdict_is_that_of_the_minimum_detectable_fraction():
    least = power_audit().sizes[1].min_detectable
    assert least is not None
    assert power_audit(least).finding.verdict == "sufficient"
    below = power_audit(least - 1e-9).finding
    assert below.verdict == "insufficient"
    # Equal to three digits, and yet not the same.
    assert "8.45% would not" in below.sentence
    assert "8.45% or more" not in below.sentence


@pytest.mark.parametrize(
    ("audit", "words"),
    [
        (power_audit(0.01), " query and as many holdout records"),
        (power_audit(0.01, measured=NOTHING), "scores do not separate"),
        (power_audit(0.01, measured=VARIED), "between-model variance is too large"),
        (power_audit(1e-5), f"{MOST_RECORDS:,} query records are not enough"),
    ],
)
def test_what_it_takes(audit: Power, words: str):
    (advice,) = audit.finding.would_change
    assert words in advice
    assert "1,234 query and 567 holdout" in power_audit(0.1, 1234, 567).finding.sentence
    assert "whole query set" in power_audit(measured=NOTHING).finding.sentence


def test_few_shadow_models_take_more_of_them():
    """Four know the variance between models badly, and no number of records mends that."""
    varied = Separation(0.3, 0.05, 0.04, 0.02, 4)
    (both,) = power_audit(0.2, measured=varied).finding.would_change
    assert both.startswith("1,850 query")
    assert "more than 4 shadow models (--holdout-shadow-models)" in both
    (models,) = power_audit(0.2, 2000, 2000, varied).finding.would_change
    assert models.startswith("Train more than 4 shadow models")


def test_what_it_takes_is_enough():
    (advice,) = power_audit(0.01).finding.would_change
    records = int(advice.split()[0].replace(",", ""))
    assert power_audit(0.01, records, records).finding.verdict == "sufficient"
    assert power_audit(0.01, records - 1, records - 1).finding.verdict == "insufficient"


def test_checks():
    for name, sound, warned in (
        ("enough shadow models", KNOWN._replace(models=19), KNOWN._replace(models=18)),
        ("membership signal", KNOWN, NOTHING),
    ):
        states = [state(power_audit(measured=measured).finding, name) for measured in (sound, warned)]
        assert states == ["passed", "warning"]


# What could be concluded with known members and without.


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
