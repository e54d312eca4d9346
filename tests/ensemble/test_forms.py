"""The choice of the form of convolutions, and of models a batch on an accelerator, by a simulated clock.

What a step costs follows from shapes alone; the time that it takes is an estimate.
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxaudit.ensemble import (
    StepCost,
    batches,
    count_step,
    execution,
    measure_models_per_batch,
    models_per_batch,
    train,
    usual_models_per_batch,
)
from jaxaudit.errors import InputError
from jaxaudit.kernels.convolutions import convolutions_of, parsed_form
from jaxaudit.learners import NetworkLearner, language_model, network
from jaxaudit.membership import everyone
from jaxaudit.models import GPT, MLP, LiuCNN, ModuleFactory
from jaxaudit.unlearning import Recording


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


def test_patches_that_do_not_fit_are_not_tried(monkeypatch):
    monkeypatch.setattr(batches, "_device_bytes", lambda: 1)
    monkeypatch.setattr(batches, "_seconds", lambda program: 1.0)
    assert batches.fastest_letters.__wrapped__(_cnn().convolutions()[0], 3) == "ggg"


def test_nothing_is_decided_on_a_cpu_or_of_a_network_without_convolutions_or_with_a_form(monkeypatch):
    mlp = network(MLP, (4,), 2, optimizer=optax.sgd(0.1), epochs=1, batch_size=4)
    assert batches.with_decided_form(_cnn()).form is None
    monkeypatch.setattr(batches, "accelerated", lambda: True)
    monkeypatch.setattr(batches, "fastest_letters", lambda convolution: "ptg")
    assert batches.with_decided_form(_cnn()).form == "ptg"
    assert batches.with_decided_form(Recording(_cnn())).form == "ptg"
    assert batches.with_decided_form(_cnn().in_form("ggg")).form == "ggg"
    assert batches.with_decided_form(mlp) is mlp


@pytest.fixture
def clock(monkeypatch):
    """An accelerator on which one number of models a batch takes a known time."""
    seconds: dict[int, float] = {}
    for module in (models_per_batch, batches):
        monkeypatch.setattr(module, "accelerated", lambda: True)
    monkeypatch.setattr(train, "steps_from_host", lambda learner: False)
    monkeypatch.setattr(models_per_batch, "concurrent_chunks", lambda: 1)

    def probe(*args):
        if args[-1] not in seconds:
            raise models_per_batch.NoRoom("no room")
        return seconds[args[-1]]

    monkeypatch.setattr(models_per_batch, "probe_models_per_batch", probe)
    return seconds


def _choose(monkeypatch, start: int, models: int = 64):
    size = models_per_batch.StepProgram(models_per_batch.FULL_BYTES // start, 1)
    monkeypatch.setattr(models_per_batch, "step_program", lambda *args: size)
    inputs, labels = np.zeros((32, 4), np.float32), np.arange(32, dtype=np.int32) % 2
    learner = network(MLP, (4,), 2, optimizer=optax.sgd(0.1), epochs=1, batch_size=4)
    keys = jax.random.split(jax.random.key(1), models)
    return measure_models_per_batch(keys, everyone(32).repeat(models, axis=0), inputs, labels, learner)


@pytest.mark.parametrize(
    ("measured", "best", "tried"),
    [
        # Twice as many gain: the next is tried, and none below the first.
        ({8: 4.0, 16: 2.0, 32: 1.0, 64: 0.5}, 64, [8, 16, 32, 64]),
        # No gain above ends it there; then below, until that gains nothing.
        ({8: 1.0, 16: 1.1, 4: 0.8, 2: 0.9}, 4, [8, 16, 4, 2]),
        # What gains less than 3% ends the search, and counts as equal: the larger.
        ({8: 1.0, 16: 0.99}, 16, [8, 16]),
        # No room above.
        ({8: 1.0, 4: 2.0}, 8, [8, 4]),
        # No room where it begins: below.
        ({2: 1.0, 1: 2.0}, 2, [2, 1]),
    ],
)
def test_an_accelerator_begins_where_it_is_full_and_goes_both_ways(clock, monkeypatch, measured, best, tried):
    clock.update(measured)
    choice = _choose(monkeypatch, start=8 if 8 in measured else 2)
    assert (choice.models_per_batch, list(choice.seconds)) == (best, tried)


def test_no_room_for_one_model_is_an_error(clock, monkeypatch):
    with pytest.raises(InputError):
        _choose(monkeypatch, start=8)


def test_a_number_whose_compiled_step_does_not_fit_is_not_tried(monkeypatch):
    """On this machine's CPU, by the compiler's own numbers."""
    inputs, labels = np.zeros((64, 8), np.float32), np.arange(64, dtype=np.int32) % 2
    learner = network(MLP, (8,), 2, optimizer=optax.adam(0.1), epochs=10**7, batch_size=8)
    keys, rows = jax.random.split(jax.random.key(1), 32), everyone(64).repeat(32, axis=0)
    seen: list[int] = []

    def least(program, at_once, pool):
        seen.append(step_memory_bytes(program, at_once, pool))
        return seen[-1]

    monkeypatch.setattr(models_per_batch, "MOST_SECONDS", np.inf)  # however slow this machine is
    step_memory_bytes = models_per_batch.program_bytes
    monkeypatch.setattr(models_per_batch, "program_bytes", least)
    free = measure_models_per_batch(keys, rows, inputs, labels, learner)
    assert list(free.seconds)[:2] == [4, 8]
    assert seen[0] < seen[1]
    # Room for the first number, and not for the second.
    monkeypatch.setattr(models_per_batch, "free_bytes", lambda: seen[0])
    bounded = measure_models_per_batch(keys, rows, inputs, labels, learner)
    assert max(bounded.seconds) == 4
    monkeypatch.setattr(models_per_batch, "free_bytes", lambda: 1)
    with pytest.raises(models_per_batch.NoRoom):
        measure_models_per_batch(keys, rows, inputs, labels, learner)


INPUTS, LABELS = np.zeros((128, 8, 8, 1), np.float32), np.arange(128, dtype=np.int32) % 2


def learner_of(factory: ModuleFactory, batch_size: int = 32) -> NetworkLearner:
    return network(factory, (8, 8, 1), 2, optimizer=optax.sgd(0.1), epochs=1, batch_size=batch_size)


def test_operations_of_an_mlp_by_hand():
    """A gradient takes three products of every kernel, but for the first, which needs no gradient of its inputs."""
    kernels = [64 * 512, 512 * 256, 256 * 128, 128 * 2]
    by_hand = 2 * 32 * (3 * sum(kernels) - kernels[0])
    cost = count_step(learner_of(MLP), INPUTS, LABELS)
    assert cost.step - execution.OVERHEAD == pytest.approx(by_hand, rel=0.1)
    assert cost.record == pytest.approx(2 * sum(kernels), rel=0.15)


@pytest.mark.parametrize("factory", [MLP, LiuCNN], ids=["MLP", "CNN"])
def test_a_larger_minibatch_costs_more(factory: type):
    """Twice as many records a step: at least so many more bytes as their inputs and widest layer take."""
    small, large = (count_step(learner_of(factory, size), INPUTS, LABELS) for size in (32, 64))
    assert large.step_bytes - small.step_bytes >= 32 * (8 * 8 + 512) * 4
    assert large.step - execution.OVERHEAD == pytest.approx(2 * (small.step - execution.OVERHEAD), rel=0.1)


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
    monkeypatch.setattr(execution, "accelerated", lambda: True)
    assert numbers(1, 1 << 26, (1 << 27) + 1, 1 << 32) == [64, 64, 16, 1]


def test_pieces_of_a_minibatch_count_as_often_as_they_are_taken():
    """The gradient of texts is a loop over pieces, whose program the compiler counts once."""
    tokens = np.tile(np.arange(256, dtype=np.int32) % 50, (64, 1))
    gpt = partial(GPT, depth=1, width=16, heads=2)
    learner = language_model(gpt, 256, 50, optimizer=optax.sgd(0.1), epochs=1, batch_size=64)
    operations = count_step(learner, tokens, np.zeros(64, int)).step
    # Dense layers: attention with its output, two of four times the width, and the tokens' own.
    layers = 2 * 3 * 64 * 256 * (12 * 16**2 + 16 * 50)
    attention = 2 * 3 * 64 * 2 * 256**2 * 16
    assert operations == pytest.approx(execution.PIECES * (layers + attention), rel=0.4)
    small = replace(learner, batch_size=2)
    assert small.at_once() == small
    assert count_step(small, tokens, np.zeros(64, int)).step == pytest.approx(
        operations / 64 * 2 / execution.PIECES, rel=0.1
    )


def test_programs_and_states_are_counted():
    """Another layer is more to compile, and to keep: with plain descent the state is the parameters."""
    small, large = (count_step(learner_of(partial(MLP, hidden=sizes)), INPUTS, LABELS) for sizes in ((8,), (8, 8)))
    assert small.equations < large.equations < 2 * small.equations
