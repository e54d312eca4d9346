"""Unlearning methods: each computes, from a trained model, parameters that should have forgotten the forget set.

Your own method is a pure function with the arguments of `Unlearn`; `compare_unlearning` judges it like the others.
"""

from jaxaudit.unlearning.amnesiac import Recorded, Recording, train_and_record
from jaxaudit.unlearning.fisher import Noise, becker_code, forget_by_noise, golatkar, paper, selective_dampening
from jaxaudit.unlearning.gradients import fine_tune, gradient_ascent, negative_gradient, scrub
from jaxaudit.unlearning.language import Recipe, gradient_difference, npo, rmu, sim_npo
from jaxaudit.unlearning.method import LogProbs, Unlearn, retrain

__all__ = [
    "LogProbs",
    "Noise",
    "Recipe",
    "Recorded",
    "Recording",
    "Unlearn",
    "becker_code",
    "fine_tune",
    "forget_by_noise",
    "golatkar",
    "gradient_ascent",
    "gradient_difference",
    "negative_gradient",
    "npo",
    "paper",
    "retrain",
    "rmu",
    "scrub",
    "selective_dampening",
    "sim_npo",
    "train_and_record",
]
