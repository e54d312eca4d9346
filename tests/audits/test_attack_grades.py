"""What a bank's rates are called."""

from typing import Any

import numpy as np
import pytest

from jaxaudit.audits import grade_of
from jaxaudit.metrics import attack_rates

MODELS, RECORDS = 40, 400


def rates_of(named: float, shift: float = 0.0, records: int = RECORDS, models: int = MODELS) -> Any:
    """Rates of scores without memory, but for this share of members, of whom everybody can be sure, and a shift."""
    random = np.random.default_rng(4)
    truth = random.random((models, records)) < 0.5
    scores = random.normal(size=truth.shape) + shift * truth
    return attack_rates(np.where(truth & (random.random(truth.shape) < named), 9.0, scores), truth)


@pytest.mark.parametrize(
    ("named", "shift", "grade"),
    [
        # At 1% false positives a share `named` and 1% of the others are found: ten times 1% needs a little more.
        (0.13, 0.0, "gives records away"),
        (0.07, 0.0, "gives some away"),
        (0.005, 0.0, "no better than guessing"),
        (0.0, 0.1, "gives some away"),
        (0.0, 0.02, "no better than guessing"),
        (0.0, 0.0, "no better than guessing"),
    ],
)
def test_grades_are_of_right_calls_for_each_wrong_one(named: float, shift: float, grade: str):
    rates = rates_of(named, shift)
    assert grade_of(rates) == grade
    ratios = [of.low / max(of.fpr, real.high) for of, real in rates.rates if of.resolvable and of.holds]
    assert [of.resolvable for of in rates.tpr_at_fpr] == [True, True, False, False]
    assert (max(ratios[1:]) >= 10) == (grade == "gives records away")


def test_the_rate_at_a_thousandth_names_records_where_that_at_a_hundredth_does_not():
    rates = rates_of(0.03, records=2000)
    one, tenth = rates.tpr_at_fpr[1].low, rates.tpr_at_fpr[2].low
    assert (one < 0.1, tenth > 0.01, grade_of(rates)) == (True, True, "gives records away")


def test_without_a_rate_at_a_hundredth_nobody_is_named():
    rates = rates_of(0.9, records=40, models=16)
    assert not rates.tpr_at_fpr[1].resolvable
    assert grade_of(rates) == "gives some away"
    assert grade_of(rates_of(0.0, records=40, models=16)) is None
