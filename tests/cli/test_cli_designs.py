"""The designs of shadow models by name: what each changes of the guess, and which are none of their own."""

from typing import Any

import pytest

from jaxaudit.cli.groups import Network
from jaxaudit.cli.ks.designs import COSTS, make_designs, mean_cost
from jaxaudit.cli.sets import DESIGNS, FIVE, GUESS, ShadowRecipe, parse_designs
from jaxaudit.errors import InputError

MLP = Network(model="mlp", hidden="32,7,1")
IMAGE, ROW = (8, 8, 1), (12,)


def made(names: str, recipe: ShadowRecipe, model: Network = MLP, record: tuple[int, ...] = ROW) -> dict[str, Any]:
    """Network and recipe of each design, in order."""
    found = make_designs(names, model, recipe, record, lambda *both: both)  # pyright: ignore[reportArgumentType]
    return {design.name: design.learner for design in found}


def changed(name: str, recipe: ShadowRecipe, record: tuple[int, ...] = ROW) -> dict[str, Any]:
    """What a design has and the guess has not."""
    model, other = made(f"guess,{name}", recipe, record=record)[name]
    ours, theirs = ({**vars(MLP), **vars(recipe)}, {**vars(model), **vars(other)})
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
    with pytest.raises(InputError, match=r"--recipe: 'narow'.*narrower"):
        parse_designs("narow", "--recipe")


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
        ("adam", ShadowRecipe(optimizer="adam"), MLP),
        ("augmented", ShadowRecipe(augment=("crop",)), MLP),
        ("augmented", ShadowRecipe(), MLP),
        ("plain", ShadowRecipe(), MLP),
    ],
)
def test_one_that_is_named_and_is_none_of_its_own_is_refused(name: str, recipe: ShadowRecipe, model: Network):
    for names in (name, f"usual, {name}"):
        with pytest.raises(InputError, match=name):
            made(names, recipe, model)
