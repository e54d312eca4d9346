"""The designs of the shadow models: the one that the options guess, and others around it."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from jaxaudit.audits.ks.models import Design
from jaxaudit.cli.groups import Network
from jaxaudit.cli.sets import DESIGNS, GUESS, ShadowRecipe, parse_designs
from jaxaudit.cli.words import parse_hidden
from jaxaudit.errors import InputError
from jaxaudit.learners import SteppedLearner

MOMENTUM = 0.9
RATE = 30.0
"""Of plain steps with momentum in place of Adam: how many times Adam's learning rate."""
COSTS = dict.fromkeys(DESIGNS, 1.0) | {"shorter": 0.5, "longer": 2.0, "wider": 2.0, "narrower": 0.5}
"""The time of each design, in that of the guess; a network of twice the width takes about twice the time a step."""
WIDER = 2.0
AUGMENTED = ("flip", "crop")
"""As for CIFAR (He et al. 2016, section 4.2)."""
Make = Callable[[Network, ShadowRecipe], SteppedLearner]


def make_designs(
    names: str, model: Network, recipe: ShadowRecipe, record: tuple[int, ...], make: Make
) -> tuple[Design, ...]:
    """The designs beside the guess that these names mean.

    Args:
        names: as for `--designs`.
        model, recipe: the guess.
        record: the shape of a record.
        make: the learner of a network and a recipe.

    Raises:
        InputError: one that is named would be the guess itself, or is not for this network or these records.
    """
    epochs = recipe.epochs or 1
    known: dict[str, Callable[[], SteppedLearner]] = {
        "shorter": lambda: make(model, replace(recipe, epochs=max(1, epochs // 2))),
        "longer": lambda: make(model, replace(recipe, epochs=2 * epochs)),
        "momentum": lambda: make(model, _with_momentum(recipe)),
        "wider": lambda: make(replace(model, hidden=_times(WIDER, model.hidden or "")), recipe),
        "narrower": lambda: make(replace(model, hidden=_times(1 / WIDER, model.hidden or "")), recipe),
        "adam": lambda: make(model, _with_adam(recipe)),
        "augmented": lambda: make(model, replace(recipe, augment=AUGMENTED)),
        "plain": lambda: make(model, replace(recipe, augment=())),
    }
    return tuple(Design(name, known[name]()) for name in _possible(names, model, recipe, record) if name != GUESS)


def mean_cost(names: str, model: Network, recipe: ShadowRecipe, record: tuple[int, ...]) -> float:
    """The mean time of a model over these designs, in that of the guess.

    >>> mean_cost("guess,longer", Network(model="mlp"), ShadowRecipe(), (8, 8, 1))
    1.5
    """
    return float(np.mean([COSTS[name] for name in _possible(names, model, recipe, record)]))


def _possible(names: str, model: Network, recipe: ShadowRecipe, record: tuple[int, ...]) -> tuple[str, ...]:
    """The designs that these names mean; `wider` is among the usual ones only where the network has a width.

    Raises:
        InputError: one that was named cannot be.
    """
    nothing = dict[str, str]()
    if model.model != "mlp":
        nothing |= dict.fromkeys(("wider", "narrower"), "only mlp has a width (--hidden)")
    if recipe.optimizer == "adam":
        nothing["adam"] = "the guess has it (--optimizer adam)"
    if len(record) != 3:
        nothing["augmented"] = f"{' and '.join(AUGMENTED)} are for images"
    if recipe.augment:
        nothing["augmented"] = "the guess is (--augment)"
    else:
        nothing["plain"] = "the guess is (no --augment)"
    meant, named = parse_designs(names), [name.strip() for name in names.split(",")]
    for name in meant:
        if name in nothing and name in named:
            raise InputError(f"there is no design {name} beside the guess here: {nothing[name]}; leave it out.")
    return tuple(name for name in meant if name not in nothing)


def _times(factor: float, hidden: str) -> str:
    return ",".join(str(max(1, int(factor * size))) for size in parse_hidden(hidden))


def _with_momentum(recipe: ShadowRecipe) -> ShadowRecipe:
    """The recipe with momentum in place of its optimizer; schedule, clipping and all else stay."""
    times = RATE if recipe.optimizer in ("adam", "adamw") else (1 - MOMENTUM) / (1 - (recipe.momentum or 0))
    return replace(
        recipe,
        optimizer="sgd",
        learning_rate=recipe.learning_rate * times,
        momentum=MOMENTUM,
        weight_decay=_coupled_decay(recipe),
    )


def _with_adam(recipe: ShadowRecipe) -> ShadowRecipe:
    """The recipe with Adam in place of its optimizer: what `_with_momentum` would make sgd of."""
    times = (1 - MOMENTUM) / (1 - (recipe.momentum or 0)) / RATE if recipe.optimizer == "sgd" else 1
    return replace(
        recipe,
        optimizer="adam",
        learning_rate=recipe.learning_rate * times,
        momentum=None,
        weight_decay=_coupled_decay(recipe),
    )


def _coupled_decay(recipe: ShadowRecipe) -> float | None:
    return recipe.weight_decay if recipe.optimizer in ("adam", "sgd") else None
