"""The `unlearn` audit: trains models, applies every unlearning method, compares each with retrained models."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxaudit.attacks.learned import BATCH_SIZE, EPOCHS, LearnedAttack
from jaxaudit.attacks.learned import SOURCE as ATTACK
from jaxaudit.audits.unlearn import evaluate
from jaxaudit.audits.unlearn.evaluate import (
    Setting,
    compare_with_retrained,
    distinguishability,
    end,
    flat_params,
    inputs_of,
    on_host,
    params_of,
    protocol_of,
    traced,
    unlearned,
)
from jaxaudit.audits.unlearn.outputs_result import check_names
from jaxaudit.audits.unlearn.result import (
    AMNESIAC,
    ORIGINAL,
    RESERVED,
    RETRAINING,
    UNTRAINED,
    MethodScores,
    UnlearnAudit,
    concluded_result,
)
from jaxaudit.data.examples import Examples
from jaxaudit.data.sequences import are_texts
from jaxaudit.ensemble import DEFAULT_EXECUTION, Execution, fit_many, form_of
from jaxaudit.errors import InputError, check_ranges, check_shapes
from jaxaudit.learners import NetworkLearner, NetworkParams, SteppedLearner
from jaxaudit.learners.learner import init_key
from jaxaudit.metrics.arrays import Mask, OneKey
from jaxaudit.metrics.efficacy import SOURCE as EFFICACY
from jaxaudit.metrics.forgetting_quality import SOURCE as CHALLENGE
from jaxaudit.metrics.over_models import SOURCE as U_LIRA
from jaxaudit.models import RUN_ONCE
from jaxaudit.randomness import ModelKeys, generator_of, stream
from jaxaudit.unlearning import Recording, Unlearn, retrain, train_and_record
from jaxaudit.unlearning.gradients import EPOCHS as EPOCHS_OF_METHODS
from jaxaudit.unlearning.method import papers_of


def compare_unlearning(
    key: OneKey,
    train: Examples,
    test: Examples,
    learner: NetworkLearner,
    forget: Mask,
    *,
    amnesiac: bool = True,
    methods: Mapping[str, Unlearn] | None = None,
    seeds: int = 20,
    nonmembers: int | None = None,
    attack_epochs: int = EPOCHS,
    attack_each: bool = False,
    forgotten: str = "",
    notes: Sequence[str] = (),
    execution: Execution = DEFAULT_EXECUTION,
) -> UnlearnAudit:
    """How well does each method make models forget these records? Becker & Liebig (2022), section 4.

    For every seed, trains a model on all of `train` and the same model without the records to forget. Every method then
    makes the trained models forget these, and its scores are compared with those of the retrained models. The
    comparison is two-sided: a model that exposes less than a retrained one is distinguishable, too. Memory on the host:
    `seeds * (methods + 1)` models.

    Args:
        train: the training set, in the form that the learner needs; texts as `sequences`.
        test: records of the same classes that were never trained on.
        learner: from `network`, of texts from `language_model`.
        forget: which training records to forget.
        amnesiac: whether to judge amnesiac unlearning.
        methods: further methods by name, such as `{"fisher": partial(forget_by_noise, noise=golatkar)}`; see `Unlearn`.
        seeds: models per method; too few cannot show a difference, see `Protocol.enough_seeds`. The unlearning
            challenge's score and U-LiRA need 16.
        nonmembers: test records that attack networks learn from, drawn once; by default as many as there are training
            records, or all; none of texts. With 0 there is no attack, and its scores are None.
        attack_epochs: epochs of an attack network; 100 in the toolbox that the paper used.
        attack_each: by default attack networks learn from the original models, and the same network attacks each
            method's model. True trains a new attack network on every model, with its remaining records as members, as
            in the paper. It gets the label as input: for a class that was forgotten as a whole it was trained on no
            member, and answers "not a member" whatever the model remembers.
        forgotten: the set to forget in words; by default its number of records.
        notes: limitations of the input, in sentences, which become part of every finding.

    Returns:
        For every method the scores of its models, and which of them differ from those of retrained models. `finding` is
            the worst verdict: `distinguishable`, `not distinguishable` or `inconclusive`.

    Raises:
        InputError: nothing is to be forgotten, or everything; the parameters of a method do not fit the model, its name
            is reserved; or amnesiac unlearning is requested for a network with batch normalisation.

    >>> from functools import partial
    >>> import optax
    >>> import jaxaudit as ja
    >>> digits = ja.prepare_images(ja.load("digits"))
    >>> train, test = digits.take(np.arange(60)), digits.take(np.arange(60, 120))
    >>> mlp = partial(ja.models.MLP, hidden=(8,))
    >>> learner = ja.network(mlp, train.inputs.shape[1:], 10, optimizer=optax.adam(0.01), epochs=5, batch_size=20)
    >>> nothing = {"nothing": lambda key, log_probs, params, inputs, labels, forget: params}
    >>> audit = compare_unlearning(jax.random.key(1), train, test, learner, np.arange(60) < 10, amnesiac=False,
    ...     methods=nothing, seeds=8, nonmembers=0)
    >>> audit.finding.verdict, audit.scores("nothing", "forgotten_accuracy").shape
    ('inconclusive', (8,))
    """
    methods, of_texts = dict(methods or {}), are_texts(train)
    check_shapes((len(train),), forget=forget)
    if not forget.any() or forget.all():
        trouble = "empty: there is nothing to forget" if not forget.any() else "everything: nothing remains"
        raise InputError(f"the set to forget is {trouble}. Are the class and the fraction right?")
    check_ranges("[2, inf)", seeds=seeds)
    check_ranges("[1, inf)", attack_epochs=attack_epochs)
    # Attack networks learn from outputs of classes, which texts do not have.
    check_ranges(f"[0, {0 if of_texts else len(test)}]", nonmembers=nonmembers)
    check_names(methods, RESERVED)
    for part in (train, test):
        _check_outputs(part, learner)
    names = [RETRAINING, *([AMNESIAC] if amnesiac else []), *methods]
    count = nonmembers or 0 if of_texts else min(len(train), len(test)) if nonmembers is None else nonmembers
    parts = _parts(learner, len(train), count, attack_epochs, attack_each, seeds, names, execution)
    keys = jax.random.split(stream(key, "train"), seeds)
    ready = {name: traced(name, method, learner, train) for name, method in methods.items()}
    params = _trained(keys, train, learner, forget, amnesiac, parts)
    for name, method in ready.items():
        noise = jax.random.split(stream(key, "unlearn", name, 0), seeds)
        together = jax.default_backend() != "cpu"
        params[name] = unlearned(method, noise, params[ORIGINAL], forget, together, parts["unlearn", name])
    generator = generator_of(stream(key, "nonmembers"))
    chosen = np.sort(generator.choice(len(test), count, replace=False))
    of = Setting(learner, train, test, jax.random.split(stream(key, "attack"), seeds), chosen, attack_epochs)
    scores, log_odds = _scored(of, params, forget, attack_each, parts)
    distinguished = distinguishability(stream(key, "against retrained"), log_odds, scores)
    protocol = protocol_of(int(forget.sum()), len(train), len(test), count, seeds, of_texts)
    compared = compare_with_retrained(protocol, scores, distinguished)
    of_methods = {
        RETRAINING: papers_of(retrain),
        AMNESIAC: papers_of(train_and_record),
        **{name: papers_of(method) for name, method in methods.items()},
    }
    return UnlearnAudit(
        result=concluded_result(
            forgotten or f"{int(forget.sum()):,} of {len(train):,} records", protocol, compared, notes
        ),
        forget=forget,
        models=params,
        u_lira={name: lira.per_record for name, (_, lira) in distinguished.items()},
        sources=(
            *(EFFICACY, *([ATTACK] if count else [])),
            *(of_methods.get(name, "") for name in params),
            *([CHALLENGE, U_LIRA] if distinguished else []),
        ),
        models_per_batch=execution.models_per_batch,
        form=form_of(learner),
    )


TRAIN, RETRAIN = ("train", ORIGINAL), ("train", RETRAINING)


PartsOfWork = dict[tuple[str, str], Execution]
"""How each part is done, by what is done and the method."""


def _parts(
    learner: NetworkLearner,
    records: int,
    nonmembers: int,
    attack_epochs: int,
    attack_each: bool,
    seeds: int,
    names: Sequence[str],
    execution: Execution,
) -> PartsOfWork:
    """The executions of all parts, whose work is estimated in model steps."""
    steps = seeds * -(-records // learner.batch_size)
    attack = seeds * attack_epochs * -(-(records + nonmembers) // BATCH_SIZE) if nonmembers else 0
    work = {TRAIN: learner.epochs * steps * (1.5 if AMNESIAC in names else 1.0), RETRAIN: learner.epochs * steps}
    work |= {("unlearn", name): EPOCHS_OF_METHODS * steps for name in names if name not in (RETRAINING, AMNESIAC)}
    work |= {("judge", UNTRAINED): 1.0, ("judge", ORIGINAL): attack + 1.0}
    work |= {("judge", name): attack * attack_each + 1.0 for name in names}
    return dict(zip(work, execution.split(*work.values()), strict=True))


def _trained(
    keys: ModelKeys,
    train: Examples,
    learner: NetworkLearner,
    forget: Mask,
    amnesiac: bool,
    parts: PartsOfWork,
) -> dict[str, Any]:
    """The trained and the untrained models, by name of the method."""
    inputs, labels, seeds = inputs_of(train), train.labels, len(keys)
    kept_on_disk = parts[TRAIN].checkpoints is not None
    summarize = flat_params if kept_on_disk else None

    def trained_by(kind: SteppedLearner, kept: Any) -> Any:
        return params_of(kind, kept) if kept_on_disk else kept

    forgotten: dict[str, Any] = {}
    if amnesiac:
        # Amnesiac unlearning starts from these original models.
        recorded = train_and_record(keys, forget, inputs, labels, learner, execution=parts[TRAIN], summarize=summarize)
        original, forgotten[AMNESIAC] = trained_by(Recording(learner), recorded)
    else:
        everyone = np.ones((seeds, len(labels)), bool)
        whole = fit_many(keys, everyone, inputs, labels, learner, execution=parts[TRAIN], summarize=summarize)
        original = trained_by(learner, whole)
    begin = jax.vmap(lambda key: learner.finish(learner.init(init_key(key))))
    removed = np.tile(forget, (seeds, 1))
    again = retrain(keys, removed, inputs, labels, learner, execution=parts[RETRAIN], summarize=summarize)
    return {
        UNTRAINED: jax.tree.map(on_host, jax.jit(begin, compiler_options=RUN_ONCE)(keys)),
        ORIGINAL: original,
        RETRAINING: trained_by(learner, again),
        **forgotten,
    }


def _scored(
    of: Setting,
    params: dict[str, Any],
    forget: Mask,
    attack_each: bool,
    parts: PartsOfWork,
) -> tuple[dict[str, MethodScores], dict[str, Float[np.ndarray, "seeds forgotten"]]]:
    """Scores of every model, and its log-odds of the records to forget."""
    scores: dict[str, MethodScores] = {}
    log_odds: dict[str, Float[np.ndarray, "seeds forgotten"]] = {}
    # Untrained models come first and have none, then the originals, whose attacks are those of all others.
    attack: LearnedAttack | None = None
    for name, models in params.items():
        part = parts["judge", name]
        if len(of.nonmembers) and (name == ORIGINAL or (attack_each and name != UNTRAINED)):
            members = np.ones(len(of.train), bool) if name == ORIGINAL else ~forget
            attack = evaluate.train_attack(of, name, models, members, part)
        scores[name], log_odds[name] = evaluate.judged(of, name, models, forget, attack)
        end(part)
    return scores, log_odds


def _check_outputs(part: Examples, learner: NetworkLearner) -> None:
    def outputs(key: Any, inputs: Any) -> Any:
        return learner.log_probs(NetworkParams(*learner.net.init(key)), inputs)

    of_texts = are_texts(part)
    inputs = jax.ShapeDtypeStruct((1, *part.inputs.shape[1:]), jnp.int32 if of_texts else jnp.float32)
    try:
        classes = jax.eval_shape(outputs, jax.eval_shape(jax.random.key, 1), inputs).shape[1]
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{part.name} has records of shape {part.inputs.shape[1:]}, which the network does not accept: "
            f"{str(error).strip().splitlines()[0]}"
        ) from error
    if of_texts and classes != 1:
        raise InputError(f"{part.name} has texts, and the network is of classes: make it with `language_model`.")
    if part.labels.max() >= classes:
        raise InputError(
            f"{part.name} has label {int(part.labels.max())}, but the network has only {classes} outputs, from 0: make "
            "it with as many outputs as the data have classes."
        )
