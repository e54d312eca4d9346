"""The `attack` audit, end to end: the membership-attack protocol of Long, Bindschaedler & Gunter (2017)."""

from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jaxaudit.attacks import (
    attack_network,
    distance_scores,
    fit_untargeted,
    frequency_scores,
    untargeted_scores,
)
from jaxaudit.audits.attack.plan import (
    ALL,
    Attacks,
    Drawn,
    check_options,
    draw,
    left_out_models,
    left_out_width,
    models_to_train,
    settle_attack_width,
    shadow_draws,
)
from jaxaudit.audits.attack.result import AttackAudit, AttackResult
from jaxaudit.audits.attack.shadows import Stages, outputs_on, pair_outputs
from jaxaudit.audits.left_out import leave_out
from jaxaudit.data.examples import Examples
from jaxaudit.ensemble import Progress, fit_many, kept_width, log_probs_many
from jaxaudit.learners import Learner, NetworkLearner
from jaxaudit.membership import subsets
from jaxaudit.metrics.attack import attack_metrics, correlation, per_target_accuracy
from jaxaudit.metrics.pdtp import BINS, pdtp
from jaxaudit.randomness import generator_of, stream


def audit_attack(
    key: Key[Array, ""],
    examples: Examples,
    learner: Learner,
    *,
    attacks: Attacks = ALL,
    iterations: int = 100,
    targets: int = 100,
    shadows: int = 5,
    untargeted_shadows: int = 20,
    measured: int = 10,
    fresh_shadows: bool = False,
    bins: int = BINS,
    level: float = 0.95,
    width: int | None = None,
    progress: Progress | None = None,
    checkpoints: Path | None = None,
) -> AttackAudit:
    """How often is an attacker right about who was in the training set? Long et al. (2017), sections 5.3 and 5.4.

    Each iteration splits the candidate set D at random into halves D1 and D2 and attacks every target record through
    A(D1), then through A(D2): once the target is in the training set, once not, so that guessing is right half of the
    time. The attacker knows D, A and the size of the training set, not who is in it.

    Where the paper can be read in two ways:

    - *Targets* are drawn once and attacked in every iteration, 2 `iterations` times each. The text draws them within
      an iteration, but counts 200 attacks on a record, and its p-values are those of correlations over 100 records
      (r = 0.4864 and p = 2.89e-7 go together at 100 and at no other number, as do the others of table 1).
    - *Shadow models* are trained once ("for each target record t, we sample 5 datasets and train 10 shadow
      classifiers"): the attacker knows nothing of the split that a new draw could use. With `fresh_shadows` those of
      the targeted attacks are drawn anew in every iteration, at `iterations` times the cost; a target's accuracy then
      averages over draws instead of hanging on one.

    The shadow sets of up to 20 targets are drawn together (`with_and_without`): for each target they are as the paper
    says, but targets share some. PDTP of a target is measured in the half that holds it, with the attacked model's
    own key, and averaged over iterations. The untargeted attack sees inputs divided by their largest absolute value
    among the candidates.

    Args:
        key: random key; everything follows from it.
        examples: the candidate set D, an even number of records; the paper has 2,000.
        learner: A, the attacked models' design and recipe, which the attacker knows.
        attacks: which attacks to make.
        iterations: random splits, 100 in the paper.
        targets: records to attack, 100 in the paper.
        shadows: pairs of shadow models a target, with it and without it, for the targeted attacks.
        untargeted_shadows: shadow models for the untargeted attack.
        measured: iterations in which PDTP is measured, the first so many; all where there are no more.
        fresh_shadows: see above.
        bins: equal bins outputs are put into before anyone sees them; 0 takes them as they are, 1 is refused.
        level: confidence level of the bootstrap intervals, which draw whole targets.
        width: models trained side by side (chosen by measurement when None).
        progress: called as training goes on.
        checkpoints: a directory to keep finished chunks in, which a later call with the same arguments takes up; see
            `fit_many`. The same `learner` is the caller's word.

    Raises:
        InputError: the number of candidates is odd, there is but one class, there are more targets than candidates,
            a number is out of range, or a learner diverges.
    """
    check_options(attacks, iterations, shadows, untargeted_shadows, measured, bins, level)
    drawn = draw(key, examples, iterations, targets)
    half, measured = len(examples) // 2, min(measured, iterations)
    keys = jax.random.split(stream(key, "train"), len(drawn.membership))
    if checkpoints is not None:
        width = kept_width(keys, drawn.membership, examples.inputs, examples.labels, checkpoints) or width
    width = width or settle_attack_width(key, examples, learner, targets)
    models = models_to_train(
        drawn,
        learner,
        attacks=attacks,
        shadows=shadows,
        untargeted_shadows=untargeted_shadows,
        measured=measured,
        fresh_shadows=fresh_shadows,
        width=width,
    )
    stages = Stages(progress, models)
    how: dict[str, Any] = {"width": width, "checkpoints": checkpoints}
    attacked = fit_many(
        *(keys, drawn.membership, examples.inputs, examples.labels, learner),
        then=partial(_attacked, learner, examples, drawn),
        progress=stages.next(len(keys)),
        **how,
    )
    outputs, train_accuracy, test_accuracy = attacked
    scores: dict[str, np.ndarray] = {}
    if attacks.untargeted:
        one = stream(key, "untargeted")
        scores["untargeted"] = _untargeted(
            one, examples, learner, drawn.targets, outputs, untargeted_shadows, bins, stages, how
        )
    parts = []
    for index in range(shadow_draws(attacks, iterations, fresh_shadows)):
        own = stream(key, "shadows", index)
        said = pair_outputs(own, examples, learner, drawn.targets, half, shadows, stages, **how)
        rows = outputs[2 * index : 2 * index + 2] if fresh_shadows else outputs
        parts.append([(distance_scores(q, *said, bins=bins), _frequency(attacks, q, said, bins)) for q in rows])
    for place, name in enumerate(("distance", "frequency")):
        if getattr(attacks, name):
            scores[name] = np.stack([pair[place] for part in parts for pair in part])
    measurements = _measure(keys, examples, learner, drawn, measured, bins, stages, how)
    truth = drawn.membership[:, drawn.targets]
    judge = partial(_judge, stream(key, "intervals"), truth, measurements.mean(axis=0), level)
    return AttackAudit(
        targets=drawn.targets,
        truth=truth,
        attacks=tuple(judge(name, of_one) for name, of_one in scores.items()),
        measurements=measurements,
        train_accuracy=float(np.mean(train_accuracy)),
        test_accuracy=float(np.mean(test_accuracy)),
        candidates=len(examples),
        bins=bins,
        shadows=shadows,
        width=width,
    )


def _attacked(
    learner: Learner, examples: Examples, drawn: Drawn, params: Any, models: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What models say of the targets, and their accuracy on their own half and on the other."""
    said = log_probs_many(learner, params, examples.inputs)
    hits, own = said.argmax(axis=2) == examples.labels, drawn.membership[models]
    half = own.sum(axis=1)
    return said[:, drawn.targets], (hits & own).sum(axis=1) / half, (hits & ~own).sum(axis=1) / half


def _untargeted(
    key: Key[Array, ""],
    examples: Examples,
    learner: Learner,
    targets: Int[np.ndarray, " targets"],
    outputs: Float[np.ndarray, "models targets classes"],
    shadows: int,
    bins: int,
    stages: Stages,
    how: dict[str, Any],
) -> Float[np.ndarray, "models targets"]:
    candidates = len(examples)
    membership = subsets(generator_of(stream(key, "draw")), shadows, candidates // 2, candidates)
    keys = jax.random.split(stream(key, "train"), shadows)
    said = outputs_on(keys, membership, examples, learner, stages.next(shadows), **how)
    inputs = examples.inputs.reshape(candidates, -1).astype(np.float32)
    # Indices of categories would drown the outputs.
    inputs = inputs / np.maximum(np.abs(inputs).max(axis=0), np.finfo(np.float32).tiny)
    own = _attack_network(inputs.shape[1] + 2 * outputs.shape[2])
    attack = fit_untargeted(
        stream(key, "learn"), own, inputs, examples.labels, said, membership, bins=bins, progress=stages.next(0)
    )
    asked = inputs[targets], examples.labels[targets]
    return np.stack([untargeted_scores(attack, *asked, model) for model in outputs])


@lru_cache(maxsize=8)
def _attack_network(features: int) -> NetworkLearner:
    """Made once, because each that is made is compiled anew."""
    return attack_network(features)


def _measure(
    keys: Key[Array, " models"],
    examples: Examples,
    learner: Learner,
    drawn: Drawn,
    measured: int,
    bins: int,
    stages: Stages,
    how: dict[str, Any],
) -> Float[np.ndarray, "measured targets"]:
    """PDTP of every target in the half that holds it."""
    targets = len(drawn.targets)
    how = {**how, "width": left_out_width(targets, how["width"])}
    values = np.full((measured, targets), np.nan)
    for model in range(2 * measured):
        members = np.flatnonzero(drawn.membership[model])
        held = np.flatnonzero(np.isin(drawn.targets, members))
        if not len(held):
            continue
        records = np.searchsorted(members, drawn.targets[held])
        # Whole chunks, whatever the half: the same programs serve them all.
        records = np.concatenate([records, np.repeat(records[-1:], -len(records) % how["width"])])
        report = stages.next(left_out_models(len(held), targets, learner, how["width"]))
        left = leave_out(keys[model], examples.take(members), learner, records, progress=report, **how)
        values[model // 2, held] = pdtp(left.with_record, left.without_record, bins=bins).values[: len(held)]
    return values


def _frequency(attacks: Attacks, q: np.ndarray, said: Any, bins: int) -> np.ndarray | None:
    return frequency_scores(q, *said, bins=bins) if attacks.frequency else None


def _judge(
    key: Key[Array, ""],
    truth: Bool[np.ndarray, "models targets"],
    mean_pdtp: Float[np.ndarray, " targets"],
    level: float,
    name: str,
    scores: Float[np.ndarray, "models targets"],
) -> AttackResult:
    models, targets = truth.shape
    flat = scores.ravel(), truth.ravel(), np.tile(np.arange(targets), models)
    accuracy = per_target_accuracy(*flat, targets)
    metrics = attack_metrics(key, *flat, level=level)
    return AttackResult(name, metrics, accuracy, correlation(accuracy, mean_pdtp), scores)
