"""Early stopping: keeps the parameters of the epoch with the least loss on some of a model's records, held back.

A model that stopped is the parameters it kept. A learner may validate (`ValidatedLearner`): the engine then takes some
of a row's members out of its minibatches, by a draw from the model's key and their ranks among the members, and after
each epoch hands it the mean loss on them. `EarlyStopping` wraps any stepped learner so: it keeps the best epoch's
parameters in place of the optimiser's state, and after `patience` epochs without a better one nothing later replaces
them. So a chunk goes on until all of its models stopped, and neighbours change no model; what is kept at a kill holds
the best so far. Losses are added a minibatch at a time, in programs of the chunk's shapes: the number of records that
neighbours hold back does not touch a sum. What is held back counts as used, since it chose the epoch, and rows stay
what they are. Leave-one-out models would each hold back other records, so they are refused.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, Real

from jaxaudit.errors import InputError
from jaxaudit.learners.learner import Inputs, Labels, SteppedLearner, TrainState, Weights
from jaxaudit.learners.stepped import TrainsAsAnother

VALIDATION = 0.1
"""The default share of a model's records that is held back."""


class Stopping(NamedTuple):
    """The state of early stopping, which takes the place of the optimiser's state and contains it.

    `best` are the parameters of the best epoch so far, `loss` its validation loss (nats; infinite before the first
    epoch), `chosen` its number (from 1; 0 before the first epoch), and `epochs` how many have passed.
    """

    optimizer: Any
    best: Any
    loss: Float[Array, ""]
    chosen: Int[Array, ""]
    epochs: Int[Array, ""]


@dataclass(frozen=True)
class EarlyStopping(TrainsAsAnother):
    """A learner that trains like `learner` and keeps the best epoch; made by `stop_early`.

    Guarantee: steps after a model has stopped do not change its result, so it may stay in a chunk with other models.
    """

    patience: int
    validation: float

    def init(self, key: Key[Array, ""]) -> TrainState:
        start = self.learner.init(key)
        none = jnp.zeros((), jnp.int32)
        best = jax.tree.map(jnp.zeros_like, self.learner.finish(start))
        return start._replace(optimizer=Stopping(start.optimizer, best, jnp.full((), jnp.inf, jnp.float32), none, none))

    def gradient(self, state: TrainState, inputs: Inputs, labels: Labels, weights: Weights) -> tuple[Any, Any]:
        return self.learner.gradient(_inner(state), inputs, labels, weights)

    def update(self, state: TrainState, gradient: Any, module_state: Any) -> TrainState:
        new = self.learner.update(_inner(state), gradient, module_state)
        return new._replace(optimizer=state.optimizer._replace(optimizer=new.optimizer))

    def losses(self, state: TrainState, inputs: Inputs, labels: Labels) -> Float[Array, " n"]:
        """The cross-entropy of each record in evaluation, nats; without label smoothing or augmentation."""
        log_probs = self.learner.log_probs(self.learner.finish(_inner(state)), inputs)
        return -jnp.take_along_axis(log_probs, labels[:, None], axis=1)[:, 0]

    def judged(self, state: TrainState, loss: Float[Array, ""]) -> TrainState:
        """The state after an epoch: its parameters become the best if its loss is the least and it has not stopped."""
        kept: Stopping = state.optimizer
        epochs = kept.epochs + 1
        # False if the loss is NaN.
        better = (loss < kept.loss) & ~self.finished(state)
        now = self.learner.finish(_inner(state))
        new = Stopping(
            kept.optimizer,
            jax.tree.map(lambda old, current: jnp.where(better, current, old), kept.best, now),
            jnp.where(better, loss, kept.loss),
            jnp.where(better, epochs, kept.chosen),
            epochs,
        )
        return state._replace(optimizer=new)

    def finished(self, state: TrainState) -> Bool[Array, ""]:
        """Whether `patience` epochs have passed without a smaller loss; False if no epoch had a finite loss."""
        kept: Stopping = state.optimizer
        return (kept.chosen > 0) & (kept.epochs - kept.chosen >= self.patience)

    def finish(self, state: TrainState) -> Any:
        """The best epoch's parameters; the last parameters if no epoch had a loss."""
        kept: Stopping = state.optimizer
        last = self.learner.finish(_inner(state))
        return jax.tree.map(lambda best, now: jnp.where(kept.chosen > 0, best, now), kept.best, last)

    def log_probs(self, params: Any, inputs: Real[Array, "n ..."]) -> Float[Array, "n classes"]:
        return self.learner.log_probs(params, inputs)


def stop_early(learner: SteppedLearner, patience: int, validation: float = VALIDATION) -> EarlyStopping:
    """A learner that trains like `learner`, with early stopping (Prechelt 1998, "Early stopping - but when?").

    Each model holds back a share of its own records (validation records), drawn by its key, and is trained on the rest.
    After every epoch, the mean cross-entropy of the validation records is computed in evaluation mode. The model's
    parameters are those of the epoch where it is least (the first if tied). Once `patience` epochs have passed without
    a smaller one, later epochs do not count. A learning rate schedule extends over all epochs, wherever a model stops.

    Validation records count as training records, since they select the epoch; the membership mask includes them. Models
    that differ in one record would also hold back different records, so leave-one-out audits refuse such a learner.

    Args:
        learner: a learner that trains by minibatches, such as one made by `network`; its `epochs` are the maximum.
        patience: a model stops after this many epochs without a smaller loss.
        validation: the share of a model's records that is held back, rounded to at least one record and less than all.

    Raises:
        InputError: the patience is below 1, the share is not between 0 and 1, or the learner stops early already.

    >>> import optax
    >>> from jaxaudit.learners import network
    >>> from jaxaudit.models import MLP
    >>> mlp = network(MLP, (4,), 3, optimizer=optax.adam(1e-3), epochs=100, batch_size=32)
    >>> stop_early(mlp, patience=5).validation
    0.1
    """
    if patience < 1:
        raise InputError(f"patience must be at least 1 epoch, got {patience}.")
    if not 0 < validation < 1:
        raise InputError(
            f"the share of records held back for validation must be between 0 and 1, got {validation:g}; 0.1 is usual."
        )
    if isinstance(learner, EarlyStopping):
        raise InputError("this learner stops early already; give the learner that it was made of.")
    return EarlyStopping(learner, patience, validation)


def _inner(state: TrainState) -> TrainState:
    """The training state of the inner learner."""
    return state._replace(optimizer=state.optimizer.optimizer)
