"""Unlearning: parameters in, parameters out that should have forgotten some records.

Your own method is a pure function with the arguments of `Unlearn`; `audit_unlearn` judges it like these.
"""

from jaxaudit.unlearning.amnesiac import Recorded, Recording, take_back, train_and_record
from jaxaudit.unlearning.fisher import LogProbs, Noise, becker_code, forget_by_noise, golatkar, paper
from jaxaudit.unlearning.method import Unlearn
from jaxaudit.unlearning.retraining import retrain

__all__ = [
    "LogProbs",
    "Noise",
    "Recorded",
    "Recording",
    "Unlearn",
    "becker_code",
    "forget_by_noise",
    "golatkar",
    "paper",
    "retrain",
    "take_back",
    "train_and_record",
]
