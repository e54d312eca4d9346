"""Measures for many models at once what they still expose of the records to forget, and compares methods with
retraining.

Models of one seed share initial weights before and after forgetting. So the challenge's score and U-LiRA compare a
method's models of one half of the seeds with retrained models of the other half: all methods with the same ones, and
retrained and original models in the same way. F of a perfect method is about 0.2 and an epsilon depends on the number
of models, so a number without these two rows cannot be read.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Real
from msgspec.structs import astuple

from jaxaudit.attacks.learned import LearnedAttack, fit_learned, learned_probabilities
from jaxaudit.audits.unlearn.result import (
    COMPARED,
    LEAST_SEEDS,
    OF_TEXTS,
    RETRAINING,
    UNTRAINED,
    MethodResult,
    MethodScores,
    Protocol,
    Score,
    ScoreSpread,
)
from jaxaudit.data.examples import Examples
from jaxaudit.data.sequences import are_texts
from jaxaudit.ensemble import Execution, log_probs_many
from jaxaudit.ensemble.chunk import as_plain, is_key
from jaxaudit.errors import InputError
from jaxaudit.kernels.gradient_norms import squared_grad_norms
from jaxaudit.learners import NetworkLearner, NetworkParams, SteppedLearner
from jaxaudit.metrics import Answers, ChallengeScore, Place, ULira, challenge_score, place, u_lira
from jaxaudit.metrics.arrays import Mask, ModelMask, ModelNumbers, OneKey, PerModel
from jaxaudit.metrics.efficacy import ROUNDING, Efficacy, computes_short, efficacy
from jaxaudit.metrics.over_models import least_p_value
from jaxaudit.metrics.scores import log_odds
from jaxaudit.metrics.usage import ALPHA, LEVEL
from jaxaudit.randomness import ModelKeys, stream
from jaxaudit.unlearning import Unlearn
from jaxaudit.unlearning.method import of_label


def inputs_of(examples: Examples) -> Real[np.ndarray, "n ..."]:
    """The inputs as networks take them: in float32, tokens of texts as whole numbers."""
    return examples.inputs if are_texts(examples) else np.asarray(examples.inputs, np.float32)


def log_probs_of(learner: NetworkLearner, state: Any) -> Callable[[Any, Any], Array]:
    """`(params, inputs) -> log-probabilities` of a network with this state."""
    return lambda params, inputs: learner.log_probs(NetworkParams(params, state), inputs)


def flat_params(params: Any, models: ModelNumbers) -> tuple[np.ndarray, ...]:
    """All leaves of a chunk's parameters in order, as plain arrays: a `summarize` of `fit_many`."""
    return tuple(map(as_plain, jax.tree.leaves(params)))


def params_of(learner: SteppedLearner, leaves: tuple[np.ndarray, ...]) -> Any:
    """The parameters of models trained by `learner`, restored from these arrays."""
    kinds: list[Any] = []

    def params_of_seed(key: Any) -> Any:
        params = learner.finish(learner.init(key))
        # The implementation of a random key is known from the key, not from its shape.
        kinds.extend(jax.random.key_impl(leaf) if is_key(leaf) else None for leaf in jax.tree.leaves(params))
        return params

    shapes, structure = jax.tree.flatten(jax.eval_shape(params_of_seed, jax.eval_shape(jax.random.key, 1)))

    def restored(leaf: np.ndarray, shape: Any, kind: Any) -> Any:
        if kind is not None:
            return jax.random.wrap_key_data(jnp.asarray(leaf), impl=kind)
        return leaf.view(shape.dtype)

    return structure.unflatten(restored(*leaf) for leaf in zip(leaves, shapes, kinds, strict=True))


def end(part: Execution) -> None:
    """Reports that a part is done, even if nothing had to be trained for it."""
    if part.progress:
        part.progress(1, 1)


def on_host(leaf: Any) -> Any:
    """The array in the host's memory; random keys, which NumPy has no type for, stay as they are."""
    return leaf if is_key(leaf) else np.asarray(leaf)


def traced(name: str, method: Unlearn, learner: NetworkLearner, train: Examples) -> Any:
    """`(key, model, forget) -> model`, jitted: the method, traced once so that it fails before anything is trained."""
    records = jnp.asarray(inputs_of(train)), jnp.asarray(train.labels)

    def one(key: Any, model: NetworkParams, row: Any) -> NetworkParams:
        new = method(key, log_probs_of(learner, model.state), model.params, *records, row)
        expected, shapes = (
            jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), params) for params in (model.params, new)
        )
        if jax.tree.structure(model.params) != jax.tree.structure(new) or expected != shapes:
            raise InputError(
                f"the method `{name}` returned parameters that do not fit the model: it must return the arrays it was "
                "given, of the same shapes and types, with other numbers in them."
            )
        return NetworkParams(new, model.state)

    ready, key = jax.jit(one), jax.eval_shape(jax.random.key, 1)
    model = jax.eval_shape(lambda key: learner.finish(learner.init(key)), key)
    jax.eval_shape(ready, key, model, jax.ShapeDtypeStruct((len(train),), bool))
    return ready


def unlearned(
    alone: Any,
    keys: ModelKeys,
    originals: NetworkParams,
    forget: np.ndarray,
    together: bool,
    part: Execution,
) -> NetworkParams:
    """A method's models, for every seed, one at a time, or all `together`."""
    row = jnp.asarray(forget)
    if together:
        at_once = jax.jit(jax.vmap(alone.__wrapped__, in_axes=(0, 0, None)))
        forgetful = jax.tree.map(on_host, at_once(keys, originals, row))
        end(part)
        return forgetful
    models = []
    for m, key in enumerate(keys):
        # Copied to the host, so that progress is reported only after the model is computed.
        model = alone(key, jax.tree.map(lambda leaf, m=m: leaf[m], originals), row)
        models.append(jax.tree.map(on_host, model))
        if part.progress:
            part.progress(m + 1, len(keys))
    return jax.tree.map(lambda *leaves: _stacked(leaves), *models)


def _stacked(leaves: tuple[Any, ...]) -> Any:
    return jnp.stack(leaves) if is_key(leaves[0]) else np.stack(leaves)


class Setting(NamedTuple):
    """What models are judged on: their learner, the whole training set and the test set; and how attacks are trained: a
    key per model, the test records that they learn from (none: there is no attack), and epochs.
    """

    learner: NetworkLearner
    train: Examples
    test: Examples
    attack_keys: ModelKeys
    nonmembers: Int[np.ndarray, " nonmembers"]
    attack_epochs: int


def train_attack(
    of: Setting,
    name: str,
    params: Any,
    members: Mask,
    execution: Execution,
) -> LearnedAttack:
    """Trains an attack network for every model on its outputs on members and on some test records, or resumes."""
    records = np.concatenate([of.train.inputs, of.test.inputs[of.nonmembers]])
    labels = np.concatenate([of.train.labels, of.test.labels[of.nonmembers]])
    outputs = log_probs_many(of.learner, params, records)
    _check_finite(_all_finite(outputs), name, "outputs")
    models, count = outputs.shape[:2]
    kept = execution.checkpoints
    used = np.concatenate([members, np.ones(len(of.nonmembers), bool)])
    return fit_learned(
        of.attack_keys,
        outputs,
        labels,
        np.tile(np.arange(count) < len(of.train), (models, 1)),
        outputs.shape[2],
        used=np.tile(used, (models, 1)),
        epochs=of.attack_epochs,
        execution=replace(execution, models_per_batch=None, checkpoints=kept and kept / "attacks"),
    )


def judged(
    of: Setting, name: str, params: Any, forget: Mask, attack: LearnedAttack | None
) -> tuple[MethodScores, Float[np.ndarray, "models forgotten"]]:
    """The scores of every model, and its log-odds of the records to forget (nats); of texts mean log-likelihoods."""
    train = of.train
    on_train, on_test = (log_probs_many(of.learner, params, part.inputs) for part in (train, of.test))
    _check_finite(_all_finite(on_train) & _all_finite(on_test), name, "outputs")
    efficacies = np.array([astuple(of_model) for of_model in _efficacies(of, name, params, forget)]).T
    scores: dict[Score, PerModel] = dict(zip(("efficacy", "information", "bound"), efficacies, strict=True))
    if are_texts(train):
        of_train, of_test = (np.asarray(array[..., 0], np.float64) for array in (on_train, on_test))
        odds = of_train[:, forget]
        scores["remaining_log_likelihood"] = of_train[:, ~forget].mean(axis=1)
        scores["forgotten_log_likelihood"] = odds.mean(axis=1)
        scores["test_log_likelihood"] = of_test.mean(axis=1)
    else:
        hits, test_hits = (
            outputs.argmax(axis=2) == part.labels for outputs, part in ((on_train, train), (on_test, of.test))
        )
        odds = log_odds(on_train, train.labels)[:, forget]
        scores["remaining_accuracy"] = hits[:, ~forget].mean(axis=1)
        scores["forgotten_accuracy"] = hits[:, forget].mean(axis=1)
        scores["test_accuracy"] = test_hits.mean(axis=1)
    if attack:
        outputs = np.asarray(learned_probabilities(attack, on_train, train.labels), np.float64)
        scores["attack"] = outputs[:, forget].mean(axis=1)
    return score_spreads(scores), odds


def _efficacies(of: Setting, name: str, params: Any, forget: Mask) -> list[Efficacy]:
    """The efficacy of each model for the records to forget, its information and its bound."""
    learner, train = of.learner, of.train
    inputs, labels = jnp.asarray(inputs_of(train)[forget]), jnp.asarray(train.labels[forget])
    count = len(jax.tree.leaves(params)[0])
    models = [jax.tree.map(lambda leaf, m=model: leaf[m], params) for model in range(count)]
    short = computes_short(of_label(log_probs_of(learner, models[0].state)), models[0].params, inputs, labels)
    gradients = [jax.tree.map(np.asarray, _gradients(learner, model, inputs, labels)) for model in models]
    finite = [bool(np.isfinite(squares).all() and np.isfinite(of_mean)) for squares, of_mean in gradients]
    _check_finite(np.array(finite), name, "gradients")
    rounding = float("inf") if short else ROUNDING
    return [efficacy(squares, float(of_mean), rounding=rounding) for squares, of_mean in gradients]


def score_spreads(scores: Mapping[Score, PerModel]) -> MethodScores:
    """Scores over all models; none that is missing for some model."""
    return {
        name: ScoreSpread(
            median(values), float(values.min()), float(values.max()), float(values.mean()), tuple(values.tolist())
        )
        for name, values in scores.items()
        if not np.isnan(values).any()
    }


def median(values: PerModel) -> float:
    """The median; the mean of the two middle numbers if their number is even, and infinite if one of them is."""
    ordered = np.sort(values)
    low, high = ordered[(len(values) - 1) // 2], ordered[len(values) // 2]
    return float(low) if low == high else float(low / 2 + high / 2)


@partial(jax.jit, static_argnames="learner")
def _gradients(
    learner: NetworkLearner, model: NetworkParams, inputs: Real[Array, "k ..."], labels: Int[Array, " k"]
) -> tuple[Float[Array, " k"], Float[Array, ""]]:
    """Squared norms of each label's log-probability gradient, and that of their mean."""
    log_prob = of_label(log_probs_of(learner, model.state))
    with jax.default_matmul_precision("highest"):
        norms = squared_grad_norms(log_prob, model.params, inputs, labels)
        mean = jax.grad(lambda params: jnp.mean(log_prob(params, inputs, labels)))(model.params)
    of_mean = sum((jnp.sum(leaf.astype(jnp.float32) ** 2) for leaf in jax.tree.leaves(mean)), jnp.zeros(()))
    return norms.total, of_mean


def _all_finite(outputs: Float[np.ndarray, "models n classes"]) -> ModelMask:
    return np.all(np.isfinite(outputs), axis=(1, 2))


def _check_finite(finite: ModelMask, name: str, what_numbers: str) -> None:
    if not finite.all():
        raise InputError(
            f"model {int(finite.argmin())} of {name} has {what_numbers} that are not finite: did its training diverge? "
            "Lower the learning rate, or the strength of the method."
        )


def threshold_of(of_texts: bool) -> float:
    """The threshold of the audit's p-values, corrected for the scores that methods are compared by."""
    return ALPHA / len(OF_TEXTS if of_texts else COMPARED)


def protocol_of(
    forgotten_records: int,
    training_records: int,
    test_records: int,
    attack_nonmembers: int,
    seeds: int,
    of_texts: bool = False,
) -> Protocol:
    threshold = threshold_of(of_texts)
    return Protocol(
        training_records=training_records,
        forgotten_records=forgotten_records,
        test_records=test_records,
        attack_nonmembers=attack_nonmembers,
        seeds=seeds,
        level=LEVEL,
        p_value_threshold=threshold,
        enough_seeds=least_p_value(seeds) <= threshold,
        members_share=training_records / (training_records + attack_nonmembers) if attack_nonmembers else None,
    )


def distinguishability(
    key: OneKey,
    log_odds: Mapping[str, Float[np.ndarray, "seeds forgotten"]],
    scores: Mapping[str, MethodScores],
) -> dict[str, tuple[ChallengeScore, ULira]]:
    """Compares a method's models of the first half of the seeds with retrained models of the other half, where there
    are enough; `retraining` shows the best possible value, `original` the value without forgetting. `log_odds`, of
    texts mean log-likelihoods, are of the records to forget.
    """
    half = len(log_odds[RETRAINING]) // 2
    if 2 * half < LEAST_SEEDS:
        return {}

    def answers(name: str, seeds: slice) -> Answers:
        odds = log_odds[name]
        none = np.full(len(odds), np.nan)
        accuracies = (scores[name].get("remaining_accuracy"), scores[name].get("test_accuracy"))
        return Answers(odds[seeds], *((_values(accuracy) if accuracy else none)[seeds] for accuracy in accuracies))

    retrained = answers(RETRAINING, slice(half, None))
    return {
        name: challenge_and_u_lira(key, name, answers(name, slice(half)), retrained)
        for name in log_odds
        if name != UNTRAINED
    }


def challenge_and_u_lira(key: OneKey, name: str, method: Answers, retrained: Answers) -> tuple[ChallengeScore, ULira]:
    """The challenge's score and U-LiRA against retrained models; each `name` has bootstraps of its own."""
    challenge, lira = (stream(key, purpose, name, 0) for purpose in ("challenge", "u-lira"))
    return (
        challenge_score(challenge, method, retrained),
        u_lira(lira, method.log_odds, retrained.log_odds),
    )


def compare_with_retrained(
    protocol: Protocol,
    scores: Mapping[str, MethodScores],
    distinguished: Mapping[str, tuple[ChallengeScore, ULira]],
) -> tuple[MethodResult, ...]:
    """Every method compared with retrained models, without conclusions."""

    retrained = scores[RETRAINING]

    def places(name: str) -> dict[Score, Place]:
        # Information has the ranks of efficacy, reversed.
        return {
            measure: place(_values(spread), _values(retrained[measure]), protocol.p_value_threshold)
            for measure, spread in scores[name].items()
            if measure in retrained and measure != "information"
        }

    def one(name: str) -> MethodResult:
        challenge, lira = distinguished.get(name, (None, None))
        return MethodResult(
            name=name,
            models=protocol.seeds,
            scores=scores[name],
            places={} if name == RETRAINING else places(name),
            challenge=challenge,
            u_lira=lira and lira.accuracy,
        )

    return tuple(map(one, scores))


def _values(spread: ScoreSpread) -> Float[np.ndarray, " seeds"]:
    """The score of each seed."""
    return np.array(spread.values, np.float64)
