"""The choice of the form of convolutions, and of models a batch on an accelerator, by a simulated clock."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxaudit.ensemble import (
    fit,
    forms,
    measure_models_per_batch,
    models_per_batch,
    step_memory,
)
from jaxaudit.errors import InputError
from jaxaudit.kernels.convolutions import convolutions_of, parsed_form
from jaxaudit.learners import network
from jaxaudit.membership import everyone
from jaxaudit.models import MLP, LiuCNN


def _cnn():
    return network(LiuCNN, (4, 4, 1), 2, optimizer=optax.sgd(0.1), epochs=1, batch_size=4)


def test_the_fastest_form_has_letters_for_each_convolution():
    convolutions = _cnn().convolutions()
    letters = " ".join(forms.fastest_letters(convolution, 2) for convolution in convolutions)
    assert list(parsed_form(letters, convolutions)) == convolutions


def test_each_part_takes_the_letter_of_the_least_time(monkeypatch):
    times = iter([3.0, 1.0, 2.0, 1.0, 2.0, 3.0, 2.0, 3.0, 1.0])  # g, t, p of each part
    monkeypatch.setattr(forms, "_seconds", lambda program: next(times))
    (convolution,) = convolutions_of(
        lambda x: jax.lax.conv(x, jnp.ones((1, 1, 2, 2)), (1, 1), "SAME"), jnp.ones((1, 1, 5, 5))
    )
    assert forms.fastest_letters.__wrapped__(convolution, 2) == "tgp"


def test_patches_that_do_not_fit_are_not_tried(monkeypatch):
    monkeypatch.setattr(forms, "_device_bytes", lambda: 1)
    monkeypatch.setattr(forms, "_seconds", lambda program: 1.0)
    assert forms.fastest_letters.__wrapped__(_cnn().convolutions()[0], 3) == "ggg"


def test_nothing_is_decided_on_a_cpu_or_of_a_network_without_convolutions_or_with_a_form(monkeypatch):
    mlp = network(MLP, (4,), 2, optimizer=optax.sgd(0.1), epochs=1, batch_size=4)
    assert forms.with_decided_form(_cnn()).form is None
    monkeypatch.setattr(forms, "accelerated", lambda: True)
    monkeypatch.setattr(forms, "fastest_letters", lambda convolution: "ptg")
    assert forms.with_decided_form(_cnn()).form == "ptg"
    assert forms.with_decided_form(_cnn().in_form("ggg")).form == "ggg"
    assert forms.with_decided_form(mlp) is mlp


@pytest.fixture
def clock(monkeypatch):
    """An accelerator on which one number of models a batch takes a known time."""
    seconds: dict[int, float] = {}
    for module in (models_per_batch, forms):
        monkeypatch.setattr(module, "accelerated", lambda: True)
    monkeypatch.setattr(fit, "steps_from_host", lambda learner: False)
    monkeypatch.setattr(models_per_batch, "concurrent_chunks", lambda: 1)

    def probe(*args):
        if args[-1] not in seconds:
            raise step_memory.NoRoom("no room")
        return seconds[args[-1]]

    monkeypatch.setattr(models_per_batch, "probe_models_per_batch", probe)
    return seconds


def _choose(monkeypatch, start: int, models: int = 64):
    size = step_memory.StepProgram(models_per_batch.FULL_BYTES // start, 1, 1)
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

    step_memory_bytes = step_memory.program_bytes
    monkeypatch.setattr(step_memory, "program_bytes", least)
    free = measure_models_per_batch(keys, rows, inputs, labels, learner)
    assert list(free.seconds)[:2] == [4, 8]
    assert seen[0] < seen[1]
    # Room for the first number, and not for the second.
    monkeypatch.setattr(step_memory, "free_bytes", lambda: seen[0])
    bounded = measure_models_per_batch(keys, rows, inputs, labels, learner)
    assert max(bounded.seconds) == 4
    monkeypatch.setattr(step_memory, "free_bytes", lambda: 1)
    with pytest.raises(step_memory.NoRoom):
        measure_models_per_batch(keys, rows, inputs, labels, learner)
