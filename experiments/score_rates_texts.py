"""How difficult a text is by the words of the other groups: an n-gram model out of fold. No set enters it."""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from experiments.score_rates_worlds import PER_GROUP, Corpus

FOLDS, ORDERS = 10, (1, 2, 3)
ADDED = 0.5
"""Added to the count of a context, as so many observations of the shorter context's distribution."""


def word_numbers(corpus: Corpus) -> Mapping[str, np.ndarray]:
    """By the longest context's length, minus the mean log-probability of each record's judged tokens.

    Counts are of all tokens of all records of the other folds; whole groups are in one fold.
    """
    tokens = [np.where(row < 0, ~row, row)[: int(np.flatnonzero(row >= 0)[-1]) + 1] for row in corpus.inputs]
    groups = np.arange(len(tokens)) // PER_GROUP
    folds = np.random.default_rng(9).permutation(groups[-1] + 1)[groups] % FOLDS
    numbers = {f"words_{order}": np.zeros(len(tokens)) for order in ORDERS}
    for fold in range(FOLDS):
        counts: list[Counter[tuple[int, ...]]] = [Counter() for _ in range(max(ORDERS) + 1)]
        for row in np.flatnonzero(folds != fold):
            words = tokens[row].tolist()
            for length, counter in enumerate(counts):
                counter.update(tuple(words[end - length : end]) for end in range(max(length, 1), len(words) + 1))
        for row in np.flatnonzero(folds == fold):
            words, judged = tokens[row].tolist(), np.flatnonzero(corpus.inputs[row] >= 0)
            logs = np.log([_probabilities(counts, words[:place], words[place], corpus.vocabulary) for place in judged])
            for order in ORDERS:
                numbers[f"words_{order}"][row] = -logs[:, order - 1].mean()
    return numbers


def _probabilities(
    counts: list[Counter[tuple[int, ...]]], before: list[int], word: int, vocabulary: int
) -> list[float]:
    """The probability of a word by contexts of 0, 1 and 2 words, each smoothed by the shorter one."""
    probability, found = 1 / vocabulary, []
    for order in ORDERS:
        context = tuple(before[len(before) - order + 1 :])
        seen = counts[order - 1][context] if len(context) == order - 1 else 0
        probability = (counts[order][(*context, word)] + ADDED * order * probability) / (seen + ADDED * order)
        found.append(probability)
    return found
