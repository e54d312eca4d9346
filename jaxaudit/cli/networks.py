"""From options to the shadow models of `ks` and `power`: defaults, design, recipe."""

from dataclasses import replace
from typing import TypeVar

from jaxaudit.cli.groups import Network, Recipe
from jaxaudit.cli.own_model import UNSEEDED, parse_model
from jaxaudit.cli.progress import say
from jaxaudit.cli.recipe import make_factory, make_learner
from jaxaudit.cli.sets import Sets, ShadowRecipe
from jaxaudit.cli.words import other_split, parse_hidden
from jaxaudit.data import Examples
from jaxaudit.errors import InputError
from jaxaudit.learners import SteppedLearner, stop_early
from jaxaudit.learners.early_stopping import VALIDATION

HIDDEN, EPOCHS, IMAGE_SIZE = "512,256,128", 15, "28x28"
DEMO_SETS = ("digits", "printed-digits")
DEMO_MODEL, DEMO_HIDDEN, DEMO_EPOCHS, DEMO_IMAGE_SIZE = "mlp", "256", 40, "8x8"
"""Defaults without data: both sets are embedded, and the digits are stored as 8x8."""
Data = TypeVar("Data", bound=Sets)
Design = TypeVar("Design", bound=Network)
Trained = TypeVar("Trained", bound=Recipe)


def with_defaults(data: Data, model: Design, recipe: Trained) -> tuple[Data, Design, Trained]:
    """The options with what a run without them uses."""
    recipe = replace(recipe, epochs=recipe.epochs or (DEMO_EPOCHS if data.query is None else EPOCHS))
    # A warm-up may be too long for the epochs that are usual.
    recipe.check()
    if data.query is None:
        return (
            replace(
                data,
                query=DEMO_SETS[0],
                calibration=DEMO_SETS[1],
                image_size=data.image_size or DEMO_IMAGE_SIZE,
            ),
            replace(
                model, model=model.model or DEMO_MODEL, hidden=DEMO_HIDDEN if model.hidden is None else model.hidden
            ),
            recipe,
        )
    calibration = data.calibration
    if calibration is None:
        calibration = other_split(data.query)
        say(f"no --calibration given; using {calibration}")
    # The medical network takes its crops from images of their own size.
    size = "none" if model.model == "medical-cnn" else IMAGE_SIZE
    return (
        replace(data, calibration=calibration, image_size=data.image_size or size),
        replace(model, hidden=HIDDEN if model.hidden is None else model.hidden),
        recipe,
    )


def make_shadow_learner(model: Network, recipe: ShadowRecipe, query: Examples, records: int) -> SteppedLearner:
    """The model and training recipe of shadow models, for training sets of at most this many records."""
    name = model.model or "mlp"
    if name != "mlp" and parse_model(name) is None and query.inputs.ndim != 4:
        raise InputError(
            f"--model {name} is for images, and {query.name} has records of shape {query.inputs.shape[1:]}; use mlp, "
            "or a network of your own."
        )
    factory = make_factory(name, parse_hidden(model.hidden or ""), recipe.dropout)
    recipe = replace(recipe, epochs=recipe.epochs or EPOCHS)
    learner = make_learner(factory, recipe, query.inputs.shape[1:], len(query.class_names), records)
    if not learner.net.seeded:
        say(UNSEEDED)
    if recipe.patience is None:
        return learner
    return stop_early(learner, recipe.patience, VALIDATION if recipe.validation is None else recipe.validation)
