"""The learned attack: a loop in plain steps, IBM's toolbox itself, and what may leave no trace."""

import inspect
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxaudit.attacks import fit_learned, learned, learned_probabilities
from jaxaudit.ensemble import Execution
from jaxaudit.errors import InputError
from jaxaudit.kernels import auc
from jaxaudit.learners.learner import epoch_bits, init_key, own_batches

CLASSES, RECORDS = 3, 130
EPOCHS = 20
"""For the comparison with the toolbox."""
TOLERANCE = 0.02
ADAM = optax.adam(1e-4, b1=0.9, b2=0.999, eps=1e-8)


def attack_data(seed: int, models: int, records: int, shift: float = 1.5) -> tuple[Any, Any, Any]:
    """Outputs of several models for one list of records, the first half of which were members."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, records).astype(np.int32)
    member = np.arange(records) < records // 2
    sure = (1 + shift * member)[:, None] * np.eye(CLASSES)[labels]
    outputs = random.normal(size=(models, records, CLASSES)) + sure
    outputs -= np.logaddexp.reduce(outputs, axis=2, keepdims=True)
    return outputs.astype(np.float32), labels, np.tile(member, (models, 1))


@jax.jit
def start(key: Any) -> Any:
    net = learned._init(init_key(key), CLASSES, CLASSES)
    return net, ADAM.init(net)


def by_hand(key: Any, outputs: np.ndarray, labels: np.ndarray, member: np.ndarray, epochs: int) -> Any:
    """One attack network, a step at a time and as the toolbox writes it: two branches, joined, one logistic unit."""
    standard = (outputs - outputs.mean(axis=0)) / outputs.std(axis=0)
    one_hot, truths = np.eye(CLASSES, dtype=np.float32)[labels], member.astype(np.float32)
    net, state = start(key)
    for epoch in range(epochs):
        bits = np.asarray(epoch_bits(key, epoch, len(labels)))
        for chosen, real in zip(*own_batches(bits, np.arange(len(labels)), 100), strict=True):
            net, state = step(net, state, standard[chosen], one_hot[chosen], truths[chosen], real)
    return net


@jax.jit
def step(net: Any, state: Any, hidden: jax.Array, label: jax.Array, truth: jax.Array, real: jax.Array) -> Any:
    """Along the gradient of the mean loss of the records of one minibatch that are real."""

    def loss(net: Any, hidden: jax.Array, label: jax.Array) -> Any:
        for layer in net.outputs:
            hidden = jnp.maximum(hidden @ layer.kernel + layer.bias, 0)
        for layer in net.labels:
            label = jnp.maximum(label @ layer.kernel + layer.bias, 0)
        joined = jnp.concatenate([hidden, label], axis=1)
        p = jax.nn.sigmoid(joined @ net.combine.kernel + net.combine.bias)[:, 0]
        return -jnp.mean(truth * jnp.log(p) + (1 - truth) * jnp.log(1 - p), where=real > 0)

    updates, state = ADAM.update(jax.grad(loss)(net, hidden, label), state)
    return optax.apply_updates(net, updates), state


KEYS = jax.random.key(9)


def fit(models: list[int], outputs: Any, labels: Any, member: Any, **how: Any) -> Any:
    """Some of three attacks, by their own keys."""
    keys = jax.random.split(KEYS, 3)[np.array(models)]
    return fit_learned(keys, outputs, labels, member, CLASSES, **{"epochs": 2, "execution": Execution(2), **how})


def test_it_is_the_network_trained_a_step_at_a_time():
    outputs, labels, member = attack_data(3, 2, RECORDS)
    attack = fit([0, 1], outputs, labels, member)
    for model, key in enumerate(jax.random.split(KEYS, 3)[:2]):
        expected = by_hand(key, outputs[model], labels, member[model], 2)
        for mine, theirs in zip(jax.tree.leaves(attack.params), jax.tree.leaves(expected), strict=True):
            # Adam's first steps are of 1e-4 whatever the gradient: where that is only rounding, so is the step.
            apart = np.abs(mine[model] - np.asarray(theirs))
            assert apart.max() < 1e-3
            assert (apart > 3e-6).mean() < 0.02


def test_as_good_as_the_toolbox_itself():
    """Same data, other seeds: areas under the curve and mean probabilities differ by less than TOLERANCE.

    Over eight seeds of each on these data, the area is 0.774 of theirs and 0.775 of ours, both with a standard
    deviation below 0.001, the mean probability of members 0.627 and 0.626, of others 0.410 and 0.408, with 0.005 at
    most: the tolerance is three standard deviations of the difference of two seeds.
    """
    pytest.importorskip("torch", reason="the toolbox trains its attack network with PyTorch")
    from art.attacks.inference.membership_inference import MembershipInferenceBlackBox
    from art.estimators.classification import BlackBoxClassifier

    defaults = inspect.signature(MembershipInferenceBlackBox).parameters
    recipe = [defaults[f"nn_model_{name}"].default for name in ("epochs", "batch_size", "learning_rate")]
    assert recipe == [learned.EPOCHS, learned.BATCH_SIZE, learned.LEARNING_RATE]
    outputs, labels, member = attack_data(11, 1, 1200)
    fresh, fresh_labels, fresh_member = attack_data(12, 1, 1200)
    classifier = BlackBoxClassifier(lambda x: x, (CLASSES,), CLASSES)
    toolbox: Any = MembershipInferenceBlackBox(classifier, attack_model_type="nn", nn_model_epochs=EPOCHS)
    y = np.eye(CLASSES)[labels]
    toolbox.fit(None, y[member[0]], None, y[~member[0]], pred=outputs[0][member[0]], test_pred=outputs[0][~member[0]])
    theirs = toolbox.infer(None, np.eye(CLASSES)[fresh_labels], pred=fresh[0], probabilities=True)[:, 0]

    attack = fit_learned(jax.random.split(jax.random.key(2), 1), outputs, labels, member, CLASSES, epochs=EPOCHS)
    ours = learned_probabilities(attack, fresh, fresh_labels)[0]
    truth = fresh_member[0]
    assert abs(auc(ours, truth) - auc(theirs, truth)) < TOLERANCE
    for group in (truth, ~truth):
        assert abs(ours[group].mean() - theirs[group].mean()) < TOLERANCE
    assert auc(ours, truth) > 0.7
    assert np.corrcoef(ours, theirs)[0, 1] > 0.97


def test_records_that_are_not_used_leave_no_trace():
    outputs, labels, member = attack_data(4, 2, RECORDS)
    used = np.ones_like(member)
    used[0, 40:60] = False
    changed = np.where(used[..., None], outputs, 7.0).astype(np.float32)
    one = fit([0, 1], outputs, labels, member, used=used)
    other = fit([0, 1], changed, labels, np.where(used, member, ~member), used=used)
    for mine, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_stopped_training_goes_on_after_its_last_finished_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    outputs, labels, member = attack_data(4, 3, RECORDS)
    epochs, stop_at = iter(range(1000)), [0]

    def check(stop: Any) -> None:
        if next(epochs) == stop_at[0]:
            raise KeyboardInterrupt

    def run(checkpoints: Path | None, stop: int, models_per_batch: int | None = 2) -> Any:
        nonlocal epochs
        epochs, stop_at[0] = iter(range(1000)), stop
        execution = Execution(models_per_batch, checkpoints=checkpoints)
        return fit([0, 1, 2], outputs, labels, member, epochs=5, execution=execution)

    monkeypatch.setattr("jaxaudit.attacks.learned.concurrent_chunks", lambda: 1)  # a chunk at a time, on any machine
    monkeypatch.setattr(learned.Stop, "check", check)
    expected = run(None, 999)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, 7)
    assert len(list(tmp_path.glob("*/*"))) == 1
    # Of ten epochs five are left; the width is that of what was kept.
    result = run(tmp_path, 5, models_per_batch=None)
    assert next(epochs) == 5
    for mine, theirs in zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(mine, theirs)


OUTPUTS, LABELS, MEMBER = attack_data(4, 1, 40)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"membership": MEMBER[:, :39]}, r"`membership` has shape \(1, 39\) but must have \(1, 40\)"),
        ({"labels": LABELS[:39]}, r"`labels` has shape \(39,\)"),
        ({"outputs": np.where(OUTPUTS < -2, -np.inf, OUTPUTS)}, "`outputs` must be finite"),
        ({"classes": 2}, "`labels` must be .*at most 1; got 2"),
        ({"membership": np.ones_like(MEMBER)}, "the attack on model 0 would see"),
        ({"used": MEMBER}, "non-members"),
    ],
)
def test_bad_input_is_one_clear_line(change, message):
    call: dict[str, Any] = {"outputs": OUTPUTS, "labels": LABELS, "membership": MEMBER, "classes": CLASSES}
    with pytest.raises(InputError, match=message):
        fit_learned(jax.random.split(KEYS, 1), **{**call, **change})
