"""What `fit_many` costs: compilations, memory, devices, and the path that drives convolutions from the host."""

import gc
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.tiny_learners import (
    Convolved,
    ConvolvedNormed,
    NearestCentroid,
    compiled_fit,
    flat,
    flat_rows,
    learner,
    records,
    small_mlp,
)

from jaxaudit.ensemble import Execution, fit_many
from jaxaudit.ensemble.concurrency import concurrent_chunks
from jaxaudit.ensemble.host_program import steps_from_host
from jaxaudit.ensemble.program import LEAST_WORDS
from jaxaudit.learners import NetworkLearner, network
from jaxaudit.membership import bernoulli_halves, everyone, leave_one_out
from jaxaudit.models import MLP

EXAMPLES = 41
INPUTS, LABELS = records(EXAMPLES, 4)
CLOSE = {"rtol": 0, "atol": 1e-4}  # as in test_fit_many.py


def half_rows(models: int) -> np.ndarray:
    """Rows of 20 members each."""
    random = np.random.default_rng(1)
    return np.stack([random.permutation(EXAMPLES) < 20 for _ in range(models)])


@dataclass(frozen=True, eq=False)
class Counted(NetworkLearner):
    """A learner that notes every time its step is traced."""

    traces: list = field(default_factory=list)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def step(self, state: Any, inputs: Any, labels: Any, weights: Any) -> Any:
        self.traces.append(inputs.shape)
        return NetworkLearner.step(self, state, inputs, labels, weights)


def test_one_trace_a_shape():
    made = learner(small_mlp)
    one = Counted(made.net, made.optimizer, 3, made.batch_size, made.convolves)
    for models in (4, 40, 3):
        fit_many(
            jax.random.split(jax.random.key(1), models), half_rows(models), INPUTS, LABELS, one, execution=Execution(4)
        )
        # 3 epochs and 10 chunks of 4 models; then one of 3, filled up.
        assert one.traces == [(4, 4)]


def live_bytes() -> int:
    return sum(array.nbytes for array in jax.live_arrays())


def test_memory_is_bounded_by_the_chunk():
    def factory(input_shape, classes, *, rngs):
        return MLP(input_shape, classes, rngs=rngs, hidden=(64, 64))

    one = network(factory, (4,), 3, optimizer=optax.adam(0.01), epochs=2, batch_size=8)
    state = sum(leaf.nbytes for leaf in jax.tree.leaves(jax.jit(one.init)(jax.random.key(1))))
    width, peaks = 4, {}
    for models in (8, 64):
        keys, rows = jax.random.split(jax.random.key(1), models), half_rows(models)
        gc.collect()
        before, sampled = live_bytes(), []
        fit_many(
            *(keys, rows, INPUTS, LABELS, one),
            execution=Execution(
                models_per_batch=width,
                progress=lambda done, total, sampled=sampled, before=before: sampled.append(live_bytes() - before),
            ),
            summarize=lambda params, rows: np.asarray(jax.tree.leaves(params)[0])[:, :1],
        )
        assert len(sampled) > models // width
        peaks[models] = max(sampled)
    # The pool; for every stream one training state a model, tables of 4 steps (in use, waiting, in the making), and the
    # random words that these are made of.
    tables, words = 3 * 4 * width * 8 * (4 + 4), 4 * width * LEAST_WORDS
    bound = INPUTS.nbytes + LABELS.nbytes + concurrent_chunks() * (width * state + tables + words + 1024)
    assert peaks[8] <= bound
    assert peaks[64] <= bound
    assert bound < 32 * state  # of 64 models
    assert peaks[64] >= width * state


# Several devices.


@pytest.fixture(scope="module")
def on_eight_devices(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, dict[str, np.ndarray]]:
    path = tmp_path_factory.mktemp("devices") / "rows.npz"
    np.savez(path, keys=np.asarray(jax.random.key_data(device_keys())), rows=device_rows())
    tests = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-W", "error", tests / "support" / "devices_child.py", path],
        env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu",
             "PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent)])},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with np.load(path.with_name("models.npz")) as file:
        return json.loads(done.stdout), dict(file)


def device_rows() -> np.ndarray:
    return np.concatenate([half_rows(3), leave_one_out(np.array([3, 9]), EXAMPLES), everyone(EXAMPLES)])


def device_keys() -> Any:
    return jax.random.split(jax.random.key(5), len(device_rows()))


@pytest.mark.outer
def test_several_devices_give_the_same_models(on_eight_devices):
    _, models = on_eight_devices
    for name, one in (("steps", learner(small_mlp)), ("whole", NearestCentroid())):
        here = flat_rows(fit_many(device_keys(), device_rows(), INPUTS, LABELS, one, execution=Execution(3)), 6)
        for width in (1, None):
            np.testing.assert_allclose(models[f"{name} {width}"], here, **CLOSE)
        if name == "steps":
            np.testing.assert_allclose(models["one"], here[:1], **CLOSE)


@pytest.mark.outer
def test_several_devices_each_hold_their_share(on_eight_devices):
    report, _ = on_eight_devices
    assert report["devices"] == 8
    for devices, share, width in report["chunks"]:
        assert devices == 8
        assert width % 8 == 0
        assert share == width // 8


# Convolutions, driven from the host.

IMAGES, IMAGE_LABELS = records(21, 5, 5, 1)


@pytest.mark.parametrize(("module", "optimizer"), [(Convolved, "averaging"), (ConvolvedNormed, "adam")])
def test_convolutions_driven_from_the_host_equal_fit(module, optimizer):
    one: Any = learner(module, (5, 5, 1), optimizer)
    assert steps_from_host(one)
    # 21 records in batches of 4: the last holds one, which leaving it out empties.
    rows = np.concatenate([leave_one_out(np.arange(4), 21), bernoulli_halves(np.random.default_rng(2), 2, 21)])
    keys = jax.random.split(jax.random.key(3), 6)
    shared = keys[jnp.array([0, 0, 0, 0, 4, 5])]
    calls = []
    for chosen in (keys, shared):
        models = fit_many(
            chosen, rows, IMAGES, IMAGE_LABELS, one, execution=Execution(progress=lambda *call: calls.append(call))
        )
        for model, (key, row) in enumerate(zip(chosen, rows, strict=True)):
            alone = flat(compiled_fit(one)(key, IMAGES, IMAGE_LABELS, row.astype(np.float32)))
            np.testing.assert_allclose(flat(jax.tree.map(lambda x, m=model: x[m], models)), alone, **CLOSE)
    assert calls[-1][0] == calls[-1][1]
