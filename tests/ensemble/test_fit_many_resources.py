"""What `fit_many` keeps and costs: it goes on after its last finished chunk, on any device, within bounded memory."""

import gc
import hashlib
import json
import os
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.circles import first_of
from support.processes import printed
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

from jaxaudit.ensemble import Execution, fit_many, kept_models, kept_models_per_batch
from jaxaudit.ensemble.batches import LEAST_WORDS
from jaxaudit.ensemble.chunk import DIGEST_BYTES, call_directory, read_chunk, steps_from_host, write_chunk
from jaxaudit.ensemble.concurrency import concurrent_chunks
from jaxaudit.errors import InputError
from jaxaudit.learners import network
from jaxaudit.membership import everyone, leave_one_out_masks
from jaxaudit.models import MLP

EXAMPLES, MODELS = 41, 11
INPUTS, LABELS = records(EXAMPLES, 4)
KEYS = jax.random.split(jax.random.key(1), MODELS)
RANDOM = np.random.default_rng(1)
# Own walks of 20 members each, then pool walks: two groups, in chunks of three that are filled up.
ROWS = np.concatenate(
    [[RANDOM.permutation(EXAMPLES) < 20 for _ in range(5)], leave_one_out_masks(np.arange(6), EXAMPLES)]
)
CHUNKS = 4
NETWORK, CENTROIDS = learner(small_mlp), NearestCentroid()
LEARNERS = pytest.mark.parametrize("one", [NETWORK, CENTROIDS])


class Stop(Exception):
    pass


class Scores(NamedTuple):
    first: np.ndarray
    all: np.ndarray


class Count:
    """A `then` that counts its calls and stops at one of them."""

    def __init__(self, stop: int = 0) -> None:
        self.calls, self.stop = 0, stop

    def __call__(self, params: Any, rows: np.ndarray) -> Any:
        self.calls += 1
        if self.calls == self.stop:
            raise Stop
        every = flat_rows(params, len(jax.tree.leaves(params)[0]))
        return every[:, 0] > 0, every.astype(np.float32)


def fit(one: Any, then: Any, checkpoints: Path | None, models_per_batch: int | None = 3, progress: Any = None) -> Any:
    execution = Execution(models_per_batch, progress, checkpoints)
    return fit_many(KEYS, ROWS, INPUTS, LABELS, one, execution=execution, summarize=then)


def files(checkpoints: Path) -> list[Path]:
    return sorted(checkpoints.glob("*/*.npz"))


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and all(
        a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True)
    )


@LEARNERS
def test_a_stopped_call_goes_on(one: Any, tmp_path: Path):
    whole = Count()
    expected = fit(one, whole, None)
    before, after = Count(stop=3), Count()
    with pytest.raises(Stop):
        fit(one, before, tmp_path)
    assert len(files(tmp_path)) == 2
    calls: list[tuple[int, int]] = []
    result = fit(one, after, tmp_path, progress=lambda *call: calls.append(call))
    assert same(result, expected)
    assert after.calls == whole.calls - 2
    assert [path.suffix for path in tmp_path.rglob("*") if path.is_file()] == [".npz"] * whole.calls
    # Two chunks of three models are done before the first step of the third.
    total = calls[0][1]
    done = [call[0] for call in calls]
    assert done[0] == 0
    assert done[2] == (6 if one is CENTROIDS else one.epochs * 11 * 6)
    assert done[-1] >= total
    # And one that is finished trains nothing.
    never = Count(stop=1)
    assert same(fit(one, never, tmp_path), expected)
    assert never.calls == 0


def test_a_damaged_chunk_is_trained_again(tmp_path: Path):
    expected = fit(CENTROIDS, Count(), tmp_path)
    victim, other, *_ = files(tmp_path)
    content = victim.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    # The last is another chunk's, under this one's name.
    for damaged in (content[:-1], b"", b"PK\x03\x04" + bytes(100), bytes(flipped), other.read_bytes()):
        victim.write_bytes(damaged)
        again = Count()
        assert same(fit(CENTROIDS, again, tmp_path), expected)
        assert again.calls == 1
        assert victim.read_bytes() == content


def test_no_byte_with_a_flipped_bit_is_taken(tmp_path: Path):
    path, rows = tmp_path / "1-0.npz", np.arange(2)
    write_chunk(path, rows, (np.array([1.0, 2.0], np.float32), np.array([True, False])))
    content = path.read_bytes()
    assert read_chunk(path, rows) is not None
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        assert read_chunk(path, rows) is None


def test_a_full_disk_costs_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    expected = fit(CENTROIDS, Count(), None)
    monkeypatch.setattr("os.replace", full)
    with pytest.warns(RuntimeWarning, match=r"^trained models cannot be kept in .* \(No space left on device\)"):
        assert same(fit(CENTROIDS, Count(), tmp_path), expected)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_halves_of_files_that_a_kill_left_do_not_pile_up(tmp_path: Path):
    fit(CENTROIDS, Count(), tmp_path)
    (folder,), kept = tmp_path.iterdir(), files(tmp_path)
    for index in range(3):
        (folder / f".writing-{index}").touch()
    fit(CENTROIDS, Count(), tmp_path)
    assert sorted(folder.iterdir()) == kept


def test_a_chunk_is_never_unpickled_and_a_packed_one_is_none_of_ours(tmp_path: Path):
    """With the digest that it has. What is read is never larger than the file: ours are not compressed."""

    class Evil:
        def __reduce__(self) -> Any:
            return (Path(tmp_path / "owned").touch, ())

    expected = fit(CENTROIDS, Count(), tmp_path)
    for packed in (False, True):
        for path in files(tmp_path):
            content, again = BytesIO(), Count()
            with np.load(BytesIO(path.read_bytes()[DIGEST_BYTES:])) as archive:
                arrays = dict(archive)
            if packed:
                np.savez_compressed(content, allow_pickle=False, **arrays)
            else:
                np.savez(content, allow_pickle=True, **{**arrays, "0": np.array([Evil()] * len(arrays["0"]))})
            digest = hashlib.blake2b(content.getvalue(), digest_size=DIGEST_BYTES).digest()
            path.write_bytes(digest + content.getvalue())
        assert same(fit(CENTROIDS, again, tmp_path), expected)
        assert again.calls == CHUNKS
    assert not (tmp_path / "owned").exists()


def test_chunks_of_other_calls_are_never_taken(tmp_path: Path):
    calls: dict[str, Any] = {
        "keys": (jax.random.split(jax.random.key(2), MODELS), ROWS, INPUTS, LABELS),
        "membership": (KEYS, ROWS ^ (np.arange(EXAMPLES) == 7), INPUTS, LABELS),
        "inputs": (KEYS, ROWS, INPUTS + np.float32(1e-3), LABELS),
        "labels": (KEYS, ROWS, INPUTS, (LABELS + 1) % 3),
        "their type": (KEYS, ROWS, INPUTS.astype(np.float64), LABELS),
    }
    fit(CENTROIDS, Count(), tmp_path)
    for name, call in calls.items():
        count = Count()
        fit_many(
            *call, learner=CENTROIDS, execution=Execution(models_per_batch=3, checkpoints=tmp_path), summarize=count
        )
        assert count.calls == CHUNKS, name
    assert len(os.listdir(tmp_path)) == 1 + len(calls)
    assert kept_models(tmp_path) == MODELS * (1 + len(calls))


def test_the_width_of_what_is_kept_is_used(tmp_path: Path):
    """Chunks of another width would be other chunks: what was trained would be lost."""
    call = (KEYS, ROWS, INPUTS, LABELS)
    assert kept_models_per_batch(*call, tmp_path) is None
    with pytest.raises(Stop):
        fit(NETWORK, Count(stop=3), tmp_path, models_per_batch=3)
    assert kept_models_per_batch(*call, tmp_path) == 3
    assert kept_models_per_batch(KEYS[::-1], *call[1:], tmp_path) is None
    assert kept_models(tmp_path) == 6
    for number in (None, 2):
        count = Count()
        fit(NETWORK, count, tmp_path, models_per_batch=number)
        assert count.calls == (2 if number is None else 0)


@pytest.mark.parametrize(
    ("then", "message"),
    [
        (lambda p, _: {"all": np.asarray(p)}, "of plain numbers can be kept"),
        (lambda p, _: (np.asarray(p), [np.asarray(p)]), "returned list"),
        (lambda p, _: jax.numpy.asarray(p, "bfloat16"), "returned bfloat16"),
        (lambda p, _: jax.random.split(jax.random.key(1), len(p)), "returned"),
        (lambda p, _: np.array(["a"] * len(p)), "returned"),
        (lambda p, _: Scores(np.asarray(p), np.asarray(p)), "returned Scores"),
    ],
)
def test_what_cannot_be_kept_is_refused(then: Any, message: str, tmp_path: Path):
    fit(CENTROIDS, then, None)
    with pytest.raises(InputError, match=message) as caught:
        fit(CENTROIDS, then, tmp_path)
    assert "\n" not in str(caught.value)
    assert files(tmp_path) == []


CLOSE = {"rtol": 0, "atol": 1e-4}  # as in test_fit_many.py


def half_rows(models: int) -> np.ndarray:
    """Rows of 20 members each."""
    random = np.random.default_rng(1)
    return np.stack([random.permutation(EXAMPLES) < 20 for _ in range(models)])


def live_bytes() -> int:
    return sum(array.nbytes for array in jax.live_arrays())


def test_memory_is_bounded_by_the_chunk():
    def factory(input_shape, classes, *, rngs):
        return MLP(input_shape, classes, rngs=rngs, hidden=(64, 64))

    one = network(factory, (4,), 3, optimizer=optax.adam(0.01), epochs=1, batch_size=8)
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
    # random words that these and the next are made of.
    tables, words = 3 * 4 * width * 8 * (4 + 4), 2 * 4 * width * LEAST_WORDS
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
    eight = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    report = json.loads(printed("devices_child.py", path, PYTHONWARNINGS="error", **eight))
    with np.load(path.with_name("models.npz")) as file:
        return report, dict(file)


def device_rows() -> np.ndarray:
    return np.concatenate([half_rows(3), leave_one_out_masks(np.array([3, 9]), EXAMPLES), everyone(EXAMPLES)])


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


@pytest.mark.parametrize(("module", "optimizer"), first_of([(Convolved, "averaging"), (ConvolvedNormed, "adam")]))
def test_convolutions_driven_from_the_host_equal_fit(module, optimizer):
    one: Any = learner(module, (5, 5, 1), optimizer)
    assert steps_from_host(one)
    # 21 records in batches of 4: the last holds one, which leaving it out empties.
    rows = np.concatenate([leave_one_out_masks(np.arange(3), 21), np.random.default_rng(2).random((2, 21)) < 0.5])
    keys, calls = jax.random.split(jax.random.key(3), 5), []
    execution = Execution(progress=lambda *call: calls.append(call))
    for chosen in (keys, keys[jnp.array([0, 0, 0, 3, 4])]):
        models = flat_rows(fit_many(chosen, rows, IMAGES, IMAGE_LABELS, one, execution=execution), 5)
        for key, row, found in zip(chosen, rows, models, strict=True):
            alone = flat(compiled_fit(one)(key, IMAGES, IMAGE_LABELS, row.astype(np.float32)))
            np.testing.assert_allclose(found, alone, **CLOSE)
    assert calls[-1][0] == calls[-1][1]


def test_a_call_on_other_devices_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    call = (tmp_path, KEYS, ROWS, INPUTS, LABELS)
    here = call_directory(*call)
    assert here == call_directory(*call)
    monkeypatch.setattr("jax.local_devices", lambda: 2 * jax.devices())
    assert call_directory(*call) != here
