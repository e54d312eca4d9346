"""From options to shadow models: defaults, the guessed design, and the further designs."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from jaxaudit.audits.ks.models import Design
from jaxaudit.cli.groups import Network, TextNetwork
from jaxaudit.cli.options import Options, with_usual
from jaxaudit.cli.own_model import OF_TEXTS, UNSEEDED, is_of_texts, parse_model
from jaxaudit.cli.parsers import is_texts, other_split, parse_hidden
from jaxaudit.cli.progress import say
from jaxaudit.cli.recipe import make_adapters, make_factory, make_learner
from jaxaudit.cli.sets import DESIGNS, GUESS, ShadowRecipe, parse_designs
from jaxaudit.data import Examples
from jaxaudit.data.sequences import are_texts, vocabulary_of
from jaxaudit.errors import InputError
from jaxaudit.learners import SteppedLearner, stop_early
from jaxaudit.learners.early_stopping import VALIDATION

HIDDEN, EPOCHS, IMAGE_SIZE = "512,256,128", 15, "28x28"
DEMO_SETS = ("digits", "printed-digits")
DEMO_MODEL, DEMO_HIDDEN, DEMO_EPOCHS, DEMO_IMAGE_SIZE = "mlp", "256", 40, "8x8"
"""Defaults without data: both sets are embedded, and the digits are stored as 8x8."""
MOMENTUM = 0.9
RATE = 30.0
"""Learning rate of momentum SGD in place of Adam, as a multiple of Adam's."""
COSTS = dict.fromkeys(DESIGNS, 1.0) | {"shorter": 0.5, "longer": 2.0, "wider": 2.0, "narrower": 0.5}
"""Training time of each design, relative to the guess; a step of a network of twice the width takes twice as long."""
WIDER = 2.0
AUGMENTED = ("flip", "crop")
"""Augmentations as for CIFAR (He et al. 2016, section 4.2)."""


def with_defaults(options: Options) -> Options:
    """The options of `ks` or `power` with defaults filled in for the sets, the network and its training."""
    query, calibration = options.data.query, options.data.calibration
    options = with_usual(options, epochs=DEMO_EPOCHS if query is None else EPOCHS)
    # A given warm-up may be longer than the default epochs.
    options.recipe.check()
    if query is None:
        return with_usual(
            options,
            **dict(zip(("query", "calibration"), DEMO_SETS, strict=True)),
            image_size=DEMO_IMAGE_SIZE,
            model=DEMO_MODEL,
            hidden=DEMO_HIDDEN,
        )
    if calibration is None:
        calibration = other_split(query)
        if calibration is not None:
            say(f"no --calibration given; using {calibration}")
    # The medical network crops images of their original size.
    size = "none" if options.model.model == "medical-cnn" else IMAGE_SIZE
    model = OF_TEXTS if is_texts(query) else None
    return with_usual(options, calibration=calibration, image_size=size, model=model, hidden=HIDDEN)


def make_shadow_learner(model: Network, recipe: ShadowRecipe, query: Examples, records: int) -> SteppedLearner:
    """The model and training recipe of shadow models, for training sets of at most this many records."""
    name, texts, adapters = model.model or "mlp", are_texts(query), make_adapters(model, recipe.dropout)
    built_in = adapters is None and parse_model(name) is None
    of_texts = adapters is not None or is_of_texts(name)
    if (built_in or adapters) and texts is not of_texts:
        purpose = "records of classes, and texts have none" if texts else "texts, and the records are not"
        raise InputError(f"--model {name} is for {purpose}; use {OF_TEXTS if texts else 'mlp'}.")
    if built_in and not of_texts and name != "mlp" and query.inputs.ndim != 4:
        raise InputError(
            f"--model {name} is for images, and {query.name} has records of shape {query.inputs.shape[1:]}; use mlp, "
            "or a network of your own."
        )
    factory = adapters or make_factory(name, parse_hidden(model.hidden or ""), recipe.dropout)
    recipe = replace(recipe, epochs=recipe.epochs or EPOCHS)
    classes = adapters.vocabulary if adapters else vocabulary_of(query) or len(query.class_names)
    learner = make_learner(factory, recipe, query.inputs.shape[1:], classes, records, texts)
    if not learner.net.seeded:
        say(UNSEEDED)
    if recipe.patience is None:
        return learner
    return stop_early(learner, recipe.patience, VALIDATION if recipe.validation is None else recipe.validation)


def make_designs(names: str, model: Network, recipe: ShadowRecipe, query: Examples, records: int) -> tuple[Design, ...]:
    """The designs (networks with their recipes) that `--designs` names, except that of `make_shadow_learner`.

    Args:
        names: the value of `--designs`.
        model, recipe: the options of network and training.
        query: the query set.
        records: the largest number of training records of a model.
    """
    designs = designs_beside(names, model, recipe, query.inputs.shape[1:])
    return tuple(Design(name, make_shadow_learner(*design, query, records)) for name, design in designs.items())


def designs_beside(
    names: str, model: Network, recipe: ShadowRecipe, record: tuple[int, ...]
) -> dict[str, tuple[Network, ShadowRecipe]]:
    """Network and recipe of each further design, for records of this shape; see `make_designs`."""
    epochs = recipe.epochs or 1
    makers: dict[str, Callable[[], tuple[Network, ShadowRecipe]]] = {
        "shorter": lambda: (model, replace(recipe, epochs=max(1, epochs // 2))),
        "longer": lambda: (model, replace(recipe, epochs=2 * epochs)),
        "momentum": lambda: (model, _optimized(recipe, "sgd")),
        "wider": lambda: (_times(WIDER, model), recipe),
        "narrower": lambda: (_times(1 / WIDER, model), recipe),
        "adam": lambda: (model, _optimized(recipe, "adam")),
        "augmented": lambda: (model, replace(recipe, augment=AUGMENTED)),
        "plain": lambda: (model, replace(recipe, augment=())),
    }
    return {name: makers[name]() for name in _possible(names, model, recipe, record) if name != GUESS}


def mean_cost(names: str, model: Network, recipe: ShadowRecipe, record: tuple[int, ...]) -> float:
    """The mean training time over these designs, relative to the guess.

    >>> mean_cost("guess,longer", Network(model="mlp"), ShadowRecipe(), (8, 8, 1))
    1.5
    """
    return float(np.mean([design_cost(name, model) for name in _possible(names, model, recipe, record)]))


def number_of_programs(names: str, model: Network, recipe: ShadowRecipe, record: tuple[int, ...]) -> int:
    """How many of these designs are compiled: one for all that differ in their epochs alone.

    >>> number_of_programs("guess,longer,narrower", Network(model="mlp"), ShadowRecipe(), (8, 8, 1))
    2
    """
    return len({GUESS, *_possible(names, model, recipe, record)} - {"shorter", "longer"})


def design_cost(name: str, model: Network) -> float:
    """The training time of a design relative to the guess; the rank of adapters hardly changes it."""
    return 1.0 if name in ("wider", "narrower") and _adapted(model) else COSTS[name]


def _adapted(model: Network) -> bool:
    return isinstance(model, TextNetwork) and model.lora is not None


def _possible(names: str, model: Network, recipe: ShadowRecipe, record: tuple[int, ...]) -> tuple[str, ...]:
    """The designs that these names mean; the usual ones include `wider` only if the network has a width."""
    nothing = dict[str, str]()
    if model.model != "mlp" and not _adapted(model):
        nothing |= dict.fromkeys(("wider", "narrower"), "only mlp has a width (--hidden)")
    if _adapted(model) or is_of_texts(model.model or ""):
        nothing["momentum"] = "SGD hardly trains a language model in as many epochs"
    if recipe.optimizer == "adam":
        nothing["adam"] = "the guess has it (--optimizer adam)"
    if len(record) != 3:
        nothing["augmented"] = f"{' and '.join(AUGMENTED)} are for images"
    if recipe.augment:
        nothing["augmented"] = "the guess is (--augment)"
    else:
        nothing["plain"] = "the guess is (no --augment)"
    meant, listed_names = parse_designs(names), [name.strip() for name in names.split(",")]
    for name in meant:
        if name in nothing and name in listed_names:
            raise InputError(f"there is no design {name} beside the guess here: {nothing[name]}; leave it out.")
    return tuple(name for name in meant if name not in nothing)


def _times(factor: float, model: Network) -> Network:
    """The network of this factor times the width: of the hidden layers, or of the adapters, whose scale is kept."""
    if isinstance(model, TextNetwork) and model.lora is not None:
        rank = max(1, int(factor * model.lora))
        alpha = None if model.lora_alpha is None else model.lora_alpha * rank / model.lora
        return replace(model, lora=rank, lora_alpha=alpha)
    return replace(model, hidden=",".join(str(max(1, int(factor * size))) for size in parse_hidden(model.hidden or "")))


def _optimized(recipe: ShadowRecipe, optimizer: str) -> ShadowRecipe:
    """The recipe with momentum SGD or Adam in place of its optimizer; schedule, clipping and the rest are kept."""
    before, momentum, damped = recipe.optimizer, None, (1 - MOMENTUM) / (1 - (recipe.momentum or 0))
    if optimizer == "sgd":
        momentum, times = MOMENTUM, RATE if before in ("adam", "adamw") else damped
    else:
        times = damped / RATE if before == "sgd" else 1.0
    rate, decay = recipe.learning_rate * times, recipe.weight_decay if before in ("adam", "sgd") else None
    return replace(recipe, optimizer=optimizer, learning_rate=rate, momentum=momentum, weight_decay=decay)
