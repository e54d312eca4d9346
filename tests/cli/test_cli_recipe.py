"""Training recipes on the command line: what the options mean, what they refuse, and code of one's own."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.cli_runs import QUICK, intercept, jaxaudit, options_of, own_modules, refused

from jaxaudit.cli import own_model
from jaxaudit.cli.groups import Network, RecipeFlags
from jaxaudit.cli.ks.options import KSOptions
from jaxaudit.cli.networks import COSTS, designs_beside, mean_cost
from jaxaudit.cli.options import json_options
from jaxaudit.cli.own_code import source_hashes
from jaxaudit.cli.own_model import NAMES, parse_model, parse_sized
from jaxaudit.cli.recipe import make_factory, make_optimizer
from jaxaudit.cli.sets import DESIGNS, FIVE, GUESS, ShadowRecipe, parse_designs
from jaxaudit.errors import InputError
from jaxaudit.models import ResNet, pure_module

OWN = """
import jax
import optax
def lion(rate):
    return optax.lion(rate)
def three(rate):
    return 3
def jitter(key, inputs):
    return inputs + 0.01 * jax.random.normal(key, inputs.shape)
def shorter(key, inputs):
    return inputs[:, 1:]
def net(input_shape, classes, *, rngs):
    from jaxaudit.models import MLP
    return MLP(input_shape, classes, rngs=rngs, hidden=(8,))
"""


@pytest.fixture
def own(sets: Path) -> Iterator[Path]:
    """A working folder with a file of one's own, which is forgotten afterwards."""
    with own_modules(sets):
        Path("mine.py").write_text(OWN)
        yield sets


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


def test_names_with_sizes():
    known = {
        "resnet": ("resnet", {}),
        "resnet-14": ("resnet", {"depth": 14}),
        "resnet-8-32-bn": ("resnet", {"depth": 8, "width": 32, "norm": "batch"}),
        "wrn-16-4": ("wrn", {"depth": 16, "widen": 4}),
        "vit-2-32": ("vit", {"depth": 2, "width": 32}),
        "gpt-2-64": ("gpt", {"depth": 2, "width": 64}),
    }
    assert {name: parse_sized(name) for name in known} == known
    assert not any(map(parse_sized, ("vit-bn", "gpt-2-64-bn", "resnet-8-16-4", "resnet_8", "mlp")))


def test_every_built_in_name_makes_a_network():
    assert all(parse_model(name) is None for name in NAMES)
    for name in NAMES:
        net = pure_module(make_factory(name, (8,), 0.1), (32, 32, 3), 3)
        assert net.draws
        assert net.batch_coupled == (name in own_model.DESIGNS[1:])
    assert not any(pure_module(make_factory(name, (8,)), (32, 32, 3), 3).draws for name in ("mlp", "liu-cnn"))
    assert pure_module(make_factory("resnet-8-8-bn", ()), (8, 8, 1), 3).batch_coupled
    assert make_factory("resnet-14-8", ()).func is ResNet


# What goes together, and what does not.


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--optimizer", "adam", "--momentum", "0.9"), ("--momentum", "adam")),
        (("--optimizer", "mine.py:lion", "--weight-decay", "0.1"), ("--weight-decay", "mine.py:lion")),
        (("--warmup", "2"), ("--warmup 2", "--epochs 2")),
        (("--optimizer", "adagrad"), ("--optimizer adagrad", "adam, adamw, sgd")),
        (("--optimizer", "mine.py:three"), ("mine.py:three", "int")),
        (("--augment", "mirror"), ("--augment mirror", "flip, crop, cutout, noise")),
        (("--augment", "flip"), ("flip", "(12,)")),
        (("--augment", "mine.py:shorter"), ("shorter", "(2, 11)")),
        (("--model", "mine.py:net", "--dropout", "0.1"), ("--dropout", "mine.py:net")),
    ],
)
def test_recipes_that_are_refused(own: Path, words: tuple[str, ...], said: tuple[str, ...]):
    refused(("ks", *QUICK, *words), said)


@pytest.mark.outer
def test_a_whole_recipe_in_a_run(own: Path):
    words = (
        *("--optimizer", "mine.py:lion", "--clip-norm", "1", "--schedule", "cosine", "--warmup", "1"),
        *("--label-smoothing", "0.1", "--dropout", "0.2", "--augment", "mine.py:jitter", "--precision", "bfloat16"),
    )
    done = jaxaudit("ks", *QUICK, *words, "--json")
    options = done.result["provenance"]["options"]
    assert (options["optimizer"], options["augment"]) == ("mine.py:lion", ["mine.py:jitter"])
    assert (options["schedule"], options["warmup"], options["dropout"]) == ("cosine", 1, 0.2)
    again = done.result["provenance"]["command"]
    assert [word for word in words if word not in again] == []
    assert jaxaudit(*again[1:], "--json").result["targets"] == done.result["targets"]
    assert jaxaudit("ks", *QUICK, "--json").result["targets"] != done.result["targets"]


def test_ones_own_code_is_part_of_a_runs_identity(own: Path):
    options = options_of(KSOptions, model="mlp", optimizer="mine.py:lion", augment=("flip", "mine.py:jitter"))
    before = source_hashes(options)
    assert before.keys() == {"optimizer", "augment 1"}
    assert json_options(
        replace(options, recipe=replace(options.recipe, optimizer=f"{own}/mine.py:lion"))
    ) == json_options(options)
    (own / "mine.py").write_text(OWN + "\n")
    assert all(digest != before[role] for role, digest in source_hashes(options).items())
    assert source_hashes(options_of(KSOptions, model="mlp")) == {}


@pytest.mark.parametrize(
    ("command", "function"),
    [("pdtp", "measure_pdtp"), ("attack", "train_splits"), ("unlearn", "compare_unlearning")],
)
def test_other_commands_have_the_same_recipe(command: str, function: str, monkeypatch: pytest.MonkeyPatch):
    data = ("--per-class", "10", "--hidden", "8") if command == "unlearn" else ("--data", "wine", "--sample", "60")
    recipe = ("--optimizer", "sgd", "--learning-rate", "0.1", "--momentum", "0.9", "--schedule", "step")
    asked = intercept(monkeypatch, f"jaxaudit.cli.{command}.run.{function}")
    done = jaxaudit(command, *data, *recipe, "--label-smoothing", "0.1", "--epochs", "2", "--models-per-batch", "2")
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


def test_an_adamw_needs_as_much_memory_as_adam(monkeypatch: pytest.MonkeyPatch):
    """And momentum one copy of the parameters more than plain steps: asked for at the limit of a small machine."""
    from jaxaudit.cli import classifiers
    from jaxaudit.data import load_table

    asked: list[int] = []
    monkeypatch.setattr(classifiers, "demand_memory", lambda size, what, advice: asked.append(size))
    table = load_table("wine").take(np.arange(50))
    options = classifiers.ClassifierOptions(hidden="16")
    rules: list[tuple[str, float | None]] = [("sgd", None), ("sgd", 0.9), ("adam", None), ("adamw", None)]
    for optimizer, momentum in rules:
        recipe = RecipeFlags(optimizer=optimizer, momentum=momentum, epochs=1)
        classifiers.make_classifier(options, recipe, table)
    copies = [round(2 * size / asked[0]) for size in asked]
    assert copies == [2, 3, 4, 4]


# The designs of shadow models by name: what each changes of the guess, and which are none of their own.

PLAIN = Network(model="mlp", hidden="32,7,1")
IMAGE, ROW = (8, 8, 1), (12,)


def made(names: str, recipe: ShadowRecipe, model: Network = PLAIN, record: tuple[int, ...] = ROW) -> dict[str, Any]:
    """Network and recipe of each design, in order."""
    return dict(designs_beside(names, model, recipe, record))


def changed(name: str, recipe: ShadowRecipe, record: tuple[int, ...] = ROW) -> dict[str, Any]:
    """What a design has and the guess has not."""
    model, other = made(f"guess,{name}", recipe, record=record)[name]
    ours, theirs = ({**vars(PLAIN), **vars(recipe)}, {**vars(model), **vars(other)})
    return {key: value for key, value in theirs.items() if value != ours[key]}


def test_what_each_design_changes():
    adam, sgd = ShadowRecipe(epochs=9), ShadowRecipe(epochs=9, optimizer="sgd", learning_rate=0.3, momentum=0.8)
    assert changed("shorter", adam) == {"epochs": 4}
    assert changed("longer", adam) == {"epochs": 18}
    assert changed("wider", adam) == {"hidden": "64,14,2"}
    assert changed("narrower", adam) == {"hidden": "16,3,1"}
    assert changed("augmented", adam, IMAGE) == {"augment": ("flip", "crop")}
    assert changed("plain", ShadowRecipe(augment=("noise",))) == {"augment": ()}
    rate = pytest.approx(0.3 * 0.5 / 30)
    assert changed("adam", sgd) == {"optimizer": "adam", "momentum": None, "learning_rate": rate}
    adamw = ShadowRecipe(optimizer="adamw", weight_decay=0.1, patience=3)
    assert changed("adam", adamw) == {"optimizer": "adam", "weight_decay": None}


def test_adam_and_momentum_undo_each_other():
    sgd = ShadowRecipe(optimizer="sgd", learning_rate=0.3, momentum=0.9, weight_decay=0.1)
    assert made("adam", sgd)["adam"][1].learning_rate == pytest.approx(0.01)
    back = made("momentum", made("adam", sgd)["adam"][1])["momentum"][1]
    assert vars(back) == {**vars(sgd), "learning_rate": pytest.approx(0.3)}


def test_names():
    assert parse_designs("usual") == parse_designs("all") == FIVE
    assert parse_designs("plain,usual") == (*FIVE, "plain")
    assert parse_designs("adam, shorter") == (GUESS, "shorter", "adam")
    assert COSTS.keys() == set(DESIGNS)
    with pytest.raises(InputError, match=r"--designs: 'narow'.*narrower"):
        parse_designs("narow")


def test_the_usual_ones_are_those_that_the_network_has():
    other, recipe = Network(model="liu-cnn"), ShadowRecipe(epochs=4)
    assert list(made("usual", recipe)) == ["shorter", "longer", "momentum", "wider"]
    assert list(made("usual", recipe, other, IMAGE)) == ["shorter", "longer", "momentum"]
    assert mean_cost("usual", other, recipe, IMAGE) == (1 + 0.5 + 2 + 1) / 4


@pytest.mark.parametrize(
    ("name", "recipe", "model"),
    [
        ("narrower", ShadowRecipe(), Network(model="liu-cnn")),
        ("wider", ShadowRecipe(), Network(model="resnet-8-16")),
        ("adam", ShadowRecipe(optimizer="adam"), PLAIN),
        ("augmented", ShadowRecipe(augment=("crop",)), PLAIN),
        ("augmented", ShadowRecipe(), PLAIN),
        ("plain", ShadowRecipe(), PLAIN),
    ],
)
def test_one_that_is_named_and_is_none_of_its_own_is_refused(name: str, recipe: ShadowRecipe, model: Network):
    for names in (name, f"usual, {name}"):
        with pytest.raises(InputError, match=name):
            made(names, recipe, model)
