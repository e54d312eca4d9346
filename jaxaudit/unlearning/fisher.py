"""Unlearning by the diagonal of the Fisher information: Fisher forgetting, and selective synaptic dampening (SSD).

*Fisher forgetting* adds noise to every parameter, less to those that are important for the remaining records. Golatkar,
Achille & Soatto (2020); Becker & Liebig (2022), equation 4. Three variants are in use, which differ by orders of
magnitude: `paper`, `golatkar` and `becker_code`. With alpha 3e-6 the median accuracy on the remaining images of the
paper's MNIST models is .10, .85 and 1.00. *SSD* is `selective_dampening`.
"""

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxaudit.errors import check_ranges
from jaxaudit.kernels.gradient_norms import fisher_diagonal
from jaxaudit.learners.learner import Inputs, Labels
from jaxaudit.metrics.arrays import OneKey
from jaxaudit.unlearning.method import Chosen, LogProbs, cites, of_label, refuse_without_classes

ALPHA = 3e-6
"""The default of Golatkar's code and of Becker & Liebig's code."""
SMALLEST = 1e-8
SELECTION, STRENGTH = 10.0, 1.0
"""alpha and lambda of SSD in the paper's experiments."""

Alpha = float | Float[Array, ""]
"""Strength of the noise."""


@runtime_checkable
class Noise(Protocol):
    """A variant of Fisher forgetting: computes the standard deviation of each parameter's noise."""

    def __call__(
        self, log_probs: LogProbs, params: Any, inputs: Inputs, labels: Labels, remaining: Chosen, alpha: Alpha
    ) -> Any:
        """The standard deviations of the noise, a pytree like `params`."""
        ...


@cites("Golatkar, Achille & Soatto 2020")
def forget_by_noise(
    key: OneKey,
    log_probs: LogProbs,
    params: Any,
    inputs: Inputs,
    labels: Labels,
    forget: Chosen,
    *,
    noise: Noise,
    alpha: Alpha = ALPHA,
) -> Any:
    """theta + sigma n with n ~ N(0, I), where sigma is computed by the variant from the remaining records.

    Pure; can be jitted, and vmapped over keys, models and sets. `noise` is the variant: `paper`, `golatkar` or
    `becker_code`. `alpha` is lambda times sigma_h^2: larger values trade more accuracy for forgetting, and useful ones
    differ between variants by orders of magnitude. Other arguments are as for `Unlearn`.
    """
    deviations = noise(log_probs, params, inputs, labels, ~forget, alpha)
    leaves, structure = jax.tree.flatten(params)
    keys = structure.unflatten(jax.random.split(key, len(leaves)))

    def blurred(key: Any, leaf: Any, deviation: Any) -> Any:
        return leaf + deviation.astype(leaf.dtype) * jax.random.normal(key, leaf.shape, leaf.dtype)

    return jax.tree.map(blurred, keys, params, deviations)


@cites("Becker & Liebig 2022")
def paper(log_probs: LogProbs, params: Any, inputs: Inputs, labels: Labels, remaining: Chosen, alpha: Alpha) -> Any:
    """The standard deviation of each parameter's noise by equation 4 of Becker & Liebig (2022); a pytree like `params`.

    The value is (alpha / F)^(1/4), where F (equation 6) is the mean over remaining records of the squared gradient of
    log p(label). The paper does not define the noise for F = 0, as for the weights of a pixel that is always black; it
    would be infinite. Here F is at least 1e-8, Golatkar's constant. Arguments are those of `becker_code`.
    """
    fisher = fisher_diagonal(of_label(log_probs), params, inputs, labels, weights=remaining.astype(jnp.float32))
    return jax.tree.map(lambda f: (alpha / jnp.maximum(f, SMALLEST)) ** 0.25, fisher)


def golatkar(log_probs: LogProbs, params: Any, inputs: Inputs, labels: Labels, remaining: Chosen, alpha: Alpha) -> Any:
    """The standard deviation of each parameter's noise as in Golatkar's code; a pytree like `params`.

    The value is sqrt(alpha min(1 / (F + 1e-8), 1000)), with F of remaining records in expectation over labels drawn
    from the model. Takes one pass per class; the records' own labels are not used. The authors' means over a kernel's
    rows and factors for last layers are omitted. Arguments are those of `becker_code`.
    """
    outputs = log_probs(params, inputs)
    refuse_without_classes("Fisher forgetting as in Golatkar's code", outputs)
    probabilities = jnp.exp(outputs) * remaining[:, None]
    total, count = jax.tree.map(jnp.zeros_like, params), jnp.maximum(jnp.sum(remaining), 1)
    for label in range(probabilities.shape[1]):
        share = probabilities[:, label]
        mean = fisher_diagonal(of_label(log_probs), params, inputs, jnp.full_like(labels, label), weights=share)
        weight = jnp.sum(share) / count
        total = jax.tree.map(lambda so_far, f, w=weight: so_far + w * f, total, mean)
    return jax.tree.map(lambda f: jnp.sqrt(alpha * jnp.minimum(1 / (f + 1e-8), 1e3)), total)


@cites("Becker & Liebig 2022")
def becker_code(
    log_probs: LogProbs, params: Any, inputs: Inputs, labels: Labels, remaining: Chosen, alpha: Alpha
) -> Any:
    """The standard deviation of each parameter's noise, as Becker & Liebig's code computes it; a pytree like `params`.

    Use this variant only to reproduce the paper's tables. The value is min(sqrt(alpha / F), 0.001). It is ten times
    that for a parameter that is a vector with one number for each class. F is the sum over the `remaining` records,
    those not to be forgotten, of (g + 1e-7)^2, where g is the gradient of the log-probability of class 0, and of the
    record's class in the paper: the code takes the argmax of a label, a single number.

    Labels are not used. The larger `alpha`, the more is forgotten.

    Raises:
        InputError: the outputs are not one number for each class.
    """
    outputs = jax.eval_shape(log_probs, params, inputs)
    refuse_without_classes("Fisher forgetting as in the code of Becker & Liebig", outputs)
    zeros, weights = jnp.zeros_like(labels), remaining.astype(jnp.float32)
    of_zero, count = of_label(log_probs), jnp.sum(weights)
    squares = fisher_diagonal(of_zero, params, inputs, zeros, weights=weights)
    sums = jax.grad(lambda p: jnp.sum(weights * of_zero(p, inputs, zeros)))(params)
    classes = outputs.shape[1]

    def deviation(square: Array, total: Array) -> Array:
        # sum (g + e)^2 = sum g^2 + 2 e sum g + n e^2, which rounding could make negative
        fisher = jnp.maximum(count * square + 2e-7 * total + count * 1e-14, jnp.finfo(square.dtype).tiny)
        capped = jnp.minimum(jnp.sqrt(alpha / fisher), 1e-3)
        return 10 * capped if square.shape == (classes,) else capped

    return jax.tree.map(deviation, squares, sums)


@cites("Foster, Schoepf & Brintrup 2024")
def selective_dampening(
    key: OneKey,
    log_probs: LogProbs,
    params: Any,
    inputs: Inputs,
    labels: Labels,
    forget: Chosen,
    *,
    selection: float = SELECTION,
    strength: float = STRENGTH,
) -> Any:
    """Multiplies the parameters that are specific to the forget set, with alpha `selection` and lambda `strength`, and
    F_D and F_f the diagonals of the Fisher information of all records and of those to forget:

        theta <- theta * min(lambda F_D / F_f, 1)   where F_f > alpha F_D;   theta otherwise

    Foster, Schoepf & Brintrup (2024), "Fast machine unlearning without retraining through selective synaptic
    dampening", AAAI, equations 6 to 8. F is the mean over records of the squared gradient of log p(label), exactly; the
    authors' code squares mean gradients of minibatches, which are smaller.

    Pure and not random (`key` is not used); can be jitted, and vmapped over models and sets. No parameter grows or
    changes its sign. F_f is at most F_D times the ratio of all records to those of the forget set, so nothing changes
    unless `selection` is below that ratio. With the default of 10, a forget set of half of the records changes nothing.
    """
    check_ranges("[0, inf]", selection=selection, strength=strength)

    def fisher(weights: Any) -> Any:
        return fisher_diagonal(of_label(log_probs), params, inputs, labels, weights=weights)

    of_all, of_forgotten = fisher(jnp.ones(len(labels))), fisher(forget.astype(jnp.float32))

    def dampened(leaf: Any, everyone: Any, forgotten: Any) -> Any:
        chosen = forgotten > selection * everyone
        factor = jnp.minimum(strength * everyone / jnp.where(chosen, forgotten, 1), 1)
        return jnp.where(chosen, leaf * factor.astype(leaf.dtype), leaf)

    return jax.tree.map(dampened, params, of_all, of_forgotten)
