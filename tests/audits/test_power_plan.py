"""Plans of `power` of an effort: they are within it, reduce in the stated order, and no more than is needed."""

import pytest

from jaxaudit.audits.ks.plan import EFFORTS
from jaxaudit.audits.power.audit import PowerReducible, PowerWork, choose_power_work, power_operations, reduced
from jaxaudit.ensemble import StepCost

FULL = PowerWork(5000, 3000, 40, 15, 64)
ALL = PowerReducible(True, True, True)


def operations(work: PowerWork) -> float:
    return power_operations(work, StepCost(1e6, 50.0, 1))


def costing(share: float) -> StepCost:
    """The cost of a step with which a quick effort is this share of the full work."""
    times = EFFORTS["quick"] / operations(FULL) / share
    return StepCost(1e6 * times, 50.0 * times, 1)


def test_operations_by_hand():
    """71 steps an epoch."""
    steps = 15 * -(-(2500 + round(0.67 * 3000)) // 64)
    assert operations(FULL) == pytest.approx(40 * steps * 1e6 + 40 * 8000 * 50)


@pytest.mark.parametrize("free", [ALL, PowerReducible(False, True, True), PowerReducible(True, False, True)])
@pytest.mark.parametrize("share", [2.0**-size for size in range(12)])
def test_a_plan_is_within_the_effort_and_reduces_in_order(free: PowerReducible, share: float):
    cost, most = costing(share), EFFORTS["quick"] * (1 + 1e-9)
    work = choose_power_work(FULL, cost, "quick", free)
    assert choose_power_work(FULL, cost, "full", free) == FULL
    if power_operations(work, cost) > most:
        smallest = PowerWork(200, 200, 19, 5, 64)
        assert free.models is (work.models == smallest.models)
        assert work[:2] == (smallest[:2] if free.records else FULL[:2])
        assert work.epochs == smallest.epochs
        return
    assert free.models or work.models == FULL.models
    assert free.records or work[:2] == FULL[:2]
    # Epochs are reduced only where records are as few as they may be, and records only where models are.
    fewest = 19 if free.models else 40
    if work.epochs < 15:
        assert work[:2] == ((200, 200) if free.records else FULL[:2])
        assert power_operations(work._replace(models=fewest, epochs=work.epochs + 1), cost) > most
    if work[:2] != FULL[:2]:
        assert power_operations(FULL._replace(models=fewest), cost) > most
    # One more of anything would be too much.
    if work.models < FULL.models:
        assert power_operations(work._replace(models=work.models + 1), cost) > most
    if 200 < work.query < FULL.query:
        more = work._replace(query=work.query + 100, calibration=min(FULL.calibration, work.query + 100))
        assert power_operations(more._replace(models=fewest), cost) > most


def test_the_smallest_and_what_is_less():
    endless = StepCost(1e30, 0.0, 1)
    assert choose_power_work(FULL, endless, "quick", ALL)[:4] == (200, 200, 19, 5)
    assert choose_power_work(FULL, endless, "quick", PowerReducible(False, False, False)) == FULL
    assert choose_power_work(PowerWork(150, 3000, 20, 3), endless, "quick", ALL)[:4] == (150, 200, 19, 3)
    assert reduced(FULL, FULL) == ()
    less = "models 40 to 19", "calibration records 3,000 to 200", "epochs 15 to 5"
    assert reduced(FULL, PowerWork(5000, 200, 19, 5)) == less
