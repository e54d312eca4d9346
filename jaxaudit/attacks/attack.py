"""Membership attacks on models that were trained on random halves: their interface, and three attacks.

The two targeted ones are of Long, Bindschaedler & Gunter (2017), with pairs of models that differ in one record. The
untargeted one trains a network on outputs of shadow models (Shokri et al. 2017).
"""

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from jaxaudit.ensemble import Execution, fit_many, log_probs_many
from jaxaudit.errors import InputError, check_ranges, check_shapes
from jaxaudit.kernels.dtp import as_log_probs, bin_indices, binned
from jaxaudit.learners import NetworkLearner, network
from jaxaudit.metrics.arrays import OneKey
from jaxaudit.models import MLP
from jaxaudit.randomness import stream


class AttackInputs(NamedTuple):
    """The target records, and the outputs (log-probabilities, nats) of the attacked models on them.

    Inputs are each divided by their largest absolute value. Probabilities are rounded into `bins` equal bins of [0, 1]
    before any use; 0 for none.
    """

    outputs: Float[np.ndarray, "models targets classes"]
    inputs: Float[np.ndarray, "targets features"]
    labels: Int[np.ndarray, " targets"]
    bins: int


class PairedShadows(NamedTuple):
    """Outputs (log-probabilities, nats) on each target record, of shadow models trained with it and without it.

    The two models of a pair differ only by the target: they have the same key and the same order of minibatches.
    """

    with_target: Float[np.ndarray, "shadows targets classes"]
    without_target: Float[np.ndarray, "shadows targets classes"]


class PooledShadows(NamedTuple):
    """Shadow models trained on random halves of the candidates, and their outputs (log-probabilities, nats) on them.

    `inputs` and `labels` are the candidates' features and classes, as in `AttackInputs`.
    """

    outputs: Float[np.ndarray, "shadows candidates classes"]
    membership: Bool[np.ndarray, "shadows candidates"]
    inputs: Float[np.ndarray, "candidates features"]
    labels: Int[np.ndarray, " candidates"]


Shadows = PairedShadows | PooledShadows


@runtime_checkable
class Attack(Protocol):
    """A membership attack: computes one score per record from outputs, labels and shadow models.

    Attributes:
        name: letters, digits and hyphens.
        meaning, source: what the attack does, in one sentence, and the paper that proposes it.
        shadows: the kind of shadow models that it learns from: `PairedShadows` or `PooledShadows`.
    """

    name: ClassVar[str]
    meaning: ClassVar[str]
    source: ClassVar[str]
    shadows: ClassVar[Literal["paired", "pooled"]]

    def scores(self, key: OneKey, inputs: AttackInputs, shadows: Shadows) -> Float[np.ndarray, "models targets"]:
        """The score of every target under every attacked model: above 0 the attack answers `in`.

        `shadows` are of the kind in the attribute `shadows`.
        """
        ...


Kind = Literal["paired", "pooled"]


@dataclass(frozen=True)
class Distance:
    """KL(q || p_out) - KL(q || p_in) of every target, in nats (Long, Bindschaedler & Gunter 2017, section 5.3).

    q is the attacked model's output on the target record; p_in and p_out are the mean probabilities over shadow models
    trained with it and without it (the paper has 5 of each, with the same other records). Outputs are binned, as the
    classifier publishes them, and bin centres are not normalised again (the paper does not specify this).

    >>> whole = AttackInputs(np.log([[[0.9, 0.1]]]), np.zeros((1, 0)), np.array([0]), bins=100)
    >>> Distance().scores(jax.random.key(1), whole, PairedShadows(whole.outputs, np.log([[[0.5, 0.5]]]))).round(3)
    array([[0.363]])
    """

    name: ClassVar[str] = "distance"
    meaning: ClassVar[str] = (
        "Answers `in` if outputs are nearer to those of models trained with the record than without it."
    )
    source: ClassVar[str] = "Long, Bindschaedler & Gunter 2017"
    shadows: ClassVar[Kind] = "paired"

    def scores(self, key: OneKey, inputs: AttackInputs, shadows: Shadows) -> Float[np.ndarray, "models targets"]:
        """See `Attack`; `key` is not used."""
        outputs, *of_shadows = _checked(inputs, shadows)
        q, p_in, p_out = (np.exp(binned(log_probs, inputs.bins)) for log_probs in (outputs, *of_shadows))
        # The entropy of q is in both divergences.
        return _total(p_in.mean(axis=0), p_out.mean(axis=0), q)


@dataclass(frozen=True)
class Frequency:
    """log of the product over classes of (o_in + 1) / (o_out + 1), of every target (Long et al. 2017, section 5.3).

    o_in of a class counts the shadow models trained with the target whose probability of that class falls in the same
    bin as the attacked model's; o_out those trained without it. The paper does not specify counts of 0: hence the 1.

    >>> whole = AttackInputs(np.log([[[0.915, 0.085]]]), np.zeros((1, 0)), np.array([0]), bins=100)
    >>> shadows = PairedShadows(np.log([[[0.911, 0.089]]]), np.log([[[0.5, 0.5]]]))
    >>> Frequency().scores(jax.random.key(1), whole, shadows).round(3)  # log (2/1 * 2/1)
    array([[1.386]])
    """

    name: ClassVar[str] = "frequency"
    meaning: ClassVar[str] = (
        "Answers `in` if such outputs are more frequent among models trained with the record than without it."
    )
    source: ClassVar[str] = "Long, Bindschaedler & Gunter 2017"
    shadows: ClassVar[Kind] = "paired"

    def scores(self, key: OneKey, inputs: AttackInputs, shadows: Shadows) -> Float[np.ndarray, "models targets"]:
        """See `Attack`; `key` is not used."""
        places, in_places, out_places = (bin_indices(part, inputs.bins) for part in _checked(inputs, shadows))
        sides = in_places, out_places
        return np.stack([_total(*((side == place).sum(axis=0) + 1.0 for side in sides)) for place in places])


def _checked(inputs: AttackInputs, shadows: Shadows) -> list[Float[np.ndarray, "models targets classes"]]:
    """The log-probabilities of attacked models, of shadow models with each target, and without it."""
    assert isinstance(shadows, PairedShadows)
    check_ranges("[2, inf)", bins=inputs.bins)
    shape = (max(len(shadows.with_target), 1), *inputs.outputs.shape[1:])
    check_shapes(shape, with_target=shadows.with_target, without_target=shadows.without_target)
    owners = "the attacked model", "shadow models trained with the target", "shadow models trained without it"
    return [as_log_probs(part, of) for part, of in zip((inputs.outputs, *shadows), owners, strict=True)]


def _total(
    of_in: Float[np.ndarray, "targets classes"],
    of_out: Float[np.ndarray, "targets classes"],
    weights: Float[np.ndarray, "*models targets classes"] | float = 1.0,
) -> Float[np.ndarray, "*models targets"]:
    """The sum over classes of weight * log(of_in / of_out); of bins, neither is 0."""
    return ((np.log(of_in) - np.log(of_out)) * weights).sum(axis=-1)


@dataclass(frozen=True)
class Untargeted:
    """log p_in - log p_out (nats) by one network for all targets, trained on outputs of shadow models.

    Long, Bindschaedler & Gunter (2017), section 5.3, after Shokri et al. (2017), with 20 models. The network learns
    from every pair of shadow model and candidate (`attack_examples`), without knowledge of the targets. The size of its
    hidden layer, the learning rate of 0.01 and the 30 epochs are the paper's. It does not name an optimiser or a batch
    size: here plain gradient descent, and 32. (On simulated outputs of overfitted models, at the paper's sizes, its
    accuracy was 0.83, that of the best threshold on the confidence 0.84, and that of Adam at the same rate 0.72.)
    """

    name: ClassVar[str] = "untargeted"
    meaning: ClassVar[str] = "One attack network for all records, trained on outputs of shadow models."
    source: ClassVar[str] = "Shokri et al. 2017"
    shadows: ClassVar[Kind] = "pooled"

    def scores(self, key: OneKey, inputs: AttackInputs, shadows: Shadows) -> Float[np.ndarray, "models targets"]:
        """See `Attack`; an `InputError` if all shadow models were trained on all candidates, or on none."""
        assert isinstance(shadows, PooledShadows)
        membership = shadows.membership
        check_shapes(shadows.outputs.shape[:2], membership=membership)
        if membership.all() or not membership.any():
            raise InputError(
                "all shadow models were trained on all candidates or on none, so members and non-members cannot be "
                "compared: train each on about half of them."
            )
        examples = attack_examples(shadows.inputs, shadows.labels, shadows.outputs, bins=inputs.bins)
        learner, is_in = _network_of(examples.shape[1]), membership.reshape(-1).astype(np.int32)
        everything, execution = np.ones((1, len(examples)), bool), Execution(models_per_batch=1)
        params = fit_many(stream(key, "learn")[None], everything, examples, is_in, learner, execution=execution)

        def score(outputs: Float[np.ndarray, "targets classes"]) -> Float[np.ndarray, " targets"]:
            shown = attack_examples(inputs.inputs, inputs.labels, outputs[None], bins=inputs.bins)
            log_probs = log_probs_many(learner, params, shown)[0].astype(np.float64)
            return log_probs[:, IN] - log_probs[:, OUT]

        return np.stack([score(outputs) for outputs in inputs.outputs])


OUT, IN = 0, 1


@lru_cache(maxsize=8)
def _network_of(features: int) -> NetworkLearner:
    """The attack network's learner, cached because every new learner is compiled again."""

    module = partial(MLP, hidden=(32,), activation=jax.nn.relu)
    return network(module, (features,), 2, optimizer=optax.sgd(0.01), epochs=30, batch_size=32)


def attack_examples(
    inputs: Float[Array | np.ndarray, "records ..."],
    labels: Int[Array | np.ndarray, " records"],
    log_probs: Float[Array | np.ndarray, "models records classes"],
    *,
    bins: int,
) -> Float[np.ndarray, "examples features"]:
    """f = (x, y, q) of every record and model (algorithm 1): inputs, one-hot label, the model's probabilities.

    Model by model, in the order of the records; float32, `models * records * (inputs + 2 classes) * 4` bytes: 137 MB
    for the paper's 20 shadow models, 2,000 candidates, 836 inputs and 10 classes.

    >>> attack_examples(np.array([[7.0]]), np.array([1]), np.log([[[0.3, 0.7]]]), bins=100)
    array([[7. , 0. , 1. , 0.305, 0.705]], dtype=float32)
    """
    models, records, classes = log_probs.shape
    x, y = np.asarray(inputs, np.float32).reshape(len(inputs), -1), np.asarray(labels)
    check_shapes((records, x.shape[1]), inputs=x)
    check_shapes((records,), labels=y)
    check_ranges(f"[0, {classes - 1}]", "classes are numbered from 0", labels=y)
    examples = np.empty((models, records, x.shape[1] + 2 * classes), np.float32)
    examples[:, :, : -2 * classes] = x
    examples[:, :, -2 * classes : -classes] = np.eye(classes, dtype=np.float32)[y]
    examples[:, :, -classes:] = np.exp(binned(as_log_probs(log_probs, "the shadow or attacked models"), bins))
    return examples.reshape(models * records, -1)
