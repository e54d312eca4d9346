"""Who asks for more gets the same numbers for what he asked before: nobody can shop for a verdict."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import msgspec
import numpy as np
import pytest
from support.clouds import CALIBRATION, HOLDOUT, QUERY, examples, probabilities, replaced
from support.clouds import LEARNER as CLOUDS
from support.ks_audits import audit_ks

from jaxaudit import FileTarget, HoldoutTest, KSAudit, KSTest, Part, RhoTest, Sets, ShadowTest, SimulatedTarget
from jaxaudit.audits import Target
from jaxaudit.data import Examples, Outputs
from jaxaudit.ensemble import Execution

KEY = jax.random.key(5)
LEARNER = replace(CLOUDS, epochs=1)


def outputs(seed: int, asked: Examples) -> Outputs:
    return probabilities(np.random.default_rng(seed).dirichlet(np.ones(3), len(asked)), f"{seed}.csv")


def simulated(seed: int) -> SimulatedTarget:
    return SimulatedTarget(f"simulated {seed}", (Part(CALIBRATION, 0.5), Part(examples(seed, 0.2, "fresh"), 0.5)))


TARGETS = [FileTarget(Sets(query=outputs(1, QUERY))), simulated(11)]
HELD = [FileTarget(Sets(query=outputs(1, QUERY), holdout=outputs(6, HOLDOUT))), simulated(11)]
RHO = RhoTest(replicates=2)
SHADOW = ShadowTest(never=19, half=3, fully=19)


def run(*tests: KSTest, targets: Sequence[Target] = TARGETS, holdout: Examples | None = None) -> KSAudit:
    how: dict[str, Any] = {"holdout": holdout, "execution": Execution(3)}
    return audit_ks(KEY, QUERY, CALIBRATION, LEARNER, targets, tests=tests, **how)


def told(audit: KSAudit, name: str) -> dict[str, Any]:
    """What is said of this target: rho in full, and the tests of use by their names."""
    ((place, target),) = ((place, each) for place, each in enumerate(audit.targets) if each.name == name)
    assert target.ratio is not None
    return {
        "rho": [target.ratio.rho, target.ratio.rule],
        "confidences": audit.target_confidences[place].tolist(),
        **{usage.method: msgspec.structs.replace(usage, p_never_adjusted=None) for usage in target.usage},
    }


def same(one: KSAudit, other: KSAudit, *told_of: str) -> None:
    for name in ("1.csv", "simulated 11"):
        here, there = told(one, name), told(other, name)
        assert {key: here[key] for key in told_of} == {key: there[key] for key in told_of}


@pytest.fixture(scope="module")
def base() -> KSAudit:
    return run(RHO)


@pytest.fixture(scope="module")
def everything() -> KSAudit:
    """Every test and more targets, at once."""
    more = [FileTarget(Sets(query=outputs(2, QUERY), holdout=outputs(7, HOLDOUT))), *HELD, simulated(12)]
    return run(HoldoutTest(mixed=19), SHADOW, RHO, targets=more, holdout=HOLDOUT)


def test_tests_and_targets_that_are_added_change_nothing_of_rho(base, everything):
    same(base, everything, "rho", "confidences")
    assert np.array_equal(base.query_confidences, everything.query_confidences)
    assert np.array_equal(base.calibration_confidences, everything.calibration_confidences)
    assert np.array_equal(base.control_confidences, everything.control_confidences)


def test_outputs_on_the_calibration_set_and_fewer_targets_change_nothing_of_the_other_tests(everything):
    """Nor does the order of the tests."""
    targets = [replaced(each, calibration=outputs(9, CALIBRATION)) for each in HELD[:1]] + HELD[1:]
    beside = run(SHADOW, HoldoutTest(mixed=19), RHO, targets=targets, holdout=HOLDOUT)
    assert told(beside, "1.csv")["shadow"] != told(everything, "1.csv")["shadow"]
    same(beside, everything, "holdout", "rho", "confidences")


def test_more_of_a_kind_begins_with_what_was_there(base, everything):
    """And replicates change nothing but rho."""
    more = run(ShadowTest(never=20, half=4, fully=21), RhoTest(replicates=3, controls=2))
    same(more, everything, "confidences")
    assert np.array_equal(more.query_confidences[:2], base.query_confidences)
    assert np.array_equal(more.calibration_confidences[:2], base.calibration_confidences)
    assert np.array_equal(more.control_confidences[:1], base.control_confidences)
    found, there = more.shadows, everything.shadows
    assert found is not None
    assert there is not None
    for kind in set(found.kinds):
        more_odds, odds = (each.log_odds[each.of(kind), : len(QUERY)] for each in (found, there))
        assert np.array_equal(more_odds[: len(odds)], odds)
