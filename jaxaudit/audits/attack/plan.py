"""What the `attack` audit will do: its options checked, its targets and splits drawn, its models counted."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Int, Key

from jaxaudit.audits.attack.shadows import groups_of, shadow_models
from jaxaudit.audits.left_out import models_trained, settle_width
from jaxaudit.data.examples import Examples
from jaxaudit.errors import InputError
from jaxaudit.kernels.binning import check_bins
from jaxaudit.learners import Learner, LeavesOneOut
from jaxaudit.membership import halves
from jaxaudit.randomness import generator_of, stream


class Attacks(NamedTuple):
    """Which attacks to make; see `jaxaudit.attacks`. Distance and frequency use the same shadow models."""

    untargeted: bool = True
    distance: bool = True
    frequency: bool = True


ALL = Attacks()
MOST = 1_000_000
"""Of anything that is counted: no machine gets through more, and their keys and rows alone fill its memory."""


class Drawn(NamedTuple):
    """Who is attacked, and through which models.

    Attributes:
        targets: the attacked records, in ascending order.
        membership: the attacked models' training sets; rows 2 i and 2 i + 1 are the halves of iteration i.
    """

    targets: Int[np.ndarray, " targets"]
    membership: Bool[np.ndarray, "models candidates"]


def draw(key: Key[Array, ""], examples: Examples, iterations: int, targets: int) -> Drawn:
    """The targets and splits that `audit_attack` draws with this key.

    Raises:
        InputError: see `audit_attack`.
    """
    candidates = len(examples)
    if candidates % 2 or candidates < 4:
        raise InputError(
            f"{examples.name}: {candidates} candidates cannot be split into equal halves of at least 2 records; leave "
            "one out, or take more."
        )
    if not 1 <= targets <= candidates:
        raise InputError(
            f"{targets} targets cannot be drawn from the {candidates} candidates of {examples.name}: ask for at least "
            "1 and at most all."
        )
    present = np.unique(examples.labels)
    if len(present) < 2:
        raise InputError(
            f"{examples.name}: all candidates are of one class ({examples.class_names[int(present[0])]}): there is "
            "nothing to classify. Is the right column the label?"
        )
    chosen = np.sort(generator_of(stream(key, "targets")).choice(candidates, targets, replace=False))
    generator = generator_of(stream(key, "halves"))
    return Drawn(chosen, np.concatenate([halves(generator, candidates) for _ in range(iterations)]))


def shadow_draws(attacks: Attacks, iterations: int, fresh_shadows: bool) -> int:
    """How many times the shadow models of the targeted attacks are drawn: not at all where there is no such attack."""
    if not (attacks.distance or attacks.frequency):
        return 0
    return iterations if fresh_shadows else 1


def models_to_train(
    drawn: Drawn,
    learner: Learner,
    *,
    attacks: Attacks,
    shadows: int,
    untargeted_shadows: int,
    measured: int,
    fresh_shadows: bool,
    width: int,
) -> int:
    """How many models the audit trains, the attack network of the untargeted attack apart."""
    models, candidates = drawn.membership.shape
    held = drawn.membership[: 2 * measured, drawn.targets].sum(axis=1)
    left_out = sum(left_out_models(int(records), len(drawn.targets), learner, width) for records in held)
    pairs = shadows * shadow_draws(attacks, models // 2, fresh_shadows)
    untargeted = untargeted_shadows if attacks.untargeted else 0
    return models + untargeted + shadow_models(drawn.targets, candidates // 2, pairs) + left_out


def settle_attack_width(key: Key[Array, ""], examples: Examples, learner: Learner, targets: int) -> int:
    """The width at which the audit's shadow models train fastest, by a measurement; see `measure_width`."""
    half = len(examples) // 2
    rows = len(groups_of(np.arange(targets), half)[0]) + 2
    return settle_width(key, examples.take(slice(half)), learner, rows)


def left_out_width(targets: int, width: int) -> int:
    """The width of leave-one-out models: the records of every half, about half of the targets, fill whole chunks."""
    return min(width, max(1, targets // 2))


def left_out_models(records: int, targets: int, learner: Learner, width: int) -> int:
    """How many models `leave_out` trains for the records of one half, if any."""
    if isinstance(learner, LeavesOneOut) or not records:
        return 0
    width = left_out_width(targets, width)
    return models_trained(-(-records // width) * width, width)


def check_options(
    attacks: Attacks, iterations: int, shadows: int, untargeted_shadows: int, measured: int, bins: int, level: float
) -> None:
    """Refuses numbers out of range.

    Raises:
        InputError: see `audit_attack`.
    """
    if not any(attacks):
        raise InputError("no attack was chosen: choose untargeted, distance or frequency, or several.")
    counts = {
        "iterations": iterations,
        "shadows": shadows,
        "untargeted shadows": untargeted_shadows,
        "measured iterations": measured,
    }
    for name, count in counts.items():
        if not 1 <= count <= MOST:
            raise InputError(f"there must be from 1 to {MOST:,} of {name}, got {count}.")
    check_bins(bins)
    if bins < 0 or bins == 1 or (bins == 0 and attacks.frequency):
        raise InputError(
            f"outputs cannot be put into {bins} bins: give at least 2, or 0 for none, but the frequency attack cannot "
            "do without."
        )
    if not 0 < level < 1:
        raise InputError(f"the level of an interval lies between 0 and 1, got {level:g}.")
