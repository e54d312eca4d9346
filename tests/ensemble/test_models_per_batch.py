"""The width is the one with the least measured time, and measuring stops in time."""

from typing import Any

import jax
import numpy as np
import pytest
from support.tiny_learners import NearestCentroid, learner, records, small_mlp

from jaxaudit.ensemble import fit_many, measure_models_per_batch, models_per_batch, train
from jaxaudit.membership import everyone, only

INPUTS, LABELS = records(41, 4)
ONE = learner(small_mlp)


def choose(models: int, rows: np.ndarray | None = None) -> models_per_batch.BatchChoice:
    keys = jax.random.split(jax.random.key(1), models)
    return measure_models_per_batch(
        keys, everyone(41).repeat(models, axis=0) if rows is None else rows, INPUTS, LABELS, ONE
    )


@pytest.fixture
def timings(monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """Seconds a model-step that the probe pretends to measure; it notes what it was asked in `probed`."""
    seconds: dict[int, float] = {}
    monkeypatch.setattr(models_per_batch, "concurrent_chunks", lambda: 1)
    monkeypatch.setattr(models_per_batch, "probe_models_per_batch", lambda *args: seconds[args[-1]])
    return seconds


@pytest.mark.parametrize(
    ("measured", "best", "tried"),
    [
        # All of them, the last being the models.
        ({4: 2.0, 8: 1.0, 13: 0.5}, 13, [4, 8, 13]),
        # One clearly slower width is passed over.
        ({4: 1.0, 8: 1.2, 13: 0.9}, 13, [4, 8, 13]),
        # Nothing wider was faster: now narrower ones.
        ({4: 1.0, 8: 1.1, 13: 1.2, 2: 0.9, 1: 1.0}, 2, [4, 8, 13, 2, 1]),
        # As good as the best: the widest of them.
        ({4: 1.0, 8: 1.029, 13: 1.031, 2: 1.0, 1: 1.0}, 8, [4, 8, 13, 2, 1]),
        # Not clearly slower yet; two that are: nothing wider is tried, and nothing narrower where a wider was faster.
        ({4: 1.0, 8: 1.14, 16: 1.14, 32: 1.14, 40: 1.14, 2: 2.0, 1: 2.0}, 4, [4, 8, 16, 32, 40, 2, 1]),
        ({4: 1.0, 8: 1.16, 16: 1.16, 2: 2.0, 1: 2.0}, 4, [4, 8, 16, 2, 1]),
        ({4: 1.0, 8: 0.9, 16: 1.16, 32: 1.16}, 8, [4, 8, 16, 32]),
    ],
)
def test_the_fastest_width_wins_and_the_search_turns_back(timings, measured, best, tried):
    timings.update(measured)
    choice = choose(13 if 13 in measured else 40)
    assert choice.models_per_batch == best
    assert choice.seconds == measured
    assert list(choice.seconds) == tried


def test_measuring_stops_after_a_tenth_of_the_work(timings):
    timings.update({4: 1e-12, 8: 1e-13})
    assert choose(13) == (4, {4: 1e-12})


def test_there_is_nothing_to_measure_for_one_model_without_a_step_or_without_steps(timings):
    assert choose(1) == (1, {})
    assert choose(3, only(np.array([], int), 41).repeat(3, axis=0)) == (3, {})
    keys = jax.random.split(jax.random.key(1), 2)
    assert measure_models_per_batch(keys, everyone(41).repeat(2, axis=0), INPUTS, LABELS, NearestCentroid()) == (16, {})


def test_memory_bounds_the_width(timings, monkeypatch):
    timings.update({1: 3.0, 2: 2.0, 3: 1.0, 4: 0.5})
    state = sum(leaf.nbytes for leaf in jax.tree.leaves(jax.jit(ONE.init)(jax.random.key(1))))
    batch = ONE.batch_size * INPUTS[0].nbytes
    # Two copies of the training state, and the batch with its activations.
    monkeypatch.setattr(models_per_batch, "CPU_BYTES", 3 * (2 * state + 4 * batch))
    assert choose(13) == (3, {1: 3.0, 2: 2.0, 3: 1.0})
    monkeypatch.setattr(models_per_batch, "concurrent_chunks", lambda: 3)  # a third of the memory each
    assert choose(13) == (1, {})
    monkeypatch.setattr(models_per_batch, "concurrent_chunks", lambda: 1)
    monkeypatch.setattr(models_per_batch, "CPU_BYTES", 1)
    assert choose(13) == (1, {})


def test_the_probe_times_a_model_step():
    choice = choose(4)
    assert set(choice.seconds) <= {1, 2, 4}
    assert choice.models_per_batch in choice.seconds
    # Some 20 multiply-adds a record: between a nanosecond and a second on any machine.
    assert all(1e-9 < seconds < 1 for seconds in choice.seconds.values())


def test_fit_many_uses_the_width_it_measured(timings, monkeypatch):
    timings.update({1: 2.0, 2: 1.0, 4: 3.0})
    monkeypatch.setattr(train, "concurrent_chunks", lambda: 1)
    keys, rows, sizes = jax.random.split(jax.random.key(1), 4), everyone(41).repeat(4, axis=0), []

    def summarize(params: Any, rows: np.ndarray) -> np.ndarray:
        sizes.append(len(jax.tree.leaves(params)[0]))
        return np.zeros(sizes[-1])

    fit_many(keys, rows, INPUTS, LABELS, ONE, summarize=summarize)
    assert sizes == [2, 2]
