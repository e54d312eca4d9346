"""From options of the command line to a learner: its parts by name, or your own."""

import inspect
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import fields, replace
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any

from jaxaudit.cli.options import refuse_options
from jaxaudit.cli.own_code import (
    OF_TEXTS,
    load_value,
    parse_model,
    parse_own,
    parse_sized,
    pretrained_config,
)
from jaxaudit.cli.parsers import is_of_sklearn, parse_hidden, parse_lora
from jaxaudit.cli.shared_options import RecipeFlags, ShadowNetwork
from jaxaudit.errors import InputError, first_line

if TYPE_CHECKING:
    from jaxaudit.learners import EstimatorLearner, NetworkLearner


ADAMW_DECAY = 0.01
"""PyTorch's default, used without --recipe weight-decay."""


def make_factory(name: str, hidden: str | None = None, dropout: float | None = None) -> Any:
    """The model factory that `--model` names, built-in or your own; see `parse_model` and `parse_hidden`."""
    code = parse_model(name)
    if code is None:
        return _built_in(name, parse_hidden(hidden or ""), dropout)
    why = f"is of the built-in networks, and {name} is your own; put flax.nnx.Dropout into it, and"
    refuse_options({"--recipe dropout": dropout}, why)
    factory = load_value(name, code)
    if not callable(factory):
        raise InputError(
            f"--model {name} is of type {type(factory).__name__}, which cannot be called; name a class or a function."
        )
    return factory


def refuse_other_network(name: str, of_texts: bool, texts: bool) -> None:
    """Refuses a network of texts for records of classes, and the other way round."""
    if of_texts is not texts:
        purpose = "records of classes, and texts have none" if texts else "texts, and the records are not"
        raise InputError(f"--model {name} is for {purpose}; use {OF_TEXTS if texts else 'mlp'}.")


def make_adapters(options: ShadowNetwork) -> Any:
    """The factory of adapters that the options describe (`--recipe lora`); None for any other network."""
    folder = pretrained_config(options.model)
    if options.lora is None:
        if folder is not None:
            raise InputError(
                f"--model {options.model}: is a folder; of a causal model of transformers, adapters are trained: give "
                "their rank, such as --recipe lora=8."
            )
        return None
    if folder is None:
        raise InputError(
            "--recipe lora needs --model FOLDER: a causal model of transformers, as save_pretrained wrote it."
        )
    refuse_options({"--recipe tokens": options.tokens}, "is not for adapters, whose base model has its own tokenizer")
    from jaxaudit.models.causal import Adapters

    rank, alpha, layers = parse_lora(options.lora)
    return Adapters(str(folder), rank, alpha, options.dropout or 0.0, layers)


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
    make = _learner if ours else _learner.__wrapped__
    # Of a command's options the others change no learner.
    recipe = RecipeFlags(**{field.name: getattr(recipe, field.name) for field in fields(RecipeFlags)})
    return in_known_form(make(factory, recipe, input_shape, classes, most, of_tokens))


@lru_cache(maxsize=8)
def _learner(
    factory: Any, recipe: RecipeFlags, input_shape: tuple[int, ...], classes: int, most: int, of_tokens: bool
) -> "NetworkLearner":
    """A cached learner: equal learners are one object, because JAX compiles and stores a program for each object."""
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
        augment = [AUGMENTATIONS[name] for name in dict.fromkeys(recipe.augment)]
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

    decay = recipe.weight_decay
    if recipe.optimizer == "adamw":
        return partial(optax.adamw, weight_decay=ADAMW_DECAY if decay is None else decay)
    coupled = partial(optax.adam, b1=0.5, b2=0.999)
    if recipe.optimizer == "sgd":
        coupled = partial(optax.sgd, momentum=recipe.momentum) if recipe.momentum else optax.sgd
    # Coupled weight decay, as in PyTorch for both optimizers: the decay is a part of the gradient.
    return (lambda rate: optax.chain(optax.add_decayed_weights(decay), coupled(rate))) if decay else coupled


def load_estimator(name: str, parameters: Sequence[str], classes: int) -> "EstimatorLearner | None":
    """The learner of the estimator that `--model` names, with these parameters (`NAME=VALUE`).

    None for your own code that is no estimator, nor a function or class that makes one without arguments: a network's.
    """
    # Imported here because they take seconds. The installed scikit-learn, whatever lies in the current folder.
    import sklearn  # noqa: F401

    from jaxaudit.learners.estimator import EstimatorLearner, is_estimator, settable

    code = parse_own(name, (), "an estimator", "make")
    assert code is not None, "no estimator is built in"
    estimator = load_value(name, code)
    if isinstance(estimator, type) or not is_estimator(estimator):
        estimator = _made_without_arguments(name, estimator)
    is_class = isinstance(estimator, type)
    if not is_of_sklearn(name) and (is_class or not is_estimator(estimator)):
        return None
    if is_class:
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
