"""Learners: ways to train one model, each as two pure functions."""

from jaxaudit.learners.learner import Learner, SteppedLearner
from jaxaudit.learners.network import NetworkLearner, NetworkParams, network

__all__ = ["Learner", "NetworkLearner", "NetworkParams", "SteppedLearner", "network"]
