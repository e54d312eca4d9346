"""From options to the learner of shadow models, with its defaults, and how long a run takes, in words."""

from dataclasses import replace
from functools import cache
from time import perf_counter

import numpy as np

from jaxaudit.cli.options import Options, with_usual
from jaxaudit.cli.own_code import OF_TEXTS, UNSEEDED, is_of_texts, parse_model
from jaxaudit.cli.parsers import is_texts, other_split
from jaxaudit.cli.progress import duration, say
from jaxaudit.cli.recipe import make_adapters, make_factory, make_learner, refuse_other_network
from jaxaudit.cli.shared_options import RecipeFlags, ShadowNetwork, named_sets
from jaxaudit.data import Examples
from jaxaudit.data.examples import Role
from jaxaudit.data.sequences import are_texts, vocabulary_of
from jaxaudit.ensemble import StepCost
from jaxaudit.ensemble.models_per_batch import EQUATIONS_A_SECOND
from jaxaudit.errors import InputError
from jaxaudit.learners import SteppedLearner

HIDDEN, EPOCHS, IMAGES = "512,256,128", 15, "28x28"
DEMO = {"query": "digits", "model": "mlp", "hidden": "256", "epochs": 40, "images": "8x8"}
"""Defaults without data: the digits are embedded, and stored as 8x8."""


def with_defaults(options: Options, *, set_alone: bool = True) -> Options:
    """The options of `ks` or `power` with defaults filled in for the sets, the network and its training. Without data,
    the digits are the query set, or half of them, beside the others as calibration set, if it is no `set_alone`.
    """
    names = named_sets(options).names
    query = names.get(Role.QUERY)
    options = with_usual(options, epochs=DEMO["epochs"] if query is None else EPOCHS)
    # A given warm-up may be longer than the default epochs.
    RecipeFlags.check(options)
    if query is None:
        halves = {} if set_alone else {"query": "digits@train[:900]", "calibration": "digits@train[900:]"}
        return with_usual(options, **{**DEMO, **halves})
    calibration = None if Role.CALIBRATION in names else other_split(query)
    if calibration is not None:
        say(f"no --calibration given; using {calibration}")
    return with_usual(
        options,
        calibration=calibration,
        images=IMAGES,
        model=OF_TEXTS if is_texts(query) else None,
        hidden=HIDDEN,
    )


def make_shadow_learner(options: ShadowNetwork, query: Examples, records: int) -> SteppedLearner:
    """The model and training recipe of shadow models, for training sets of at most this many records."""
    name, texts, adapters = options.model or "mlp", are_texts(query), make_adapters(options)
    built_in = adapters is None and parse_model(name) is None
    of_texts = adapters is not None or is_of_texts(name)
    if built_in or adapters:
        refuse_other_network(name, of_texts, texts)
    if built_in and not of_texts and name != "mlp" and query.inputs.ndim != 4:
        raise InputError(
            f"--model {name} is for images, and {query.name} has records of shape {query.inputs.shape[1:]}; use mlp, "
            "or a network of your own."
        )
    factory = adapters or make_factory(name, options.hidden, options.dropout)
    options = replace(options, epochs=options.epochs or EPOCHS)
    classes = adapters.vocabulary if adapters else vocabulary_of(query) or len(query.class_names)
    learner = make_learner(factory, options, query.inputs.shape[1:], classes, records, texts)
    if not learner.net.seeded:
        say(UNSEEDED)
    return learner


FIXED_SECONDS = 10.0
"""Seconds for reading, judging, and compiling what is small."""
SIDE, MEASURED_SECONDS, SHARE_OF_PRODUCTS = 1024, 0.2, 0.5
"""Training has so large a share of the operations a second of products of square matrices of this side."""


def time_of(operations: float, cost: StepCost) -> str:
    """How long a run of so many operations takes on this machine's CPU, as far as it is free now, compilation included,
    in words.
    """
    training = operations / (SHARE_OF_PRODUCTS * products_a_second())
    return f"about {duration(training + cost.equations / EQUATIONS_A_SECOND + FIXED_SECONDS)} on this machine's CPU"


@cache
def products_a_second() -> float:
    """The operations a second of products of matrices on this machine's cores, measured for a fifth of a second."""
    matrix = np.ones((SIDE, SIDE), np.float32)
    product = matrix @ matrix  # starts threads
    count, began = 0, perf_counter()
    while (passed := perf_counter() - began) < MEASURED_SECONDS:
        np.matmul(matrix, matrix, out=product)
        count += 1
    return 2 * SIDE**3 * count / passed
