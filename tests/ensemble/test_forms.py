"""The choice of the form of convolutions, by a simulated clock; and what a step costs, from shapes alone."""

from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxaudit.ensemble import (
    StepCost,
    batches,
    count_step,
    models_per_batch,
    usual_models_per_batch,
)
from jaxaudit.kernels.convolutions import convolutions_of, parsed_form
from jaxaudit.learners import NetworkLearner, language_model, network
from jaxaudit.models import GPT, MLP, LiuCNN, ModuleFactory
from jaxaudit.unlearning import Recording


@cache
def _cnn():
    return network(LiuCNN, (4, 4, 1), 2, optimizer=optax.sgd(0.1), epochs=1, batch_size=4)


def test_the_fastest_form_has_letters_for_each_convolution():
    convolutions = _cnn().convolutions()
    letters = " ".join(batches.fastest_letters(convolution, 2) for convolution in convolutions)
    assert list(parsed_form(letters, convolutions)) == convolutions


def test_each_part_takes_the_letter_of_the_least_time(monkeypatch):
    times = iter([3.0, 1.0, 2.0, 1.0, 2.0, 3.0, 2.0, 3.0, 1.0])  # g, t, p of each part
    monkeypatch.setattr(batches, "_seconds", lambda program: next(times))
    (convolution,) = convolutions_of(
        lambda x: jax.lax.conv(x, jnp.ones((1, 1, 2, 2)), (1, 1), "SAME"), jnp.ones((1, 1, 5, 5))
    )
    assert batches.fastest_letters.__wrapped__(convolution, 2) == "tgp"
    # Patches that do not fit are not tried.
    monkeypatch.setattr(batches, "_device_bytes", lambda: 1)
    monkeypatch.setattr(batches, "_seconds", lambda program: 1.0)
    assert batches.fastest_letters.__wrapped__(convolution, 3) == "ggg"


def test_nothing_is_decided_on_a_cpu_or_of_a_network_without_convolutions_or_with_a_form(monkeypatch):
    assert batches.with_decided_form(_cnn()).form is None
    monkeypatch.setattr(batches, "accelerated", lambda: True)
    monkeypatch.setattr(batches, "fastest_letters", lambda convolution: "ptg")
    assert batches.with_decided_form(_cnn()).form == "ptg"
    assert batches.with_decided_form(Recording(_cnn())).form == "ptg"
    assert batches.with_decided_form(_cnn().with_form("ggg")).form == "ggg"
    assert batches.with_decided_form(learner_of(MLP)) is learner_of(MLP)


INPUTS, LABELS = np.zeros((128, 8, 8, 1), np.float32), np.arange(128, dtype=np.int32) % 2


@cache
def learner_of(factory: ModuleFactory, batch_size: int = 32) -> NetworkLearner:
    return network(factory, (8, 8, 1), 2, optimizer=optax.sgd(0.1), epochs=1, batch_size=batch_size)


@cache
def cost_of(factory: ModuleFactory, batch_size: int = 32) -> StepCost:
    return count_step(learner_of(factory, batch_size), INPUTS, LABELS)


def test_operations_of_an_mlp_by_hand():
    """A gradient takes three products of every kernel, but for the first, which needs no gradient of its inputs."""
    kernels = [64 * 512, 512 * 256, 256 * 128, 128 * 2]
    by_hand = 2 * 32 * (3 * sum(kernels) - kernels[0])
    cost = cost_of(MLP)
    assert cost.step - models_per_batch.OVERHEAD == pytest.approx(by_hand, rel=0.1)
    assert cost.record == pytest.approx(2 * sum(kernels), rel=0.15)


def test_a_larger_minibatch_costs_more():
    """Twice as many records a step: at least so many more bytes as their inputs and widest layer take."""
    small, large = (cost_of(MLP, size) for size in (32, 64))
    assert large.step_bytes - small.step_bytes >= 32 * (8 * 8 + 512) * 4
    assert large.step - models_per_batch.OVERHEAD == pytest.approx(
        2 * (small.step - models_per_batch.OVERHEAD), rel=0.1
    )


def test_values_clocks_and_forms_change_no_cost(monkeypatch: pytest.MonkeyPatch):
    cost = cost_of(LiuCNN)
    monkeypatch.setattr("time.perf_counter", lambda: 1 / 0)
    formed = learner_of(LiuCNN).with_form(" ".join(["ggg"] * len(learner_of(LiuCNN).convolutions())))
    assert count_step(formed, INPUTS[:1] + 1, LABELS[:1]) == cost


def test_models_per_batch_follow_from_bytes(monkeypatch: pytest.MonkeyPatch):
    def numbers(*sizes: int) -> list[int]:
        return [usual_models_per_batch(learner_of(MLP), StepCost(1.0, 1.0, size)) for size in sizes]

    assert numbers(1, 1 << 22, (1 << 22) + 1, 1 << 23, 1 << 24, 1 << 30) == [4, 4, 2, 2, 1, 1]
    assert usual_models_per_batch(learner_of(LiuCNN), StepCost(1.0, 1.0, 1)) == 1
    monkeypatch.setattr(models_per_batch, "accelerated", lambda: True)
    assert numbers(1, 1 << 26, (1 << 27) + 1, 1 << 32) == [64, 64, 16, 1]
    assert usual_models_per_batch(learner_of(MLP), StepCost(1.0, 1.0, 1 << 25), device_models=100) == 64
    assert usual_models_per_batch(learner_of(MLP), StepCost(1.0, 1.0, 1 << 25), device_models=200) == 128


def test_pieces_of_a_minibatch_count_as_often_as_they_are_taken():
    """The gradient of texts is a loop over pieces, whose program the compiler counts once."""
    tokens = np.tile(np.arange(256, dtype=np.int32) % 50, (64, 1))
    gpt = partial(GPT, depth=1, width=16, heads=2)
    learner = language_model(gpt, 256, 50, optimizer=optax.sgd(0.1), epochs=1, batch_size=64)
    operations = count_step(learner, tokens, np.zeros(64, int)).step
    # Dense layers: attention with its output, two of four times the width, and the tokens' own.
    layers = 2 * 3 * 64 * 256 * (12 * 16**2 + 16 * 50)
    attention = 2 * 3 * 64 * 2 * 256**2 * 16
    assert operations == pytest.approx(models_per_batch.PIECES * (layers + attention), rel=0.4)
    small = replace(learner, batch_size=2)
    assert small.in_one_piece() == small
    assert count_step(small, tokens, np.zeros(64, int)).step == pytest.approx(
        operations / 64 * 2 / models_per_batch.PIECES, rel=0.1
    )


def test_programs_and_states_are_counted():
    """Another layer is more to compile, and to keep: with plain descent the state is the parameters."""
    small, large = (cost_of(partial(MLP, hidden=sizes)) for sizes in ((8,), (8, 8)))
    assert small.equations < large.equations < 2 * small.equations
