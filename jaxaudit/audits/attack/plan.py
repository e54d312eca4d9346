"""The plan of the `attack` audit: it checks the options, draws targets and splits, and counts models."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Int, Key

from jaxaudit.attacks.attack import Attack
from jaxaudit.attacks.targeted import Distance, Frequency
from jaxaudit.attacks.untargeted import Untargeted
from jaxaudit.audits.attack.pairs import groups_of, shadow_models
from jaxaudit.audits.left_out import measured_models_per_batch, models_trained
from jaxaudit.data.examples import Examples
from jaxaudit.errors import InputError
from jaxaudit.kernels.binning import check_bins
from jaxaudit.learners import Learner, LeavesOneOut
from jaxaudit.membership import halves
from jaxaudit.randomness import generator_of, stream

ATTACKS: tuple[Attack, ...] = (Untargeted(), Distance(), Frequency())
"""The built-in attacks of `attack_splits` and of `jaxaudit attack` without a bank."""
MOST = 1_000_000
"""The largest accepted count: no machine can do more, and the keys and masks alone would fill its memory."""


class Drawn(NamedTuple):
    """The targets, and the training sets of the models that are attacked.

    Attributes:
        targets: the attacked records, in ascending order.
        membership: the attacked models' training sets; rows 2 i and 2 i + 1 are the halves of iteration i.
    """

    targets: Int[np.ndarray, " targets"]
    membership: Bool[np.ndarray, "models candidates"]


def draw(key: Key[Array, ""], examples: Examples, iterations: int, targets: int) -> Drawn:
    """The targets and splits that `train_splits` draws with this key.

    Raises:
        InputError: see `train_splits`.
    """
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


class ModelsToTrain(NamedTuple):
    """The number of models that the audit trains, without attack networks.

    Attributes:
        attacked: the models that are attacked.
        pooled: shadow models trained on random halves.
        paired: shadow models trained with and without targets, for each time that they are drawn.
        left_out: models for the PDTP of the targets in each measured half.
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
    """The models that `train_splits` trains with these options, by purpose."""
    models, candidates = drawn.membership.shape
    held = drawn.membership[: 2 * measured, drawn.targets].sum(axis=1)
    draws = (models // 2 if fresh_shadows else 1) if shadow_pairs else 0
    return ModelsToTrain(
        models,
        pooled_shadows,
        (shadow_models(drawn.targets, candidates // 2, shadow_pairs),) * draws,
        tuple(left_out_models(int(records), len(drawn.targets), learner, models_per_batch) for records in held),
    )


def attack_models_per_batch(key: Key[Array, ""], examples: Examples, learner: Learner, targets: int) -> int:
    """The fastest number of shadow models per batch, measured; see `measure_models_per_batch`."""
    half = len(examples) // 2
    rows = len(groups_of(np.arange(targets), half)[0]) + 2
    return measured_models_per_batch(key, examples.take(slice(half)), learner, rows)


def left_out_models_per_batch(targets: int, models_per_batch: int) -> int:
    """Leave-one-out models per batch: the targets of a half, about half of all, fill whole chunks."""
    return min(models_per_batch, max(1, targets // 2))


def left_out_models(records: int, targets: int, learner: Learner, models_per_batch: int) -> int:
    """The number of models that `leave_out` trains for the records of one half; 0 if the learner needs none."""
    if isinstance(learner, LeavesOneOut) or not records:
        return 0
    size = left_out_models_per_batch(targets, models_per_batch)
    return models_trained(-(-records // size) * size, size)


def check_options(iterations: int, shadow_pairs: int, pooled_shadows: int, measured: int, bins: int) -> None:
    """Rejects numbers out of range.

    Raises:
        InputError: see `train_splits`.
    """
    counts = {"iterations": (1, iterations), "measured iterations": (1, measured)}
    shadows = {"shadow pairs": (0, shadow_pairs), "pooled shadow models": (0, pooled_shadows)}
    for name, (least, count) in (counts | shadows).items():
        if not least <= count <= MOST:
            raise InputError(f"the number of {name} must be from {least} to {MOST:,}; got {count}.")
    check_bins(bins)
    if bins < 0 or bins == 1:
        raise InputError(f"outputs cannot be rounded into {bins} bins: give at least 2, or 0 for none.")


def check_attacks(attacks: Sequence[Attack], bins: int, paired: bool, pooled: bool) -> None:
    """Rejects attacks with equal names, and attacks without the shadow models or bins that they need.

    Raises:
        InputError: see `attack_splits`.
    """
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
