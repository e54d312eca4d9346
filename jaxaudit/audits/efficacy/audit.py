"""The `efficacy` audit: how much several sets of weights of one network expose of the same records, or texts."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from msgspec.structs import asdict

from jaxaudit.audits.efficacy.result import (
    EfficacyAudit,
    EfficacyResult,
    WeightsExposure,
    efficacy_finding,
    exposed,
)
from jaxaudit.data.examples import Examples
from jaxaudit.data.records import Records
from jaxaudit.errors import InputError, check_distinct
from jaxaudit.json_types import number
from jaxaudit.kernels.gradient_norms import examples_at_a_time
from jaxaudit.kernels.likelihoods import CATEGORICAL, SEQUENCE, Categorical, SequenceLikelihood, precise_log_softmax
from jaxaudit.metrics.efficacy import EfficacyByLayer, efficacy_by_layer
from jaxaudit.models import PureModule

CHUNK = 1024
MOST_CONVERSION_ERROR = 1e-4
"""If the outputs of a converted network differ by more than this, it is rejected as another function."""


class NamedWeights(NamedTuple):
    """Weights to be judged: their name, and the network's parameters and other state, as `PureModule.init` has them."""

    name: str
    params: Any
    state: Any


def measure_efficacy(
    net: PureModule,
    judged: NamedWeights,
    examples: Examples | Records,
    *,
    references: Sequence[NamedWeights] = (),
    notes: Sequence[str] = (),
) -> EfficacyAudit:
    """How much do weights still reveal about `examples`, beside other weights? Becker & Liebig (2022), eqs. 6 to 8.

    Information is the trace of the empirical Fisher information: the mean squared norm of the gradients of log
    p(label). Efficacy is its inverse, large where weights fit the records. There is no verdict: the numbers must be
    compared with those of references, such as the untrained network and one retrained without the records. The network
    is in evaluation mode: dropout is off, batch normalisation uses its running statistics.

    Args:
        examples: the records, in the form that the network needs; labels are output indices, from 0. `Records` are read
            a few at a time and need not fit into memory.
        references: weights to compare with; names must differ.
        notes: limitations of the input, in sentences, which become part of the finding.

    Returns:
        Efficacy, bound and information, in squared nats per squared unit of parameter, in all, by layer and by record.

    Raises:
        InputError: a label is no output of the network, gradients are not finite, outputs are probabilities, or a
            network of another framework has outputs in JAX that differ from its own by more than 1e-4 of their size.

    >>> import jax
    >>> from jaxaudit.models import MLP, pure_module
    >>> net = pure_module(MLP, (2,), 2)
    >>> records = Examples(np.eye(2, dtype=np.float32), np.array([0, 1]), ("no", "yes"), "two")
    >>> untrained = NamedWeights("untrained", *net.init(jax.random.key(1)))
    >>> (found,) = measure_efficacy(net, untrained, records).result.models
    >>> found.efficacy <= found.bound, len(found.layers)
    (True, 4)
    """
    every = [judged, *references]
    check_distinct(names_of_weights=[weights.name for weights in every])
    inputs: Any = np.asarray(examples.inputs, np.float32) if isinstance(examples, Examples) else examples.inputs
    shape = jax.ShapeDtypeStruct((1, *inputs.shape[1:]), jnp.float32)
    classes = jax.eval_shape(partial(_logits, net), judged.params, judged.state, shape).shape[1]
    labels = checked_labels(examples.labels, classes, examples.name)
    stateless = _log_prob_of(net, judged.state)
    models, measured = list[WeightsExposure](), list[EfficacyByLayer]()
    for weights in every:
        # The kernel compiles once for each function: networks without state share one.
        log_prob = _log_prob_of(net, weights.state) if jax.tree.leaves(weights.state) else stateless
        fit = _fit(net, weights, inputs, labels)
        measured.append(efficacy_by_layer(log_prob, weights.params, inputs, labels))
        models.append(_exposure(weights.name, measured[-1], *fit))
    how = {"framework": net.origin.framework, "draws": net.draws, "notes": notes}
    return audit_of_weights(models, measured, labels, _class_names(examples), classes, **how)


def _exposure(
    name: str,
    by_layer: EfficacyByLayer,
    accuracy: float | None,
    mean_log_probability: float,
    conversion_error: float | None = None,
) -> WeightsExposure:
    return WeightsExposure(
        **asdict(by_layer.whole),
        name=name,
        accuracy=accuracy,
        mean_log_probability=number(mean_log_probability),
        layers=by_layer.layers,
        conversion_error=conversion_error,
    )


def audit_of_weights(
    models: Sequence[WeightsExposure],
    measured: Sequence[EfficacyByLayer],
    labels: np.ndarray,
    class_names: tuple[str, ...],
    outputs: int,
    *,
    framework: str = "jax",
    likelihood: Categorical | SequenceLikelihood = CATEGORICAL,
    draws: bool = False,
    notes: Sequence[str] = (),
) -> EfficacyAudit:
    """The audit of sets of weights of one network, from their measurements, those of the judged ones first. `draws`:
    layers that are random in training were switched off, a limitation; `notes`: further ones.
    """
    finding = efficacy_finding(models, measured, draws=draws, notes=notes)
    result = EfficacyResult(
        finding=finding,
        records_measured=len(labels),
        outputs=outputs,
        models=tuple(models),
        paths=measured[0].paths,
        records=exposed(models, measured, labels, class_names),
        framework=framework,
        likelihood=likelihood.name,
        log_likelihood=likelihood.statement,
    )
    return EfficacyAudit(result, tuple(measured), labels, class_names)


def _class_names(examples: Examples | Records) -> tuple[str, ...]:
    """Names in label order; none of labels of another type than whole numbers."""
    if isinstance(examples, Examples):
        return examples.class_names
    return tuple(map(str, range(int(examples.labels.max()) + 1))) if examples.labels.dtype.kind in "iu" else ()


def _logits(net: PureModule, params: Any, state: Any, inputs: Float[Array, "n ..."]) -> Float[Array, "n classes"]:
    return net.apply(params, state, inputs, False)[0]


def _log_prob_of(net: PureModule, state: Any) -> Callable[..., Array]:
    """`(params, inputs, labels) -> log-likelihoods` of a network with this state, anew in each call."""

    def log_prob(params: Any, inputs: Any, labels: Any) -> Array:
        return CATEGORICAL.log_prob(_logits(net, params, state, inputs), labels)

    return log_prob


def checked_labels(labels: np.ndarray, outputs: int, name: str) -> np.ndarray:
    """The labels as 32-bit integers; an `InputError` if one is no output of the network."""
    if labels.ndim != 1 or not np.isin(labels, np.arange(outputs)).all():
        raise InputError(
            f"{name}: labels of shape {labels.shape} are no classes of a network with {outputs} outputs: give one "
            f"whole number for each record, from 0 to {outputs - 1}."
        )
    return labels.astype(np.int32)


def _fit(net: PureModule, weights: NamedWeights, inputs: Any, labels: np.ndarray) -> tuple[float, float, float | None]:
    """Accuracy, mean log-probability (nats) and conversion error on the records, computed a chunk at a time."""

    @jax.jit
    def look(params: Any, state: Any, inputs: Array, labels: Array) -> tuple[Array, Array, Array]:
        logits = _logits(net, params, state, inputs)
        right = precise_log_softmax(logits).argmax(axis=1) == labels
        return right, CATEGORICAL.log_prob(logits, labels), logits

    hits, own_log_probs, farthest, squares = list[np.ndarray](), list[np.ndarray](), 0.0, 0.0
    probabilities = True
    for start in range(0, len(labels), CHUNK):
        some = inputs[start : start + CHUNK]
        seen = look(weights.params, weights.state, jnp.asarray(some), jnp.asarray(labels[start : start + CHUNK]))
        right, own_log_prob, logits = (np.asarray(part, np.float64) for part in seen)
        hits.append(right)
        own_log_probs.append(own_log_prob)
        probabilities &= bool((logits >= 0).all() and np.allclose(logits.sum(axis=1), 1, rtol=0, atol=1e-5))
        if net.origin.outputs:
            origin_outputs = net.origin.outputs(weights.params, weights.state, some).astype(np.float64)
            farthest = float(np.maximum(farthest, np.linalg.norm(logits - origin_outputs, axis=1).max()))
            squares += float(np.square(origin_outputs).sum())
    if probabilities:
        raise InputError(
            f"{weights.name}: the outputs of the network are probabilities, since they are not negative and sum to one "
            "for each record; it must return logits: leave out its last softmax."
        )
    fit = float(np.concatenate(hits).mean()), float(np.concatenate(own_log_probs).mean())
    if not net.origin.outputs:
        return *fit, None
    error = float(farthest / max(np.sqrt(squares / len(labels)), np.finfo(np.float32).tiny))
    if np.isfinite(squares) and not error <= MOST_CONVERSION_ERROR:
        raise InputError(
            f"{weights.name}: in JAX the outputs of the network differ from those in {net.origin.framework} by "
            f"{error:.1e} of their size, more than {MOST_CONVERSION_ERROR:g}, so its gradients would be those of "
            "another function. Does it compute in 16 bits, or in place? Keep it in 32 bits, and compute without "
            "changing tensors in place; on a GPU also set JAX_DEFAULT_MATMUL_PRECISION=highest."
        )
    return *fit, error


SUMS = "A record's information grows with its number of tokens: compare weights on the same records."


def measure_sequence_efficacy(
    log_likelihood: Callable[..., Array],
    judged: NamedWeights,
    tokens: Int[np.ndarray, "n length"],
    *,
    references: Sequence[NamedWeights] = (),
    vocabulary: int = 0,
    framework: str = "jax",
    notes: Sequence[str] = (),
) -> EfficacyAudit:
    """How much do weights still reveal about sequences of tokens? Becker & Liebig (2022), eqs. 6 to 8, for texts.

    As `measure_efficacy`, with a log-likelihood of your own. A record's own tokens are its labels, so its gradient is
    that of the sum of their log-probabilities, each token given those before it, and no mean over its tokens. The
    accuracy is None, and the mean log-probability is that of whole records. A layer's name ends at the last `/`.

    Args:
        log_likelihood: `(params, tokens) -> [n]`, in nats, such as `SequenceLikelihood().log_prob(logits, tokens)`. A
            `state` of the weights is a third argument, for which no gradient is wanted: what is frozen below an
            adapter, and a model's other tensors.
        tokens: the records, of one length; `log_likelihood` must leave out what fills them up.
        vocabulary: the number of tokens that the model knows.
        framework: what the model is written in.

    Raises:
        InputError: weights differ in their parameters, gradients are not finite, or records depend on one another.

    >>> def log_likelihood(params, tokens):
    ...     return SEQUENCE.log_prob(jnp.broadcast_to(params["bias"], (*tokens.shape, 2)), tokens)
    >>> uniform = NamedWeights("uniform", {"bias": jnp.zeros(2)}, None)
    >>> found = measure_sequence_efficacy(log_likelihood, uniform, np.array([[0, 1, 1], [0, 1, -1]]))
    >>> found.measured[0].per_example.tolist()
    [2.0, 0.5]
    """
    every = [judged, *references]
    check_distinct(names_of_weights=[weights.name for weights in every])
    models, measured = list[WeightsExposure](), list[EfficacyByLayer]()
    labels = np.zeros(len(tokens), np.int32)

    def log_prob(params: Any, tokens: Array, labels: Array, *constants: Any) -> Array:
        return log_likelihood(params, tokens, *constants)

    values = jax.jit(log_likelihood)
    for weights in every:
        if _form(weights) != _form(judged):
            raise InputError(
                f"{weights.name}: its parameters are not those of {judged.name} in name and shape; is it of another "
                "architecture? References are other weights of the same network."
            )
        constants = (weights.state,) if jax.tree.leaves(weights.state) else ()
        size = examples_at_a_time(log_prob, weights.params, tokens, labels, constants=constants)
        by_layer = efficacy_by_layer(log_prob, weights.params, tokens, labels, constants=constants, chunk=size)
        with jax.default_matmul_precision("highest"):
            own_log_probs = [
                np.asarray(values(weights.params, jnp.asarray(tokens[start : start + size]), *constants), np.float64)
                for start in range(0, len(tokens), size)
            ]
        measured.append(by_layer)
        models.append(_exposure(weights.name, by_layer, None, float(np.concatenate(own_log_probs).mean())))
    how = {"framework": framework, "likelihood": SEQUENCE, "notes": (SUMS, *notes)}
    return audit_of_weights(models, measured, labels, (), vocabulary, **how)


def _form(weights: NamedWeights) -> tuple[Any, list[tuple[int, ...]]]:
    """Names and shapes of the arrays of these weights."""
    leaves, tree = jax.tree.flatten((weights.params, weights.state))
    return tree, [jnp.shape(leaf) for leaf in leaves]
