"""SCRUB: trains a student to match its teacher, the original model, on remaining records but not on the forget set.

Kurmanji, Triantafillou, Hayes & Triantafillou (2023), "Towards unbounded machine unlearning", NeurIPS, equation 3 and
algorithm 1. With p the original's outputs and q the student's, both at temperature T, and

    D = T^2 KL(p || q)

an epoch is a pass over the forget set that maximises D (*max steps*, in the first epochs only) and then a pass over the
remaining records that minimises alpha D + gamma L (*min steps*), where L is the cross-entropy. The authors' variant
that rewinds to an earlier epoch is not implemented: it needs a validation set.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, Real

from jaxaudit.randomness import stream
from jaxaudit.unlearning import passes
from jaxaudit.unlearning.method import LogProbs, cites, refuse_without_classes

LEARNING_RATE = 5e-4
DECAYS = (0.5, 0.8, 0.9)
"""After each of these shares of the epochs the learning rate is divided by 10."""


@cites("Kurmanji et al. 2023")
def scrub(
    key: Key[Array, ""],
    log_probs: LogProbs,
    params: Any,
    inputs: Real[Array, "n ..."],
    labels: Int[Array, " n"],
    forget: Bool[Array, " n"],
    *,
    epochs: int = passes.EPOCHS,
    max_epochs: int = 3,
    learning_rate: float = LEARNING_RATE,
    alpha: float = 0.5,
    gamma: float = 1.0,
    temperature: float = 2.0,
    batch_size: int = passes.BATCH_SIZE,
) -> Any:
    """Moves outputs away from the original's on the forget set, and keeps them close to it on other records.

    The defaults are those of the authors' code for small sets, without its weight decay. The optimiser is Adam. In the
    first pass student and teacher are equal and the gradient of D is 0, so a single epoch does not actively forget.
    Pure; can be jitted, and vmapped over keys, models and sets. The network is in evaluation mode; on a CPU, XLA is
    slow for convolutional networks in these loops.

    Args:
        key: random key of the order of minibatches.
        log_probs, inputs, labels, forget: as for `Unlearn`.
        params: the original's parameters, which are the teacher's, and the student's at the start.
        epochs: passes over the remaining records.
        max_epochs: the number of first epochs that begin with a pass over the forget set.
        learning_rate: Adam's; a tenth of it after half of the epochs, a hundredth after 80%, a thousandth after 90%.
        alpha: weight of D on the remaining records.
        gamma: weight of the cross-entropy on the remaining records.
        temperature: T; log-probabilities are divided by it.
        batch_size: records per step.

    Raises:
        InputError: a number of the recipe is out of range, or records have no classes.
    """
    passes.check_numbers(epochs, learning_rate, batch_size)
    refuse_without_classes("SCRUB", jax.eval_shape(log_probs, params, inputs))
    loss, adam = passes.cross_entropy(log_probs, inputs, labels), optax.scale_by_adam()

    def cooled(params: Any, minibatch: passes.Minibatch) -> Float[Array, "batch classes"]:
        return jax.nn.log_softmax(log_probs(params, inputs[minibatch.records]) / temperature)

    def distance(student: Any, minibatch: passes.Minibatch) -> Float[Array, ""]:
        teacher, student_log_probs = lax.stop_gradient(cooled(params, minibatch)), cooled(student, minibatch)
        of_record = jnp.sum(jnp.exp(teacher) * (teacher - student_log_probs), axis=1)
        return temperature**2 * passes.weighted_mean(of_record, minibatch)

    def obeyed(student: Any, minibatch: passes.Minibatch) -> Float[Array, ""]:
        return alpha * distance(student, minibatch) + gamma * loss(student, minibatch)

    def disobeyed(student: Any, minibatch: passes.Minibatch) -> Float[Array, ""]:
        return -distance(student, minibatch)

    def epoch(number: Any, state: Any) -> Any:
        rate = learning_rate * 0.1 ** jnp.sum(number >= epochs * jnp.array(DECAYS))

        def along(aim: Any, has_slope: Any = True) -> Any:
            def step(place: Any, minibatch: passes.Minibatch, state: Any) -> Any:
                student, moments = state
                gradient = jax.grad(aim)(student, minibatch)
                gradient = jax.tree.map(lambda leaf: jnp.where(has_slope, leaf, 0), gradient)
                direction, moments = adam.update(gradient, moments)
                return passes.descended(student, direction, rate), moments

            return step

        forgotten = passes.one_pass(stream(key, "forget"), number, forget, batch_size)
        forgotten = forgotten._replace(steps=jnp.where(number < max_epochs, forgotten.steps, 0))
        # At the start the gradient of D is 0 up to rounding, which Adam would scale up to a full step.
        state = passes.each_step(forgotten, along(disobeyed, number > 0), state)
        return passes.each_step(passes.one_pass(stream(key, "pass"), number, ~forget, batch_size), along(obeyed), state)

    student, _ = lax.fori_loop(0, epochs, epoch, (params, adam.init(params)))
    return student
