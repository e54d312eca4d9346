"""Learners: ways to train one model, each as two pure functions."""

from jaxaudit.learners.learner import Learner, LeavesOneOut, LeftOut, SteppedLearner
from jaxaudit.learners.network import NetworkLearner, NetworkParams, network

__all__ = ["Learner", "LeavesOneOut", "LeftOut", "NetworkLearner", "NetworkParams", "SteppedLearner", "network"]
