"""A chunk that is stopped goes on from the state that was kept of it, and ends as if it had never been stopped."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.circles import first_of
from support.tiny_learners import CLASSES, ConvolvedNormed, Dropped, flat_rows, jitter, learner, records, small_mlp

from jaxaudit.ensemble import Execution, chunk, fit_many, kept_models, kept_states
from jaxaudit.ensemble.checkpoint import (
    KeptState,
    StateKeeper,
    UnderWay,
    read_arrays,
    read_chunk,
    write_arrays,
    write_chunk,
)
from jaxaudit.errors import InputError
from jaxaudit.learners import NetworkLearner, by_epoch, network, schedule
from jaxaudit.membership import leave_one_out_masks
from jaxaudit.unlearning import Recording

EXAMPLES, MODELS, EPOCHS = 41, 3, 5
ROWS = leave_one_out_masks(np.arange(MODELS), EXAMPLES)
KEYS = jax.random.split(jax.random.key(1), MODELS)


def scheduled(module: Any, shape: tuple[int, ...]) -> NetworkLearner:
    optimizer = by_epoch(partial(optax.sgd, momentum=0.9), schedule("cosine", 0.1, EPOCHS, 1))
    recipe: Any = {"optimizer": optimizer, "epochs": EPOCHS, "batch_size": 4, "augment": [jitter]}
    return network(module, shape, CLASSES, **recipe)


LEARNERS = {
    "network": learner(small_mlp, epochs=EPOCHS),
    "random keys": learner(Dropped, epochs=EPOCHS),
    "driven from the host": learner(ConvolvedNormed, (5, 5, 1), epochs=EPOCHS),
    "schedule and random steps from the host": scheduled(ConvolvedNormed, (5, 5, 1)),
    "recording of the same": Recording(scheduled(small_mlp, (4,)), 0),
}
NETWORK = LEARNERS["network"]


class Killed(Exception):
    """Ends a call as a kill does: nothing more is kept."""


@pytest.fixture(autouse=True)
def _keep_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXAUDIT_KEEP_SECONDS", "0")


class Watched:
    """Progress that is remembered, and ends the call once a share of the work is done."""

    def __init__(self, end: type[BaseException] = Killed, share: float = 2.0) -> None:
        self.calls: list[int] = []
        self.end, self.share = end, share

    def __call__(self, done: int, total: int) -> None:
        self.calls.append(done)
        if done > self.share * total:
            raise self.end


def flat(params: Any, rows: np.ndarray) -> np.ndarray:
    return flat_rows(params, len(rows))


def fit(one: Any, checkpoints: Path | None, progress: Watched | None = None) -> np.ndarray:
    pool = records(EXAMPLES, *((5, 5, 1) if one.convolves else (4,)))
    execution = Execution(3, progress or Watched(), checkpoints)
    return fit_many(KEYS, ROWS, *pool, one, execution=execution, summarize=flat)


def states(checkpoints: Path) -> list[Path]:
    return sorted(checkpoints.glob("*/*.state"))


def killed(one: Any, checkpoints: Path, share: float = 0.5, end: type[BaseException] = Killed) -> list[int]:
    watched = Watched(end, share)
    with pytest.raises(end):
        fit(one, checkpoints, watched)
    return watched.calls


@pytest.mark.parametrize("one", first_of(LEARNERS.values()), ids=LEARNERS)
def test_a_call_killed_within_its_chunks_goes_on(one: Any, tmp_path: Path):
    expected = fit(one, None)
    for share in (0.3, 0.6, 0.9):
        killed(one, tmp_path, share)
        assert states(tmp_path)
        assert kept_models(tmp_path) < MODELS
    last = Watched()
    assert fit(one, tmp_path, last).tobytes() == expected.tobytes()
    # Nothing was trained again but what came after the last write.
    assert last.calls[1] > 0.3 * last.calls[-1]
    assert [path.suffix for path in tmp_path.rglob("*") if path.is_file()] == [".npz"] * len(list(tmp_path.glob("*/*")))


@pytest.mark.parametrize("name", ["network", "driven from the host"])
def test_an_interrupt_keeps_the_very_step(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAXAUDIT_KEEP_SECONDS", "1000")
    monkeypatch.setattr("jaxaudit.ensemble.checkpoint.WORTH_SECONDS", 0)
    monkeypatch.setattr("jaxaudit.ensemble.train.concurrent_chunks", lambda: 1)  # a chunk at a time, on any machine
    stopped, last = killed(LEARNERS[name], tmp_path, 0.5, KeyboardInterrupt), Watched()
    assert fit(LEARNERS[name], tmp_path, last).tobytes() == fit(LEARNERS[name], None).tobytes()
    assert stopped[-1] in last.calls[:3]


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "another learner's", "other rows", "too few arrays"])
def test_a_state_that_does_not_fit_is_ignored(damage: str, tmp_path: Path):
    expected = fit(NETWORK, None)
    killed(NETWORK, tmp_path / "other", 0.5)
    killed(NETWORK, tmp_path, 0.5)
    (path,) = states(tmp_path)
    content = path.read_bytes()
    kept = read_arrays(path)
    assert kept is not None
    if damage in ("cut", "empty", "flipped"):
        flipped = bytearray(content)
        flipped[len(content) // 2] ^= 1
        path.write_bytes({"cut": content[:-1], "empty": b"", "flipped": bytes(flipped)}[damage])
        assert kept_states(tmp_path) == []
    elif damage == "another learner's":
        path.unlink()
        killed(learner(small_mlp, optimizer="momentum", epochs=EPOCHS), tmp_path, 0.5)
    elif damage == "other rows":
        write_arrays(path, {**kept, "rows": kept["rows"][::-1]})
    else:
        write_arrays(path, {name: array for name, array in kept.items() if name != "0"})
    last = Watched()
    assert fit(NETWORK, tmp_path, last).tobytes() == expected.tobytes()
    assert last.calls[1] == 3 * chunk.FIRST_STEPS
    assert states(tmp_path) == []


def test_no_byte_with_a_flipped_bit_is_taken(tmp_path: Path):
    path, rows = tmp_path / "1-0.npz", np.arange(2)
    write_chunk(path, rows, (np.array([1.0, 2.0], np.float32), np.array([True, False])))
    content = path.read_bytes()
    assert read_chunk(path, rows) is not None
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        assert read_arrays(path) is None


def keeper(path: Path | None) -> StateKeeper:
    return StateKeeper(path, np.arange(2), 10, 3)


def test_states_that_are_gone_or_would_come_back_as_others_are_not_kept(tmp_path: Path):
    path = tmp_path / "call" / "2-a.state"
    gone = jnp.zeros(3)
    gone.delete()
    for leaf in (gone, jnp.asarray(1.0)):
        keeper(path).passing(UnderWay({"a": jnp.zeros(2), "b": leaf}, 7))
    keeper(None).passing(UnderWay(jnp.zeros(2), 7))
    assert list(tmp_path.rglob("*")) == []


def test_every_kind_of_number_comes_back(tmp_path: Path):
    path = tmp_path / "call" / "2-a.state"
    tree = {
        "bfloat16": jnp.arange(3, dtype=jnp.bfloat16) / 3,
        "count": jnp.zeros((), jnp.int32) + 4,
        "keys": jax.random.split(jax.random.key(1, impl="rbg"), 2),
        "none": jnp.zeros((0, 2), bool),
    }
    keeper(path).passing(UnderWay(tree, 17))
    found = keeper(path).begin(jax.tree.map(lambda leaf: leaf[::1] if leaf.ndim else leaf, tree))
    assert found.taken == 17
    for name, leaf in tree.items():
        again = found.states[name]
        assert (again.dtype, again.shape, again.sharding) == (leaf.dtype, leaf.shape, leaf.sharding)
    np.testing.assert_array_equal(jax.random.key_data(found.states.pop("keys")), jax.random.key_data(tree.pop("keys")))
    assert all(np.asarray(found.states[name]).tobytes() == np.asarray(tree[name]).tobytes() for name in tree)
    assert kept_states(tmp_path) == [KeptState(2, 2, 3)]


def test_seconds_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for text in ("often", "-1", "nan"):
        monkeypatch.setenv("JAXAUDIT_KEEP_SECONDS", text)
        with pytest.raises(InputError, match=r"^JAXAUDIT_KEEP_SECONDS must be"):
            fit(NETWORK, tmp_path)


def test_a_full_disk_costs_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    expected = fit(NETWORK, None)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.warns(RuntimeWarning, match=r"^trained models cannot be kept in .* \(No space left on device\)"):
        assert fit(NETWORK, tmp_path).tobytes() == expected.tobytes()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_halves_of_files_that_a_kill_left_do_not_pile_up(tmp_path: Path):
    killed(NETWORK, tmp_path)
    (path,) = states(tmp_path)
    for index in range(3):
        path.with_name(f".writing-{path.name}-{index}").touch()
    fit(NETWORK, tmp_path)
    assert [file.suffix for file in path.parent.iterdir()] == [".npz"]
