"""What the `power` audit concludes: both verdicts, what it takes, every check both ways; with members and without."""

import pytest
from msgspec.structs import replace
from support.findings import state
from support.saved_runs.power import KNOWN, power_audit

from jaxaudit.audits.power.result import PowerAudit, conclusions
from jaxaudit.metrics.power import Memory, Separation

NOTHING = Separation(0.0, 0.04, 0.04, 0.0, 31)
MEMORY = Memory(replace(KNOWN, outside=0.3), replace(KNOWN, outside=0.2), 0.5)


@pytest.mark.parametrize(
    ("audit", "verdict", "tone", "confidence"),
    [
        (power_audit(0.1), "sufficient", "good", "fair"),
        (power_audit(0.05), "insufficient", "bad", "fair"),
        (power_audit(1.0, 20, 20), "sufficient", "good", "fair"),
        (power_audit(1.0, measured=NOTHING), "insufficient", "bad", "fair"),
        (power_audit(0.1, measured=replace(KNOWN, models=6)), "sufficient", "good", "weak"),
    ],
)
def test_verdicts(audit: PowerAudit, verdict: str, tone: str, confidence: str):
    finding = audit.finding
    assert (finding.verdict, finding.tone, finding.confidence.word) == (verdict, tone, confidence)
    assert (verdict == "insufficient") == bool(finding.would_change)


def test_what_it_takes_is_enough():
    (advice,) = power_audit(0.01).finding.would_change
    records = int(advice.split()[0].replace(",", ""))
    assert power_audit(0.01, records, records).finding.verdict == "sufficient"
    assert power_audit(0.01, records - 1, records - 1).finding.verdict == "insufficient"


def test_checks():
    for name, sound, warned in (
        ("enough shadow models", replace(KNOWN, models=19), replace(KNOWN, models=18)),
        ("membership signal", KNOWN, NOTHING),
    ):
        states = [state(power_audit(measured=measured).finding, name) for measured in (sound, warned)]
        assert states == ["passed", "warning"]


def test_without_known_members_nothing_is_forgotten_however_many_records_there_are():
    found = conclusions(KNOWN, MEMORY, [(10**6, 10**6, 10**6)])
    assert {each.forgotten is None for each in found if each.by == "holdout"} == {True}
    assert all((each.forgotten or 0) > 0.9 for each in found if each.by != "holdout")


@pytest.mark.parametrize(("members", "possible"), [(49, False), (50, True)])
def test_fewer_members_than_the_test_takes(members: int, possible: bool):
    found = conclusions(KNOWN, MEMORY, [(300, 300, members)])
    assert {each.forgotten is not None for each in found if each.by != "holdout"} == {possible}
