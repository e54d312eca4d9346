"""Membership attacks: on models of random halves (`train_splits`), or with the shadow models of a bank.

Both have one result: rates by the thresholds of other models, and a section of their own (`splits`, `exposure`). One
rule decides (`finding.py`). The area under the ROC curve of random halves is of all answers together, with an interval
over records, since the two models of a split are not independent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import msgspec
import numpy as np
from jaxtyping import Bool, Float, Int

from jaxaudit.attacks import AttackInputs, PairedShadows, PooledShadows
from jaxaudit.attacks.attack import Attack, Distance, Frequency, Shadows, Untargeted
from jaxaudit.attacks.records import RECORD_ATTACKS
from jaxaudit.audits.attack.finding import attack_finding, best_on_halves
from jaxaudit.audits.attack.records import attack_records, open_for_attacks
from jaxaudit.audits.attack.result import (
    AttackAudit,
    AttackedRecord,
    AttackOutcome,
    AttackResult,
    SplitAttacks,
)
from jaxaudit.audits.attack.targets import RecordTarget
from jaxaudit.audits.finding import UNDECIDED
from jaxaudit.audits.left_out import (
    in_whole_chunks,
    leave_out,
    models_trained,
    say_everywhere,
    usual_left_out_per_batch,
)
from jaxaudit.data.bank.bank import Bank, load_bank
from jaxaudit.data.examples import Examples
from jaxaudit.ensemble import (
    DEFAULT_EXECUTION,
    Execution,
    Progress,
    fit_many,
    form_of,
    kept_models_per_batch,
    log_probs_many,
)
from jaxaudit.errors import InputError, check_distinct, check_ranges
from jaxaudit.learners import Learner, LeavesOneOut
from jaxaudit.learners.learner import POOL_ORDER_SHARE
from jaxaudit.membership import halves, subsets, with_and_without
from jaxaudit.metrics import attack as metrics
from jaxaudit.metrics.arrays import OneKey
from jaxaudit.metrics.pdtp import BINS, pdtp
from jaxaudit.metrics.permutation import better_than_guessing
from jaxaudit.metrics.usage import LEVEL
from jaxaudit.randomness import ModelKeys, generator_of, several, stream
from jaxaudit.shadow_models import ShadowModels

ATTACKS: tuple[Attack, ...] = (Untargeted(), Distance(), Frequency())
"""The built-in attacks of `attack_splits` and of `jaxaudit attack` without a bank."""
MOST = 1_000_000
"""The largest accepted count: no machine can do more, and the keys and masks alone would fill its memory."""
PAIRS, POOLED = 5, 20
"""The paper's numbers of shadow models: pairs for each target, and models of random halves."""
MEASURED = 10
"""Iterations in which PDTP is measured: its correlation with accuracy settles there (figure 3 of the paper)."""
MOST_TOGETHER = 20
"""Targets whose shadow sets come from one permutation: 22 models for 40 sets. More would save little and make the
shadow models of different targets less independent."""


Targets = Int[np.ndarray, " targets"]
"""The indices of attacked records among the candidates."""


class Drawn(NamedTuple):
    """The attacked records, ascending, and models' training sets: rows 2 i and 2 i + 1 are halves of iteration i."""

    targets: Targets
    membership: Bool[np.ndarray, "models candidates"]


def draw(key: OneKey, examples: Examples, iterations: int, targets: int) -> Drawn:
    """The targets and splits that `train_splits` draws with this key, or its `InputError`."""
    candidates = len(examples)
    if candidates % 2 or candidates < 4:
        raise InputError(
            f"{examples.name}: {candidates} candidates cannot be split into equal halves of at least 2 records; leave "
            "one out, or use more."
        )
    check_ranges(f"[2, {candidates}]", targets=targets)
    present = np.unique(examples.labels)
    if len(present) < 2:
        raise InputError(
            f"{examples.name}: all candidates are of one class ({examples.class_names[int(present[0])]}): there is "
            "nothing to classify. Is the right column the label?"
        )
    chosen = np.sort(generator_of(stream(key, "targets")).choice(candidates, targets, replace=False))
    generator = generator_of(stream(key, "halves"))
    drawn = Drawn(chosen, np.concatenate([halves(generator, candidates) for _ in range(iterations)]))
    held = drawn.membership[:, chosen].sum(axis=1)
    if not ((held > 0) & (held < targets)).any():
        raise InputError(
            f"every one of the {iterations} splits has all of the {targets} targets in one half, so that members and "
            "others cannot be compared: ask for more targets, or for more iterations."
        )
    return drawn


def groups_of(targets: Targets, size: int) -> list[Int[np.ndarray, " group"]]:
    """The targets in groups of equal length, whose shadow sets of `size` records are drawn together; the last group is
    padded with its last target. Groups are small enough for the pool order: see `takes_pool_order`.
    """
    most = max(1, min(MOST_TOGETHER, int((size - 1) / POOL_ORDER_SHARE) - size))
    length = -(-len(targets) // -(-len(targets) // most))
    return list(in_whole_chunks(targets, length).reshape(-1, length))


def models_to_train(
    drawn: Drawn,
    learner: Learner,
    *,
    shadow_pairs: int,
    pooled_shadows: int,
    measured: int,
    models_per_batch: int,
) -> tuple[int, int, int, tuple[int, ...]]:
    """The numbers of models that `train_splits` trains, without attack networks: attacked, pooled and paired ones, and
    those without one record, for PDTP, of each measured half; their last batch is filled up. A learner that computes
    leave-one-out models itself trains none for PDTP.
    """
    models, candidates = drawn.membership.shape
    groups = groups_of(drawn.targets, candidates // 2)
    pairs = shadow_pairs * sum(2 + len(group) for group in groups)
    size = left_out_models_per_batch(len(drawn.targets), models_per_batch)
    # None is trained for a half without targets, or if the learner needs none.
    held = drawn.membership[: 2 * measured, drawn.targets].sum(axis=1) * (not isinstance(learner, LeavesOneOut))
    left_out = (models_trained(-(-records // size) * size, size) if records else 0 for records in held.tolist())
    return models, pooled_shadows, pairs, tuple(left_out)


def left_out_models_per_batch(targets: int, models_per_batch: int) -> int:
    """Leave-one-out models per batch: the targets of a half, about half of all, fill whole chunks."""
    return min(models_per_batch, max(1, targets // 2))


@dataclass(frozen=True, eq=False)
class SplitModels:
    """Models of random halves that are attacked, and the shadow models from which the attacks learn.

    Attributes:
        key: the random key of all draws, those of the attacks included.
        inputs: the attacked models' outputs on the target records; rows 2 i and 2 i + 1 are the halves of iteration i.
        targets: index of each target record among the candidates. `truth`: whether each model was trained on it.
        shadows: by the kind of shadow models that attacks learn from: those with and without each target (`paired`),
            and those of random halves (`pooled`), if any.
        measurements: PDTP of each target in nats, one row per measured iteration.
        train_accuracy, test_accuracy: the attacked models' mean accuracy on their own half, and on the other half.
        guess_accuracy: accuracy of guessing the commonest class of the candidates, of which there are `candidates`.
        form: how convolutions were computed (`kernels.convolutions`); None: as JAX has them, or there are none.
    """

    key: OneKey
    inputs: AttackInputs
    targets: Targets
    truth: Bool[np.ndarray, "models targets"]
    shadows: Mapping[Literal["paired", "pooled"], Shadows]
    measurements: Float[np.ndarray, "measurements targets"]
    train_accuracy: float
    test_accuracy: float
    guess_accuracy: float
    candidates: int
    form: str | None = None


def train_splits(
    key: OneKey,
    examples: Examples,
    learner: Learner,
    *,
    iterations: int = 100,
    targets: int = 100,
    shadow_pairs: int = PAIRS,
    pooled_shadows: int = POOLED,
    measured: int = MEASURED,
    execution: Execution = DEFAULT_EXECUTION,
) -> SplitModels:
    """Trains the models that are attacked, and shadow models. Long et al. (2017), sections 5.3 and 5.4.

    Each iteration splits the candidate set D at random into halves D1 and D2. Every target record is attacked through
    A(D1) and through A(D2). It is in the training set of one of them, so guessing has an accuracy of 0.5. The attacker
    knows D, A and the size of the training set, but not its members.

    - *Targets* are drawn once and attacked in every iteration, 2 `iterations` times each. The text draws them within an
      iteration, but counts 200 attacks on a record, and its p-values are those of correlations over 100 records.
    - *Shadow models* are trained once: the attacker does not know the split, so a new draw could not use it.

    The shadow sets of up to 20 targets are drawn together (`with_and_without`): for each target they are as in the
    paper, but targets share some. PDTP of a target is measured in the half that contains it, with the attacked model's
    own key, and averaged over iterations. The inputs of the untargeted attack are divided by their largest absolute
    value among the candidates. Outputs are rounded into 100 equal bins before any use.

    Args:
        examples: the candidate set D, an even number of records; the paper has 2,000.
        learner: A, the model and training recipe of the attacked models, known to the attacker.
        iterations: random splits. `targets`: records to attack. The paper has 100 of both.
        shadow_pairs: pairs of shadow models per target, with and without it, for attacks that learn from pairs, or 0.
        pooled_shadows: shadow models of random halves, for attacks that learn from all candidates; 0 for none.
        measured: the number of (first) iterations in which PDTP is measured.
        execution: see `Execution`; a stopped call is resumed as by `fit_many`.

    Raises:
        InputError: the number of candidates is odd, there is a single class, there are more targets than candidates, no
            split has targets in both halves, a number is out of range, or a learner diverges.
    """
    check_ranges(f"[1, {MOST}]", iterations=iterations, measured=measured)
    check_ranges(f"[0, {MOST}]", shadow_pairs=shadow_pairs, pooled_shadows=pooled_shadows)
    drawn = draw(key, examples, iterations, targets)
    half, measured = len(examples) // 2, min(measured, iterations)
    keys = several(stream(key, "train"), len(drawn.membership))
    pool = examples.inputs, examples.labels
    models_per_batch = (
        kept_models_per_batch(keys, drawn.membership, *pool, execution.checkpoints)
        or execution.models_per_batch
        or usual_left_out_per_batch(
            key, examples.take(slice(half)), learner, len(groups_of(drawn.targets, half)[0]) + 2
        )
    )
    attacked_models, pooled, paired, left_out = models_to_train(
        drawn,
        learner,
        shadow_pairs=shadow_pairs,
        pooled_shadows=pooled_shadows,
        measured=measured,
        models_per_batch=models_per_batch,
    )
    of_attacked, of_pooled, of_left_out, of_pairs = execution.at(models_per_batch).split(
        attacked_models, pooled, sum(left_out), paired
    )
    say = partial(_attacked, learner, examples, drawn)
    attacked = fit_many(keys, drawn.membership, *pool, learner, execution=of_attacked, summarize=say)
    outputs, train_accuracy, test_accuracy = attacked
    inputs = examples.inputs.reshape(len(examples), -1).astype(np.float32)
    # Unscaled category indices would dominate the outputs.
    inputs = inputs / np.maximum(np.abs(inputs).max(axis=0), np.finfo(np.float32).tiny)
    shadows: dict[Literal["paired", "pooled"], Shadows] = {}
    if pooled_shadows:
        untargeted_key, say = stream(key, "untargeted"), partial(say_everywhere, learner, examples.inputs)
        drawn_halves = subsets(generator_of(stream(untargeted_key, "draw")), pooled_shadows, half, len(examples))
        own_keys = several(stream(untargeted_key, "train"), pooled_shadows)
        pooled_outputs = fit_many(own_keys, drawn_halves, *pool, learner, execution=of_pooled, summarize=say)
        shadows["pooled"] = PooledShadows(pooled_outputs, drawn_halves, inputs, examples.labels)
    if shadow_pairs:
        pairing = stream(key, "shadows", 0)
        shadows["paired"] = _pair_outputs(pairing, examples, learner, drawn.targets, half, shadow_pairs, of_pairs)
    size = left_out_models_per_batch(targets, models_per_batch)
    measurements = _measure(keys, examples, learner, drawn, left_out, size, of_left_out)
    return SplitModels(
        key=key,
        inputs=AttackInputs(outputs, inputs[drawn.targets], examples.labels[drawn.targets], BINS),
        targets=drawn.targets,
        truth=drawn.membership[:, drawn.targets],
        shadows=shadows,
        measurements=measurements,
        train_accuracy=float(np.mean(train_accuracy)),
        test_accuracy=float(np.mean(test_accuracy)),
        guess_accuracy=float(np.bincount(examples.labels).max() / len(examples)),
        candidates=len(examples),
        form=form_of(learner),
    )


def _attacked(
    learner: Learner, examples: Examples, drawn: Drawn, params: Any, models: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Outputs of models on the targets, and their accuracy on their own half and on the other half."""
    log_probs = log_probs_many(learner, params, examples.inputs)
    hits, membership = log_probs.argmax(axis=2) == examples.labels, drawn.membership[models]
    half = membership.sum(axis=1)
    return log_probs[:, drawn.targets], (hits & membership).sum(axis=1) / half, (hits & ~membership).sum(axis=1) / half


def _pair_outputs(
    key: OneKey,
    examples: Examples,
    learner: Learner,
    targets: Targets,
    size: int,
    shadows: int,
    execution: Execution,
) -> PairedShadows:
    """Outputs on each target of pairs of models of `size` records, of one key, that differ only by the target."""
    parts = []
    groups = groups_of(targets, size)
    executions = iter(execution.split(*[1.0] * (shadows * len(groups))))
    for index, group in enumerate(groups):
        generator, of_group = generator_of(stream(key, "draw", index)), []
        say = partial(say_everywhere, learner, examples.inputs[group])
        for one in several(stream(key, "train", index), shadows):
            drawn = with_and_without(generator, group, size, len(examples))
            rows, pool = drawn.membership[:, drawn.pool], (examples.inputs[drawn.pool], examples.labels[drawn.pool])
            same = jnp.repeat(one[None], len(rows))
            outputs = fit_many(same, rows, *pool, learner, execution=next(executions), summarize=say)
            of_group.append(
                [outputs[side, np.arange(len(group))] for side in (drawn.with_target, drawn.without_target)]
            )
        parts.append(np.stack(of_group, axis=1))
    with_target, without_target = np.concatenate(parts, axis=2)[:, :, : len(targets)]
    return PairedShadows(with_target, without_target)


def _measure(
    keys: ModelKeys,
    examples: Examples,
    learner: Learner,
    drawn: Drawn,
    models: tuple[int, ...],
    size: int,
    execution: Execution,
) -> Float[np.ndarray, "measured targets"]:
    """PDTP of every target in the half that contains it, with `size` models per batch."""
    targets = len(drawn.targets)
    values = np.full((len(models) // 2, targets), np.nan)
    # If no model is refitted, all halves count equally.
    parts = execution.at(size).split(*(models if any(models) else [1.0] * len(models)))
    for model, part in enumerate(parts):
        members = np.flatnonzero(drawn.membership[model])
        held = np.flatnonzero(np.isin(drawn.targets, members))
        if not len(held):
            continue
        records = np.searchsorted(members, drawn.targets[held])
        records = in_whole_chunks(records, size)
        left = leave_out(keys[model], examples.take(members), learner, records, execution=part)
        values[model // 2, held] = pdtp(left.with_record, left.without_record, bins=BINS).values[: len(held)]
    return values


def attack(
    models: SplitModels | ShadowModels | Bank | Path | str,
    targets: Sequence[RecordTarget] = (),
    *,
    attacks: Sequence[Any] | None = None,
    progress: Progress | None = None,
) -> AttackAudit:
    """Can an attacker tell which records a model was trained on? This function trains no model.

    With models of random halves: how often are attacks on the target records right? See `attack_splits`. With a bank of
    shadow models: which training records do models of this recipe reveal, and which does each target?

    Args:
        models: from `train_splits`; or a bank of shadow models, its directory, or `open_bank(bank, by_view=True)`.
        attacks: on random halves `jaxaudit.attacks.Attack`, all tested together; with a bank
            `jaxaudit.attacks.records.RecordAttack`, of which the first decides. By default all that the models allow.
        targets, progress: with a bank only; see `attack_records`.

    Returns:
        Each attack's scores, rates and area under the ROC curve, with intervals. `finding` is the verdict.

    >>> import jax
    >>> import jaxaudit as ja
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> people = ja.one_hot(ja.load_table("breast-cancer")).take(np.arange(200))
    >>> learner = ja.EstimatorLearner(KNeighborsClassifier(1), classes=2)
    >>> models = ja.train_splits(jax.random.key(1), people, learner, iterations=5, targets=10, shadow_pairs=2,
    ...     pooled_shadows=0, measured=1)
    >>> audit = attack(models, attacks=[ja.attacks.Distance()])
    >>> audit.finding.verdict, audit.result.attacks[0].auc.value > 0.5
    ('inconclusive', True)
    """
    if isinstance(models, SplitModels):
        if targets:
            raise InputError("targets are of a bank; models of random halves are the targets themselves.")
        return attack_splits(models, attacks=attacks)
    if isinstance(models, str | Path):
        models = load_bank(Path(models))
    if isinstance(models, Bank):
        models = open_for_attacks(models, len(RECORD_ATTACKS if attacks is None else attacks))
    return attack_records(models, targets, attacks=attacks, progress=progress)


def attack_splits(models: SplitModels, *, attacks: Sequence[Attack] | None = None) -> AttackAudit:
    """How well do membership attacks work on these models? Long et al. (2017), section 5.4; no model is trained.

    By default all built-in attacks are made that have their shadow models. Intervals over targets have a level of 95%.
    """
    shadows = models.shadows
    if attacks is None:
        attacks = [attack for attack in ATTACKS if attack.shadows in shadows]
    check_distinct(attacks=[attack.name for attack in attacks])
    keys = {"paired": stream(models.key, "shadows", 0), "pooled": models.key}
    scores = dict[str, np.ndarray]()
    for attack in attacks:
        if attack.shadows not in shadows:
            raise InputError(
                f"the {attack.name} attack learns from {attack.shadows} shadow models, and none were trained: give "
                f"`train_splits` a number of {'shadow_pairs' if attack.shadows == 'paired' else 'pooled_shadows'}."
            )
    for attack in attacks:
        key = stream(keys[attack.shadows], attack.name)
        scores[attack.name] = attack.scores(key, models.inputs, shadows[attack.shadows])
    mean_pdtp, truth, key = models.measurements.mean(axis=0), models.truth, stream(models.key, "intervals")
    accuracies, outcomes = dict[str, np.ndarray](), list[AttackOutcome]()
    for attack in attacks:
        answers = metrics.attack_metrics(key, scores[attack.name], truth)
        accuracies[attack.name] = ((scores[attack.name] > 0) == truth).mean(axis=0)
        whole: dict[str, Any] = msgspec.structs.asdict(metrics.attack_rates(scores[attack.name], truth))
        # The two models of a split are not independent; targets are.
        whole |= {"auc": answers.auc, "metrics": answers}
        whole |= {"correlation": metrics.correlation(accuracies[attack.name], mean_pdtp)}
        outcomes.append(AttackOutcome(**whole, name=attack.name, meaning=attack.meaning, source=attack.source))
    splits = SplitAttacks(
        p_value=better_than_guessing(stream(models.key, "verdict"), np.stack(list(scores.values())) > 0, truth),
        candidates=models.candidates,
        measured_iterations=len(models.measurements),
        train_accuracy=models.train_accuracy,
        test_accuracy=models.test_accuracy,
        guess_accuracy=models.guess_accuracy,
        records=tuple(
            AttackedRecord(record, pdtp, {name: float(shares[place]) for name, shares in accuracies.items()})
            for place, (record, pdtp) in enumerate(zip(models.targets.tolist(), mean_pdtp.tolist(), strict=True))
        ),
    )
    result = AttackResult(
        finding=UNDECIDED,
        decided_by=best_on_halves(tuple(outcomes), splits).name,
        level=LEVEL,
        models=len(truth),
        records=len(models.targets),
        attacks=tuple(outcomes),
        splits=splits,
    )
    return AttackAudit(
        result=msgspec.structs.replace(result, finding=attack_finding(result)),
        scores=scores,
        truth=truth,
        records=models.targets,
        measurements=models.measurements,
        sources=(*(attack.source for attack in attacks), metrics.SOURCE, metrics.RATES_SOURCE),
        form=models.form,
    )
