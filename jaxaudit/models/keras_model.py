"""Converts a Keras 3 model on its JAX backend to pure functions: trainable variables are parameters, others are state.

Keras computes with JAX itself, so `stateless_call` is the function. A weight is named by its place: `000/kernel`.
"""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from jaxaudit.errors import InputError
from jaxaudit.models.module import WAYS_ON, Origin, PureModule


def is_keras_model(value: Any) -> bool:
    """Whether `value` is a Keras model, decided without importing Keras."""
    keras = sys.modules.get("keras")
    return keras is not None and hasattr(keras, "Model") and isinstance(value, keras.Model)


@contextmanager
def built_by_keras() -> Iterator[None]:
    """A context in which a Keras model can be built, even while JAX traces; its weights have a fixed seed."""
    keras: Any = sys.modules.get("keras")
    if keras is None or not hasattr(keras, "utils"):
        yield
        return
    before = random.getstate(), np.random.get_state()  # noqa: NPY002 (Keras seeds it)
    try:
        with jax.ensure_compile_time_eval():
            keras.utils.set_random_seed(1)
            yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002


def keras_functions(model: Any, name: str, input_shape: tuple[int, ...]) -> PureModule:
    """The pure functions of a Keras model on the JAX backend, in evaluation mode; `init` returns the model's own
    weights.
    """
    if (backend := sys.modules["keras"].backend.backend()) != "jax":
        raise InputError(f"the model {name} is of Keras on {backend}: set KERAS_BACKEND=jax before it is imported.")
    mode = {"training": False} if getattr(model, "_call_has_training_arg", True) else {}
    if not model.built:
        with built_by_keras():
            model(jnp.zeros((1, *input_shape), jnp.float32), **mode)
    # Layers that turn their variables into constants when they are loaded (as after `adapt`).
    constant = [layer for layer in model._flatten_layers() if hasattr(layer, "finalize_state")]
    if any(getattr(layer, "input_mean", None) is None for layer in constant):
        raise InputError(
            f"the model {name} has a layer that makes constants of its weights; give it its numbers, as in "
            f"Normalization(mean=, variance=), or {WAYS_ON}."
        )
    # Keras counts up the names of layers in each process, so weights have places; what draws numbers is no weight.
    places = {id(weight): f"{at:03}/{weight.name}" for at, weight in enumerate(model.weights)}
    variables = model.trainable_variables, model.non_trainable_variables
    params, state = ({str(places.get(id(var), var.path)): np.asarray(var.value) for var in of} for of in variables)
    start = params, state
    seeds = {key: value for key, value in state.items() if key not in places.values()}

    def init(key: Key[Array, ""]) -> tuple[Any, Any]:
        return jax.tree.map(jnp.asarray, start)

    def apply(params: Any, state: Any, inputs: Array, training: bool) -> tuple[Any, Any]:
        if training:
            raise InputError(f"the model {name} is of Keras, which is not trained here; {WAYS_ON}.")
        trained, rest = ([held[key] for key in first] for held, first in ((params, start[0]), (state, start[1])))
        return model.stateless_call(trained, rest, inputs, **mode)[0], state

    return PureModule(init, apply, False, bool(seeds), False, Origin("keras", unsaved=seeds))
