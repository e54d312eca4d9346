"""A learner of one's own, by its name on the command line."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxaudit.cli.own_code import load_value
from jaxaudit.cli.own_model import parse_learner
from jaxaudit.errors import InputError
from jaxaudit.learners import Learner

NEEDED = "fit(key, inputs, labels, weights) and log_probs(params, inputs)"


def load_learner(name: str, record: tuple[int, ...], classes: int) -> Learner:
    """The learner that `--learner` names, after its functions were traced for records of this shape.

    Raises:
        InputError: it cannot be loaded or is no learner, or it is for other records or classes.
    """
    found = load_value("--learner", name, parse_learner(name))
    if isinstance(found, type) or not isinstance(found, Learner):
        kind = "a class" if isinstance(found, type) else f"of type {type(found).__name__}"
        raise InputError(f"--learner {name} is {kind}; name a value with {NEEDED}, such as one made by that class.")
    try:
        hash(found)
    except TypeError as error:
        raise InputError(
            f"--learner {name} cannot be hashed, and programs are compiled for a learner; make its class a frozen "
            "dataclass with fields that can be hashed (tuples, not lists or arrays)."
        ) from error
    _check(name, found, record, classes)
    return found


def _check(name: str, learner: Learner, record: tuple[int, ...], classes: int, records: int = 8) -> None:
    """Refuses a learner whose outputs on records of this shape are not a column per class."""

    def outputs(key: Any, inputs: Any, labels: Any, weights: Any) -> Any:
        return learner.log_probs(learner.fit(key, inputs, labels, weights), inputs)

    inputs = jax.ShapeDtypeStruct((records, *record), jnp.float32)
    labels, weights = (jax.ShapeDtypeStruct((records,), kind) for kind in (jnp.int32, jnp.float32))
    try:
        found = jax.eval_shape(outputs, jax.eval_shape(jax.random.key, 1), inputs, labels, weights)
    except Exception as error:
        first = (str(error).strip().splitlines() or ["no message"])[0]
        raise InputError(
            f"--learner {name} cannot be traced for {records} records of shape {record}: {type(error).__name__}: "
            f"{first} ({NEEDED} must be pure JAX functions of arrays)."
        ) from error
    if getattr(found, "shape", None) != (records, classes):
        shape = getattr(found, "shape", None)
        what = f"a {type(found).__name__}" if shape is None else f"outputs of shape {shape}"
        raise InputError(
            f"--learner {name} maps {records} records to {what}; it must return log-probabilities of shape "
            f"({records}, {classes}), a column per class."
        )
