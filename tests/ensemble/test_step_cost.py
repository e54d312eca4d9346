"""What a step costs follows from shapes alone; the time that it takes is an estimate."""

from functools import partial

import numpy as np
import optax
import pytest

from jaxaudit.ensemble import (
    StepCost,
    bytes_under_way,
    count_step,
    measure_step,
    step_cost,
    usual_models_per_batch,
)
from jaxaudit.learners import language_model, network
from jaxaudit.learners.network import NetworkLearner
from jaxaudit.models import GPT, MLP, LiuCNN
from jaxaudit.models.bridge import ModuleFactory

INPUTS, LABELS = np.zeros((128, 8, 8, 1), np.float32), np.arange(128, dtype=np.int32) % 2


def learner_of(factory: ModuleFactory, batch_size: int = 32) -> NetworkLearner:
    return network(factory, (8, 8, 1), 2, optimizer=optax.sgd(0.1), epochs=1, batch_size=batch_size)


def test_operations_of_an_mlp_by_hand():
    """A gradient takes three products of every kernel, but for the first, which needs no gradient of its inputs."""
    kernels = [64 * 512, 512 * 256, 256 * 128, 128 * 2]
    by_hand = 2 * 32 * (3 * sum(kernels) - kernels[0])
    cost = count_step(learner_of(MLP), INPUTS, LABELS)
    assert cost.step - step_cost.OVERHEAD == pytest.approx(by_hand, rel=0.1)
    assert cost.record == pytest.approx(2 * sum(kernels), rel=0.15)


@pytest.mark.parametrize("factory", [MLP, LiuCNN], ids=["MLP", "CNN"])
def test_a_larger_minibatch_costs_more(factory: type):
    """Twice as many records a step: at least so many more bytes as their inputs and widest layer take."""
    small, large = (count_step(learner_of(factory, size), INPUTS, LABELS) for size in (32, 64))
    assert large.step_bytes - small.step_bytes >= 32 * (8 * 8 + 512) * 4
    assert large.step - step_cost.OVERHEAD == pytest.approx(2 * (small.step - step_cost.OVERHEAD), rel=0.1)


def test_values_clocks_and_forms_change_no_cost(monkeypatch: pytest.MonkeyPatch):
    cost = count_step(learner_of(LiuCNN), INPUTS, LABELS)
    monkeypatch.setattr("time.perf_counter", lambda: 1 / 0)
    formed = learner_of(LiuCNN).in_form(" ".join(["ggg"] * len(learner_of(LiuCNN).convolutions())))
    assert count_step(formed, INPUTS[:1] + 1, LABELS[:1]) == cost


def test_models_per_batch_follow_from_bytes(monkeypatch: pytest.MonkeyPatch):
    def numbers(*sizes: int) -> list[int]:
        return [usual_models_per_batch(learner_of(MLP), StepCost(1.0, 1.0, size)) for size in sizes]

    assert numbers(1, 1 << 22, (1 << 22) + 1, 1 << 23, 1 << 24, 1 << 30) == [4, 4, 2, 2, 1, 1]
    assert usual_models_per_batch(learner_of(LiuCNN), StepCost(1.0, 1.0, 1)) == 1
    monkeypatch.setattr(step_cost, "accelerated", lambda: True)
    assert numbers(1, 1 << 26, (1 << 27) + 1, 1 << 32) == [64, 64, 16, 1]
    monkeypatch.setattr(step_cost, "concurrent_chunks", lambda: 3)
    assert bytes_under_way(StepCost(1.0, 1.0, 400), 2) == 600
    assert bytes_under_way(StepCost(1.0, 1.0, 400, argument_bytes=10), 2) == 720


def test_pieces_of_a_minibatch_count_as_often_as_they_are_taken():
    """The gradient of texts is a loop over pieces, whose program the compiler counts once."""
    tokens = np.tile(np.arange(256, dtype=np.int32) % 50, (64, 1))
    gpt = partial(GPT, depth=1, width=16, heads=2)
    learner = language_model(gpt, 256, 50, optimizer=optax.sgd(0.1), epochs=1, batch_size=64)
    operations = count_step(learner, tokens, np.zeros(64, int)).step
    # Dense layers: attention with its output, two of four times the width, and the tokens' own.
    layers = 2 * 3 * 64 * 256 * (12 * 16**2 + 16 * 50)
    attention = 2 * 3 * 64 * 2 * 256**2 * 16
    assert operations == pytest.approx(step_cost.PIECES * (layers + attention), rel=0.4)
    small = learner.in_batches_of(2)
    assert small.at_once() == small
    assert count_step(small, tokens, np.zeros(64, int)).step == pytest.approx(
        operations / 64 * 2 / step_cost.PIECES, rel=0.1
    )


def test_programs_and_states_are_counted():
    """Another layer is more to compile, and to keep: with plain descent the state is the parameters."""
    small, large = (count_step(learner_of(partial(MLP, hidden=sizes)), INPUTS, LABELS) for sizes in ((8,), (8, 8)))
    assert small.equations < large.equations < 2 * small.equations
    assert large.argument_bytes - small.argument_bytes == 4 * (8 * 8 + 8)


@pytest.mark.parametrize("factory", [MLP, LiuCNN], ids=["MLP", "CNN"])
@pytest.mark.parametrize("share", [1, 4], ids=["whole", "in part"])
def test_a_step_is_timed_after_its_program_is_compiled(factory: type, share: int, monkeypatch: pytest.MonkeyPatch):
    """A step that is too large to be timed is timed in smaller minibatches."""
    learner = learner_of(factory)
    cost = count_step(learner, INPUTS, LABELS)
    monkeypatch.setattr(step_cost, "MOST_OPERATIONS", cost.step / share)
    step, compiling = measure_step(INPUTS, LABELS, learner, cost, 1)
    assert 0 < step < 60
    assert compiling > 0
