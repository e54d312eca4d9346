"""Membership attacks on models that were trained on random halves: their interface, and three attacks.

The two targeted ones are of Long, Bindschaedler & Gunter (2017), with pairs of models that differ in one record. The
untargeted one trains a network on outputs of shadow models (Shokri et al. 2017).
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key

from jaxaudit.ensemble import Execution, fit_many, log_probs_many
from jaxaudit.errors import InputError, check_ranges, check_shapes
from jaxaudit.kernels.dtp import as_log_probs, bin_indices, binned
from jaxaudit.learners import NetworkLearner, network
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
        needs_bins: whether outputs must be binned.
    """

    name: ClassVar[str]
    meaning: ClassVar[str]
    source: ClassVar[str]
    shadows: ClassVar[Literal["paired", "pooled"]]
    needs_bins: ClassVar[bool]

    def scores(
        self, key: Key[Array, ""], inputs: AttackInputs, shadows: Shadows
    ) -> Float[np.ndarray, "models targets"]:
        """The score of every target under every attacked model: above 0 the attack answers `in`.

        `shadows` are of the kind in the attribute `shadows`.
        """
        ...


Outputs = Float[Array | np.ndarray, "targets classes"]
OfShadows = Float[Array | np.ndarray, "shadows targets classes"]


def distance_scores(
    target_log_probs: Outputs, in_log_probs: OfShadows, out_log_probs: OfShadows, *, bins: int = 100
) -> Float[np.ndarray, " targets"]:
    """KL(q || p_out) - KL(q || p_in) of every target, in nats: above 0 the attack answers `in`.

    Long, Bindschaedler & Gunter (2017), section 5.3. q is the attacked model's output on the target record; p_in and
    p_out are the mean probabilities over shadow models trained with it and without it (the paper has 5 of each, with
    the same other records). All outputs are log-probabilities (nats); they are binned, as the classifier publishes
    them, and bin centres are not normalised again (the paper does not specify this).

    With `bins=0` probabilities may be 0. A class with q = 0, or with p_in = p_out = 0, adds nothing. A class with only
    p_out = 0 gives `in` (infinity), one with only p_in = 0 gives `out` (minus infinity). If both occur, the score is 0:
    neither set of shadow models could have given q. Never NaN.

    >>> q = np.log([[0.9, 0.1]])
    >>> distance_scores(q, np.log([[[0.9, 0.1]]]), np.log([[[0.5, 0.5]]]), bins=0).round(3)
    array([0.368])
    """
    _check_shadows(target_log_probs, in_log_probs, out_log_probs)
    q = np.exp(binned(as_log_probs(target_log_probs, "the attacked model"), bins))
    p_in = np.exp(binned(as_log_probs(in_log_probs, "shadow models trained with the target"), bins)).mean(axis=0)
    p_out = np.exp(binned(as_log_probs(out_log_probs, "shadow models trained without it"), bins)).mean(axis=0)
    # The entropy of q is in both divergences.
    return _total(p_in, p_out, q)


@dataclass(frozen=True)
class Distance:
    """`distance_scores` as an attack; see `jaxaudit.attacks.Attack`."""

    name: ClassVar[str] = "distance"
    meaning: ClassVar[str] = (
        "Answers `in` if outputs are nearer to those of models trained with the record than without it."
    )
    source: ClassVar[str] = "Long, Bindschaedler & Gunter 2017"
    shadows: ClassVar[Literal["paired", "pooled"]] = "paired"
    needs_bins: ClassVar[bool] = False

    def scores(
        self, key: Key[Array, ""], inputs: AttackInputs, shadows: Shadows
    ) -> Float[np.ndarray, "models targets"]:
        """`distance_scores` of every target under every attacked model; `key` is not used."""
        return np.stack([distance_scores(q, *shadows[:2], bins=inputs.bins) for q in inputs.outputs])


def frequency_scores(
    target_log_probs: Outputs,
    in_log_probs: OfShadows,
    out_log_probs: OfShadows,
    *,
    bins: int = 100,
    smoothing: float = 1.0,
) -> Float[np.ndarray, " targets"]:
    """log of the product over classes of o_in / o_out, of every target: above 0 the attack answers `in`.

    Long, Bindschaedler & Gunter (2017), section 5.3. o_in of a class counts the shadow models trained with the target
    whose probability of that class falls in the same bin as the attacked model's; o_out those trained without it.
    Outputs are as for `distance_scores`.

    The paper does not specify counts of 0: `smoothing` is added to every count. With `smoothing=0`, a class with both
    counts 0 adds nothing; one with only o_out = 0 gives `in` (infinity), one with only o_in = 0 gives `out` (minus
    infinity). If both occur, the score is 0. Never NaN.

    >>> q = np.log([[0.915, 0.085]])
    >>> shadows_in, shadows_out = np.log([[[0.911, 0.089]]]), np.log([[[0.5, 0.5]]])
    >>> frequency_scores(q, shadows_in, shadows_out).round(3)  # log (2/1 * 2/1)
    array([1.386])
    """
    _check_shadows(target_log_probs, in_log_probs, out_log_probs)
    check_ranges("[0, inf)", smoothing=smoothing)
    index = bin_indices(as_log_probs(target_log_probs, "the attacked model"), bins)
    bins_in = bin_indices(as_log_probs(in_log_probs, "shadow models trained with the target"), bins)
    bins_out = bin_indices(as_log_probs(out_log_probs, "shadow models trained without it"), bins)
    return _total((bins_in == index).sum(axis=0) + smoothing, (bins_out == index).sum(axis=0) + smoothing)


@dataclass(frozen=True)
class Frequency:
    """`frequency_scores` as an attack; see `jaxaudit.attacks.Attack`."""

    name: ClassVar[str] = "frequency"
    meaning: ClassVar[str] = (
        "Answers `in` if such outputs are more frequent among models trained with the record than without it."
    )
    source: ClassVar[str] = "Long, Bindschaedler & Gunter 2017"
    shadows: ClassVar[Literal["paired", "pooled"]] = "paired"
    needs_bins: ClassVar[bool] = True

    def scores(
        self, key: Key[Array, ""], inputs: AttackInputs, shadows: Shadows
    ) -> Float[np.ndarray, "models targets"]:
        """`frequency_scores` of every target under every attacked model; `key` is not used."""
        return np.stack([frequency_scores(q, *shadows[:2], bins=inputs.bins) for q in inputs.outputs])


def _total(
    of_in: Float[np.ndarray, "targets classes"],
    of_out: Float[np.ndarray, "targets classes"],
    weights: Float[np.ndarray, "targets classes"] | None = None,
) -> Float[np.ndarray, " targets"]:
    """The sum over classes of weight * log(of_in / of_out); 0 on both sides adds nothing, and infinities cancel.

    >>> _total(np.array([[2.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    array([0.69314718, 0.        ])
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # logarithms of 0, differences of two of them
        terms = np.log(of_in) - np.log(of_out)
        if weights is not None:
            terms *= weights
    terms[np.isnan(terms)] = 0.0
    opposed = (terms == np.inf).any(axis=1) & (terms == -np.inf).any(axis=1)
    terms[opposed] = 0.0
    return terms.sum(axis=1)


def _check_shadows(target: Outputs, of_in: OfShadows, of_out: OfShadows) -> None:
    """Refuses shadow outputs that do not fit the target's."""
    check_shapes((max(len(of_in), 1), *target.shape), in_log_probs=of_in, out_log_probs=of_out)


OUT, IN = 0, 1


class UntargetedAttack(NamedTuple):
    """A trained attack network, for `untargeted_scores`: its parameters have a leading axis of one model.

    `bins`: equal bins into which outputs are rounded first; 0 for none.
    """

    learner: NetworkLearner
    params: Any
    bins: int


def attack_network(
    features: int,
    *,
    hidden: int = 32,
    optimizer: optax.GradientTransformation | None = None,
    epochs: int = 30,
    batch_size: int = 32,
) -> NetworkLearner:
    """The learner of the attack: one hidden layer with ReLU, and the probabilities of `out` and `in`.

    The layer size, the learning rate of 0.01 and the 30 epochs are the paper's. It does not name an optimiser or a
    batch size: here plain gradient descent, and 32. (On simulated outputs of overfitted models, at the paper's sizes,
    its accuracy was 0.83, that of the best threshold on the confidence 0.84, and that of Adam at the same learning rate
    0.72.) Every new learner is compiled again: make one for all attacks on records of the same kind. `features` are
    those of a record, plus twice the number of classes.

    >>> attack_network(836 + 10 + 10).epochs
    30
    """

    def module(input_shape: tuple[int, ...], classes: int, *, rngs: nnx.Rngs) -> MLP:
        return MLP(input_shape, classes, rngs=rngs, hidden=(hidden,), activation=jax.nn.relu)

    optimizer = optax.sgd(0.01) if optimizer is None else optimizer
    return network(module, (features,), 2, optimizer=optimizer, epochs=epochs, batch_size=batch_size)


def attack_examples(
    inputs: Float[Array | np.ndarray, "records ..."],
    labels: Int[Array | np.ndarray, " records"],
    log_probs: Float[Array | np.ndarray, "models records classes"],
    *,
    bins: int = 100,
) -> Float[np.ndarray, "examples features"]:
    """f = (x, y, q) of every record and model (algorithm 1): inputs, one-hot label, the model's probabilities.

    Model by model, in the order of the records; float32, `models * records * (inputs + 2 classes) * 4` bytes: 137 MB
    for the paper's 20 shadow models, 2,000 candidates, 836 inputs and 10 classes.

    >>> attack_examples(np.array([[7.0]]), np.array([1]), np.log([[[0.3, 0.7]]]))
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


def fit_untargeted(
    key: Key[Array, ""],
    learner: NetworkLearner,
    inputs: Float[Array | np.ndarray, "candidates ..."],
    labels: Int[Array | np.ndarray, " candidates"],
    shadow_log_probs: Float[Array | np.ndarray, "shadows candidates classes"],
    membership: Bool[np.ndarray, "shadows candidates"],
    *,
    bins: int = 100,
) -> UntargetedAttack:
    """Trains the attack network on every pair of shadow model and candidate, labelled by membership.

    Long, Bindschaedler & Gunter (2017), section 5.3, after Shokri et al. (2017), with 20 models. The same network
    attacks every target: it is trained once, without knowledge of the targets. `learner` is from `attack_network`, and
    inputs are scaled as for the classifier. Some candidates must be in, and some out.
    """
    check_shapes(tuple(shadow_log_probs.shape[:2]), membership=membership)
    if membership.all() or not membership.any():
        raise InputError(
            "all shadow models were trained on all candidates or on none, so members and non-members cannot be "
            "compared: train each on about half of them."
        )
    examples = attack_examples(inputs, labels, shadow_log_probs, bins=bins)
    is_in = membership.reshape(-1).astype(np.int32)
    everything = np.ones((1, len(examples)), bool)
    execution = Execution(models_per_batch=1)
    params = fit_many(key[None], everything, examples, is_in, learner, execution=execution)
    return UntargetedAttack(learner, params, bins)


def untargeted_scores(
    attack: UntargetedAttack,
    inputs: Float[Array | np.ndarray, "targets ..."],
    labels: Int[Array | np.ndarray, " targets"],
    target_log_probs: Float[Array | np.ndarray, "targets classes"],
) -> Float[np.ndarray, " targets"]:
    """log p_in - log p_out of every target, in nats: above 0 the attack answers `in`.

    `attack` is from `fit_untargeted`; `inputs` are the target records, as the candidates were given, and
    `target_log_probs` the attacked model's log-probabilities (nats) of them.
    """
    if not len(target_log_probs):
        return np.zeros(0)
    examples = attack_examples(inputs, labels, target_log_probs[None], bins=attack.bins)
    log_probs = log_probs_many(attack.learner, attack.params, examples)[0].astype(np.float64)
    return log_probs[:, IN] - log_probs[:, OUT]


@dataclass(frozen=True)
class Untargeted:
    """`untargeted_scores` as an attack; see `jaxaudit.attacks.Attack`."""

    name: ClassVar[str] = "untargeted"
    meaning: ClassVar[str] = "One attack network for all records, trained on outputs of shadow models."
    source: ClassVar[str] = "Shokri et al. 2017"
    shadows: ClassVar[Literal["paired", "pooled"]] = "pooled"
    needs_bins: ClassVar[bool] = False

    def scores(
        self, key: Key[Array, ""], inputs: AttackInputs, shadows: Shadows
    ) -> Float[np.ndarray, "models targets"]:
        """`untargeted_scores` of every target under every model, by a network trained here on `PooledShadows`."""
        assert isinstance(shadows, PooledShadows)
        learner = _network_of(shadows.inputs.shape[1] + 2 * shadows.outputs.shape[2])
        pool = shadows.inputs, shadows.labels, shadows.outputs, shadows.membership
        attack = fit_untargeted(stream(key, "learn"), learner, *pool, bins=inputs.bins)
        records = inputs.inputs, inputs.labels
        return np.stack([untargeted_scores(attack, *records, model) for model in inputs.outputs])


@lru_cache(maxsize=8)
def _network_of(features: int) -> NetworkLearner:
    """The attack network's learner, cached because every new learner is compiled again."""
    return attack_network(features)
