"""The cost of the parts of an `unlearn` audit, for its progress."""

from collections.abc import Sequence

from jaxaudit.attacks.learned import BATCH_SIZE
from jaxaudit.audits.unlearn.result import AMNESIAC, ORIGINAL, UNTRAINED
from jaxaudit.learners import NetworkLearner
from jaxaudit.unlearning.passes import EPOCHS

TRAIN, RETRAIN = "train", "retrain"


def costs(
    learner: NetworkLearner,
    examples: int,
    nonmembers: int,
    attack_epochs: int,
    attack_each: bool,
    seeds: int,
    sets: int,
    names: list[str],
    methods: Sequence[str] = (),
) -> dict[str, int | float]:
    """An estimate of the work of each part, in model steps: training, unlearning, then judging each method on each set.

    The parts are `train`, `retrain`, `untrained`, `original`, for each of `names` and each set `NAME SET`, and for each
    of `methods`, which unlearn trained models, and each set `unlearning(NAME, SET)`. The unknown cost of a method is
    estimated as the usual passes over all records.
    """
    steps = learner.epochs * -(-examples // learner.batch_size) * seeds
    attack = attack_epochs * -(-(examples + nonmembers) // BATCH_SIZE) * seeds if nonmembers else 0
    training = {TRAIN: steps * (1.5 if AMNESIAC in names else 1.0), RETRAIN: steps * sets}
    references = {UNTRAINED: 1.0, ORIGINAL: attack + 1.0}
    judging = {f"{name} {index}": attack * attack_each + 1.0 for name in names for index in range(sets)}
    passes = EPOCHS * -(-examples // learner.batch_size) * seeds
    unlearned = {unlearning(name, index): float(passes) for name in methods for index in range(sets)}
    return training | unlearned | references | judging


def unlearning(name: str, index: int) -> str:
    """The name of the part in which a method unlearns a set."""
    return f"unlearn {name} {index}"
