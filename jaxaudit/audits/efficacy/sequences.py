"""The `efficacy` audit of models of sequences: how much several sets of weights expose of the same texts."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from jaxaudit.audits.efficacy.audit import Measured, NamedWeights, audit_of_weights, refuse_equal_names
from jaxaudit.audits.efficacy.result import EfficacyAudit
from jaxaudit.errors import InputError
from jaxaudit.kernels.gradient_norms import examples_at_a_time
from jaxaudit.kernels.likelihoods import SEQUENCE
from jaxaudit.metrics.efficacy import efficacy_by_layer

SUMS = "A record's information grows with its number of tokens: compare weights on the same records."


def measure_sequence_efficacy(
    log_likelihood: Callable[..., Array],
    judged: NamedWeights,
    tokens: Int[np.ndarray, "n length"],
    *,
    references: Sequence[NamedWeights] = (),
    vocabulary: int = 0,
    framework: str = "jax",
    chunk: int | None = None,
    notes: Sequence[str] = (),
) -> EfficacyAudit:
    """How much do weights still reveal about sequences of tokens? Becker & Liebig (2022), eqs. 6 to 8, for texts.

    As `measure_efficacy`, with a log-likelihood of your own. A record's own tokens are its labels, so its gradient is
    that of the sum of their log-probabilities, each token given those before it: the Fisher information of a sequence
    is that of its log-likelihood, and no mean over its tokens. Per-example gradients are not stored.

    Args:
        log_likelihood: `(params, tokens) -> [n]`, in nats, such as `SequenceLikelihood().log_prob(logits, tokens)`. A
            `state` of the weights is a third argument, for which no gradient is wanted: what is frozen below an
            adapter, and a model's other tensors.
        judged: the weights being judged. The names of layers end at the last `/` of those of parameters.
        tokens: the records, of one length; `log_likelihood` must leave out what fills them up.
        vocabulary: the number of tokens that the model knows.
        framework: what the model is written in.
        references, chunk, notes: as for `measure_efficacy`.

    Returns:
        as `measure_efficacy`; the accuracy is None, and the mean log-probability is that of whole records.

    Raises:
        InputError: names are not distinct, weights differ in their parameters, gradients are not finite, or records
            depend on others of their batch.

    >>> def log_likelihood(params, tokens):
    ...     logits = jnp.broadcast_to(params["bias"], (*tokens.shape, 2))
    ...     return SEQUENCE.log_prob(logits, tokens)
    >>> uniform = NamedWeights("uniform", {"bias": jnp.zeros(2)}, None)
    >>> found = measure_sequence_efficacy(log_likelihood, uniform, np.array([[0, 1, 1], [0, 1, -1]]))
    >>> found.measured[0].per_example.tolist()
    [2.0, 0.5]
    """
    every = [judged, *references]
    refuse_equal_names(every)
    measured, labels = list[Measured](), np.zeros(len(tokens), np.int32)

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
        size = chunk or examples_at_a_time(log_prob, weights.params, tokens, labels, constants=constants)
        by_layer = efficacy_by_layer(log_prob, weights.params, tokens, labels, constants=constants, chunk=size)
        with jax.default_matmul_precision("highest"):
            own_log_probs = [
                np.asarray(values(weights.params, jnp.asarray(tokens[start : start + size]), *constants), np.float64)
                for start in range(0, len(tokens), size)
            ]
        measured.append(Measured(weights.name, by_layer, None, float(np.concatenate(own_log_probs).mean())))
    how = {"framework": framework, "likelihood": SEQUENCE, "notes": (SUMS, *notes)}
    return audit_of_weights(measured, labels, (), vocabulary, **how)


def _form(weights: NamedWeights) -> tuple[Any, list[tuple[int, ...]]]:
    """Names and shapes of the arrays of these weights."""
    leaves, tree = jax.tree.flatten((weights.params, weights.state))
    return tree, [jnp.shape(leaf) for leaf in leaves]
