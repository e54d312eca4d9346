"""What the `efficacy` audit says: no verdict, how far it can be interpreted, and every check both ways."""

import pytest
from support.findings import state
from support.saved_runs.efficacy import efficacy_audit, weights

from jaxaudit.audits.efficacy.result import EfficacyAudit

MINE, OTHER = weights("mine", [3.0, 1.0, 2.0]), weights("retrained", [8.0, 8.0, 8.0])
PERFECT, SHORT = weights("perfect", [0.0, 0.0, 0.0]), weights("short", [1.0, 2.0, 3.0], short=True)


@pytest.mark.parametrize(
    ("audit", "confidence"),
    [
        (efficacy_audit(MINE), "none"),
        (efficacy_audit(MINE, OTHER), "weak"),
        (efficacy_audit(MINE, OTHER, PERFECT), "weak"),
        (efficacy_audit(MINE, SHORT), "none"),
    ],
)
def test_it_judges_nothing(audit: EfficacyAudit, confidence: str):
    finding = audit.finding
    assert (finding.verdict, finding.tone, finding.confidence.word) == ("no verdict", "open", confidence)
    assert finding.would_change


@pytest.mark.parametrize(
    ("name", "audit"),
    [
        ("references", efficacy_audit(MINE)),
        ("finite efficacies", efficacy_audit(MINE, PERFECT)),
        ("32-bit arithmetic", efficacy_audit(SHORT, OTHER)),
    ],
)
def test_checks(name: str, audit: EfficacyAudit):
    assert (state(efficacy_audit(MINE, OTHER).finding, name), state(audit.finding, name)) == ("passed", "warning")
    assert any("Compare with" in each for each in audit.finding.would_change) or name != "references"
    assert "of perfect:" in audit.finding.checks[0].message or name != "finite efficacies"
