"""The designs of the shadow models: the one that the options guess, and others around it."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from jaxaudit.audits.ks.models import Design
from jaxaudit.cli.groups import Network, Recipe
from jaxaudit.cli.sets import GUESS, parse_designs
from jaxaudit.cli.words import parse_hidden
from jaxaudit.learners import NetworkLearner

MOMENTUM = 0.9
RATE = 30.0
"""Of plain steps with momentum in place of Adam: how many times Adam's learning rate."""
COSTS = {GUESS: 1.0, "shorter": 0.5, "longer": 2.0, "momentum": 1.0, "wider": 2.0}
"""The time of each design, in that of the guess; a network of twice the width takes about twice the time a step."""
WIDER = 2
Make = Callable[[Network, Recipe], NetworkLearner]


def make_designs(names: str, model: Network, recipe: Recipe, make: Make) -> tuple[Design, ...]:
    """The designs beside the guess that these names mean; `wider` is left out where the network has no width.

    Args:
        names: as for `--designs`.
        model, recipe: the guess.
        make: the learner of a network and a recipe.
    """
    epochs = recipe.epochs or 1
    known: dict[str, Callable[[], NetworkLearner]] = {
        "shorter": lambda: make(model, replace(recipe, epochs=max(1, epochs // 2))),
        "longer": lambda: make(model, replace(recipe, epochs=2 * epochs)),
        "momentum": lambda: make(model, _with_momentum(recipe)),
        "wider": lambda: make(replace(model, hidden=_wider(model.hidden or "")), recipe),
    }
    return tuple(Design(name, known[name]()) for name in _possible(names, model) if name != GUESS)


def mean_cost(names: str, model: Network) -> float:
    """The mean time of a model over these designs, in that of the guess.

    >>> mean_cost("guess,longer", Network(model="mlp"))
    1.5
    """
    return float(np.mean([COSTS[name] for name in _possible(names, model)]))


def _possible(names: str, model: Network) -> tuple[str, ...]:
    return tuple(name for name in parse_designs(names) if name != "wider" or model.model == "mlp")


def _wider(hidden: str) -> str:
    return ",".join(str(WIDER * size) for size in parse_hidden(hidden))


def _with_momentum(recipe: Recipe) -> Recipe:
    """The recipe with momentum in place of its optimizer; schedule, clipping and all else stay."""
    coupled = recipe.optimizer in ("adam", "sgd")
    times = RATE if recipe.optimizer in ("adam", "adamw") else (1 - MOMENTUM) / (1 - (recipe.momentum or 0))
    return replace(
        recipe,
        optimizer="sgd",
        learning_rate=recipe.learning_rate * times,
        momentum=MOMENTUM,
        weight_decay=recipe.weight_decay if coupled else None,
    )
