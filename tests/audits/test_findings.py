"""What audits conclude from their numbers: every verdict, how far it is trusted, and every check both ways."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.findings import state
from support.saved_runs.attack import attack_audit, with_accuracies, with_splits
from support.saved_runs.efficacy import efficacy_audit, weights
from support.saved_runs.pdtp import audit_of
from support.saved_runs.power import KNOWN, power_audit
from support.saved_runs.unlearn import CHALLENGE, SEEDS, Factors, unlearn_audit

from jaxaudit.audits import (
    EfficacyAudit,
    Finding,
    PowerAudit,
    UnlearnAudit,
    concluded_result,
    conclusions,
    together,
)
from jaxaudit.metrics import Estimate, Memory, SeedFloor, Separation

ATTACKED = attack_audit()
GUESSES, SUCCEEDS = (0.5, 0.47, 0.53), (0.7, 0.65, 0.75)


def attack_finding(*accuracies: tuple[float, float, float], **known: Any) -> Finding:
    return with_splits(with_accuracies(ATTACKED, *accuracies), **known).finding


@pytest.mark.parametrize(
    ("accuracies", "verdict", "best"),
    [
        ((SUCCEEDS, GUESSES), "gives some away", "distance"),
        ((GUESSES, SUCCEEDS), "gives some away", "frequency"),
        # The larger accuracy is not clearly above a half, the smaller one is.
        (((0.60, 0.48, 0.72), (0.58, 0.53, 0.63)), "gives some away", "frequency"),
        ((GUESSES, GUESSES), "no better than guessing", "distance"),
        (((0.4, 0.3, 0.5), GUESSES), "no better than guessing", "frequency"),
        # One attack alone may do better than by guessing: that is not a failure of all.
        ((GUESSES, (0.49, 0.41, 0.57)), "inconclusive", "distance"),
        ((GUESSES, (0.52, 0.48, 0.56)), "inconclusive", "frequency"),
    ],
)
def test_one_rule_over_all_attacks(accuracies: Any, verdict: str, best: str):
    finding = attack_finding(*accuracies)
    assert finding.verdict == verdict
    assert with_accuracies(ATTACKED, *accuracies).result.decided_by == best
    assert f"{best} attack" in finding.sentence
    assert finding.sentence.startswith("In models that jaxaudit trained here: ")
    assert finding.tone == {"gives some away": "bad", "no better than guessing": "good"}.get(verdict, "open")
    assert (finding.confidence.word == "none") == (verdict == "inconclusive")
    assert "shadows train" in finding.would_change[-1]
    assert len(finding.would_change) > 1 or verdict != "inconclusive"


def test_the_p_value_of_attacks_decides():
    for p_value, verdict, word in (
        (0.01, "gives some away", "strong"),
        (0.011, "gives some away", "fair"),
        (0.05, "gives some away", "fair"),
        (0.051, "inconclusive", "none"),
    ):
        finding = attack_finding(SUCCEEDS, GUESSES, p_value=p_value)
        assert (finding.verdict, finding.confidence.word) == (verdict, word)


def test_few_targets_weaken_every_verdict():
    # A rate at 0.1% takes 1,000 attacks on non-members; there are 120.
    assert state(ATTACKED.finding, "low false positive rates") == "warning"
    few = with_accuracies(attack_audit(8), SUCCEEDS, GUESSES)
    assert (few.finding.confidence.word, state(few.finding, "enough targets")) == ("weak", "warning")
    fail = with_accuracies(attack_audit(8), GUESSES, GUESSES)
    assert (fail.finding.verdict, fail.finding.confidence.word) == ("no better than guessing", "weak")
    assert state(attack_finding(SUCCEEDS, GUESSES), "enough targets") == "passed"


@pytest.mark.parametrize(
    ("accuracy", "guess", "passed"),
    [(0.8, 0.5, True), (0.54, 0.5, False), (0.551, 0.5, True), (0.4, 0.5, False), (0.9, 0.9, False), (1.0, 1.0, False)],
)
def test_a_classifier_that_learned_nothing_fails_its_check(accuracy: float, guess: float, passed: bool):
    """It leaks nothing, whatever the attacks are worth."""
    finding = attack_finding(GUESSES, GUESSES, test_accuracy=accuracy, guess_accuracy=guess)
    assert state(finding, "classifier accuracy") == ("passed" if passed else "warning")


MINE, RETRAINED = weights("mine", [3.0, 1.0, 2.0]), weights("retrained", [8.0, 8.0, 8.0])
PERFECT, SHORT = weights("perfect", [0.0, 0.0, 0.0]), weights("short", [1.0, 2.0, 3.0], short=True)


@pytest.mark.parametrize(
    ("audit", "confidence", "warning"),
    [
        (efficacy_audit(MINE), "none", "references"),
        (efficacy_audit(MINE, RETRAINED), "weak", ""),
        (efficacy_audit(MINE, RETRAINED, PERFECT), "weak", "finite efficacies"),
        (efficacy_audit(SHORT, RETRAINED), "weak", "32-bit arithmetic"),
        (efficacy_audit(MINE, SHORT), "none", "32-bit arithmetic"),
    ],
)
def test_efficacy_judges_nothing(audit: EfficacyAudit, confidence: str, warning: str):
    finding = audit.finding
    assert (finding.verdict, finding.tone, finding.confidence.word) == ("no verdict", "open", confidence)
    assert finding.would_change
    assert warning in ("", *(each.name for each in finding.checks if each.state == "warning"))
    assert any("Compare with" in each for each in finding.would_change) or warning != "references"
    assert "of perfect:" in finding.checks[0].message or warning != "finite efficacies"
    if not warning:
        assert {each.state for each in finding.checks} == {"passed"}


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
def test_verdicts_of_power(audit: PowerAudit, verdict: str, tone: str, confidence: str):
    finding = audit.finding
    assert (finding.verdict, finding.tone, finding.confidence.word) == (verdict, tone, confidence)
    assert (verdict == "insufficient") == bool(finding.would_change)


def test_checks_of_power():
    for name, sound, warned in (
        ("enough shadow models", replace(KNOWN, models=19), replace(KNOWN, models=18)),
        ("membership signal", KNOWN, NOTHING),
    ):
        states = [state(power_audit(measured=measured).finding, name) for measured in (sound, warned)]
        assert states == ["passed", "warning"]


def test_without_known_members_nothing_is_forgotten_however_many_records_there_are():
    found = conclusions(KNOWN, MEMORY, 10**6, 10**6, 10**6)
    assert {each.forgotten is None for each in found if each.by == "holdout"} == {True}
    assert all((each.forgotten or 0) > 0.9 for each in found if each.by != "holdout")


@pytest.mark.parametrize(("members", "possible"), [(49, False), (50, True)])
def test_fewer_members_than_the_test_takes(members: int, possible: bool):
    found = conclusions(KNOWN, MEMORY, 300, 300, members)
    assert {each.forgotten is not None for each in found if each.by != "holdout"} == {possible}


BELOW = [0.1, 0.2, 0.3]
EDGES = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 1.0000001, 3.0, math.inf)


@given(st.lists(st.floats(0, 8) | st.sampled_from(EDGES), min_size=1, max_size=50))
@settings(max_examples=50)
def test_every_record_is_in_one_bar_and_dtp_1_between_two(values: list[float]):
    floor = np.array(values[::-1])
    bars = audit_of(values, floor=SeedFloor(floor, floor)).result.distribution
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
        (BELOW, {}, "copies", "passed"),
        (BELOW, {"duplicates": np.array([2, 2, 1])}, "copies", "warning"),
        (BELOW, {}, "classes", "passed"),
        (BELOW, {"only_member": np.array([True, False, False])}, "classes", "warning"),
    ],
)
def test_checks_of_pdtp(values: list[float], known: dict[str, Any], name: str, state: str | None):
    found = [each.state for each in audit_of(values, **known).finding.checks if each.name == name]
    assert found == [state] * (state is not None)


EXPOSED, NONE, OPEN = ("records exposed", "bad"), ("no record exposed", "good"), ("inconclusive", "open")
JUST_ABOVE = math.nextafter(1.0, 2.0)


@pytest.mark.parametrize(
    ("values", "known", "verdict", "word"),
    [
        (BELOW, {}, NONE, "fair"),
        ([0.1, 0.2, 1.0], {}, NONE, "fair"),
        # Only some of the records were measured: what was not may be exposed, and what is exposed is.
        (BELOW, {"examples": 4}, OPEN, "none"),
        ([0.1, 0.2, 1.1], {"examples": 4}, EXPOSED, "strong"),
        # Outputs of all models are the same: by the bound alone is no record exposed.
        (BELOW, {"same_outputs": True}, OPEN, "none"),
        (BELOW, {"same_outputs": True, "dtp_bound": np.array([0.1, 0.2, JUST_ABOVE])}, OPEN, "none"),
        (BELOW, {"same_outputs": True, "dtp_bound": np.array([0.1, 0.2, 1.0])}, NONE, "strong"),
        (BELOW, {"dtp_bound": np.array([0.1, 0.2, 2.0])}, NONE, "fair"),
        (BELOW, {"dtp_bound": np.array([0.1, 0.2, math.inf])}, NONE, "fair"),
        (BELOW, {"dtp_bound": np.array([0.1, 0.2, 1.0])}, NONE, "strong"),
        # Above 1 by its bin alone, and without bins, too.
        ([0.1, 0.2, 1.1], {"exact": np.array(BELOW)}, OPEN, "none"),
        ([0.1, 0.2, 1.1], {"exact": np.array([0.1, 0.2, JUST_ABOVE])}, EXPOSED, "strong"),
        ([0.1, 0.2, 1.1], {"floor": SeedFloor(np.full(3, 1.0), np.full(3, 1.1))}, EXPOSED, "fair"),
        ([0.1, 0.2, 1.1], {}, EXPOSED, "strong"),
        ([0.1, 0.2, math.inf], {"bins": 0}, EXPOSED, "strong"),
        ([0.1, 0.2, 1.1], {"seeded": False, "floor": SeedFloor(np.zeros(3), np.zeros(3))}, EXPOSED, "strong"),
    ],
)
def test_verdicts_of_pdtp(values: list[float], known: dict[str, Any], verdict: tuple[str, str], word: str):
    finding = audit_of(values, **known).finding
    assert (finding.verdict, finding.tone, finding.confidence.word) == (*verdict, word)
    # The sentence says whose model it is of, and what leads to the user's own.
    assert finding.sentence.startswith("In models (naive Bayes) that jaxaudit trained here: ")
    assert "shadows train" in finding.would_change[-1]


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
def test_verdicts_of_unlearning(original: Any, method: Any, seeds: int, verdict: str, tone: str, confidence: str):
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


def test_checks_of_unlearning():
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
    result = concluded_result("records", audit.result.protocol, tuple(methods))
    assert result.finding.verdict == verdict
