"""A time budget makes the same plan from the same speeds, keeps what was given by hand, and fits."""

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxaudit.audits.ks.plan import FEWEST, LEAST_STEPS, Free, Work, choose, members, memory_of, seconds_of
from jaxaudit.audits.ks.target import FileTarget, SimulatedTarget
from jaxaudit.audits.ks.tests import EMATest, HoldoutTest, KSTest, ReferenceTest, RhoTest, ShadowTest
from jaxaudit.audits.pool import Part
from jaxaudit.cli.ks.budget import parse_budget, take_records
from jaxaudit.cli.ks.inputs import AuditInputs
from jaxaudit.data import Examples
from jaxaudit.data.outputs.outputs import Outputs
from jaxaudit.ensemble import Speed
from jaxaudit.errors import InputError

ALL, NOTHING = Free(True, True, True, True), Free(False, False, False, False)
TESTS: tuple[KSTest, ...] = (ShadowTest(), EMATest(), RhoTest())
MNIST = Work(60_000, 10_000, 0, (6_700, 66_700, 36_700), 60_000, TESTS, 15, 64)
REFERRED = ReferenceTest()
SLOW, FAST = Speed(1, 0.04, 1e-3, 80_000_000), Speed(4, 2e-4, 1e-6, 1_000_000)


def works(**more: Any) -> st.SearchStrategy[Work]:
    sizes = st.integers(50, 100_000)
    return st.builds(
        lambda query, calibration, holdout, more, reference: Work(
            *(query, calibration, holdout, (query,), query, (*more, *TESTS), 15, 64), reference=reference
        ),
        *(sizes, sizes, st.sampled_from([0, 500]), st.sampled_from([(), (HoldoutTest(),), (HoldoutTest(), REFERRED)])),
        st.sampled_from([0, 70, 50_000]),
    )


def shadows_of(work: Work) -> tuple[int, int, int, int]:
    """Models trained on nothing, half and all of the query set, and on a mix of it and the holdout."""
    (plain,) = (test for test in work.tests if type(test) is ShadowTest)
    mixed = sum(test.mixed for test in work.tests if isinstance(test, HoldoutTest))
    return plain.never, plain.half, plain.fully, mixed


def referring_of(work: Work) -> tuple[int, int, int]:
    """Models of the reference test alone: with the calibration set as its reference it has none."""
    own = (test for test in work.tests if isinstance(test, ReferenceTest) and work.reference)
    return next(((test.never, test.half, test.fully) for test in own), (0, 0, 0))


def rho_of(work: Work) -> RhoTest:
    return next(test for test in work.tests if isinstance(test, RhoTest))


def seconds_by_loop(work: Work, speed: Speed) -> float:
    """Model by model, without chunks: for one model a batch."""
    rho = rho_of(work)
    sizes = [work.query, round(rho.subsample * work.calibration)] * rho.replicates
    sizes += [work.query + work.calibration] * rho.controls + list(work.targets)
    rest = round(2 / 3 * work.calibration)
    for models, given_ in zip(shadows_of(work), (0, work.query // 2, work.query, work.query), strict=True):
        sizes += [rest + given_] * models
    more = round(2 / 3 * (work.calibration + work.reference))
    for models, given_ in zip(referring_of(work), (0, work.query // 2, work.query), strict=True):
        sizes += [more + given_] * models
    steps = sum(-(-size // work.batch_size) for size in sizes)
    asked = work.query + work.calibration + work.holdout + work.reference
    return work.epochs * steps * speed.step + len(sizes) * asked * speed.record


@settings(max_examples=30)
@given(works())
def test_the_time_is_that_of_every_model(work):
    speed = Speed(1, 0.01, 1e-5, 1)
    np.testing.assert_allclose(seconds_of(work, speed), seconds_by_loop(work, speed), rtol=0.02)
    assert len(members(work)) == 2 * 5 + 1 + 1 + sum(shadows_of(work)) + sum(referring_of(work))


@settings(max_examples=50)
@given(works(), st.floats(20, 1e5), st.sampled_from([ALL, NOTHING, Free(False, True, True, True)]))
def test_a_plan_fits_or_there_is_none(work, budget, free):
    plan = choose(work, [lambda: SLOW, lambda: FAST], budget, free)
    again = choose(work, [lambda: SLOW, lambda: FAST], budget, free)
    assert plan == again
    if plan is None:
        assert seconds_of(work, FAST) > budget
        return
    assert seconds_of(plan.work, plan.speed) == plan.seconds <= budget
    if not free.records:
        assert plan.work.records == work.records
    if free == NOTHING:
        assert plan.work == work


def test_what_fits_is_not_reduced_and_only_designs_that_are_looked_at_are_measured():
    measured: list[Speed] = []

    def measure(speed: Speed) -> Speed:
        measured.append(speed)
        return speed

    found = choose(MNIST, [lambda: measure(FAST), lambda: measure(SLOW)], 1e9, ALL)
    assert found == (0, MNIST, seconds_of(MNIST, FAST), FAST)
    assert measured == [FAST]


def test_what_costs_least_goes_first():
    """Replicates of rho, then shadow models, then records, then the design."""
    at_full = seconds_of(MNIST, FAST)
    plans = [choose(MNIST, [lambda: FAST], share * at_full, ALL) for share in (0.99, 0.9, 0.3)]
    works_ = [plan.work for plan in plans if plan is not None]
    assert len(works_) == 3
    assert [rho_of(work).replicates for work in works_] == [2, 2, 2]
    assert [shadows_of(work)[0] for work in works_] == [39, 19, 19]
    assert works_[1].query == 60_000 > works_[2].query >= FEWEST
    plan = choose(MNIST, [lambda: SLOW, lambda: FAST], 500.0, ALL)
    assert plan is not None
    assert plan.design == 1
    assert plan.work.query % 100 == 0
    without_rho = MNIST._replace(tests=TESTS[:1])
    plan = choose(without_rho, [lambda: FAST], 0.99 * seconds_of(without_rho, FAST), ALL)
    assert plan is not None
    assert [test.name for test in plan.work.tests] == ["shadow"]
    assert shadows_of(plan.work) == (19, 19, 19, 0)


def test_fewer_records_are_walked_more_often():
    """Too few steps would leave networks that fit nothing, and remember nothing."""
    plan, fixed = (
        choose(MNIST, [lambda: Speed(4, 5e-3, 1e-6, 1)], 400.0, ALL._replace(epochs=epochs)) for epochs in (True, False)
    )
    assert plan is not None
    assert fixed is not None
    smallest = min(plan.work.query, round(2 / 3 * plan.work.calibration))
    assert plan.work.epochs * -(-smallest // plan.work.batch_size) >= LEAST_STEPS
    assert fixed.work.epochs == 15


def test_memory_grows_with_records_and_with_what_steps_take():
    small = memory_of(MNIST, FAST, 784 * 4)
    assert small < memory_of(MNIST, SLOW, 784 * 4)
    assert small > 70_000 * 784 * 4


def test_a_budget_is_a_length_of_time():
    """A CPU has one unless told otherwise."""
    given = {"90s": 90, "10 m": 600, "1.5h": 5400, "2D": 172_800, None: 600, "none": None}
    assert {text: parse_budget(text) for text in given} == given
    for text in ("", "10", "m", "-5m", "1e9m", "nan", "inf", "10s", "9" * 400 + "m", "10m\n10m"):
        with pytest.raises(InputError):
            parse_budget(text)


def sets(holdout: bool = True, reference: bool = False, members: bool = False) -> AuditInputs:
    def examples(start: int, records: int, name: str) -> Examples:
        inputs = np.arange(start, start + records, dtype=np.float32)[:, None]
        return Examples(inputs, np.arange(records) % 2, ("a", "b"), name)

    def outputs(of: Examples) -> Outputs:
        said = np.stack([of.inputs[:, 0] / 1000, 1 - of.inputs[:, 0] / 1000], axis=1).astype(np.float32)
        return Outputs(said, "probabilities", None, "float32", "out.csv")

    query, calibration, held = examples(0, 90, "q"), examples(100, 70, "c"), examples(200, 80, "h")
    other = examples(300, 60, "r") if reference else None
    target = SimulatedTarget("both", (Part(other or calibration, 0.5), Part(query, 1.0)))
    known = examples(400, 75, "m") if members else None
    file = FileTarget(outputs(query), outputs(held) if holdout else None, on_reference=outputs(other or calibration))
    file = file._replace(on_members=known and outputs(known))
    held = held if holdout else None
    return AuditInputs(query, calibration, held, (file,), (target,), reference=other, members=known)


@pytest.mark.parametrize("reference", [False, True])
def test_outputs_are_taken_with_their_records(reference):
    taken = take_records(sets(reference=reference, members=True), 40, jax.random.key(1))
    held, calibration, members = taken.holdout, taken.calibration, taken.members
    referred = taken.reference if reference else calibration
    assert calibration is not None
    (file,) = taken.files
    of_sets = (taken.query, file.outputs), (held, file.on_holdout), (referred, file.on_reference)
    for examples, outputs in (*of_sets, (members, file.on_members)):
        assert examples is not None
        assert outputs is not None
        assert len(examples) == len(calibration) == 40
        np.testing.assert_allclose(outputs.probabilities[:, 0], examples.inputs[:, 0] / 1000, rtol=1e-6)
    # A simulated target is trained on what the sets have left.
    assert [part.examples for part in taken.simulated[0].parts] == [referred, taken.query]
    # And a reference or members change nothing that is taken of the others.
    assert np.array_equal(taken.query.inputs, take_records(sets(), 40, jax.random.key(1)).query.inputs)


def test_a_longer_draw_holds_the_records_of_a_shorter_one_and_another_key_draws_others():
    few, more, other = (
        set(take_records(sets(), records, jax.random.key(key)).query.inputs[:, 0].tolist())
        for records, key in ((20, 1), (50, 1), (20, 2))
    )
    assert few < more
    assert len(few) == len(other) == 20
    assert other != few
