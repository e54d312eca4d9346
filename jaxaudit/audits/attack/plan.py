"""The plan of the `attack` audit: it checks the options, draws targets and splits, and counts models."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Int, Key

from jaxaudit.attacks.attack import Attack
from jaxaudit.attacks.targeted import Distance, Frequency
from jaxaudit.attacks.untargeted import Untargeted
from jaxaudit.audits.left_out import measured_models_per_batch, models_trained
from jaxaudit.data.examples import Examples
from jaxaudit.errors import InputError
from jaxaudit.kernels.binning import check_bins
from jaxaudit.learners import Learner, LeavesOneOut
from jaxaudit.learners.batch_order import POOL_ORDER_SHARE
from jaxaudit.membership import halves
from jaxaudit.randomness import generator_of, stream

ATTACKS: tuple[Attack, ...] = (Untargeted(), Distance(), Frequency())
"""The built-in attacks of `attack_splits` and of `jaxaudit attack` without a bank."""
MOST = 1_000_000
"""The largest accepted count: no machine can do more, and the keys and masks alone would fill its memory."""
MOST_TOGETHER = 20
"""Targets whose shadow sets come from one permutation: 22 models for 40 sets. More would save little and make the
shadow models of different targets less independent."""


class Drawn(NamedTuple):
    """The attacked records, in ascending order, and the attacked models' training sets.

    Rows 2 i and 2 i + 1 are the halves of iteration i.
    """

    targets: Int[np.ndarray, " targets"]
    membership: Bool[np.ndarray, "models candidates"]


def draw(key: Key[Array, ""], examples: Examples, iterations: int, targets: int) -> Drawn:
    """The targets and splits that `train_splits` draws with this key, or its `InputError`."""
    candidates = len(examples)
    if candidates % 2 or candidates < 4:
        raise InputError(
            f"{examples.name}: {candidates} candidates cannot be split into equal halves of at least 2 records; leave "
            "one out, or use more."
        )
    if not 2 <= targets <= candidates:
        raise InputError(
            f"{targets} targets cannot be drawn from the {candidates} candidates of {examples.name}: ask for at least "
            "2, since one gives no interval, and at most all."
        )
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


def groups_of(targets: Int[np.ndarray, " targets"], size: int) -> list[Int[np.ndarray, " group"]]:
    """The targets in groups of equal length, whose shadow sets of `size` records are drawn together.

    The last group is padded with its last target. Groups are small enough for the pool order: see
    `learners.batch_order`.
    """
    most = max(1, min(MOST_TOGETHER, int((size - 1) / POOL_ORDER_SHARE) - size))
    count = -(-len(targets) // most)
    length = -(-len(targets) // count)
    filled = np.concatenate([targets, np.repeat(targets[-1:], count * length - len(targets))])
    return list(filled.reshape(count, length))


class ModelsToTrain(NamedTuple):
    """Numbers of models that the audit trains, without attack networks.

    Attributes:
        attacked: attacked models.
        pooled: shadow models of random halves.
        paired: shadow models with and without targets, for each time that these are drawn.
        left_out: models without one record, which PDTP needs, for each measured half.
    """

    attacked: int
    pooled: int
    paired: tuple[int, ...]
    left_out: tuple[int, ...]

    @property
    def total(self) -> int:
        """The number of all models."""
        return self.attacked + self.pooled + sum(self.paired) + sum(self.left_out)


def models_to_train(
    drawn: Drawn,
    learner: Learner,
    *,
    shadow_pairs: int,
    pooled_shadows: int,
    measured: int,
    fresh_shadows: bool,
    models_per_batch: int,
) -> ModelsToTrain:
    """The number of models of each purpose that `train_splits` trains.

    Args:
        drawn: the targets and splits, from `draw`.
        learner: trains the attacked models. One that computes leave-one-out models itself trains none for PDTP.
        shadow_pairs, pooled_shadows, measured, fresh_shadows: as for `train_splits`.
        models_per_batch: models trained at the same time; the last batch of leave-one-out models is filled up.
    """
    models, candidates = drawn.membership.shape
    groups = groups_of(drawn.targets, candidates // 2)
    draws = (models // 2 if fresh_shadows else 1) if shadow_pairs else 0
    pairs = shadow_pairs * sum(2 + len(group) for group in groups)
    size = left_out_models_per_batch(len(drawn.targets), models_per_batch)
    # None is trained for a half without targets, or if the learner needs none.
    held = drawn.membership[: 2 * measured, drawn.targets].sum(axis=1) * (not isinstance(learner, LeavesOneOut))
    left_out = (models_trained(-(-records // size) * size, size) if records else 0 for records in held.tolist())
    return ModelsToTrain(models, pooled_shadows, (pairs,) * draws, tuple(left_out))


def attack_models_per_batch(key: Key[Array, ""], examples: Examples, learner: Learner, targets: int) -> int:
    """The fastest number of shadow models per batch for an attack on `targets` records, measured.

    See `measure_models_per_batch`. As in an attack, a model is trained on half of the records.
    """
    half = len(examples) // 2
    rows = len(groups_of(np.arange(targets), half)[0]) + 2
    return measured_models_per_batch(key, examples.take(slice(half)), learner, rows)


def left_out_models_per_batch(targets: int, models_per_batch: int) -> int:
    """Leave-one-out models per batch: the targets of a half, about half of all, fill whole chunks."""
    return min(models_per_batch, max(1, targets // 2))


def check_options(iterations: int, shadow_pairs: int, pooled_shadows: int, measured: int, bins: int) -> None:
    """Refuses numbers that are out of range with an `InputError`; the arguments are those of `train_splits`."""
    counts = {"iterations": (1, iterations), "measured iterations": (1, measured)}
    shadows = {"shadow pairs": (0, shadow_pairs), "pooled shadow models": (0, pooled_shadows)}
    for name, (least, count) in (counts | shadows).items():
        if not least <= count <= MOST:
            raise InputError(f"the number of {name} must be from {least} to {MOST:,}; got {count}.")
    check_bins(bins)
    if bins < 0 or bins == 1:
        raise InputError(f"outputs cannot be rounded into {bins} bins: give at least 2, or 0 for none.")


def check_attacks(attacks: Sequence[Attack], bins: int, paired: bool, pooled: bool) -> None:
    """Rejects attacks with equal names, and attacks without the shadow models or bins that they need."""
    names = [attack.name for attack in attacks]
    if not names or len(set(names)) < len(names):
        raise InputError(f"give at least one attack, each once; got {', '.join(names) or 'none'}.")
    for attack in attacks:
        if not bins and attack.needs_bins:
            raise InputError(
                f"the {attack.name} attack compares outputs that are rounded into bins: give at least 2 bins."
            )
        if not (paired if attack.shadows == "paired" else pooled):
            raise InputError(
                f"the {attack.name} attack learns from {attack.shadows} shadow models, and none were trained: give "
                f"`train_splits` a number of {'shadow_pairs' if attack.shadows == 'paired' else 'pooled_shadows'}."
            )
