"""The `efficacy` audit: what several sets of weights of one network expose of the same records."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxaudit.audits.efficacy.result import EfficacyAudit, JudgedWeights
from jaxaudit.data.examples import Examples
from jaxaudit.errors import InputError
from jaxaudit.kernels.log_softmax import precise_log_softmax
from jaxaudit.metrics.efficacy import measure_efficacy
from jaxaudit.models import PureModule

CHUNK = 1024
MOST_CONVERSION_ERROR = 1e-4
"""Beyond this, a converted network is another function."""


class NamedWeights(NamedTuple):
    """Weights to be judged.

    Attributes:
        name: their name.
        params: the network's parameters.
        state: its other state; both as returned by `PureModule.init`.
    """

    name: str
    params: Any
    state: Any


def audit_efficacy(
    net: PureModule,
    judged: NamedWeights,
    examples: Examples,
    *,
    references: Sequence[NamedWeights] = (),
    chunk: int | None = None,
) -> EfficacyAudit:
    """The efficacy of weights about `examples`, and that of references (Becker & Liebig 2022, eqs. 6 to 8).

    The network is in evaluation mode: dropout is off, batch normalisation uses its running statistics.

    Args:
        net: the network of all sets of weights.
        judged: the weights being judged.
        examples: the records, in the form that the network needs; labels are output indices, from 0.
        references: weights to compare with; names must differ.
        chunk: records per step; by default as many as fit into moderate memory.

    Raises:
        InputError: a label is not an output of the network, names are not distinct, gradients are not finite, outputs
            are probabilities, or a network of another framework has outputs in JAX that differ from its own by more
            than 1e-4 of their size.

    >>> import jax
    >>> from jaxaudit.models import MLP, pure_module
    >>> net = pure_module(MLP, (2,), 2)
    >>> records = Examples(np.eye(2, dtype=np.float32), np.array([0, 1]), ("no", "yes"), "two")
    >>> untrained = NamedWeights("untrained", *net.init(jax.random.key(1)))
    >>> audit = audit_efficacy(net, untrained, records)
    >>> audit.judged.measured.whole.efficacy <= audit.judged.measured.whole.bound, len(audit.judged.measured.layers)
    (True, 4)
    """
    every = [judged, *references]
    names = [weights.name for weights in every]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"two sets of weights are named {twice!r}; give each its own name.")
    inputs, labels = np.asarray(examples.inputs, np.float32), examples.labels
    shape = jax.ShapeDtypeStruct((1, *inputs.shape[1:]), jnp.float32)
    classes = jax.eval_shape(partial(_logits, net), judged.params, judged.state, shape).shape[1]
    if labels.max() >= classes:
        first = int(np.argmax(labels >= classes))
        raise InputError(
            f"{examples.name}: label {int(labels[first])} of record {first} is outside the network's {classes} "
            "outputs, which are numbered from 0."
        )
    stateless = _log_prob_of(net, judged.state)
    found = []
    for weights in every:
        # The kernel compiles once for each function: networks without state share one.
        log_prob = _log_prob_of(net, weights.state) if jax.tree.leaves(weights.state) else stateless
        fit = _fit(net, weights, inputs, labels)
        measured = measure_efficacy(log_prob, weights.params, inputs, labels, chunk=chunk)
        found.append(JudgedWeights(weights.name, measured, *fit))
    return EfficacyAudit(found[0], tuple(found[1:]), labels, classes, net.draws, net.origin.framework)


def _logits(net: PureModule, params: Any, state: Any, inputs: Float[Array, "n ..."]) -> Float[Array, "n classes"]:
    return net.apply(params, state, inputs, False)[0]


def _log_prob_of(net: PureModule, state: Any) -> Callable[[Any, Any, Any], Array]:
    def log_prob(params: Any, inputs: Any, labels: Any) -> Array:
        log_probs = precise_log_softmax(_logits(net, params, state, inputs))
        return jnp.take_along_axis(log_probs, labels[:, None], axis=1)[:, 0]

    return log_prob


def _fit(
    net: PureModule, weights: NamedWeights, inputs: np.ndarray, labels: np.ndarray
) -> tuple[float, float, float | None]:
    """Accuracy, mean log-probability (nats) and conversion error on the records, some at a time."""

    @jax.jit
    def look(params: Any, state: Any, inputs: Array, labels: Array) -> tuple[Array, Array, Array]:
        logits = _logits(net, params, state, inputs)
        log_probs = precise_log_softmax(logits)
        own = jnp.take_along_axis(log_probs, labels[:, None], axis=1)[:, 0]
        return log_probs.argmax(axis=1) == labels, own, logits

    hits, own, conversion, probabilities = list[np.ndarray](), list[np.ndarray](), Conversion(), True
    for start in range(0, len(labels), CHUNK):
        some = inputs[start : start + CHUNK]
        seen = look(weights.params, weights.state, jnp.asarray(some), jnp.asarray(labels[start : start + CHUNK]))
        right, said, logits = (np.asarray(each, np.float64) for each in seen)
        hits.append(right)
        own.append(said)
        probabilities &= bool((logits >= 0).all() and np.allclose(logits.sum(axis=1), 1, rtol=0, atol=1e-5))
        if net.origin.outputs is not None:
            conversion = conversion.after(logits, net.origin.outputs(weights.params, weights.state, some))
    if probabilities:
        raise InputError(
            f"{weights.name}: the outputs of the network are probabilities, since they are not negative and sum to one "
            "for each record; it must return logits: leave out its last softmax (in Keras, the activation of the last "
            "layer)."
        )
    error = None if net.origin.outputs is None else conversion.error
    if error is not None and conversion.finite and not error <= MOST_CONVERSION_ERROR:
        raise InputError(
            f"{weights.name}: in JAX the outputs of the network differ from those in {net.origin.framework} by "
            f"{error:.1e} of their size, more than {MOST_CONVERSION_ERROR:g}, so its gradients would be those of "
            "another function. Does it compute in 16 bits, or in place? Keep it in 32 bits, and compute without "
            "changing tensors in place; on a GPU also set JAX_DEFAULT_MATMUL_PRECISION=highest."
        )
    return float(np.concatenate(hits).mean()), float(np.concatenate(own).mean()), error


class Conversion(NamedTuple):
    """How far outputs lie from those of the network's own framework, over the records seen so far.

    Attributes:
        farthest: the largest distance of a record's outputs; NaN where outputs are not numbers.
        squares: the sum of squares of the framework's, of so many `records`.
        finite: whether all of the framework's are numbers.
    """

    farthest: float = 0.0
    squares: float = 0.0
    records: int = 0
    finite: bool = True

    def after(self, ours: Float[np.ndarray, "n classes"], theirs: Float[np.ndarray, "n classes"]) -> "Conversion":
        """With these records, too."""
        theirs = theirs.astype(np.float64)
        farthest = float(np.maximum(self.farthest, np.linalg.norm(ours - theirs, axis=1).max()))
        squares, finite = self.squares + float(np.square(theirs).sum()), self.finite and bool(np.isfinite(theirs).all())
        return Conversion(farthest, squares, self.records + len(theirs), finite)

    @property
    def error(self) -> float:
        """The largest distance over the root mean square norm; see `JudgedWeights`."""
        scale = np.sqrt(self.squares / max(self.records, 1))
        return float(self.farthest / max(scale, np.finfo(np.float32).tiny))
