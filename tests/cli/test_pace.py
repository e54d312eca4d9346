"""What a run is said to take before it begins: counted if it is short, else timed."""

import numpy as np
import optax
import pytest

from jaxaudit.cli import pace
from jaxaudit.cli.groups import RecipeFlags
from jaxaudit.cli.pace import OperationsPace, PlannedTraining, pace_of
from jaxaudit.data import Examples
from jaxaudit.ensemble import StepTime, bytes_under_way, count_step
from jaxaudit.learners import network
from jaxaudit.models import MLP

INPUTS, LABELS = np.zeros((64, 8), np.float32), np.arange(64) % 2
LEARNER = network(MLP, (8,), 2, optimizer=optax.sgd(0.1), epochs=1, batch_size=32)
COST = count_step(LEARNER, INPUTS, LABELS)


def training(programs: int = 1) -> PlannedTraining:
    return PlannedTraining(LEARNER, Examples(INPUTS, LABELS, ("a", "b"), "query set"), COST, 2, programs)


def test_a_short_run_is_counted_with_what_it_compiles():
    one, three = (pace_of(RecipeFlags(), training(programs), 1e9) for programs in (1, 3))
    assert one.where == three.where == OperationsPace().where
    assert three.compiling == pytest.approx(3 * one.compiling)
    assert three.seconds(1e9) - one.seconds(1e9) == pytest.approx(2 * one.compiling, abs=0.1)


@pytest.mark.parametrize(("dry_run", "operations"), [(True, 1e9), (False, 1e15)], ids=["dry run", "long run"])
def test_a_dry_run_and_a_long_run_are_timed(dry_run: bool, operations: float, monkeypatch: pytest.MonkeyPatch):
    """Seconds of a step and of its compilation become those of all steps and programs."""
    monkeypatch.setattr(pace, "measure_step", lambda *given: StepTime(0.5, 4.0))
    timed = pace_of(RecipeFlags(dry_run=dry_run), training(3), operations)
    steps = operations / COST.step
    assert timed.seconds(operations) == pytest.approx(0.5 * steps + 3 * 4.0 + pace.FIXED_SECONDS, rel=1e-3)
    assert timed.where == "on this machine"


def test_workers_elsewhere_are_not_timed_here():
    assert pace_of(RecipeFlags(dry_run=True, workers=2), training(), 1e15).where == OperationsPace().where


def test_memory_is_that_of_arrays_and_programs():
    more = COST._replace(step_bytes=COST.step_bytes + (1 << 30))
    small, large = training(), training()._replace(cost=more)
    assert large.bytes - small.bytes == bytes_under_way(more, 2) - bytes_under_way(COST, 2)
    assert training(3).bytes - small.bytes == 2 * COST.equations * pace.BYTES_OF_EQUATION
