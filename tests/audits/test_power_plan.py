"""Plans of `power` within a budget: they fit, reduce in the stated order, and no more than is needed."""

import pytest

from jaxaudit.audits.power.plan import (
    PowerReducible,
    PowerWork,
    TrainingPace,
    choose_power_work,
    least_power_work,
    power_seconds,
    reduced,
)
from jaxaudit.ensemble import Speed

FULL = PowerWork(5000, 3000, 40, 15)
PACE = TrainingPace(Speed(4, 0.01, 1e-6, 1), 64, designs=5, cost=1.2)
ALL = PowerReducible(True, True, True)


def test_seconds_by_hand():
    """35 steps an epoch; 8 models a design in two full chunks, 40 in all; 8 in two chunks of 5 count as 10."""
    trained = 2500 + round(0.67 * 3000)
    steps = 15 * -(-trained // 64)
    assert power_seconds(FULL, PACE) == pytest.approx(40 * steps * 1.2 * 0.01 + 40 * 8000 * 1e-6)
    fives = PACE._replace(speed=PACE.speed._replace(models_per_batch=5))
    assert power_seconds(FULL, fives) == pytest.approx(50 * steps * 1.2 * 0.01 + 40 * 8000 * 1e-6)


@pytest.mark.parametrize("free", [ALL, PowerReducible(False, True, True), PowerReducible(True, False, True)])
@pytest.mark.parametrize("share", range(1, 9))
def test_a_plan_fits_and_reduces_in_order(free: PowerReducible, share: int):
    budget = power_seconds(FULL, PACE) * share / 8
    work = choose_power_work(FULL, PACE, budget, free)
    if work is None:
        assert power_seconds(least_power_work(FULL, free), PACE) > budget
        return
    assert power_seconds(work, PACE) <= budget
    assert free.models or work.models == FULL.models
    assert free.records or work[:2] == FULL[:2]
    # Epochs are reduced only where records are as few as they may be, and records only where models are.
    models = range(19, 41) if free.models else (40,)
    if work.epochs < 15:
        assert work[:2] == ((200, 200) if free.records else FULL[:2])
        assert min(power_seconds(work._replace(models=m, epochs=work.epochs + 1), PACE) for m in models) > budget
    if work[:2] != FULL[:2]:
        assert min(power_seconds(FULL._replace(models=m), PACE) for m in models) > budget
    # One more of anything would be too much.
    if work.models < FULL.models:
        assert power_seconds(work._replace(models=work.models + 1), PACE) > budget
    if 200 < work.query < FULL.query:
        more = work._replace(query=work.query + 100, calibration=min(FULL.calibration, work.query + 100))
        assert min(power_seconds(more._replace(models=m), PACE) for m in models) > budget


def test_the_smallest_and_what_is_less():
    assert least_power_work(FULL, ALL) == PowerWork(200, 200, 19, 5)
    assert least_power_work(FULL, PowerReducible(False, False, False)) == FULL
    assert least_power_work(PowerWork(150, 3000, 20, 3), ALL) == PowerWork(150, 200, 19, 3)
    assert choose_power_work(FULL, PACE, 0.1, ALL) is None
    assert reduced(FULL, FULL) == ()
    less = "models 40 to 19", "calibration records 3,000 to 200", "epochs 15 to 5"
    assert reduced(FULL, PowerWork(5000, 200, 19, 5)) == less
