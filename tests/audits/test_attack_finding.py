"""What the `attack` audit concludes from its numbers."""

from typing import Any

import pytest
from support.findings import state
from support.saved_runs.attack import attack_audit, with_accuracies, with_splits

from jaxaudit.audits.finding import Finding

SOUND = attack_audit()
GUESSES, SUCCEEDS = (0.5, 0.47, 0.53), (0.7, 0.65, 0.75)


def found(*accuracies: tuple[float, float, float], **known: Any) -> Finding:
    return with_splits(with_accuracies(SOUND, *accuracies), **known).finding


@pytest.mark.parametrize(
    ("accuracies", "verdict", "best"),
    [
        ((SUCCEEDS, GUESSES), "attack succeeds", "distance"),
        ((GUESSES, SUCCEEDS), "attack succeeds", "frequency"),
        # The larger accuracy is not clearly above a half, the smaller one is.
        (((0.60, 0.48, 0.72), (0.58, 0.53, 0.63)), "attack succeeds", "frequency"),
        ((GUESSES, GUESSES), "attacks fail", "distance"),
        (((0.4, 0.3, 0.5), GUESSES), "attacks fail", "frequency"),
        # One attack alone may do better than by guessing: that is not a failure of all.
        ((GUESSES, (0.49, 0.41, 0.57)), "inconclusive", "distance"),
        ((GUESSES, (0.52, 0.48, 0.56)), "inconclusive", "frequency"),
    ],
)
def test_one_rule_over_all_attacks(accuracies: Any, verdict: str, best: str):
    finding = found(*accuracies)
    assert finding.verdict == verdict
    assert with_accuracies(SOUND, *accuracies).result.decided_by == best
    assert f"{best} attack" in finding.sentence
    assert finding.sentence.startswith("In models that jaxaudit trained here: ")
    assert finding.tone == {"attack succeeds": "bad", "attacks fail": "good"}.get(verdict, "open")
    assert (finding.confidence.word == "none") == (verdict == "inconclusive")
    assert "attack the bank" in finding.would_change[-1]
    assert len(finding.would_change) > 1 or verdict != "inconclusive"


def test_the_p_value_decides():
    for p_value, verdict, word in (
        (0.01, "attack succeeds", "strong"),
        (0.011, "attack succeeds", "fair"),
        (0.05, "attack succeeds", "fair"),
        (0.051, "inconclusive", "none"),
    ):
        finding = found(SUCCEEDS, GUESSES, p_value=p_value)
        assert (finding.verdict, finding.confidence.word) == (verdict, word)


def test_few_targets_weaken_every_verdict():
    # A rate at 0.1% takes 1,000 attacks on non-members; there are 120.
    assert state(SOUND.finding, "low false positive rates") == "warning"
    few = with_accuracies(attack_audit(8), SUCCEEDS, GUESSES)
    assert (few.finding.confidence.word, state(few.finding, "enough targets")) == ("weak", "warning")
    fail = with_accuracies(attack_audit(8), GUESSES, GUESSES)
    assert (fail.finding.verdict, fail.finding.confidence.word) == ("attacks fail", "weak")
    assert state(found(SUCCEEDS, GUESSES), "enough targets") == "passed"


@pytest.mark.parametrize(
    ("accuracy", "guess", "passed"),
    [(0.8, 0.5, True), (0.54, 0.5, False), (0.551, 0.5, True), (0.4, 0.5, False), (0.9, 0.9, False), (1.0, 1.0, False)],
)
def test_a_classifier_that_learned_nothing_fails_its_check(accuracy: float, guess: float, passed: bool):
    """It leaks nothing, whatever the attacks are worth."""
    finding = found(GUESSES, GUESSES, test_accuracy=accuracy, guess_accuracy=guess)
    assert state(finding, "classifier accuracy") == ("passed" if passed else "warning")
