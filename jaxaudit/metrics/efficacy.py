"""Efficacy of forgetting: one divided by the information that a model's parameters have about a set of examples.

Becker & Liebig (2022), "Evaluating machine unlearning via epistemic uncertainty", sections 3 and 4.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxaudit.errors import InputError, check_ranges
from jaxaudit.json_types import Extended, StrictStruct
from jaxaudit.kernels.gradient_norms import mean_gradient, squared_grad_norms
from jaxaudit.metrics.arrays import AnyNumbers, Numbers

SOURCE = "Becker & Liebig 2022"
# In float32, a sum of some thousand squares has a relative error below 1e-5, a norm of a mean a somewhat larger one.
ROUNDING = 1e-3

SHORT = re.compile(r"\b(bf16|f16|f8\w*)\[")
"""Float types of fewer than 32 bits, as a printed JAX program names them."""

CHECKED = 8


class Efficacy(StrictStruct, frozen=True):
    """How well the parameters fit some examples, by their squared gradient norms.

    Efficacy is large if the parameters fit the examples, since gradients are then small. So training makes it large,
    and forgetting should make it small. Alone, it measures fit: it does not show whether the examples were used.

    Attributes:
        efficacy: 1 / information, eq. 8; infinite if the information is 0.
        information: the trace of the empirical Fisher information, eq. 7: the mean over the examples of the squared
            norm of the gradient of log p(label), in squared nats per squared unit of parameter.
        bound: 1 / (squared norm of the mean gradient), lemma 1: never below `efficacy`.
    """

    efficacy: Extended
    information: float
    bound: Extended


class EfficacyByLayer(NamedTuple):
    """The efficacy of one model for some examples, in total, per layer and per example.

    Attributes:
        per_example: the squared gradient norm of every example; their mean is the information.
        layers: efficacy of each layer alone. A layer is a group of sibling leaves in the tree of parameters (a kernel
            and its bias), named by its path, joined with `/`. Informations of layers add up; efficacies do not.
        paths: how the gradient of each parameter was computed, by the parameter's name; see `squared_grad_norms`.
        short: whether the model computes with floats of fewer than 32 bits.
    """

    per_example: Numbers
    layers: dict[str, Efficacy]
    whole: Efficacy
    paths: dict[str, str]
    short: bool = False


def efficacy(
    squared_norms: AnyNumbers,
    mean_gradient_squared_norm: float | Float[Array | np.ndarray, ""],
    *,
    rounding: float = ROUNDING,
) -> Efficacy:
    """Efficacy, information and bound from squared gradient norms |g_i|^2, and |mean_i g_i|^2 of the same examples.

        information = mean_i |g_i|^2        eq. 7
        efficacy    = 1 / information       eq. 8
        bound       = 1 / |mean_i g_i|^2    lemma 1

    Guarantees: efficacy <= bound, also after rounding. Both are equal if all examples have the same gradient, and
    infinite if all gradients are 0. The mean gradient may exceed the information by the share `rounding`; use infinity
    for gradients of fewer than 32 bits.

    >>> efficacy(np.array([1.0, 3.0]), 1.0)
    Efficacy(efficacy=0.5, information=2.0, bound=1.0)
    >>> efficacy(np.zeros(3), 0.0)
    Efficacy(efficacy=inf, information=0.0, bound=inf)
    """
    norms, of_mean = np.asarray(squared_norms, np.float64), float(mean_gradient_squared_norm)
    check_ranges("[1, inf)", examples=len(norms))
    check_ranges("[0, inf)", squared_norms=norms, mean_gradient_squared_norm=of_mean)
    information = float(np.mean(norms))
    least = float(np.finfo(np.float32).tiny)
    if of_mean > information + max(rounding * max(information, least), least):
        raise InputError(
            f"the mean gradient's squared norm {of_mean:.4g} is above the mean squared norm {information:.4g}, which "
            "is impossible; are both of the same examples and parameters, and is the mean taken before squaring?"
        )
    return Efficacy(_inverse(information), information, _inverse(min(of_mean, information)))


def _inverse(value: float) -> float:
    """1 / value; infinite at 0 and where the inverse of a subnormal value overflows float64."""
    return 1 / value if value > 1e-300 else float("inf")


def efficacy_by_layer(
    log_prob: Callable[..., Array],
    params: Any,
    inputs: Any,
    labels: Any,
    *,
    constants: tuple[Any, ...] = (),
    chunk: int | None = None,
) -> EfficacyByLayer:
    """The efficacy of a model for some examples: in total, per layer, and the contribution of each example.

    The squared norms are exact up to float32 (`squared_grad_norms`, which says what `log_prob` must be); their means
    are taken in float64. If the model uses fewer bits (bfloat16), numbers are accurate to a few percent only.

    A single efficacy cannot be interpreted: a model that fits the examples perfectly has gradients of 0, whether or not
    it was trained on them. Compare it with that of the untrained, the original and retrained models.

    Args:
        log_prob: `(params, inputs, labels) -> [n]`, log-probabilities (nats) of the labels, in evaluation mode.
        inputs, labels: the examples, along the first axis, and their labels; read one chunk at a time.
        constants, chunk: see `squared_grad_norms`.

    Raises:
        InputError: a value depends on other examples of its batch (training mode), or gradients are not finite.

    >>> def log_prob(params, inputs, labels):
    ...     return jax.nn.log_softmax(inputs @ params["dense"]["kernel"])[jnp.arange(len(labels)), labels]
    >>> params = {"dense": {"kernel": jnp.zeros((2, 2))}}
    >>> found = efficacy_by_layer(log_prob, params, np.eye(2, dtype=np.float32), np.array([0, 1]))
    >>> found.whole, found.per_example
    (Efficacy(efficacy=2.0, information=0.5, bound=4.0), array([0.5, 0.5]))
    >>> found.layers["dense"] == found.whole
    True
    """
    model: Any = (log_prob, params, inputs, labels)
    how: Any = {"constants": constants, "chunk": chunk}
    with jax.default_matmul_precision("highest"):
        short = bool(len(labels)) and computes_short(*model, constants=constants)
        _check_apart(*model, **how, tolerance=0.1 if short else 1e-3)
        norms_of_leaves = squared_grad_norms(*model, **how)
        norms = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(norms_of_leaves.leaves)]
        mean, per_example = mean_gradient(*model, **how), sum(norms, np.zeros(len(labels)))
    of_mean = [float(np.sum(np.square(leaf))) for leaf in jax.tree.leaves(mean)]
    names = [leaf_name(path) for path, _ in jax.tree_util.tree_flatten_with_path(params)[0]]
    layers: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        layers.setdefault(layer_of(name), []).append(index)

    def together(members: Sequence[int]) -> Efficacy:
        of_each = sum((norms[m] for m in members), np.zeros(len(labels)))
        return efficacy(of_each, sum(of_mean[m] for m in members), rounding=float("inf") if short else ROUNDING)

    return EfficacyByLayer(
        per_example,
        {name: together(members) for name, members in layers.items()},
        together(range(len(names))),
        dict(zip(names, norms_of_leaves.paths_of_leaves, strict=True)),
        short,
    )


def computes_short(
    log_prob: Callable[..., Array], params: Any, inputs: Any, labels: Any, constants: tuple[Any, ...] = ()
) -> bool:
    """Whether the model computes or stores anything in floats of fewer than 32 bits (bfloat16, float16).

    >>> computes_short(lambda p, x, y: (x @ p)[:, 0], jnp.ones((2, 1)), np.ones((3, 2), np.float32), np.zeros(3))
    False
    """
    program = jax.make_jaxpr(log_prob)(params, jnp.asarray(inputs[:1]), jnp.asarray(labels[:1]), *constants)
    return SHORT.search(str(program)) is not None


def layer_of(name: str) -> str:
    """The layer of a parameter, by its name.

    >>> layer_of("dense/kernel"), layer_of("scale")
    ('dense', 'scale')
    """
    return name.rpartition("/")[0] or name


def leaf_name(path: Sequence[Any]) -> str:
    """A parameter's path in its tree, joined with `/`, without the `value` that Flax NNX adds below each variable.

    >>> [leaf_name(path) for path, _ in jax.tree_util.tree_flatten_with_path({"dense": {"bias": 0, "kernel": [1]}})[0]]
    ['dense/bias', 'dense/kernel/0']
    """
    wrapped = len(path) > 1 and isinstance(path[-1], jax.tree_util.GetAttrKey) and path[-1].name == "value"
    return jax.tree_util.keystr(tuple(path[:-1] if wrapped else path), simple=True, separator="/")


def _check_apart(
    log_prob: Any,
    params: Any,
    inputs: Any,
    labels: Any,
    constants: tuple[Any, ...],
    chunk: int | None,
    tolerance: float,
) -> None:
    """Refuses a `log_prob` that does not return one value per example, or whose values depend on the batch."""
    check_ranges("[1, inf)", examples=len(labels))
    check_ranges(f"[{len(labels)}, {len(labels)}]", inputs=len(inputs))
    # At least two, or nothing would show that records depend on each other.
    some = slice(min(CHECKED, max(chunk or CHECKED, 2)))
    x, y = jnp.asarray(inputs[some]), jnp.asarray(labels[some])
    shape = getattr(jax.eval_shape(log_prob, params, x, y, *constants), "shape", None)
    if shape != (len(y),):
        raise InputError(
            f"log_prob maps {len(y)} examples to {'no array' if shape is None else f'shape {shape}'}; it must return "
            f"one log-probability per example, shape ({len(y)},): did it return all classes, or the mean?"
        )
    together, alone = map(np.asarray, _together_and_alone(log_prob, params, x, y, constants))
    if not np.allclose(alone, together, rtol=tolerance, atol=tolerance, equal_nan=True):
        raise InputError(
            "an example's log-probability changes with the others in its batch, so it has no gradient of its own; is "
            "the model in training mode (batch normalisation, dropout)? Put it in evaluation mode."
        )


@partial(jax.jit, static_argnums=0)
def _together_and_alone(
    log_prob: Any, params: Any, inputs: Array, labels: Array, constants: tuple[Any, ...]
) -> tuple[Array, Array]:
    alone = jax.vmap(lambda x, y: log_prob(params, x[None], y[None], *constants)[0])
    return log_prob(params, inputs, labels, *constants), alone(inputs, labels)
