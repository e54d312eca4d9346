"""What the `unlearn` audit concludes: every verdict, every check both ways."""

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from scipy import special
from support.findings import state
from support.saved_runs.unlearn import CHALLENGE, SEEDS, Factors, unlearn_audit

from jaxaudit.audits.unlearn.finding import set_result, together
from jaxaudit.audits.unlearn.result import UnlearnAudit
from jaxaudit.metrics import Estimate

SEEN: Factors = {"efficacy": 9.0}


def judged(original: Factors, method: Factors, seeds: int = SEEDS, **how: Any) -> UnlearnAudit:
    return unlearn_audit(original, {"mine": method}, seeds, **how)


@pytest.mark.parametrize(
    ("original", "method", "seeds", "verdict", "tone", "confidence"),
    [
        (SEEN, {"efficacy": 0.1}, SEEDS, "distinguishable", "bad", "strong"),
        ({}, {"test_accuracy": 0.1}, SEEDS, "distinguishable", "bad", "strong"),
        (SEEN, {}, SEEDS, "not distinguishable", "good", "fair"),
        ({"remaining_accuracy": 9.0}, {}, SEEDS, "not distinguishable", "good", "weak"),
        ({}, {}, SEEDS, "inconclusive", "open", "none"),
        (SEEN, {"efficacy": 0.1}, 3, "inconclusive", "open", "none"),
    ],
)
def test_verdicts(original: Any, method: Any, seeds: int, verdict: str, tone: str, confidence: str):
    """A method that passes where the original would pass, too, has not been tested."""
    audit = judged(original, method, seeds)
    finding = audit.finding
    assert (finding.verdict, finding.tone, finding.confidence.word) == (verdict, tone, confidence)
    assert audit.result["mine"].finding == finding
    assert [each.name for each in audit.result.methods if each.finding is None] == [
        "untrained",
        "original",
        "retraining",
    ]
    assert finding.reasons
    # The last one leads to models of the user's own.
    assert (verdict == "inconclusive") == (len(finding.would_change) > 1)
    assert "that jaxaudit trained here: " in finding.sentence


def test_checks():
    sound, few, blind = judged(SEEN, {}).finding, judged(SEEN, {}, 3).finding, judged(SEEN, {}, attacked=False).finding
    infinite = judged(SEEN, {"efficacy": np.inf}).finding
    for name, finding, worse in (
        ("enough seeds", few, "failed"),
        ("finite efficacies", infinite, "warning"),
        ("membership attack", blind, "warning"),
    ):
        assert (state(sound, name), state(finding, name)) == ("passed", worse)
    # 2 / 2^n is at most 0.05 / 6 from 8 seeds on.
    assert [judged(SEEN, {}, seeds).result.protocol.enough_seeds for seeds in (7, 8)] == [False, True]
    assert any("8 seeds" in each for each in few.would_change)
    assert any("non-members" in each for each in blind.would_change)
    assert next(each for each in infinite.checks if each.state == "warning").message.startswith("some models of mine")


def test_a_run_is_as_bad_as_its_worst_method():
    audit = unlearn_audit(SEEN, {"good": {}, "bad": {"bound": 0.1}, "worse": {"efficacy": 0.1}})
    finding = audit.finding
    assert (finding.verdict, finding.tone, finding.confidence.word) == ("distinguishable", "bad", "strong")
    assert all(f"{name}: " in finding.sentence for name in ("good", "bad", "worse"))
    assert [reason.split(":")[0] for reason in finding.reasons] == ["good", "bad", "worse"]
    assert [check.name for check in finding.checks] == ["enough seeds", "finite efficacies", "membership attack"]
    assert len(set(finding.caveats)) == len(finding.caveats)
    # Nothing distinguishes the original, but one of the methods.
    mixed = unlearn_audit({}, {"same": {}, "other": {"bound": 9.0}})
    verdicts = [method.finding.verdict for method in mixed.result.methods if method.finding]
    assert verdicts == ["inconclusive", "distinguishable"]
    assert mixed.finding.verdict == "distinguishable"
    both = together({"a": judged(SEEN, {}).finding, "b": judged({}, {}).finding})
    assert (both.verdict, both.confidence.word) == ("inconclusive", "none")
    fair, weak = judged(SEEN, {}).finding, judged({"remaining_accuracy": 9.0}, {}).finding
    assert together({"a": fair, "b": weak}).confidence == weak.confidence


@pytest.mark.parametrize(("high", "verdict"), [(0.625, "not distinguishable"), (0.7, "inconclusive")])
def test_a_wide_interval_of_u_lira_is_no_good_verdict(high: float, verdict: str) -> None:
    audit = judged(SEEN, {}, told=CHALLENGE)
    lira = Estimate(0.5, 1 - high, high)
    methods = [replace(each, u_lira=lira if each.u_lira else None, finding=None) for each in audit.result.methods]
    result = set_result("records", audit.result.protocol, tuple(methods))
    assert result.finding.verdict == verdict
    # The level that is shown moves no verdict.
    protocol = replace(result.protocol, level=0.5)
    reach = (high - 0.5) * special.stdtrit(SEEDS // 2 - 1, 0.75) / special.stdtrit(SEEDS // 2 - 1, 0.975)
    narrow = Estimate(0.5, 0.5 - reach, 0.5 + reach)
    methods = [replace(each, u_lira=narrow if each.u_lira else None) for each in methods]
    assert set_result("records", protocol, tuple(methods)).finding.verdict == verdict
