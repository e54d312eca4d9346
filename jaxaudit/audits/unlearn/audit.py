"""The `unlearn` audit: trains models, applies every unlearning method, compares each with retrained models."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jaxaudit.attacks.learned import EPOCHS, LearnedAttack
from jaxaudit.attacks.learned import SOURCE as ATTACK
from jaxaudit.audits.unlearn import evaluate
from jaxaudit.audits.unlearn.against_retrained import (
    MethodOutputs,
    compare_with_retrained,
    distinguishability,
    protocol_of,
)
from jaxaudit.audits.unlearn.evaluate import (
    RETRAIN,
    TRAIN,
    Attacker,
    Judged,
    Setting,
    costs,
    end,
    flat_params,
    inputs_of,
    on_host,
    params_of,
    score,
    traced,
    unlearned,
    unlearning,
)
from jaxaudit.audits.unlearn.finding import over_sets, set_result
from jaxaudit.audits.unlearn.given_models import check_name
from jaxaudit.audits.unlearn.result import (
    AMNESIAC,
    ORIGINAL,
    RESERVED,
    RETRAINING,
    UNTRAINED,
    MethodModels,
    MethodScores,
    UnlearnAudit,
)
from jaxaudit.data.examples import Examples
from jaxaudit.data.sequences import are_texts
from jaxaudit.ensemble import DEFAULT_EXECUTION, Execution, fit_many, form_of
from jaxaudit.errors import InputError, check_ranges, check_shapes
from jaxaudit.learners import Learner, NetworkLearner, NetworkParams, SteppedLearner
from jaxaudit.learners.stepped import init_key
from jaxaudit.metrics.efficacy import SOURCE as EFFICACY
from jaxaudit.metrics.forgetting_quality import SOURCE as CHALLENGE
from jaxaudit.metrics.forgetting_quality import TOFU_SOURCE as TOFU
from jaxaudit.metrics.u_lira import SOURCE as U_LIRA
from jaxaudit.models import RUN_ONCE
from jaxaudit.randomness import generator_of, stream
from jaxaudit.unlearning import Recording, Unlearn, retrain, train_and_record
from jaxaudit.unlearning.method import papers_of

Layers = Mapping[str, Float[np.ndarray, "sets seeds"]]


def compare_unlearning(
    key: Key[Array, ""],
    train: Examples,
    test: Examples,
    learner: Learner,
    forget: Bool[np.ndarray, "sets n"],
    *,
    amnesiac: bool = True,
    methods: Mapping[str, Unlearn] | None = None,
    seeds: int = 20,
    nonmembers: int | None = None,
    attack_epochs: int = EPOCHS,
    attack_each: bool = False,
    level: float = 0.95,
    forgotten: Sequence[str] | None = None,
    notes: Sequence[str] = (),
    other_answers: Sequence[Int[np.ndarray, "forgotten answers length"]] | None = None,
    execution: Execution = DEFAULT_EXECUTION,
) -> UnlearnAudit:
    """How well does each method make models forget these records? Becker & Liebig (2022), section 4.

    For every seed, trains a model on all of `train` and, for every set to forget, the same model without that set.
    Every method then makes the trained models forget the set. Each method's scores are compared with those of the
    retrained models, the reference for forgetting. The comparison is two-sided: a model that exposes less than a
    retrained one, or on which attacks succeed less, is distinguishable, too.

    Memory on the host: `seeds * sets * (methods + 1)` models.

    Args:
        train: the training set, in the form that the learner needs; texts as `sequences`.
        test: records of the same classes that were never trained on.
        learner: the network and its training recipe, from `network`, of texts from `language_model`.
        forget: sets of training records to forget, one membership mask per set; each set is judged separately.
        amnesiac: whether to judge amnesiac unlearning.
        methods: further methods by name, each a pure function of the trained model (see `Unlearn`), for example
            `{"fisher": partial(forget_by_noise, noise=golatkar)}`.
        seeds: models per method, one per seed; too few cannot show a difference, see `Protocol.enough_seeds`. The
            unlearning challenge's score and U-LiRA need 16; more seeds resolve more.
        nonmembers: test records that attack networks learn from, drawn once; by default as many as there are training
            records, or all; none of texts. With 0 there is no attack, and its scores are None.
        attack_epochs: epochs of an attack network; 100 in the toolbox that the paper used.
        attack_each: by default attack networks learn from the original models, as an attacker who knew the model before
            unlearning would, and the same network attacks each method's model. True trains a new attack network on
            every model, with its remaining records as members, as in the paper. Such a network gets the label as input:
            for a class that was forgotten as a whole it was trained on no member, and answers "not a member" whatever
            the model remembers.
        level: confidence level of the intervals; no verdict depends on it.
        forgotten: each set to forget in words; by default its number of records.
        notes: limitations of the input, in sentences, which become part of every finding.
        other_answers: for TOFU's forget quality, of each set to forget the other answers to its questions, as
            `sequences`: a paraphrase of the right one, then wrong ones, of each record in its order.
        execution: see `Execution`; a stopped call is resumed as by `fit_many`.

    Returns:
        A result for each set: for every method the scores of its models, and which of them differ from those of
            retrained models. `finding` is the worst verdict: `distinguishable`, `not distinguishable` or
            `inconclusive`.

    Raises:
        InputError: a set is empty or contains all records, shapes disagree, a label is not an output of the learner,
            the name of a method is reserved or its parameters do not fit the model, amnesiac unlearning is requested
            for a network with batch normalisation, or a number is out of range.

    >>> from functools import partial
    >>> import optax
    >>> import jaxaudit as ja
    >>> digits = ja.prepare_images(ja.load("digits"))
    >>> train, test = digits.take(np.arange(60)), digits.take(np.arange(60, 120))
    >>> mlp = partial(ja.models.MLP, hidden=(8,))
    >>> learner = ja.network(mlp, train.inputs.shape[1:], 10, optimizer=optax.adam(0.01), epochs=5, batch_size=20)
    >>> forget = np.arange(60) < 10
    >>> def nothing(key, log_probs, params, inputs, labels, forget):
    ...     return params
    >>> audit = compare_unlearning(jax.random.key(1), train, test, learner, forget[None], amnesiac=False,
    ...     methods={"nothing": nothing}, seeds=8, nonmembers=0)
    >>> audit.finding.verdict
    'inconclusive'
    >>> audit.scores("nothing", "forgotten_accuracy").shape
    (1, 8)
    """
    methods = dict(methods or {})
    if not isinstance(learner, NetworkLearner):
        raise InputError(
            f"unlearning is judged on networks, and {type(learner).__name__} is not one: make the learner with "
            "`network`."
        )
    check_unlearn(train, test, learner, forget, methods, seeds, nonmembers, attack_epochs, level, other_answers)
    sets, names = len(forget), [RETRAINING, *([AMNESIAC] if amnesiac else []), *methods]
    of_texts = are_texts(train)
    count = nonmembers or 0 if of_texts else min(len(train), len(test)) if nonmembers is None else nonmembers
    work = costs(learner, len(train), count, attack_epochs, attack_each, seeds, sets, names, tuple(methods))
    parts = dict(zip(work, execution.split(*work.values()), strict=True))
    keys = jax.random.split(stream(key, "train"), seeds)
    ready = {name: traced(name, method, learner, train) for name, method in methods.items()}
    params = _trained(keys, train, learner, forget, amnesiac, parts)
    for name, method in ready.items():
        noise = jnp.stack([jax.random.split(stream(key, "unlearn", name, index), seeds) for index in range(sets)])
        together = jax.default_backend() != "cpu"
        parts_of_method = [parts[unlearning(name, index)] for index in range(sets)]
        params[name] = unlearned(method, noise, params[ORIGINAL], forget, together, parts_of_method)
    generator = generator_of(stream(key, "nonmembers"))
    chosen = np.sort(generator.choice(len(test), count, replace=False))
    attacker = Attacker(jax.random.split(stream(key, "attack"), seeds), chosen, attack_epochs) if count else None
    of = Setting(learner, train, test, attacker)
    scores, layers, outputs = _scored(of, params, forget, other_answers, attack_each, parts)
    distinguished = distinguishability(stream(key, "against retrained"), outputs, scores, level)
    results = []
    for index, row in enumerate(forget):
        name_of_set = forgotten[index] if forgotten else f"{int(row.sum()):,} of {len(train):,} records"
        protocol = protocol_of(int(row.sum()), sets, len(train), len(test), count, seeds, level, of_texts)
        results.append(
            set_result(
                name_of_set, protocol, compare_with_retrained(index, protocol, scores, layers, distinguished), notes
            )
        )
    parts_of_method = {name: papers_of(method) for name, method in methods.items()}
    of_methods = {RETRAINING: papers_of(retrain), AMNESIAC: papers_of(train_and_record), **parts_of_method}
    return UnlearnAudit(
        results=tuple(results),
        finding=over_sets(results),
        forget=forget,
        models={
            name: MethodModels(params[name], layers[name], tuple(answers.u_lira for answers in distinguished[name]))
            for name in params
        },
        sources=(
            *(EFFICACY, *([ATTACK] if count else [])),
            *(of_methods.get(name, "") for name in params),
            *([CHALLENGE, U_LIRA, *([TOFU] if of_texts else [])] if any(distinguished.values()) else []),
        ),
        models_per_batch=execution.models_per_batch,
        form=form_of(learner),
    )


def _trained(
    keys: Key[Array, " seeds"],
    train: Examples,
    learner: NetworkLearner,
    forget: Bool[np.ndarray, "sets n"],
    amnesiac: bool,
    parts: dict[str, Execution],
) -> dict[str, Any]:
    """The trained and the untrained models, by name of the method."""
    inputs, labels, sets, seeds = inputs_of(train), train.labels, len(forget), len(keys)
    kept_on_disk = parts[TRAIN].checkpoints is not None
    summarize = flat_params if kept_on_disk else None

    def trained_by(kind: SteppedLearner, kept: Any) -> Any:
        return params_of(kind, kept) if kept_on_disk else kept

    forgotten: dict[str, Any] = {}
    if amnesiac:
        # Amnesiac unlearning starts from these original models.
        recorded = train_and_record(keys, forget, inputs, labels, learner, execution=parts[TRAIN], summarize=summarize)
        original, taken_back = trained_by(Recording(learner, sets), recorded)
        forgotten[AMNESIAC] = jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), taken_back)
    else:
        everyone = np.ones((seeds, len(labels)), bool)
        whole = fit_many(keys, everyone, inputs, labels, learner, execution=parts[TRAIN], summarize=summarize)
        original = trained_by(learner, whole)
    begin = jax.vmap(lambda key: learner.finish(learner.init(init_key(key))))
    removed = np.repeat(forget, seeds, axis=0)
    again = retrain(
        jnp.tile(keys, sets), removed, inputs, labels, learner, execution=parts[RETRAIN], summarize=summarize
    )
    return {
        UNTRAINED: jax.tree.map(on_host, jax.jit(begin, compiler_options=RUN_ONCE)(keys)),
        ORIGINAL: original,
        RETRAINING: jax.tree.map(lambda leaf: leaf.reshape(sets, seeds, *leaf.shape[1:]), trained_by(learner, again)),
        **forgotten,
    }


def _scored(
    of: Setting,
    params: dict[str, Any],
    forget: Bool[np.ndarray, "sets n"],
    other_answers: Sequence[Int[np.ndarray, "forgotten answers length"]] | None,
    attack_each: bool,
    parts: dict[str, Execution],
) -> tuple[dict[str, list[MethodScores]], dict[str, Layers], dict[str, list[MethodOutputs]]]:
    """Scores of every model on its own set, or on each set if it forgot none, and what it says of these records."""
    everything = np.ones(len(of.train), bool)
    # Untrained models come first and have none, then the originals, whose attacks are those of all others.
    attack: LearnedAttack | None = None

    def judge(name: str, models: Any, members: np.ndarray, part: str) -> Judged:
        nonlocal attack
        if of.attacker is not None and (name == ORIGINAL or (attack_each and name != UNTRAINED)):
            attack = evaluate.train_attack(of, name, models, members, parts[part])
        return evaluate.look_at(of, name, models, attack)

    scores: dict[str, list[MethodScores]] = {}
    layers: dict[str, Layers] = {}
    outputs: dict[str, list[MethodOutputs]] = {name: [] for name in params}
    for name, models in params.items():
        once = judge(name, models, everything, name) if name in (UNTRAINED, ORIGINAL) else None
        scored = []
        for index, row in enumerate(forget):
            of_set = models if once is not None else jax.tree.map(lambda leaf, i=index: leaf[i], models)
            seen = judge(name, of_set, ~row, f"{name} {index}") if once is None else once
            scored.append(score(of, name, of_set, seen, row))
            answers_of_set = other_answers[index] if other_answers and name != UNTRAINED else None
            ratios = evaluate.truth_ratios(of.learner, of_set, answers_of_set)
            outputs[name].append(MethodOutputs(seen.log_odds[:, row], seen.on_test, ratios))
            end(parts[name if once is not None else f"{name} {index}"])
        scores[name] = [numbers for numbers, _ in scored]
        layers[name] = {layer: np.stack([squares[layer] for _, squares in scored]) for layer in scored[0][1]}
    return scores, layers, outputs


def check_unlearn(
    train: Examples,
    test: Examples,
    learner: NetworkLearner,
    forget: np.ndarray,
    methods: Mapping[str, Unlearn],
    seeds: int,
    nonmembers: int | None,
    attack_epochs: int,
    level: float,
    other_answers: Sequence[np.ndarray] | None,
) -> None:
    check_shapes((max(1, len(forget)), len(train)), forget=forget)
    for index, row in enumerate(forget):
        if not row.any() or row.all():
            trouble = "is empty: there is nothing to forget" if not row.any() else "is everything: nothing remains"
            raise InputError(f"set {index} to forget {trouble}. Are the class and the fraction right?")
    check_ranges("[2, inf)", seeds=seeds)
    check_ranges("[1, inf)", attack_epochs=attack_epochs)
    check_ranges("(0, 1)", level=level)
    check_ranges(f"[0, {len(test)}]", nonmembers=nonmembers)
    for name in methods:
        check_name(name, RESERVED)
    of_texts = are_texts(train)
    if of_texts and nonmembers:
        raise InputError(
            f"{train.name} has texts, and attack networks learn from outputs of classes, which texts do not have: "
            "leave `nonmembers` out."
        )
    if of_texts is not are_texts(test):
        raise InputError(f"only one of {train.name} and {test.name} has texts: give test records of the same kind.")
    shapes = None if other_answers is None else [(len(answers), answers.ndim) for answers in other_answers]
    if shapes not in (None, [(int(row.sum()), 3) for row in forget]) or (shapes and not of_texts):
        raise InputError(
            "`other_answers` has an array for each set of texts to forget, `[forgotten, answers, length]`: give one "
            "row per record of the set."
        )
    for part in (train, test):
        _check_outputs(part, learner)


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
