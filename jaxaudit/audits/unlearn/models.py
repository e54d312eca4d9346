"""The models of the `unlearn` audit: runs a method on trained models, and converts parameters to arrays for a file."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, Real

from jaxaudit.data.examples import Examples
from jaxaudit.data.sequences import are_texts
from jaxaudit.ensemble import Execution
from jaxaudit.ensemble.checkpoint import as_plain, is_key
from jaxaudit.errors import InputError
from jaxaudit.learners import NetworkLearner, NetworkParams, SteppedLearner
from jaxaudit.unlearning import Unlearn


def inputs_of(examples: Examples) -> Real[np.ndarray, "n ..."]:
    """The inputs as networks take them: in float32, tokens of texts as whole numbers."""
    return examples.inputs if are_texts(examples) else np.asarray(examples.inputs, np.float32)


def log_probs_of(learner: NetworkLearner, state: Any) -> Callable[[Any, Any], Array]:
    """`(params, inputs) -> log-probabilities` of a network with this state."""
    return lambda params, inputs: learner.log_probs(NetworkParams(params, state), inputs)


def flat_params(params: Any, models: Int[np.ndarray, " models"]) -> tuple[np.ndarray, ...]:
    """All leaves of a chunk's parameters in order, random keys as key data: a `summarize` of `fit_many`.

    Types unknown to NumPy (bfloat16) are stored as unsigned integers of the same bytes.
    """
    return tuple(map(as_plain, jax.tree.leaves(params)))


def params_of(learner: SteppedLearner, leaves: tuple[np.ndarray, ...]) -> Any:
    """The parameters of models trained by `learner`, restored from these arrays."""
    kinds: list[Any] = []

    def params_of_seed(key: Any) -> Any:
        params = learner.finish(learner.init(key))
        # The implementation of a random key is known from the key, not from its shape.
        kinds.extend(jax.random.key_impl(leaf) if is_key(leaf) else None for leaf in jax.tree.leaves(params))
        return params

    shapes, structure = jax.tree.flatten(jax.eval_shape(params_of_seed, jax.eval_shape(jax.random.key, 1)))

    def restored(leaf: np.ndarray, shape: Any, kind: Any) -> Any:
        if kind is not None:
            return jax.random.wrap_key_data(jnp.asarray(leaf), impl=kind)
        return leaf.view(shape.dtype)

    return structure.unflatten(restored(*leaf) for leaf in zip(leaves, shapes, kinds, strict=True))


def end(part: Execution) -> None:
    """Reports that a part is done, even if nothing had to be trained for it."""
    if part.progress is not None:
        part.progress(1, 1)


def on_host(leaf: Any) -> Any:
    """The array in the host's memory; random keys, which NumPy has no type for, stay as they are."""
    return leaf if is_key(leaf) else np.asarray(leaf)


def traced(name: str, method: Unlearn, learner: NetworkLearner, train: Examples) -> Any:
    """`(key, model, forget) -> model`, jitted: the method, traced once so that it fails before anything is trained."""
    records = jnp.asarray(inputs_of(train)), jnp.asarray(train.labels)

    def one(key: Any, model: NetworkParams, row: Any) -> NetworkParams:
        new = method(key, log_probs_of(learner, model.state), model.params, *records, row)
        expected, shapes = (
            jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), params) for params in (model.params, new)
        )
        if jax.tree.structure(model.params) != jax.tree.structure(new) or expected != shapes:
            raise InputError(
                f"the method `{name}` returned parameters that do not fit the model: it must return the arrays it was "
                "given, of the same shapes and types, with other numbers in them."
            )
        return NetworkParams(new, model.state)

    ready, key = jax.jit(one), jax.eval_shape(jax.random.key, 1)
    model = jax.eval_shape(lambda key: learner.finish(learner.init(key)), key)
    jax.eval_shape(ready, key, model, jax.ShapeDtypeStruct((len(train),), bool))
    return ready


def unlearned(
    alone: Any,
    keys: Key[Array, "sets seeds"],
    originals: NetworkParams,
    forget: np.ndarray,
    together: bool,
    parts: Sequence[Execution],
) -> NetworkParams:
    """A method's models for every set to forget and every seed, made one at a time, or all of a set together.

    Args:
        alone: the method, as a jitted function of a key, trained parameters and the records to forget.
        keys: a random key for each model.
        originals: the trained parameters of each seed.
        forget: the records of each set.
        together: whether the models of a set are computed in one call.
        parts: receive the progress of each set.

    Returns:
        The parameters after unlearning; the leading axes are sets and seeds.
    """
    at_once = jax.jit(jax.vmap(alone.__wrapped__, in_axes=(0, 0, None)))

    def of_set(keys: Any, row: Any, part: Execution) -> Any:
        if together:
            forgetful = jax.tree.map(on_host, at_once(keys, originals, row))
            end(part)
            return forgetful
        models = []
        for m, key in enumerate(keys):
            # Copied to the host, so that progress is reported only after the model is computed.
            model = alone(key, jax.tree.map(lambda leaf, m=m: leaf[m], originals), row)
            models.append(jax.tree.map(on_host, model))
            if part.progress is not None:
                part.progress(m + 1, len(keys))
        return jax.tree.map(lambda *leaves: _stacked(leaves), *models)

    rows = [of_set(*arguments) for arguments in zip(keys, map(jnp.asarray, forget), parts, strict=True)]
    return jax.tree.map(lambda *leaves: _stacked(leaves), *rows)


def _stacked(leaves: tuple[Any, ...]) -> Any:
    return jnp.stack(leaves) if is_key(leaves[0]) else np.stack(leaves)
