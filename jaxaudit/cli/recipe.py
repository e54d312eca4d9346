"""From options of the command line to a learner, its parts by name or your own, and how long it takes."""

import inspect
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxaudit.cli.groups import Network, RecipeFlags, TextNetwork, named_sets
from jaxaudit.cli.options import Options, refuse_options, with_usual
from jaxaudit.cli.own_code import (
    OF_TEXTS,
    UNSEEDED,
    is_of_sklearn,
    is_of_texts,
    load_own,
    load_value,
    own_code,
    parse_model,
    parse_sized,
    pretrained_config,
)
from jaxaudit.cli.parsers import is_texts, other_split, parse_hidden, parse_lora
from jaxaudit.cli.progress import duration, say
from jaxaudit.data import Examples
from jaxaudit.data.sequences import are_texts, vocabulary_of
from jaxaudit.ensemble import StepCost
from jaxaudit.ensemble.execution import EQUATIONS_A_SECOND, OPERATIONS_A_SECOND
from jaxaudit.errors import InputError, first_line
from jaxaudit.learners import SteppedLearner

if TYPE_CHECKING:
    from jaxaudit.learners import EstimatorLearner, NetworkLearner

ADAMW_DECAY = 0.01
"""PyTorch's default, used without --recipe weight-decay."""


def make_factory(name: str, hidden: tuple[int, ...], dropout: float | None = None) -> Any:
    """The model factory that `--model` names, built-in or your own; see `parse_model`."""
    if parse_model(name) is not None:
        why = f"is of the built-in networks, and {name} is your own; put flax.nnx.Dropout into it, and"
        refuse_options({"--recipe dropout": dropout}, why)
        return load_own("--model", name)
    return _built_in(name, hidden, dropout)


def refuse_other_network(name: str, of_texts: bool, texts: bool) -> None:
    """Refuses a network of texts for records of classes, and the other way round."""
    if of_texts is not texts:
        purpose = "records of classes, and texts have none" if texts else "texts, and the records are not"
        raise InputError(f"--model {name} is for {purpose}; use {OF_TEXTS if texts else 'mlp'}.")


def make_adapters(model: Network, dropout: float | None = None) -> Any:
    """The factory of adapters that the options describe (`--recipe lora`); None for any other network."""
    options = model if isinstance(model, TextNetwork) else TextNetwork()
    folder = pretrained_config(model.model)
    if options.lora is None:
        if folder is not None:
            raise InputError(
                f"--model {model.model}: is a folder; of a causal model of transformers, adapters are trained: give "
                "their rank, such as --recipe lora=8."
            )
        return None
    if folder is None:
        raise InputError(
            "--recipe lora needs --model FOLDER: a causal model of transformers, as save_pretrained wrote it."
        )
    refuse_options({"--recipe tokens": options.tokens}, "is not for adapters, whose base model has its own tokenizer")
    from jaxaudit.models.causal import Adapters

    lora = parse_lora(options.lora)
    return Adapters(str(folder), lora.rank, lora.alpha, dropout or 0.0, lora.layers)


@cache
def _built_in(name: str, hidden: tuple[int, ...], dropout: float | None) -> Any:
    """A cached factory: equal arguments give the same object, so that programs for it are compiled once."""
    from jaxaudit import models

    share = {"dropout": dropout} if dropout else {}
    if name == "mlp":
        return partial(models.MLP, hidden=hidden, **share)
    sized = parse_sized(name)
    if sized is not None:
        families = {"resnet": models.ResNet, "wrn": models.WideResNet, "vit": models.ViT, "gpt": models.GPT}
        return partial(families[sized[0]], **sized[1], **share)
    return partial(models.LiuCNN, **share) if share else models.LiuCNN


def make_learner(
    factory: Any, recipe: RecipeFlags, input_shape: tuple[int, ...], classes: int, most: int, of_tokens: bool = False
) -> "NetworkLearner":
    """The learner that trains a factory's network by a recipe, for training sets of at most this many records.

    If records are sequences of tokens, `classes` is the number of tokens.
    """
    from jaxaudit.cli.programs import in_known_form

    ours = getattr(factory, "func", factory).__module__.startswith("jaxaudit.")
    own_augmentations = [own_code("--recipe augment", name) for name in recipe.augment]
    has_own = own_code("--recipe optimizer", recipe.optimizer) or any(own_augmentations)
    make = _learner if ours and not has_own else _learner.__wrapped__
    return in_known_form(make(factory, recipe, input_shape, classes, most, of_tokens))


@lru_cache(maxsize=8)
def _learner(
    factory: Any, recipe: RecipeFlags, input_shape: tuple[int, ...], classes: int, most: int, of_tokens: bool
) -> "NetworkLearner":
    """A cached learner: equal learners are one object, because JAX compiles and stores a program for each object."""
    from dataclasses import replace

    from jaxaudit.learners import AUGMENTATIONS, language_model, network

    training: dict[str, Any] = {
        "optimizer": make_optimizer(recipe),
        "epochs": recipe.epochs or 1,
        "batch_size": recipe.batch_size,
        "precision": recipe.precision or "float32",
    }
    if of_tokens:
        values = {"--recipe label-smoothing": recipe.label_smoothing, "--recipe augment": recipe.augment}
        refuse_options(values, "is of classifiers, not of texts")
        learner = language_model(factory, input_shape[0], classes, **training)
    else:
        own_augmentations = {name: load_own("--recipe augment", name) for name in recipe.augment}
        augment = [AUGMENTATIONS[name] if one is None else one for name, one in own_augmentations.items()]
        smoothing = recipe.label_smoothing or 0.0
        learner = network(factory, input_shape, classes, **training, label_smoothing=smoothing, augment=augment)
    if learner.batch_coupled:
        return learner
    # A batch larger than all records would be padded with weight 0, which only batch normalisation would see.
    return replace(learner, batch_size=min(learner.batch_size, most))


def make_optimizer(recipe: RecipeFlags) -> Any:
    """The Optax transformation of a recipe: clipping, the optimizer with its weight decay, and its learning rate."""
    import optax

    from jaxaudit.learners import by_epoch, schedule

    rule, rate, epochs = _rule(recipe), recipe.learning_rate, recipe.epochs or 1
    if recipe.schedule == "constant" and not recipe.warmup:
        optimizer = rule(rate)
    else:
        # An effort may have fewer epochs than requested.
        warmup = min(recipe.warmup or 0, epochs - 1)
        optimizer = by_epoch(rule, schedule(recipe.schedule, rate, epochs, warmup))
    return (
        optimizer if recipe.clip_norm is None else optax.chain(optax.clip_by_global_norm(recipe.clip_norm), optimizer)
    )


def _rule(recipe: RecipeFlags) -> Callable[[Any], Any]:
    """The optimizer as a function of its learning rate; Adam has the paper's b1 = 0.5, b2 = 0.999."""
    import optax

    own_rule, decay = load_own("--recipe optimizer", recipe.optimizer), recipe.weight_decay
    if own_rule is not None:
        return partial(_made_by, recipe.optimizer, own_rule)
    if recipe.optimizer == "adamw":
        return partial(optax.adamw, weight_decay=ADAMW_DECAY if decay is None else decay)
    coupled = partial(optax.adam, b1=0.5, b2=0.999)
    if recipe.optimizer == "sgd":
        coupled = partial(optax.sgd, momentum=recipe.momentum) if recipe.momentum else optax.sgd
    # Coupled weight decay, as in PyTorch for both optimizers: the decay is a part of the gradient.
    return (lambda rate: optax.chain(optax.add_decayed_weights(decay), coupled(rate))) if decay else coupled


def _made_by(name: str, function: Any, rate: Any) -> Any:
    import optax

    transformation = function(rate)
    if not isinstance(transformation, optax.GradientTransformation):
        raise InputError(
            f"--recipe optimizer={name} returned a {type(transformation).__name__}, not an Optax transformation; it is "
            "called with the learning rate alone."
        )
    return transformation


def load_estimator(name: str, parameters: Sequence[str], classes: int) -> "EstimatorLearner | None":
    """The learner of the estimator that `--model` names, with these parameters (`NAME=VALUE`).

    None for your own code that is no estimator, nor a function or class that makes one without arguments: a network's.
    """
    # Imported here because they take seconds. The installed scikit-learn, whatever lies in the current folder.
    import sklearn  # noqa: F401

    from jaxaudit.learners.estimator import EstimatorLearner, is_estimator, settable

    code = own_code("--model", name)
    assert code is not None, "no estimator is built in"
    estimator = load_value("--model", name, code)
    if isinstance(estimator, type) or not is_estimator(estimator):
        estimator = _made_without_arguments(name, estimator)
    if not is_of_sklearn(name) and (isinstance(estimator, type) or not is_estimator(estimator)):
        return None
    if isinstance(estimator, type):
        raise InputError(f"--model {name} needs arguments: give them in a function of your own, as file.py:make.")
    words, usual = dict(parameter.split("=", 1) for parameter in parameters), settable(estimator)
    unknown = [parameter for parameter in words if parameter not in usual]
    if unknown:
        raise InputError(
            f"--recipe {unknown[0][:100]}: {name} has no such parameter that can be set; it has {', '.join(usual)}."
        )
    if words:
        estimator.set_params(**{parameter: _parameter_value(word) for parameter, word in words.items()})
    return EstimatorLearner(estimator, classes)


def _made_without_arguments(name: str, factory: Any) -> Any:
    """What a function or class without arguments returns; the value itself if it is none."""
    try:
        inspect.signature(factory).bind()
    except (TypeError, ValueError):
        return factory
    try:
        with redirect_stdout(sys.stderr):
            return factory()
    except Exception as error:
        raise InputError(f"--model {name} was called without arguments and failed: {first_line(error)}.") from error


def _parameter_value(word: str) -> Any:
    """The value of a parameter: a number, none, true, false, several with commas, or else the word itself.

    >>> [_parameter_value(word) for word in ("100", "0.5", "none", "True", "64,32", "balanced")]
    [100, 0.5, None, True, (64, 32), 'balanced']
    """
    if "," in word:
        return tuple(map(_parameter_value, filter(None, word.split(","))))
    constants = {"none": None, "true": True, "false": False}
    if word.lower() in constants:
        return constants[word.lower()]
    for kind in (int, float):
        with suppress(ValueError):
            return kind(word)
    return word


HIDDEN, EPOCHS, IMAGES = "512,256,128", 15, "28x28"
DEMO_SETS = ("digits", "printed-digits")
DEMO_MODEL, DEMO_HIDDEN, DEMO_EPOCHS, DEMO_IMAGES = "mlp", "256", 40, "8x8"
"""Defaults without data: both sets are embedded, and the digits are stored as 8x8."""


def with_defaults(options: Options) -> Options:
    """The options of `ks` or `power` with defaults filled in for the sets, the network and its training."""
    names = {str(role): name for role, name in named_sets(options.data).names.items()}
    query = names.get("query")
    options = with_usual(options, epochs=DEMO_EPOCHS if query is None else EPOCHS)
    # A given warm-up may be longer than the default epochs.
    options.recipe.check()
    if query is None:
        return with_usual(
            options,
            **dict(zip(("query", "calibration"), DEMO_SETS, strict=True)),
            images=DEMO_IMAGES,
            model=DEMO_MODEL,
            hidden=DEMO_HIDDEN,
        )
    calibration = None if "calibration" in names else other_split(query)
    if calibration is not None:
        say(f"no --calibration given; using {calibration}")
    model = OF_TEXTS if is_texts(query) else None
    return with_usual(options, calibration=calibration, images=IMAGES, model=model, hidden=HIDDEN)


def make_shadow_learner(model: Network, recipe: RecipeFlags, query: Examples, records: int) -> SteppedLearner:
    """The model and training recipe of shadow models, for training sets of at most this many records."""
    name, texts, adapters = model.model or "mlp", are_texts(query), make_adapters(model, recipe.dropout)
    built_in = adapters is None and parse_model(name) is None
    of_texts = adapters is not None or is_of_texts(name)
    if built_in or adapters:
        refuse_other_network(name, of_texts, texts)
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
    return learner


FIXED_SECONDS = 10.0
"""Seconds for reading, judging, and compiling what is small."""


def seconds_of(operations: float, cost: StepCost) -> float:
    """How long a run of so many operations takes on two cores of a CPU, compilation included: a function of shapes."""
    return round(operations / OPERATIONS_A_SECOND + cost.equations / EQUATIONS_A_SECOND + FIXED_SECONDS, 1)


def time_of(operations: float, cost: StepCost) -> str:
    """As `seconds_of`, in words."""
    return f"about {duration(seconds_of(operations, cost))} on two cores of a CPU"


class PlannedSize(NamedTuple):
    """What an effort takes, what it leaves out, and by how much the minimum detectable fraction is then larger."""

    operations: float
    reduced: Sequence[str]
    effect: float = 1.0


def lines_of_effort(reached: PlannedSize, in_full: float, cost: StepCost) -> list[str]:
    """Lines of a printed plan: what it leaves out, and how long a run takes that leaves nothing out (`in_full`)."""
    if not reached.reduced:
        return []
    lines = [f"  reduced: {'; '.join(reached.reduced)}"]
    if reached.effect > 1.01:
        lines.append(f"  effect: the minimum detectable fraction is about {reached.effect:.1f} times as large")
    return [*lines, f"  --effort full: {time_of(in_full, cost)}; nothing reduced"]


def numbers_of_effort(effort: str, reached: PlannedSize, in_full: float, cost: StepCost) -> dict[str, object]:
    """The same as `lines_of_effort`, as fields for `--json`; `effort` is the name of the run's effort."""
    return {
        "effort": effort,
        "operations": reached.operations,
        "seconds": seconds_of(reached.operations, cost),
        "reduced": list(reached.reduced),
        "seconds_in_full": seconds_of(in_full, cost),
    }
