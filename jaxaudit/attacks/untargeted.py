"""The untargeted attack: a network learns from shadow models what outputs on members look like."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key

from jaxaudit.attacks.attack import AttackInputs, PooledShadows, Shadows
from jaxaudit.ensemble import Execution, Progress, fit_many, log_probs_many
from jaxaudit.errors import InputError
from jaxaudit.kernels.binning import as_log_probs, binned
from jaxaudit.learners import NetworkLearner, network
from jaxaudit.models import MLP
from jaxaudit.randomness import stream

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
    0.72; with small batches Adam's units died.) Make the learner once and use it for every attack on records of the
    same kind: every new learner is compiled again.

    Args:
        features: numbers per attack example: those of a record, plus twice the number of classes.
        hidden: units of the hidden layer.
        optimizer: an Optax transformation; by default `optax.sgd(0.01)`.
        epochs: training epochs.
        batch_size: attack examples per step.

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

    Raises:
        InputError: shapes disagree, a label is not a class, or an output is NaN or above 0.

    >>> attack_examples(np.array([[7.0]]), np.array([1]), np.log([[[0.3, 0.7]]]))
    array([[7. , 0. , 1. , 0.305, 0.705]], dtype=float32)
    """
    models, records, classes = log_probs.shape
    x, y = np.asarray(inputs, np.float32).reshape(len(inputs), -1), np.asarray(labels)
    if len(x) != records or len(y) != records:
        raise InputError(
            f"there are outputs on {records} records, but {len(x)} inputs and {len(y)} labels: give those of the same "
            "records in the same order."
        )
    if records and not 0 <= y.min() <= y.max() < classes:
        raise InputError(
            f"labels are from {y.min()} to {y.max()}, but outputs have {classes} classes, numbered from 0."
        )
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
    progress: Progress | None = None,
) -> UntargetedAttack:
    """Trains the attack network on every pair of shadow model and candidate, labelled by membership.

    Long, Bindschaedler & Gunter (2017), section 5.3, after Shokri et al. (2017). The same network attacks every
    target: it is trained once, without knowledge of the targets.

    Args:
        key: random key of the attack network's initialisation and minibatches.
        learner: the attack network, from `attack_network`.
        inputs: the candidates, scaled as for the classifier.
        labels: their classes.
        shadow_log_probs: outputs of every shadow model on every candidate, nats (the paper has 20 models).
        membership: which candidates each shadow model was trained on.
        bins: equal bins into which outputs are rounded; 0: no bins.
        progress: called as training proceeds, as in `fit_many`.

    Raises:
        InputError: shapes disagree, all candidates are in or all are out, and what `attack_examples` raises.
    """
    if membership.shape != tuple(shadow_log_probs.shape[:2]):
        raise InputError(
            f"membership has shape {membership.shape} but outputs are of {shadow_log_probs.shape[0]} shadow models and "
            f"{shadow_log_probs.shape[1]} candidates: give one row per shadow model over all candidates."
        )
    if membership.all() or not membership.any():
        raise InputError(
            "all shadow models were trained on all candidates or on none, so members and non-members cannot be "
            "compared: train each on about half of them."
        )
    examples = attack_examples(inputs, labels, shadow_log_probs, bins=bins)
    is_in = membership.reshape(-1).astype(np.int32)
    everything = np.ones((1, len(examples)), bool)
    execution = Execution(models_per_batch=1, progress=progress)
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

    Raises:
        InputError: as `attack_examples`.
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
        self, key: Key[Array, ""], inputs: AttackInputs, shadows: Shadows, progress: Progress | None
    ) -> Float[np.ndarray, "models targets"]:
        """How much more likely the attack holds each target record to be a member than not, under each attacked model.

        The score is log p_in - log p_out, in nats. p_in is the probability that the attack network gives to "this
        record was in the attacked model's training set", and p_out is 1 - p_in. Above 0 the attack answers `in`. The
        network is trained here, on `shadows`.

        Args:
            key: random key of the attack network.
            inputs: the target records, and the outputs of each attacked model on them.
            shadows: `PooledShadows`.
            progress: called as training proceeds; None: not called.
        """
        assert isinstance(shadows, PooledShadows)
        learner = _network_of(shadows.inputs.shape[1] + 2 * shadows.outputs.shape[2])
        pool = shadows.inputs, shadows.labels, shadows.outputs, shadows.membership
        attack = fit_untargeted(stream(key, "learn"), learner, *pool, bins=inputs.bins, progress=progress)
        records = inputs.inputs, inputs.labels
        return np.stack([untargeted_scores(attack, *records, model) for model in inputs.outputs])


@lru_cache(maxsize=8)
def _network_of(features: int) -> NetworkLearner:
    """The attack network's learner, cached because every new learner is compiled again."""
    return attack_network(features)
