"""Training recipes: the epoch's learning rate, a step's random key, label smoothing, precision, augmentation."""

from functools import lru_cache, partial
from itertools import chain, pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from support.circles import first_of
from support.network_twins import resnet, torch_ops
from support.references import batches_by_loop
from support.tiny_learners import CLASSES, ConvolvedNormed, compiled_fit, flat, flat_rows, jitter, records, small_mlp

from jaxaudit.cli.recipe import make_learner
from jaxaudit.cli.shared_options import RecipeFlags
from jaxaudit.ensemble import Execution, fit_many
from jaxaudit.errors import InputError
from jaxaudit.learners import AUGMENTATIONS, NetworkLearner, by_epoch, network, schedule
from jaxaudit.learners.learner import epoch_bits, init_key, moment_of, pool_batches, step_key, take_step, train_by_steps
from jaxaudit.models import MLP, ResNet

KEY = jax.random.key(5)
EPOCHS, BATCH = 4, 8
# Products of other shapes round differently; a few dozen steps of at most 0.1.
CLOSE = {"rtol": 0, "atol": 2e-5}


@lru_cache
def learner(module: Any = small_mlp, shape: tuple[int, ...] = (4,), rule: Any = optax.sgd, **options: Any) -> Any:
    optimizer = by_epoch(rule, schedule("cosine", 0.1, EPOCHS, 1))
    return network(module, shape, CLASSES, optimizer=optimizer, epochs=EPOCHS, batch_size=BATCH, **options)


def trained(one: NetworkLearner, keys: Any, rows: np.ndarray, inputs: Any, labels: Any, size: int) -> Any:
    execution = Execution(models_per_batch=size)
    return flat_rows(fit_many(keys, rows, inputs, labels, one, execution=execution), len(rows))


def test_steps_come_at_the_first_epoch_past_a_milestone():
    for epochs in range(2, 60):
        found = np.asarray(jax.vmap(schedule("step", 1.0, epochs))(jnp.arange(60)))[:epochs]
        drops = [epoch for epoch, (a, b) in enumerate(pairwise(found), 1) if b < 0.5 * a]
        # In whole numbers: the first epoch e with 2 e >= epochs, and with 4 e >= 3 epochs.
        assert drops == sorted({each for each in (-(-epochs // 2), -(-3 * epochs // 4)) if each < epochs})


def test_every_model_runs_through_the_whole_schedule():
    """A slow twin: rows of other sizes have other numbers of steps, and each epoch of each has its own rate."""
    inputs, labels = records(40, 4)
    rows = np.arange(40) < np.array([[6], [17], [24], [38], [40]])
    keys = jax.random.split(KEY, len(rows))
    one = learner(rule=partial(optax.sgd, momentum=0.9))
    plain = network(small_mlp, (4,), CLASSES, optimizer=optax.sgd(1.0), epochs=EPOCHS, batch_size=BATCH)
    gradient, start = jax.jit(plain.gradient), jax.jit(plain.init)
    expected = []
    for key, row in zip(keys, rows, strict=True):
        state = start(init_key(key))
        buffer = jax.tree.map(jnp.zeros_like, state.params)
        batches = list(batches_by_loop(key, row, EPOCHS, BATCH))
        steps = len(batches) // EPOCHS
        for number, batch in enumerate(batches):
            epoch = number // steps
            rate = 0.1 * (0.5 if epoch < 1 else (1 + np.cos(np.pi * (epoch - 1) / 3)) / 2)
            found, _ = gradient(state, inputs[batch], labels[batch], np.ones(len(batch), np.float32))
            buffer = jax.tree.map(lambda b, g: 0.9 * b + g, buffer, found)
            state = state._replace(params=jax.tree.map(lambda p, b, r=rate: p - r * b, state.params, buffer))
        expected.append(flat(state.params))
    for size in (1, 3):
        np.testing.assert_allclose(trained(one, keys, rows, inputs, labels, size), np.stack(expected), **CLOSE)


MODULES = {"mlp": (small_mlp, (4,)), "normed": (ConvolvedNormed, (4, 4, 1))}


@pytest.mark.parametrize("name", first_of(MODULES))
def test_random_steps_are_the_same_on_every_path(name: str):
    """Stepped by the device or by the host, many at a time or one, in the company of others or alone."""
    module, shape = MODULES[name]
    one = learner(module, shape, augment=(jitter,))
    inputs, labels = records(40, *shape)
    rows = np.arange(40) < np.array([[9], [17], [40], [39], [25]])
    keys = jax.random.split(KEY, len(rows))
    expected = trained(one, keys, rows, inputs, labels, 1)
    fit = compiled_fit(one)
    alone = [flat(fit(key, inputs, labels, row.astype(np.float32))) for key, row in zip(keys, rows, strict=True)]
    np.testing.assert_allclose(np.stack(alone), expected, **CLOSE)
    np.testing.assert_allclose(trained(one, keys, rows, inputs, labels, 3), expected, **CLOSE)
    np.testing.assert_array_equal(trained(one, keys[:2], rows[:2], inputs, labels, 1), expected[:2])
    if name == "mlp":
        assert np.abs(expected - trained(learner(module, shape), keys, rows, inputs, labels, 1)).max() > 1e-3


def test_a_step_without_members_moves_no_other_steps_key():
    """Leave-one-out models take the same random steps, also where the left-out record is a whole minibatch."""
    inputs, labels = records(33, 4)
    one = learner(augment=(jitter,))
    words = [np.asarray(epoch_bits(KEY, epoch, 33)) for epoch in range(EPOCHS)]
    row = np.arange(33) != words[0].argmax()  # alone in the last minibatch of the first epoch
    state, step, empty = jax.jit(one.init)(init_key(KEY)), jax.jit(partial(take_step, one)), 0
    for epoch, word in enumerate(words):
        for number, (chosen, real) in enumerate(zip(*pool_batches(word, BATCH), strict=True)):
            weights = real * row[chosen]
            if weights.any():
                state = step(state, inputs[chosen], labels[chosen], weights, moment_of(KEY, epoch, number))
            empty += not weights.any()
    assert empty >= 1
    rows, keys = np.stack([row, np.ones(33, bool)]), jnp.stack([KEY, KEY])
    found = trained(one, keys, rows, inputs, labels, 2)
    np.testing.assert_allclose(found[0], flat(one.finish(state)), **CLOSE)


@pytest.mark.parametrize("name", first_of(MODULES))
def test_mixed_precision_keeps_parameters_loss_and_state_in_float32(name: str):
    module, shape = MODULES[name]
    inputs, labels = records(BATCH, *shape)
    exact, mixed = learner(module, shape), learner(module, shape, precision="bfloat16")
    inputs, labels, weights = jnp.asarray(inputs), jnp.asarray(labels), jnp.ones(BATCH)
    state = jax.jit(mixed.init)(KEY)
    gradients = [jax.jit(each.gradient).trace(state, inputs, labels, weights) for each in (mixed, exact)]
    assert ["bf16" in str(each.jaxpr) for each in gradients] == [True, False]
    programs = [each.lower().compile() for each in gradients]
    gradient, after = programs[0](state, inputs, labels, weights)
    assert {leaf.dtype for leaf in jax.tree.leaves(gradient)} == {jnp.dtype("float32")}
    assert [leaf.dtype for leaf in jax.tree.leaves(after)] == [leaf.dtype for leaf in jax.tree.leaves(state.state)]
    expected, _ = programs[1](state, inputs, labels, weights)
    # bfloat16 has 8 bits; sums of a few dozen products of order 1.
    np.testing.assert_allclose(flat(gradient), flat(expected), rtol=0, atol=0.05 * np.abs(flat(expected)).max())
    assert not np.array_equal(flat(gradient), flat(expected))
    params = mixed.finish(state)
    np.testing.assert_array_equal(mixed.log_probs(params, inputs), exact.log_probs(params, inputs))


IMAGES = jnp.arange(1.0, 1 + 300 * 8 * 6 * 2).reshape(300, 8, 6, 2)


def test_flips_are_mirror_images_of_half_of_the_records():
    found = np.asarray(AUGMENTATIONS["flip"](KEY, IMAGES))
    mirrored = (found == np.asarray(IMAGES)[:, :, ::-1]).all(axis=(1, 2, 3))
    assert ((found == np.asarray(IMAGES)).all(axis=(1, 2, 3)) | mirrored).all()
    # 300 coins: outside with probability 1e-8 (six standard deviations).
    assert abs(mirrored.sum() - 150) < 6 * np.sqrt(75)


def test_crops_are_windows_of_the_padded_image():
    found = np.asarray(AUGMENTATIONS["crop"](KEY, IMAGES))
    # An eighth of 8 rows, and of 6 columns.
    high, wide = 1, 1
    padded = np.pad(np.asarray(IMAGES), ((0, 0), (high, high), (wide, wide), (0, 0)))
    places = set()
    for window, image in zip(found, padded, strict=True):
        fits = [
            (top, left)
            for top in range(2 * high + 1)
            for left in range(2 * wide + 1)
            if np.array_equal(image[top : top + 8, left : left + 6], window)
        ]
        assert len(fits) == 1
        places.update(fits)
    # A given one of the 9 places is missed by 300 draws with probability (8/9)**300 = 4e-16.
    assert len(places) == (2 * high + 1) * (2 * wide + 1) == 9


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_each_image_is_changed_by_itself(name: str):
    other = IMAGES.at[1:].set(0.5)
    found, same = (AUGMENTATIONS[name](KEY, inputs) for inputs in (IMAGES, other))
    np.testing.assert_array_equal(found[0], same[0])
    assert found.shape == IMAGES.shape


def test_augmentations_follow_one_another_with_keys_of_their_own():
    inputs, labels = records(BATCH, 4)
    one = learner(augment=(jitter, jitter))
    plain = learner()
    moment = moment_of(KEY, 1, 2)
    state = jax.jit(one.init)(KEY)._replace(moment=moment)
    changed = jnp.asarray(inputs)
    for number in range(2):
        changed = jitter(jax.random.fold_in(step_key(KEY, 1, 2), number), changed)
    batch = jnp.asarray(labels), jnp.ones(BATCH)
    found, expected = jax.jit(one.gradient)(state, inputs, *batch), jax.jit(plain.gradient)(state, changed, *batch)
    np.testing.assert_allclose(flat(found), flat(expected), rtol=0, atol=1e-6)


def whole(key: Any, inputs: Any) -> Any:
    return inputs[:1]


def broken(key: Any, inputs: Any) -> Any:
    return inputs + jnp.zeros(7)


@pytest.mark.parametrize(
    ("options", "shape", "said"),
    [
        ({"augment": (AUGMENTATIONS["flip"],)}, (4,), r"flip .*\(4,\)"),
        ({"augment": (whole,)}, (4,), r"whole .*\(1, 4\).*\(2, 4\)"),
        ({"augment": (broken,)}, (4,), r"broken .*\(4,\)"),
        ({"label_smoothing": 1.0}, (4,), "got 1"),
        ({"label_smoothing": -0.1}, (4,), "got -0.1"),
        ({"precision": "float16"}, (4,), "'float16'"),
        ({"epochs": 0}, (4,), "^`epochs` must be at least 1; got 0"),
        ({"batch_size": 0}, (4,), "^`batch_size` must be at least 1; got 0"),
    ],
)
def test_recipes_that_cannot_be(options: Any, shape: tuple[int, ...], said: str):
    how: dict[str, Any] = {"optimizer": optax.sgd(0.1), "epochs": 1, "batch_size": 4, **options}
    with pytest.raises(InputError, match=said):
        network(small_mlp, shape, CLASSES, **how)


def test_schedules_that_cannot_be():
    for name, warmup, said in (("sine", 0, "'sine'"), ("step", 3, "`warmup` .* below 3; got 3")):
        with pytest.raises(InputError, match=said):
            schedule(name, 0.1, 3, warmup)


torch: Any = pytest.importorskip("torch")

TORCH_KEY = jax.random.key(6)
TORCH_EPOCHS, RECORDS = 6, 21
FIRST = {"epochs": TORCH_EPOCHS, "batch_size": BATCH, "learning_rate": 0.05}


def mlp(ops: Any, params: Any, inputs: Any) -> Any:
    hidden = inputs.reshape(len(inputs), -1)
    for number in range(len(params["layers"]) - 1):
        hidden = ops.relu(ops.dense(hidden, params["layers"][number]))
    return ops.dense(hidden, params["layers"][len(params["layers"]) - 1])


NETWORKS: dict[str, tuple[Any, Any]] = {
    "mlp": (partial(MLP, hidden=(16, 8)), mlp),
    "resnet-bn": (partial(ResNet, width=4, norm="batch"), resnet),
}
SHAPE = (8, 6, 3)


def leaves(tree: Any) -> list[Any]:
    return list(chain.from_iterable(map(leaves, tree.values()))) if isinstance(tree, dict) else [tree]


def as_torch(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: as_torch(each) for name, each in tree.items()}
    # In float64, as PyTorch's convolutions of float32 differ between processors.
    return torch.tensor(np.array(tree), dtype=torch.float64, requires_grad=True)


def torch_optimizer(recipe: RecipeFlags, params: list[Any]) -> tuple[Any, Any]:
    rate, decay = recipe.learning_rate, recipe.weight_decay
    if recipe.optimizer == "sgd":
        made = torch.optim.SGD(params, rate, momentum=recipe.momentum or 0.0, weight_decay=decay or 0.0)
    elif recipe.optimizer == "adam":
        made = torch.optim.Adam(params, rate, betas=(0.5, 0.999), weight_decay=decay or 0.0)
    else:
        made = torch.optim.AdamW(params, rate, **({} if decay is None else {"weight_decay": decay}))
    schedulers, warmup = torch.optim.lr_scheduler, recipe.warmup or 0
    left = TORCH_EPOCHS - warmup
    then = {
        "constant": lambda: schedulers.ConstantLR(made, 1.0),
        "cosine": lambda: schedulers.CosineAnnealingLR(made, left),
        "linear": lambda: schedulers.LinearLR(made, 1.0, 0.0, left),
        "step": lambda: schedulers.MultiStepLR(made, [-(-left // 2), -(-3 * left // 4)], 0.1),
    }[recipe.schedule]
    if not warmup:
        return made, then()
    rise = schedulers.LinearLR(made, 1 / (warmup + 1), 1.0, warmup)
    return made, schedulers.SequentialLR(made, [rise, then()], [warmup])


def by_torch(
    recipe: RecipeFlags, network: str, start: Any, inputs: Any, labels: Any, coupled: bool
) -> list[np.ndarray]:
    """All parameters after a PyTorch loop as people write it."""
    twin, params, ops = NETWORKS[network][1], as_torch(start), torch_ops(torch)
    made, scheduler = torch_optimizer(recipe, leaves(params))
    loss = torch.nn.CrossEntropyLoss(label_smoothing=recipe.label_smoothing or 0.0)
    x, y = torch.tensor(inputs, dtype=torch.float64), torch.tensor(labels).long()
    batches = list(batches_by_loop(TORCH_KEY, np.ones(len(labels), bool), TORCH_EPOCHS, BATCH, coupled))
    for epoch in range(TORCH_EPOCHS):
        for batch in batches[epoch * len(batches) // TORCH_EPOCHS : (epoch + 1) * len(batches) // TORCH_EPOCHS]:
            made.zero_grad()
            loss(twin(ops, params, x[batch]), y[batch]).backward()
            if recipe.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(leaves(params), recipe.clip_norm)
            made.step()
        scheduler.step()
    return [each.detach().numpy() for each in leaves(params)]


def compared(recipe: RecipeFlags, network: str = "mlp", count: int = RECORDS) -> tuple[np.ndarray, np.ndarray, float]:
    """All parameters here and there, and the largest move of one from its start."""
    inputs, labels = records(count, *SHAPE)
    one = make_learner(NETWORKS[network][0], recipe, SHAPE, CLASSES, count)
    start = nnx.to_pure_dict(one.init(init_key(TORCH_KEY)).params)
    weights = np.ones(count, np.float32)
    end = jax.jit(partial(train_by_steps, one))(TORCH_KEY, inputs, labels, weights)
    ours = [np.asarray(each) for each in leaves(nnx.to_pure_dict(end.params))]
    theirs = by_torch(recipe, network, start, inputs, labels, one.batch_coupled)
    before = [np.asarray(each) for each in leaves(start)]
    moved = max(float(np.abs(a - b).max()) for a, b in zip(ours, before, strict=True))
    here, there = (np.concatenate([each.ravel() for each in all_]) for all_ in (ours, theirs))
    return here, there, moved


RECIPES: dict[str, dict[str, Any]] = {
    "adam, coupled weight decay": {"optimizer": "adam", "learning_rate": 1e-2, "weight_decay": 0.1},
    "adamw by default": {"optimizer": "adamw", "learning_rate": 1e-2},
    "adamw, decoupled weight decay": {"optimizer": "adamw", "learning_rate": 1e-2, "weight_decay": 0.5},
    "clipping": {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.05, "clip_norm": 0.3},
    "linear, label smoothing": {"optimizer": "sgd", "schedule": "linear", "label_smoothing": 0.2},
    "step": {"optimizer": "sgd", "momentum": 0.9, "schedule": "step"},
    "cosine, warm-up": {"optimizer": "adamw", "learning_rate": 1e-2, "schedule": "cosine", "warmup": 2},
    "everything": {
        "optimizer": "sgd",
        "momentum": 0.9,
        "weight_decay": 5e-4,
        "clip_norm": 1.0,
        "schedule": "cosine",
        "warmup": 1,
        "label_smoothing": 0.1,
    },
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_pytorchs(name: str):
    ours, theirs, moved = compared(RecipeFlags(**{**FIRST, **RECIPES[name]}))
    assert moved > 0.01
    # 18 steps in float32. Adam divides by gradients, which magnifies rounding where they are small.
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=moved * (5e-3 if "adam" in name else 2e-4))


def test_a_network_with_batch_normalisation_trains_as_pytorchs():
    recipe = RecipeFlags(**{**FIRST, **RECIPES["everything"], "learning_rate": 0.02})
    # It sees what fills up a short minibatch: here there is none.
    ours, theirs, moved = compared(recipe, "resnet-bn", 24)
    assert moved > 0.01
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-3 * moved)
