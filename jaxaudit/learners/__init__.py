"""Learners: ways to train one model, each as two pure functions."""

from jaxaudit.learners.learner import Learner, LeavesOneOut, LeftOut, SteppedLearner
from jaxaudit.learners.naive_bayes import NaiveBayes, NaiveBayesParams, naive_bayes
from jaxaudit.learners.network import NetworkLearner, NetworkParams, network

__all__ = [
    "Learner",
    "LeavesOneOut",
    "LeftOut",
    "NaiveBayes",
    "NaiveBayesParams",
    "NetworkLearner",
    "NetworkParams",
    "SteppedLearner",
    "naive_bayes",
    "network",
]
