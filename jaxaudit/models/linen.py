"""Converts a Flax Linen module to pure functions: `params` are the parameters, other collections are state."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen
from flax.errors import InvalidRngError
from jaxtyping import Array, Key

from jaxaudit.errors import InputError
from jaxaudit.models.module import Origin, PureModule

PARAMS = "params"
TRAINING, EVALUATION = ("train", "training", "is_training"), ("deterministic", "use_running_average")


class LinenState(NamedTuple):
    """The state of a Linen module: its variables but the parameters, by collection, and the random key of its random
    layers in training; None without such layers.
    """

    collections: dict[str, Any]
    key: Any


def linen_functions(module: Any, input_shape: tuple[int, ...]) -> PureModule:
    """The pure functions of a Linen module.

    An argument of `__call__` named `train`, `training`, `is_training`, `deterministic` or `use_running_average` is set
    accordingly; any other must have a default. In training, all random streams are derived from the state's key.
    """
    name = type(module).__name__
    modes = _modes(module, name)
    blank = jnp.zeros((1, *input_shape), jnp.float32)

    def start(key: Key[Array, ""]) -> tuple[Any, dict[str, Any]]:
        collections = dict(linen.meta.unbox(module.init({PARAMS: key}, blank, **modes(False))))
        return collections.pop(PARAMS, {}), collections

    def evaluate(params: Any, collections: dict[str, Any], inputs: Array) -> Any:
        return module.apply({PARAMS: params, **collections}, inputs, **modes(False))

    abstract_key = jax.eval_shape(jax.random.key, 1)
    params, collections = jax.eval_shape(start, abstract_key)
    inputs = jax.ShapeDtypeStruct((2, *input_shape), jnp.float32)
    try:
        jax.eval_shape(evaluate, params, collections, inputs)
    except InvalidRngError as error:
        raise InputError(evaluation_draws(name)) from error
    kept = list(collections)

    def train(params: Any, collections: dict[str, Any], key: Any, inputs: Array) -> tuple[Any, dict[str, Any]]:
        rngs = None if key is None else {PARAMS: key}
        return module.apply({PARAMS: params, **collections}, inputs, rngs=rngs, mutable=kept, **modes(True))

    try:
        jax.eval_shape(lambda params, kept, inputs: train(params, kept, None, inputs), params, collections, inputs)
        draws = False
    except InvalidRngError:
        draws = True

    def init(key: Key[Array, ""]) -> tuple[Any, LinenState]:
        params, collections = start(key)
        return params, LinenState(collections, jax.random.fold_in(key, 1) if draws else None)

    def apply(params: Any, state: LinenState, inputs: Array, training: bool) -> tuple[Any, LinenState]:
        if not training:
            return evaluate(params, state.collections, inputs), state
        key, now = (None, None) if state.key is None else jax.random.split(state.key)
        logits, changed = train(params, state.collections, now, inputs)
        return logits, LinenState({**state.collections, **changed}, key)

    return PureModule(init, apply, bool(jax.tree.leaves(collections)), draws, origin=Origin("flax.linen"))


def evaluation_draws(name: str) -> str:
    """The error message for a model that draws random numbers in evaluation mode."""
    return (
        f"the model {name} draws random numbers in evaluation, so its outputs are not determined; switch them off "
        "there, such as by deterministic=True for flax.nnx.Dropout and flax.linen.Dropout."
    )


def _modes(module: Any, name: str) -> Callable[[bool], dict[str, Any]]:
    parameters = list(inspect.signature(type(module).__call__).parameters.values())[2:]
    names = [parameter.name for parameter in parameters]
    for parameter in parameters:
        is_keyword = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if is_keyword and parameter.default is parameter.empty and parameter.name not in TRAINING + EVALUATION:
            raise InputError(
                f"the model {name} needs an unknown argument {parameter.name!r}; known ones are "
                f"{', '.join(TRAINING + EVALUATION)}. Give it a default."
            )
    return lambda training: {
        mode_name: training == (mode_name in TRAINING) for mode_name in TRAINING + EVALUATION if mode_name in names
    }
