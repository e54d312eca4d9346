"""Membership attacks: was this record in the training set? Outputs of shadow models in, one score per target out."""

from jaxaudit.attacks.attack import Asked, Attack, PairedShadows, PooledShadows
from jaxaudit.attacks.distance import Distance, distance_scores
from jaxaudit.attacks.frequency import Frequency, frequency_scores
from jaxaudit.attacks.learned import LearnedAttack, fit_learned, learned_probabilities
from jaxaudit.attacks.untargeted import (
    Untargeted,
    UntargetedAttack,
    attack_examples,
    attack_network,
    fit_untargeted,
    untargeted_scores,
)

ATTACKS: tuple[Attack, ...] = (Untargeted(), Distance(), Frequency())
"""The built-in attacks of `audit_attack` and `jaxaudit attack`."""

__all__ = [
    "ATTACKS",
    "Asked",
    "Attack",
    "Distance",
    "Frequency",
    "LearnedAttack",
    "PairedShadows",
    "PooledShadows",
    "Untargeted",
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
