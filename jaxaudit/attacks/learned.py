"""The learned membership attack on a model's outputs: a network learns what outputs on members look like.

The attack network and recipe are those of `MembershipInferenceBlackBox(attack_model_type="nn")` of IBM's Adversarial
Robustness Toolbox (Nicolae et al. 2018; version 1.20), after Shokri et al. (2017). Becker & Liebig (2022) use it to
measure what an attacker learns about records before and after forgetting.
"""

from functools import partial
from itertools import count, pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from jaxaudit.ensemble.batches import DISPATCH
from jaxaudit.ensemble.chunk import Results, call_directory
from jaxaudit.ensemble.concurrency import Stop, concurrent_chunks, run_at_once
from jaxaudit.ensemble.execution import DEFAULT_EXECUTION, Execution
from jaxaudit.errors import InputError, check_ranges, check_shapes
from jaxaudit.learners.learner import epoch_bits, init_key, traced_batches
from jaxaudit.metrics.arrays import Integers, OneKey, Scores
from jaxaudit.models import RUN_ONCE
from jaxaudit.randomness import ModelKeys

SOURCE = "Nicolae et al. 2018; Shokri et al. 2017"
EPOCHS, BATCH_SIZE, LEARNING_RATE = 100, 100, 1e-4
OPTIMIZER = optax.adam(LEARNING_RATE)
OUTPUT_WIDTHS, LABEL_WIDTHS = (512, 100, 64), (256, 64)
MOST_PER_BATCH = 8
"""The largest number of attack networks per batch on a CPU; other devices train all in one batch."""


class LearnedAttack(NamedTuple):
    """Trained attack networks, one per target model, as a leading axis.

    Outputs are standardised with the mean and the standard deviation (1 if that is 0) of those trained on.
    """

    params: Any
    mean: Float[np.ndarray, "models features"]
    scale: Float[np.ndarray, "models features"]


class _Layer(NamedTuple):
    kernel: Any
    bias: Any


class _Net(NamedTuple):
    outputs: tuple[_Layer, ...]
    labels: tuple[_Layer, ...]
    combine: _Layer


def fit_learned(
    keys: ModelKeys,
    outputs: Float[np.ndarray, "models n features"],
    labels: Int[np.ndarray, " records"],
    membership: Bool[np.ndarray, "rows columns"],
    classes: int,
    *,
    used: Bool[np.ndarray, "rows columns"] | None = None,
    epochs: int = EPOCHS,
    execution: Execution = DEFAULT_EXECUTION,
) -> LearnedAttack:
    """Trains one attack network for every target model.

    Architecture and recipe are the toolbox's defaults. Outputs pass through layers of 512, 100 and 64 units, the
    one-hot label through 256 and 64, all with ReLU; one logistic unit combines both. PyTorch's initialisation; Adam at
    1e-4; minibatches of 100; 100 epochs of binary cross-entropy. Outputs are standardised over the training records.

    Args:
        outputs: each target model's outputs on each record: probabilities or their logarithms.
        membership: whether each target model (row) was trained on the record (column).
        used: which records each attack network is trained on; by default all.
        execution: how networks are trained, and where finished ones are kept, see `fit_many`. By default the device
            decides the number per batch.

    Raises:
        InputError: an output is not finite, or a network would see only members or only non-members.
    """
    used = np.ones_like(membership) if used is None else used
    _check(outputs, labels, membership, used, classes)
    models = len(membership)
    members, counted = jnp.asarray(membership, jnp.float32), jnp.asarray(used)
    mean, scale = _standard(outputs, used)
    facts = membership, used, outputs, labels, np.array([classes, epochs])
    checkpoints, progress = execution.checkpoints, execution.progress
    results = Results(lambda params, _: params, checkpoints and call_directory(checkpoints, keys, *facts))
    size = results.models_per_batch or execution.models_per_batch or _models_per_batch(models)
    chunks = [np.arange(start, start + size).clip(max=models - 1) for start in range(0, models, size)]

    def report() -> None:
        if progress is not None and results.chunks:
            progress(sum(len(rows) for rows, _ in results.chunks), models)

    def train(rows: np.ndarray, stop: Stop) -> Any:
        standardised = (outputs[rows] - mean[rows, None]) / scale[rows, None]
        with DISPATCH:
            arrays = jnp.asarray(standardised, jnp.float32), jnp.asarray(labels, jnp.int32)
            state = _start(keys[rows], standardised.shape[2], classes)
        for epoch in range(epochs):
            stop.check()
            with DISPATCH:
                state = _epoch(keys[rows], epoch, state, *arrays, members[rows], counted[rows], classes)
            jax.block_until_ready(state)
        return tuple(jax.tree.leaves(state[0]))

    def collect(rows: np.ndarray, params: Any) -> None:
        results.add(size, rows, params)
        report()

    missing = [rows for rows in chunks if not results.restore(size, rows)]
    report()
    run_at_once(missing, train, collect, concurrent_chunks())
    structure = jax.tree.structure(jax.eval_shape(partial(_init, features=outputs.shape[2], classes=classes), keys[0]))
    return LearnedAttack(structure.unflatten(results.in_order()), mean, scale)


def learned_probabilities(
    attack: LearnedAttack, outputs: Float[np.ndarray, "models n features"], labels: Integers
) -> Scores:
    """The attack networks' probabilities that each target model was trained on each record.

    If outputs carry no information, a network gives the share of members among its training records. The outputs are
    each target model's, of the kind that the attack was trained on.
    """
    models, features = attack.mean.shape
    check_shapes((models, outputs.shape[1], features), outputs=outputs)
    standardised = (outputs - attack.mean[:, None]) / attack.scale[:, None]
    logits = _logits_many(attack.params, jnp.asarray(standardised, jnp.float32), jnp.asarray(labels, jnp.int32))
    return np.asarray(jax.nn.sigmoid(logits))


def _check(outputs: np.ndarray, labels: np.ndarray, membership: np.ndarray, used: np.ndarray, classes: int) -> None:
    check_shapes(outputs.shape[:2], membership=membership, used=used)
    check_shapes(outputs.shape[1:2], labels=labels)
    # A probability of 0 has no logarithm: probabilities may be given.
    check_ranges("(-inf, inf)", outputs=outputs)
    check_ranges(f"[0, {classes - 1}]", "classes are numbered from 0", labels=labels)
    one_sided = ~((membership & used).any(axis=1) & (~membership & used).any(axis=1))
    if one_sided.any():
        raise InputError(
            f"the attack on model {int(one_sided.argmax())} would see only members or only non-members; it needs both."
        )


def _models_per_batch(models: int) -> int:
    """The number of networks per batch that keeps every core busy until the end."""
    if jax.default_backend() != "cpu":
        return models
    at_once = concurrent_chunks()
    return -(-models // (at_once * -(-models // (at_once * MOST_PER_BATCH))))


def _standard(outputs: np.ndarray, used: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation over the records used, one row per model, in float64."""
    chosen = [row[mask].astype(np.float64) for row, mask in zip(outputs, used, strict=True)]
    mean, scale = (np.stack([function(row, axis=0) for row in chosen]) for function in (np.mean, np.std))
    # A column that is constant up to rounding has no information; dividing by its deviation would amplify rounding.
    constant = scale <= 10 * np.finfo(np.float64).eps * np.abs(mean)
    return mean, np.where(constant, 1.0, scale)


@partial(jax.jit, static_argnames=("features", "classes"), compiler_options=RUN_ONCE)
def _start(keys: ModelKeys, features: int, classes: int) -> tuple[Any, Any]:
    params = jax.vmap(lambda key: _init(init_key(key), features, classes))(keys)
    return params, jax.vmap(OPTIMIZER.init)(params)


def _init(key: OneKey, features: int, classes: int) -> _Net:
    """PyTorch's initialisation: weights and biases uniform within 1 / sqrt(number of inputs) of 0."""
    places = count()

    def layer(inputs: int, outputs: int) -> _Layer:
        bound = inputs**-0.5
        one, other = jax.random.split(jax.random.fold_in(key, next(places)))
        return _Layer(
            jax.random.uniform(one, (inputs, outputs), minval=-bound, maxval=bound),
            jax.random.uniform(other, (outputs,), minval=-bound, maxval=bound),
        )

    def stack(widths: tuple[int, ...]) -> tuple[_Layer, ...]:
        return tuple(layer(a, b) for a, b in pairwise(widths))

    outputs, labels = stack((features, *OUTPUT_WIDTHS)), stack((classes, *LABEL_WIDTHS))
    return _Net(outputs, labels, layer(OUTPUT_WIDTHS[-1] + LABEL_WIDTHS[-1], 1))


def _logits(params: _Net, outputs: Float[Array, "n features"], one_hot: Float[Array, "n classes"]) -> Array:
    def through(layers: tuple[_Layer, ...], hidden: Array) -> Array:
        for layer in layers:
            hidden = jax.nn.relu(hidden @ layer.kernel + layer.bias)
        return hidden

    # The label layers are evaluated once per class and not once per record.
    of_class = through(params.labels, jnp.eye(one_hot.shape[1])) @ params.combine.kernel[OUTPUT_WIDTHS[-1] :]
    of_output = through(params.outputs, outputs) @ params.combine.kernel[: OUTPUT_WIDTHS[-1]]
    return (of_output + one_hot @ of_class + params.combine.bias)[:, 0]


@partial(jax.jit, static_argnames="classes", donate_argnames="state")
def _epoch(
    keys: ModelKeys,
    epoch: int | Int[Array, ""],
    state: tuple[Any, Any],
    outputs: Float[Array, "models n features"],
    labels: Int[Array, " n"],
    members: Float[Array, "models n"],
    used: Bool[Array, "models n"],
    classes: int,
) -> tuple[Any, Any]:
    one_hot = jax.nn.one_hot(labels, classes)

    def train_model(key: Any, state: Any, outputs: Any, members: Any, used: Any) -> Any:
        indices, weights = traced_batches(epoch_bits(key, epoch, len(labels)), used, BATCH_SIZE, True)

        def step(state: Any, batch: tuple[Array, Array]) -> tuple[Any, None]:
            chosen, weight = batch
            params, optimizer = state

            def loss(params: _Net) -> Float[Array, ""]:
                losses = optax.sigmoid_binary_cross_entropy(
                    _logits(params, outputs[chosen], one_hot[chosen]), members[chosen]
                )
                return jnp.sum(weight * losses) / jnp.maximum(jnp.sum(weight), 1)

            updates, new = OPTIMIZER.update(jax.grad(loss)(params), optimizer, params)
            taken = optax.apply_updates(params, updates), new
            any_used = jnp.any(weight > 0)
            return jax.tree.map(lambda old, now: jnp.where(any_used, now, old), state, taken), None

        return jax.lax.scan(step, state, (indices, weights))[0]

    return jax.vmap(train_model)(keys, state, outputs, members, used)


@jax.jit
def _logits_many(params: Any, outputs: Float[Array, "models n features"], labels: Int[Array, " n"]) -> Array:
    one_hot = jax.nn.one_hot(labels, params.labels[0].kernel.shape[1])
    return jax.vmap(_logits, in_axes=(0, 0, None))(params, outputs, one_hot)
