"""Early stopping: the epoch and the parameters of a plain loop, whatever company a model is trained in."""

from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.circles import first_of
from support.references import batches_by_loop
from support.tiny_learners import CLASSES, ConvolvedNormed, Dropped, compiled_fit, flat, flat_rows, records, small_mlp

from jaxaudit.audits import leave_out
from jaxaudit.data import Examples
from jaxaudit.ensemble import Execution, fit_many
from jaxaudit.errors import InputError
from jaxaudit.learners import EarlyStopping, network, stop_early
from jaxaudit.learners.learner import Moment
from jaxaudit.learners.stepped import init_key, step_key, train_by_steps

KEY = jax.random.key(8)
EPOCHS, BATCH, COUNT, SHARE = 12, 8, 60, 0.3
PATIENCE = 2
# Products of other shapes round differently; some dozen steps.
CLOSE = {"rtol": 0, "atol": 2e-5}
MODULES = {
    "mlp": (small_mlp, (4,)),
    "dropout": (Dropped, (4,)),
    "convolution, normed": (ConvolvedNormed, (4, 4, 1)),
}
"""Side by side; the same with keys in its state; and driven from the host."""
# Each but the third leaves a minibatch of 6: a step of another size is another program.
ROWS = np.arange(COUNT) < np.array([[20], [43], [60], [31]])
KEYS = jax.random.split(KEY, len(ROWS))


@lru_cache
def learner(name: str = "mlp", patience: int = PATIENCE, epochs: int = EPOCHS, share: float = SHARE) -> EarlyStopping:
    module, shape = MODULES[name]
    # Large enough steps that the loss goes up again.
    made = network(module, shape, CLASSES, optimizer=optax.sgd(0.7, 0.9), epochs=epochs, batch_size=BATCH)
    return stop_early(made, patience, share)


@lru_cache
def pool(name: str = "mlp") -> tuple[np.ndarray, np.ndarray]:
    """Records with a third of the labels wrong: there is something to overfit to."""
    inputs, labels = records(COUNT, *MODULES[name][1])
    wrong = np.random.default_rng(1).random(COUNT) < 1 / 3
    return inputs, np.where(wrong, (labels + 1) % CLASSES, labels).astype(np.int32)


def held_by_sorting(key: Any, row: np.ndarray, share: float) -> list[int]:
    """The members with the smallest words, from the description."""
    members = np.flatnonzero(row)
    words = np.asarray(jax.random.bits(jax.random.fold_in(key, 3), (len(members),)))
    count = min(max(round(share * len(members)), 1), len(members) - 1)
    return sorted(members[place] for place in sorted(range(len(members)), key=lambda place: words[place])[:count])


@lru_cache
def _compiled(inner: Any) -> tuple[Any, Any]:
    return jax.jit(inner.step), jax.jit(inner.log_probs)


@lru_cache
def by_loop(name: str, model: int, patience: int = PATIENCE) -> tuple[np.ndarray, list[float]]:
    """The parameters and the losses of the epochs that a loop takes which ends where people's loops end."""
    inner, key, row = learner(name).learner, KEYS[model], ROWS[model].copy()
    inputs, labels = pool(name)
    held = held_by_sorting(key, row, SHARE)
    row[held] = False
    state, losses, best = inner.init(init_key(key)), list[float](), np.zeros(0)
    step, log_probs_of = _compiled(inner)
    batches = list(batches_by_loop(key, row, EPOCHS, BATCH, True))
    steps = len(batches) // EPOCHS
    for epoch in range(EPOCHS):
        for number, batch in enumerate(batches[epoch * steps : (epoch + 1) * steps]):
            chosen = batch
            if inner.batch_coupled:
                # What fills a short minibatch up is seen by batch normalisation.
                chosen = [*batch, *batches[epoch * steps]][:BATCH] if len(batch) < BATCH else batch
            weights = (np.arange(len(chosen)) < len(batch)).astype(np.float32)
            moment = Moment(jnp.int32(epoch), step_key(key, epoch, number))
            state = step(state._replace(moment=moment), inputs[chosen], labels[chosen], weights)
        log_probs = np.asarray(log_probs_of(inner.finish(state), jnp.asarray(inputs)), np.float64)
        losses.append(float(-log_probs[held, labels[held]].mean()))
        if losses[-1] == min(losses):
            best = flat(inner.finish(state))
        elif len(losses) - 1 - int(np.argmin(losses)) >= patience:
            break
    return best, losses


def fitted(one: EarlyStopping, name: str = "mlp", models: Any = slice(None), size: int = 2, **execution: Any) -> Any:
    keys, rows = KEYS[models], ROWS[models]
    how = Execution(models_per_batch=size, **execution)
    return fit_many(
        *(keys, rows, *pool(name), one), execution=how, summarize=lambda params, own: flat_rows(params, len(own))
    )


@pytest.mark.parametrize("name", first_of(MODULES))
def test_many_models_are_those_of_a_loop_each(name: str):
    """On every path of training: side by side, from the host, and `fit`."""
    expected, losses = zip(*(by_loop(name, model) for model in range(len(ROWS))), strict=True)
    chosen = [int(np.argmin(each)) for each in losses]
    # Somewhere training went on after the best epoch, and the last epoch is not the best of all.
    assert any(best < len(each) - 1 for best, each in zip(chosen, losses, strict=True))
    np.testing.assert_allclose(fitted(learner(name), name), np.stack(expected), **CLOSE)
    weights = ROWS.astype(np.float32)
    alone = [compiled_fit(learner(name))(KEYS[m], *pool(name), weights[m]) for m in range(len(ROWS))]
    np.testing.assert_allclose(np.stack([flat(each) for each in alone]), np.stack(expected), **CLOSE)
    if name != "mlp":
        return
    end = jax.jit(jax.vmap(partial(train_by_steps, learner()), (0, None, None, 0)))(KEYS, *pool(), weights)
    assert end.optimizer.chosen.tolist() == [1 + best for best in chosen]
    np.testing.assert_allclose(end.optimizer.loss, [min(each) for each in losses], rtol=1e-5)
    assert end.optimizer.epochs.tolist() == [EPOCHS] * len(ROWS)


@pytest.mark.parametrize("name", first_of(["mlp", "convolution, normed"]))
def test_neighbours_change_no_bit(name: str):
    """Also where a model has stopped long before them, or takes fewer steps."""
    together = fitted(learner(name), name)
    for models in ([1, 0], [2]):
        assert np.array_equal(fitted(learner(name), name, np.array(models)), together[models])


def test_training_ends_where_all_models_stopped():
    told: list[tuple[int, int]] = []
    one = learner(epochs=400)
    fitted(one, progress=lambda done, total: told.append((done, total)), models=np.array([0, 1]))
    done, total = zip(*told, strict=True)
    assert (done[-1], len(set(total))) == (total[0], 1)
    # The rest is counted at once.
    assert max(np.diff(done)) > total[0] / 2
    # And it would have changed nothing, whatever there was of it.
    assert np.array_equal(fitted(learner(epochs=200), models=np.array([0, 1])), fitted(one, models=np.array([0, 1])))


def test_rows_without_enough_records_keep_the_last_epoch():
    """One record is trained on, none is held back; and without records nothing is trained."""
    rows = np.arange(COUNT) < np.array([[1], [0]])
    plain = learner().learner
    ours, theirs = (
        flat_rows(fit_many(KEYS[:2], rows, *pool(), one, execution=Execution(models_per_batch=1)), 2)
        for one in (learner(), plain)
    )
    assert np.array_equal(ours, theirs)


def test_leave_one_out_is_refused():
    inputs, labels = pool()
    examples = Examples(inputs, labels, tuple("abc"), "records")
    with pytest.raises(InputError, match="early"):
        leave_out(KEY, examples, learner(), np.arange(3))


@pytest.mark.parametrize(
    ("patience", "share", "said"), [(0, 0.1, "0"), (1, 0.0, "0"), (1, 1.0, "1"), (1, np.nan, "nan")]
)
def test_what_cannot_be(patience: int, share: float, said: str):
    with pytest.raises(InputError, match=said):
        stop_early(learner().learner, patience, share)
    with pytest.raises(InputError, match="already"):
        stop_early(learner(), 1)
