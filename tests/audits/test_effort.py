"""Plans of an effort, of ks and of power: from shapes and options alone, and what was given by hand stands."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxaudit import HoldoutTest, KSTest, RhoTest, ShadowTest
from jaxaudit.audits import (
    EFFORTS,
    FEWEST,
    LEAST_RECORDS,
    LEAST_STEPS,
    Free,
    PowerModels,
    Work,
    choose,
    members,
    plan_of,
)
from jaxaudit.cli.ks.effort import reductions
from jaxaudit.ensemble import StepCost

ALL, NOTHING, POWER = Free(True, True), Free(False, False), Free(True, True, epochs_last=True)
TESTS: tuple[KSTest, ...] = (ShadowTest(), RhoTest())


def work_of(
    query: int,
    calibration: int,
    holdout: int = 0,
    targets: tuple[int, ...] = (),
    tests: tuple[KSTest, ...] = TESTS,
    counts: bool = True,
) -> Work:
    """A work of these sizes; with `counts`, the numbers of models were not given by hand."""
    lightest = tuple(test.lighter() for test in tests) if counts else tests
    return Work(query, calibration, holdout, targets, query, tests, 15, 64, lightest=lightest)


MNIST = work_of(60_000, 10_000, 0, (6_700, 66_700, 36_700))
LARGE, SMALL = StepCost(4e9, 1e7, 80_000_000), StepCost(2e7, 1e5, 1_000_000)


def works() -> st.SearchStrategy[Work]:
    sizes = st.integers(50, 100_000)
    return st.builds(
        lambda query, calibration, holdout, more, counts: work_of(
            query, calibration, holdout, (query,), (*more, *TESTS), counts
        ),
        *(sizes, sizes, st.sampled_from([0, 500]), st.sampled_from([(), (HoldoutTest(),)]), st.booleans()),
    )


def shadows_of(work: Work) -> tuple[int, int, int, int]:
    """Models trained on nothing, half and all of the query set, and on a mix of it and the holdout."""
    (plain,) = (test for test in work.tests if type(test) is ShadowTest)
    mixed = sum(test.mixed for test in work.tests if isinstance(test, HoldoutTest))
    return plain.never, plain.half, plain.fully, mixed


def rho_of(work: Work) -> RhoTest:
    return next(test for test in work.tests if isinstance(test, RhoTest))


def operations_by_loop(work: Work, cost: StepCost) -> float:
    rho = rho_of(work)
    sizes = [work.query, round(rho.subsample * work.calibration)] * rho.replicates
    sizes += [work.query + work.calibration] * rho.controls + list(work.targets)
    rest = round(2 / 3 * work.calibration)
    for models, given_ in zip(shadows_of(work), (0, work.query // 2, work.query, work.query), strict=True):
        sizes += [rest + given_] * models
    steps = sum(-(-size // work.batch_size) for size in sizes)
    asked = work.query + work.calibration + work.holdout
    return work.epochs * steps * cost.step + len(sizes) * asked * cost.record


@settings(max_examples=30)
@given(works())
def test_the_operations_are_those_of_every_model(work):
    operations = plan_of(0, work, LARGE).operations
    np.testing.assert_allclose(operations, operations_by_loop(work, LARGE), rtol=1e-9)
    assert len(members(work)) == 2 * 5 + 1 + 1 + sum(shadows_of(work))


@settings(max_examples=50)
@given(works(), st.floats(1e-3, 1e6), st.sampled_from([ALL, NOTHING, Free(False, True)]))
def test_every_effort_has_a_plan_within_it_or_the_smallest(work, times, free):
    """Nothing else decides it: no clock is read, and what was given by hand stands."""
    costs = [cost._replace(step=times * cost.step, record=times * cost.record) for cost in (LARGE, SMALL)]
    plans = {effort: choose(work, costs, effort, free) for effort in EFFORTS}
    assert plans == {effort: choose(work, iter(costs), effort, free) for effort in EFFORTS}
    for effort, plan in plans.items():
        assert plan == plan_of(plan.network, plan.work, costs[plan.network])
        if plan.operations > EFFORTS[effort]:
            assert plan.network == 1
            assert plan.work.tests == work.lightest
            assert not free.records or plan.work.records == tuple(min(LEAST_RECORDS, size) for size in work.records)
        assert free.records or plan.work.records == work.records
        assert free.epochs or plan.work.epochs == work.epochs
        assert plan.work.lightest == work.tests or plan.work.tests in (
            *(work.tests, work.lightest),
            tuple(light if test.of_guess else test for test, light in zip(work.tests, work.lightest, strict=True)),
        )
    assert plans["full"] == plan_of(0, work, costs[0])


def test_what_is_within_the_effort_is_not_reduced_and_only_networks_that_are_looked_at_are_counted():
    counted: list[StepCost] = []

    def count(cost: StepCost) -> StepCost:
        counted.append(cost)
        return cost

    small = work_of(300, 300)
    assert choose(small, map(count, (SMALL, LARGE)), "quick", ALL) == plan_of(0, small, SMALL)
    assert counted == [SMALL]


def test_what_costs_least_goes_first():
    """Replicates of rho, then shadow models, then records, then the network."""
    once = plan_of(0, MNIST, StepCost(1.0, 0.0, 1)).operations
    quick = EFFORTS["quick"] / once
    works_ = [choose(MNIST, [StepCost(quick / share, 0.0, 1)], "quick", ALL).work for share in (0.99, 0.9, 0.3)]
    assert [rho_of(work).replicates for work in works_] == [2, 2, 2]
    assert [shadows_of(work)[0] for work in works_] == [39, 19, 19]
    assert works_[1].query == 60_000 > works_[2].query >= FEWEST
    plan = choose(MNIST, [StepCost(1e12, 0.0, 1), SMALL], "quick", ALL)
    assert plan.network == 1
    assert plan.work.query % 100 == 0


def test_what_records_teach_is_a_part_of_the_work():
    """A lesson of half the effort beside training of the other half; with any more, records go, and so the lesson."""
    once = plan_of(0, MNIST, StepCost(1.0, 0.0, 1)).operations
    cost, half = StepCost(EFFORTS["quick"] / 2 / once, 0.0, 1), EFFORTS["quick"] / 2 / 60_000
    whole = choose(MNIST._replace(lesson=lambda records: half * records), [cost], "quick", ALL)
    assert whole.operations == pytest.approx(EFFORTS["quick"])
    assert whole.work.records == MNIST.records
    fewer = choose(
        MNIST._replace(lesson=lambda records: 3 * half * records, lightest=MNIST.tests), [cost], "quick", ALL
    )
    assert fewer.operations <= EFFORTS["quick"]
    assert FEWEST <= fewer.work.query < 60_000


def test_the_last_network_takes_fewer_records_before_fewer_epochs():
    operations = plan_of(0, MNIST._replace(lightest=MNIST.tests), StepCost(1.0, 0.0, 1)).operations
    cost = StepCost(30 * EFFORTS["quick"] / operations, 0.0, 1)
    fixed = Free(True, True, epochs_last=True)
    two, one = (choose(MNIST, costs, "quick", fixed) for costs in ([cost, SMALL], [cost]))
    assert (two.network, one.network) == (1, 0)
    assert one.work.query < FEWEST
    assert one.work.epochs == MNIST.epochs


def test_fewer_records_are_walked_more_often():
    """Too few steps would leave networks that fit nothing, and remember nothing."""
    cost = StepCost(EFFORTS["quick"] / 66_667, EFFORTS["quick"] / 6e7, 1)
    work, fixed = (choose(MNIST, [cost], "quick", Free(True, epochs)).work for epochs in (True, False))
    smallest = min(work.query, round(2 / 3 * work.calibration))
    assert work.epochs * -(-smallest // work.batch_size) >= LEAST_STEPS
    assert work.epochs > fixed.epochs == 15
    last = choose(MNIST, [cost], "quick", Free(True, True, epochs_last=True)).work
    assert last == fixed


def test_power_is_planned_as_ks_is():
    """By hand: 71 steps an epoch. Fewer models go first, down to 19, then records, then epochs."""
    test = PowerModels(models=40)
    full = Work(5000, 3000, 0, (), 5000, (test,), 15, 64, lightest=(test.lighter(),))
    steps = 15 * -(-(2500 + 2000) // 64)
    once = plan_of(0, full, StepCost(1e6, 50.0, 1)).operations
    assert once == pytest.approx(40 * steps * 1e6 + 40 * 8000 * 50)
    times = EFFORTS["quick"] / once
    few = [
        choose(full, [StepCost(1e6 * times / share, 50.0 * times / share, 1)], "quick", POWER).work
        for share in (0.9, 0.4)
    ]
    assert few[0] == full._replace(tests=(PowerModels(models=19),))
    assert few[1].tests == full.lightest
    assert few[1].epochs == 15
    assert FEWEST <= few[1].query < 5000
    least = choose(full, [StepCost(1e30, 0.0, 1)], "quick", POWER).work
    assert (least.records, least.epochs) == ((200, 200, 0, 0), 5)
    assert list(reductions(full, least)) == [
        *("query records 5,000 to 200", "calibration records 3,000 to 200"),
        *("models of the measurement 40 to 19", "epochs 15 to 5"),
    ]
