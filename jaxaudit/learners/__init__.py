"""Learners: ways to train one model, each as two pure functions."""

from jaxaudit.learners.augmentations import AUGMENTATIONS, Augmentation
from jaxaudit.learners.early_stopping import EarlyStopping, stop_early
from jaxaudit.learners.learner import BoundsDTP, Learner, LeavesOneOut, LeftOut, SteppedLearner, ValidatedLearner
from jaxaudit.learners.logistic_regression import (
    LogisticRegression,
    LogisticRegressionParams,
    logistic_regression,
)
from jaxaudit.learners.naive_bayes import NaiveBayes, NaiveBayesParams, naive_bayes
from jaxaudit.learners.nearest_neighbours import NearestNeighbours, nearest_neighbours
from jaxaudit.learners.network import NetworkLearner, NetworkParams, network
from jaxaudit.learners.random_trees import (
    RandomTrees,
    arithmetic_mean,
    geometric_mean,
    random_trees,
    unnormalised_geometric_mean,
)
from jaxaudit.learners.schedules import Schedule, by_epoch, schedule

__all__ = [
    "AUGMENTATIONS",
    "Augmentation",
    "BoundsDTP",
    "EarlyStopping",
    "Learner",
    "LeavesOneOut",
    "LeftOut",
    "LogisticRegression",
    "LogisticRegressionParams",
    "NaiveBayes",
    "NaiveBayesParams",
    "NearestNeighbours",
    "NetworkLearner",
    "NetworkParams",
    "RandomTrees",
    "Schedule",
    "SteppedLearner",
    "ValidatedLearner",
    "arithmetic_mean",
    "by_epoch",
    "geometric_mean",
    "logistic_regression",
    "naive_bayes",
    "nearest_neighbours",
    "network",
    "random_trees",
    "schedule",
    "stop_early",
    "unnormalised_geometric_mean",
]
