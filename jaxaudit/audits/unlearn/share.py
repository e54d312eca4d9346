"""The cost of the parts of an `unlearn` audit, for its progress."""

from jaxaudit.attacks.learned import BATCH_SIZE
from jaxaudit.audits.unlearn.result import AMNESIAC, ORIGINAL, UNTRAINED
from jaxaudit.learners import NetworkLearner

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
) -> dict[str, int | float]:
    """An estimate of the work of each part, in model steps: training, then judging each method on each set.

    The parts are `train`, `retrain`, `untrained`, `original`, and for each of `names` and each set `NAME SET`.
    """
    steps = learner.epochs * -(-examples // learner.batch_size) * seeds
    attack = attack_epochs * -(-(examples + nonmembers) // BATCH_SIZE) * seeds if nonmembers else 0
    training = {TRAIN: steps * (1.5 if AMNESIAC in names else 1.0), RETRAIN: steps * sets}
    references = {UNTRAINED: 1.0, ORIGINAL: attack + 1.0}
    judging = {f"{name} {index}": attack * attack_each + 1.0 for name in names for index in range(sets)}
    return training | references | judging
