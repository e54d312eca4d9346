"""Membership attacks: was this record in the training set? Outputs of shadow models in, a score a target out."""

from jaxaudit.attacks.distance import distance_scores
from jaxaudit.attacks.frequency import frequency_scores
from jaxaudit.attacks.learned import LearnedAttack, fit_learned, learned_probabilities
from jaxaudit.attacks.untargeted import (
    UntargetedAttack,
    attack_examples,
    attack_network,
    fit_untargeted,
    untargeted_scores,
)

__all__ = [
    "LearnedAttack",
    "UntargetedAttack",
    "attack_examples",
    "attack_network",
    "distance_scores",
    "fit_learned",
    "fit_untargeted",
    "frequency_scores",
    "learned_probabilities",
    "untargeted_scores",
]
