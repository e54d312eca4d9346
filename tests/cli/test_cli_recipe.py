"""`--model` and training recipes: built-in networks, what options mean and refuse, and code of one's own."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.cli_runs import QUICK, intercept, jaxaudit, own_modules, recipe, refused

from jaxaudit.cli.ks.options import KSOptions
from jaxaudit.cli.options import json_options
from jaxaudit.cli.own_code import model_hash, parse_sized
from jaxaudit.cli.recipe import make_factory, make_optimizer
from jaxaudit.cli.shared_options import RecipeFlags
from jaxaudit.models import MLP, LiuCNN, ResNet, ViT, WideResNet

NET = """
from flax import nnx
class Net(nnx.Module):
    def __init__(self, input_shape, classes, *, rngs):
        self.layer = nnx.Linear(input_shape[0], classes, rngs=rngs)
    def __call__(self, inputs):
        return self.layer(inputs)
"""


@pytest.fixture
def own(sets: Path) -> Iterator[Path]:
    """A working folder whose modules are forgotten afterwards."""
    with own_modules(sets):
        yield sets


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the audit would have been given, where it stops at once."""
    return intercept(monkeypatch, "jaxaudit.cli.ks.run.train_shadows")


def test_its_file_may_lie_outside_of_the_working_folder(own: Path, untrained: dict[str, Any]):
    Path("nets").mkdir()
    Path("nets/mine.py").write_text(NET)
    shutil.copytree(own, "work", ignore=shutil.ignore_patterns("nets", "work"))
    with own_modules(own / "work"):
        assert jaxaudit("ks", *QUICK, "--model", f"{own}/nets/mine.py:Net").err.endswith("Error: enough\n")
    assert not untrained["learner"].convolves


def test_the_recipe_is_the_targets_own_by_word_or_by_code(own: Path, monkeypatch: pytest.MonkeyPatch):
    Path("mine.py").write_text(NET)
    monkeypatch.setattr("jaxaudit.cli.ks.run.train_shadows", lambda *_, **__: None)
    judged = intercept(monkeypatch, "jaxaudit.cli.ks.run.judge")
    ways = {(): False, ("--same-recipe",): True, ("--model", "mine.py:Net"): True, ("--model", "mlp"): False}
    for words, own_recipe in ways.items():
        assert jaxaudit("ks", *QUICK, *words).err.endswith("Error: enough\n")
        assert judged["own_recipe"] is own_recipe


@pytest.mark.parametrize(
    ("source", "model", "said"),
    [
        ("", "cnn", ("--model cnn", "mlp, liu-cnn, resnet")),
        ("1 / 0", "mine:factory", ("--model mine:factory", "ZeroDivisionError: division by zero")),
        ("raise SystemExit(0)", "mine:f", ("--model mine:f", "SystemExit: 0")),
        ("factory = 3", "mine:factory", ("--model mine:factory", "type int")),
        ("", "mine.py", ("--model mine.py", "mine.py:factory")),
        ("", "nets/mine.py:f", ("--model nets/mine.py:f", "no file nets/mine.py")),
        ("import beside", "mine.py:f", ("--model mine.py:f", "'beside'")),
        ("", "mine.py:f", ("--model mine.py:f", "mine.py ", "'f'")),
        ("def f(input_shape, classes, *, rngs): return 3", "mine:f", (" f ", " int")),
        ("def f(a, rngs): pass", "mine:f", (" f ", "(a, rngs)")),
        (NET + "net = Net((12,), 3, rngs=nnx.Rngs(1))", "mine:net", (" Net ",)),
        (NET.replace("classes, rngs", "9, rngs"), "mine:Net", (" Net ", "(2, 9)")),
        (NET.replace("input_shape[0]", "5"), "mine:Net", (" Net ", "(12,)")),
    ],
)
def test_modules_that_cannot_be_imported_or_do_not_fit(own: Path, source: str, model: str, said: tuple[str, ...]):
    Path("mine.py").write_text(source)
    refused(("ks", *QUICK, "--model", model), said)


def test_a_failure_is_one_line_and_status_1_with_a_traceback_for_who_asks(own: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("JAXAUDIT_DEBUG", raising=False)
    Path("mine.py").write_text(NET.replace("return self.layer(inputs)", "raise RuntimeError('no\\nluck')"))
    done = jaxaudit("ks", *QUICK, "--model", "mine:Net", "--out", "run")
    assert (done.code, done.out) == (1, "")
    last = done.err.splitlines()[-1]
    assert last.startswith("Failed: RuntimeError: no ")
    assert "JAXAUDIT_DEBUG=1" in last
    assert not Path("run").exists()
    monkeypatch.setenv("JAXAUDIT_DEBUG", "1")
    with pytest.raises(RuntimeError, match="no\nluck"):
        jaxaudit("ks", *QUICK, "--model", "mine:Net")


def test_the_default_design_for_images_is_the_papers(sets: Path, untrained: dict[str, Any]):
    for name, seed in (("a", 1), ("b", 2)):
        images = np.random.default_rng(seed).integers(0, 255, (4, 9, 9), dtype=np.uint8)
        np.savez(name, images=images, labels=np.arange(4) % 2)
    done = jaxaudit("ks", "--query", "a.npz", "--calibration", "b.npz", "--tests", "rho", "--effort", "full")
    assert untrained["query"].inputs.shape == (4, 28, 28, 1)
    assert {"14", "liu-cnn", "15"} <= set(done.err.split())
    assert untrained["learner"].batch_size == 64


def test_it_is_said_where_all_models_begin_alike(own: Path, untrained: dict[str, Any]):
    Path("mine.py").write_text(NET + "def f(): return Net((12,), 3, rngs=nnx.Rngs(1))\n")
    assert " rngs" in jaxaudit("ks", *QUICK, "--model", "mine.py:f").err
    assert " rngs" not in jaxaudit("ks", *QUICK, "--model", "mine.py:Net").err


# The rules of PyTorch's optimizers, written out.


def steps(recipe: RecipeFlags, gradients: np.ndarray, start: np.ndarray) -> np.ndarray:
    """The parameters after these gradients, an epoch each, by the formulas of PyTorch's documentation."""
    theta, first, second, buffer = start.astype(np.float64), 0.0, 0.0, 0.0
    decay, beta = recipe.weight_decay, {"adam": 0.5, "adamw": 0.9}.get(recipe.optimizer, 0.0)
    decay = {"adamw": 0.01}.get(recipe.optimizer, 0.0) if decay is None else decay
    for step, gradient in enumerate(gradients.astype(np.float64)):
        rate = recipe.learning_rate * (1 - step / len(gradients) if recipe.schedule == "linear" else 1)
        if recipe.clip_norm is not None:
            gradient = gradient * min(1.0, recipe.clip_norm / np.sqrt((gradient**2).sum()))
        if recipe.optimizer == "adamw":
            theta = theta - rate * decay * theta
        else:
            gradient = gradient + decay * theta
        if recipe.optimizer == "sgd":
            buffer = (recipe.momentum or 0.0) * buffer + gradient
            theta = theta - rate * buffer
            continue
        first = beta * first + (1 - beta) * gradient
        second = 0.999 * second + 0.001 * gradient**2
        hat, scale = first / (1 - beta ** (step + 1)), second / (1 - 0.999 ** (step + 1))
        theta = theta - rate * hat / (np.sqrt(scale) + 1e-8)
    return theta


RULES: list[dict[str, Any]] = [
    {"optimizer": "adam"},
    {"optimizer": "adam", "weight_decay": 0.3},
    {"optimizer": "adamw"},
    {"optimizer": "adamw", "weight_decay": 0.3, "schedule": "linear"},
    {"optimizer": "adamw", "weight_decay": 0.0},
    {"optimizer": "sgd"},
    {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.3},
    {"optimizer": "sgd", "momentum": 0.9, "clip_norm": 0.5, "weight_decay": 0.3, "schedule": "linear"},
    {"optimizer": "adam", "clip_norm": 0.5},
]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_optimizers_by_their_formulas(rule: dict[str, Any]):
    random = np.random.default_rng(3)
    start, gradients = random.normal(size=6), random.normal(size=(8, 6))
    recipe = RecipeFlags(**rule, learning_rate=0.05, epochs=len(gradients))
    made = make_optimizer(recipe)
    params = jnp.asarray(start, jnp.float32)
    state = made.init(params)
    for epoch, gradient in enumerate(gradients):
        told = {"epoch": jnp.int32(epoch)}
        update = jax.jit(made.update)(jnp.asarray(gradient, jnp.float32), state, params, **told)
        params, state = params + update[0], update[1]
    # In float32 1 - 0.999 is off by 6e-5 of itself, and so is half of that of each of 8 steps of about 0.05.
    np.testing.assert_allclose(params, steps(recipe, gradients, start), rtol=0, atol=2e-5)


def test_a_warm_up_fits_into_what_a_plan_left_of_the_epochs():
    made = make_optimizer(RecipeFlags(epochs=3, optimizer="sgd", learning_rate=1.0, warmup=5))
    found = [made.update(jnp.ones(1), made.init(jnp.ones(1)), None, epoch=jnp.int32(epoch))[0][0] for epoch in range(3)]
    np.testing.assert_allclose(found, [-1 / 3, -2 / 3, -1], rtol=1e-6)


# Names.


@pytest.mark.parametrize(
    ("name", "kind", "sizes"),
    [
        ("mlp", MLP, {"hidden": (8, 4)}),
        ("liu-cnn", LiuCNN, {}),
        ("resnet", ResNet, {}),
        ("resnet-14", ResNet, {"depth": 14}),
        ("resnet-8-32-bn", ResNet, {"depth": 8, "width": 32, "norm": "batch"}),
        ("wrn-16-4", WideResNet, {"depth": 16, "widen": 4}),
        ("vit-2-32", ViT, {"depth": 2, "width": 32}),
    ],
)
def test_a_built_in_name_is_a_network_and_its_sizes(name: str, kind: type[Any], sizes: dict[str, Any]):
    made = make_factory(name, "8,4", 0.1)
    assert (made.func, made.keywords) == (kind, {**sizes, "dropout": 0.1})
    assert getattr(make_factory(name, "8,4"), "keywords", {}) == sizes


def test_what_is_like_a_built_in_name_is_none():
    assert not any(map(parse_sized, ("vit-bn", "gpt-2-64-bn", "resnet-8-16-4", "resnet_8", "mlp")))


# What goes together, and what does not.


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (recipe("optimizer=adam", "momentum=0.9"), ("--recipe momentum", "optimizer=adam")),
        (recipe("warmup=2"), ("--recipe warmup=2", "--epochs 2")),
        (recipe("optimizer=adagrad"), ("--recipe optimizer", "adagrad", "adam, adamw, sgd")),
        (recipe("augment=mirror"), ("--recipe augment", "mirror", "flip, crop")),
        (recipe("augment=flip"), ("flip", "(12,)")),
        (("--model", "mine.py:Net", *recipe("dropout=0.1")), ("--recipe dropout", "mine.py:Net")),
        (recipe("hiden=8"), ("--recipe hiden", "did you mean hidden?")),
        (recipe("nothing=8"), ("--recipe nothing", "choose from", "learning-rate")),
        (recipe("hidden"), ("--recipe hidden", "write NAME=VALUE")),
        (recipe("batch-size=1.5"), ("--recipe batch-size", "1.5 is no whole number")),
        (recipe("batch-size=0"), ("--recipe batch-size", "0 is out of range")),
        (recipe("schedule=slow"), ("--recipe schedule", "slow is not one of")),
    ],
)
def test_recipes_that_are_refused(own: Path, words: tuple[str, ...], said: tuple[str, ...]):
    Path("mine.py").write_text(NET)
    refused(("ks", *QUICK, *words), said)


def test_ones_own_code_is_part_of_a_runs_identity(own: Path):
    Path("mine.py").write_text(NET)
    options = KSOptions(model="mine.py:Net")
    before = model_hash(options)
    same = replace(options, model=f"{own}/mine.py:Net")
    assert json_options(same) == json_options(options)
    Path("mine.py").write_text(NET + "\n")
    assert before != model_hash(options) == model_hash(same)
    assert model_hash(KSOptions(model="mlp")) is None


@pytest.mark.parametrize(
    ("command", "function"),
    [
        ("pdtp", "cli.pdtp.run.measure_pdtp"),
        ("attack", "audits.attack.attack.train_splits"),
        ("unlearn", "cli.unlearn.run.compare_unlearning"),
    ],
)
def test_other_commands_have_the_same_recipe(command: str, function: str, monkeypatch: pytest.MonkeyPatch):
    data = ("--per-class", "10", *recipe("hidden=8")) if command == "unlearn" else ("--data", "wine", "--sample", "60")
    words = recipe("optimizer=sgd", "learning-rate=0.1", "momentum=0.9", "schedule=step", "label-smoothing=0.1")
    asked = intercept(monkeypatch, f"jaxaudit.{function}")
    done = jaxaudit(command, *data, *words, "--epochs", "2", *recipe("models-per-batch=2"))
    assert done.err.endswith("Error: enough\n")
    learner = asked["learner"]
    wanted = make_optimizer(RecipeFlags(optimizer="sgd", learning_rate=0.1, momentum=0.9, schedule="step", epochs=2))
    assert (learner.label_smoothing, learner.epochs) == (0.1, 2)
    np.testing.assert_array_equal(learned_by(learner.optimizer), learned_by(wanted))


def learned_by(optimizer: Any) -> np.ndarray:
    """Updates by a gradient of one in two epochs."""
    state, updates = optimizer.init(jnp.zeros(1)), []
    for epoch in range(2):
        update, state = optimizer.update(jnp.ones(1), state, jnp.zeros(1), epoch=jnp.int32(epoch))
        updates.append(update[0])
    return np.array(updates)
