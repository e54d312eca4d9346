"""How difficult a record is for any model, predicted without using which set the record is in.

So a score's residual after a least-squares fit on the predictors is as exchangeable as the score itself. Predictors are
classes, those of nearest neighbours, shadow models' outputs, and what small models say that learned the classes of
other records of the test (Feldman & Zhang 2020 ask what a model gains from a record); of tokens, n-grams of the other
texts, out of fold and smoothed (MacKay & Peto 1995). Each is a function of the records alone, whatever their order,
with copies and groups kept together. Where sets have two sources, words of one make it look easier.
"""

import collections
import hashlib
import itertools
from collections.abc import Hashable, Iterable, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from scipy import special

from jaxaudit.data.labels import number_groups
from jaxaudit.errors import InputError, check_ranges, check_shapes
from jaxaudit.metrics.arrays import (
    AnyNumbers,
    AnyScores,
    Integers,
    Kinds,
    Members,
    Numbers,
    OneKey,
    Scores,
    units_of_records,
)
from jaxaudit.metrics.deal import merge_groups
from jaxaudit.metrics.exchangeability import features
from jaxaudit.metrics.scores import Profile, cut, profile, profiles_of_others
from jaxaudit.randomness import generator_of

Tokens = Int[np.ndarray, " tokens"]

CUT, LOG_CUT = 3.0, 8.0
"""Log-odds and log-probabilities are cut at these values, in nats: beyond them, they depend more on a record's
difficulty than on its use."""
NEIGHBOURS = (1, 3, 10, 30)
MOST_NEIGHBOURS = 20_000
"""Neighbours are sought among at most this many records. If there are more, a random sample of all sets is used."""
BLOCK = 512
FARTHEST = 3.0


def difficulty(
    key: OneKey | None,
    labels: Integers,
    inputs: Shaped[np.ndarray, "n ..."] | None = None,
    groups: Integers | None = None,
    taught: Float[np.ndarray, "teachings n"] | None = None,
) -> Kinds:
    """Predictors of how difficult each record is, for `residual_scores`.

    `key` is needed for `inputs`, which may have any shape. Neighbours are sought in other `groups`. A row of `taught`
    has what models that learned the classes say of each record (`odds_without`).

    >>> difficulty(None, np.array([0, 1, 1]))
    array([[1., 0.],
           [0., 1.],
           [0., 1.]])
    """
    parts = [(labels[:, None] == np.unique(labels)).astype(np.float64)]
    if inputs is not None and key is None:
        raise InputError("neighbours are drawn at random: give a random key where there are inputs.")
    if inputs is not None and key is not None and len(labels) > max(NEIGHBOURS):
        parts.append(_of_neighbours(key, labels, inputs, groups))
    if taught is not None:
        parts += [np.stack(_bent(odds), axis=1) for odds in taught]
    return np.concatenate(parts, axis=1)


def _bent(odds: Numbers) -> list[Numbers]:
    """Log-odds of a record that are predictors of a target's, and functions of them that bend."""
    return [odds, odds**2, special.log_expit(odds), special.expit(odds), np.tanh(odds / 3)]


def residual(values: Float[np.ndarray, "n *k"], predictors: Kinds) -> Float[np.ndarray, "n *k"]:
    """The residuals of the values after a least-squares fit on the predictors and a constant."""
    design = _with_constant(predictors)
    return values - design @ np.linalg.lstsq(design, values, rcond=None)[0]


def residual_scores(log_odds: AnyNumbers, predictors: Kinds) -> Numbers:
    """Scores of the records of one target: larger means more likely used.

    The score is the sum of two residuals (`residual`), each divided by its standard deviation: of the log-odds, cut at
    `CUT`, which separates records that a model knows well; and of the log-probability, cut at `LOG_CUT`, which
    separates those that it hardly knows. The sum found more than a learned membership score in every world of the error
    rates (all of 1,000 used: 87 to 79% on digits, 100 to 88% on Location).
    """
    odds = np.asarray(log_odds, np.float64)
    check_shapes((len(predictors),), log_odds=odds)
    check_ranges("[-inf, inf]", log_odds=odds)
    return _sum_of_residuals(residual(_parts(odds), predictors))


def residual_scores_of_models(
    log_odds: Scores,
    profiles: Iterable[Profile],
    predictors: Kinds | None = None,
) -> Scores:
    """The `residual_scores` of several models, where shadow models of each tell the difficulty of records, too: of
    these are the `profiles`, whose membership masks do not depend on the split.
    """
    common = _span(np.ones((log_odds.shape[1], 1)) if predictors is None else _with_constant(predictors))
    scores = []
    for odds, shadow_profile in zip(log_odds, profiles, strict=True):
        # What shadow models tell of each record's difficulty.
        without, gap = shadow_profile.outside, shadow_profile.inside - shadow_profile.outside
        columns = np.stack([*_bent(without), gap, gap * np.tanh(without / 3)], axis=1)
        parts = _parts(np.asarray(odds, np.float64))
        columns = columns / np.maximum(np.linalg.norm(columns, axis=0), 1e-300)
        span = _span(columns - common @ (common.T @ columns), 1e-9)
        left = parts - common @ (common.T @ parts)
        scores.append(_sum_of_residuals(left - span @ (span.T @ left)))
    return np.stack(scores)


def residual_scores_among(
    log_odds: AnyScores,
    membership: Members,
    predictors: Kinds | None,
) -> Scores:
    """The scores of models of known or assumed membership, each with all others as its shadow models."""
    models = np.asarray(log_odds, np.float64)
    return residual_scores_of_models(models, profiles_of_others(cut(models), membership), predictors)


ROUNDING = 1e-9
"""Residuals (nats) that deviate by no more are rounding errors."""


def _parts(odds: Numbers) -> Float[np.ndarray, "n 2"]:
    return np.stack([np.clip(odds, -CUT, CUT), np.maximum(special.log_expit(odds), -LOG_CUT)], axis=1)


def _sum_of_residuals(residuals: Float[np.ndarray, "n 2"]) -> Numbers:
    deviation = residuals.std(axis=0)
    # What a fit leaves of outputs that are all the same is its rounding error.
    return (residuals / np.where(deviation > ROUNDING, deviation, np.inf)).sum(axis=1)


def _with_constant(predictors: Kinds) -> Float[np.ndarray, "n more"]:
    return np.concatenate([np.ones((len(predictors), 1)), predictors], axis=1)


def _span(columns: Kinds, least: float | None = None) -> Float[np.ndarray, "n rank"]:
    """An orthonormal basis of what these columns span; singular values below `least` count as 0."""
    vectors, values, _ = np.linalg.svd(columns, full_matrices=False)
    least = np.finfo(float).eps * max(columns.shape) * values[0] if least is None else least
    return vectors[:, values > least]


def _of_neighbours(key: OneKey, labels: np.ndarray, inputs: np.ndarray, groups: np.ndarray | None) -> Kinds:
    """The share of the nearest neighbours that have the record's class, and how far the nearest of another class is."""
    generator = generator_of(key)
    points = features(generator, inputs)
    units = units_of_records(groups, len(labels))
    candidates = np.arange(len(labels))
    if len(candidates) > MOST_NEIGHBOURS:
        candidates = np.sort(generator.choice(candidates, MOST_NEIGHBOURS, replace=False))
    squares, parts = (points[candidates] ** 2).sum(axis=1), []
    for start in range(0, len(labels), BLOCK):
        block = slice(start, start + BLOCK)
        distances = squares - 2 * points[block] @ points[candidates].T + (points[block] ** 2).sum(axis=1, keepdims=True)
        distances = np.maximum(distances, 0)
        distances[units[block, None] == units[candidates]] = np.inf
        parts.append(_predictors(distances, labels[block, None] == labels[candidates]))
    return np.concatenate(parts)


def _predictors(
    distances: Float[np.ndarray, "some n"], same: Bool[np.ndarray, "some n"]
) -> Float[np.ndarray, "some kinds"]:
    """Predictors of some records, from squared distances to all candidates and which candidates have the same class."""
    most = max(NEIGHBOURS)
    nearest = np.argpartition(distances, most, axis=1)[:, :most]
    order = np.argsort(np.take_along_axis(distances, nearest, axis=1), axis=1)
    agree = np.take_along_axis(same, np.take_along_axis(nearest, order, axis=1), axis=1)
    shares = [agree[:, :count].mean(axis=1) for count in NEIGHBOURS]
    same_class, other = (np.where(side, distances, np.inf).min(axis=1) + 1e-6 for side in (same, ~same))
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = np.nan_to_num(np.clip(np.log(other / same_class), -FARTHEST, FARTHEST), nan=0.0)
    return np.stack([*shares, shares[2] ** 2, apart, np.tanh(2 * apart), np.minimum(apart, 0)], axis=1)


ROUNDS, PARTS = 3, 3
MODELS = ROUNDS * PARTS
"""What models that were taught a record gained by it is taken off: a mean over nine scatters less than one of three."""
MOST_TEACHERS = 10_000
"""If there are more records, whole units of about so many are drawn at random: they teach, and all are judged."""


def order_of_contents(hashes: Shaped[np.ndarray, " n"], labels: Integers) -> Integers:
    """The indices that sort the records by contents (`hashes`, 16 bytes a record) and classes."""
    words = np.ascontiguousarray(hashes).view("<u8").reshape(-1, 2)
    return np.lexsort((labels, words[:, 1], words[:, 0]))


def units_of(hashes: Shaped[np.ndarray, " n"], groups: Integers | None) -> Integers:
    """The unit of each record: its copies and, if there are groups, its group; numbered by first appearance."""
    return number_groups(merge_groups(units_of_records(groups, len(hashes)), hashes))


def taught_rows(generator: np.random.Generator, units: Integers, most: int = MOST_TEACHERS) -> Members:
    """Which records each of the `MODELS` models learns from: the units of two of three random thirds."""
    sizes = np.bincount(units)
    drawn = generator.permutation(len(sizes))
    # The last unit that is drawn may exceed the number.
    teaches = np.zeros(len(sizes), bool)
    teaches[drawn[: 1 + int((np.cumsum(sizes[drawn]) < most).sum())]] = True
    teachers, rows = np.flatnonzero(teaches), []
    for _ in range(ROUNDS):
        part = np.full(len(sizes), -1)
        part[generator.permutation(teachers)] = np.arange(len(teachers)) % PARTS
        rows += [teaches & (part != left_out) for left_out in range(PARTS)]
    return np.stack(rows)[:, units]


def odds_without(log_odds: Scores, rows: Members) -> Numbers:
    """The mean log-odds (nats) of each record, without what models gained by learning from it (`Profile.outside`)."""
    return profile(cut(log_odds), rows).outside


FOLDS, ORDERS, ADDED = 10, (1, 2, 3), 0.5
"""A context of k tokens counts as `ADDED` (k + 1) further observations of the shorter one: a token that no other fold
has costs a lot, as it costs the model."""
MOST_TOKENS = 2_000_000
"""Of more tokens, units are dealt into parts of at most so many on average, by their order, each with its own folds."""
BEGINNING, NO_FOLD = 0, -1
"""The number of what stands before the first token, and its fold: it teaches nothing, and nobody judges it."""


TokenRecords = Sequence[tuple[Sequence[int], int]]
"""The tokens of each record, and the index of the first that is judged."""


def token_difficulty(
    records: TokenRecords, units: Sequence[Hashable | None] | None = None
) -> Float[np.ndarray, "n orders"]:
    """How difficult the tokens of each record are, in nats a token: minus the mean of their log-probabilities.

    The probabilities are those by no context, and by the one and two tokens before: a column for each of `ORDERS`. A
    million tokens take a second. Memory is some 300 MB at most, beside the records.

    Args:
        records: the numbers of each record's tokens, and the index of the first one that is judged; those before it are
            its context. A record without a token to judge has zeros.
        units: what was dealt whole: a value a record, such as its author or its pair; None for a record by itself.

    Guarantees: finite; the order of records, and the names of units, change no bit of a record's numbers.

    >>> records = [((1, 2, 3), 1), ((4, 2, 3), 1), ((1, 2, 5), 1), ((3, 2, 1), 1)]
    >>> token_difficulty(records).round(1).tolist()
    [[1.3, 0.8, 1.0], [1.3, 1.2, 1.2], [2.8, 3.2, 3.3], [1.3, 2.0, 2.0]]
    """
    rank, parts = ranks_of_units(records, units), 1 + sum(len(tokens) for tokens, _ in records) // MOST_TOKENS
    numbers = np.zeros((len(records), len(ORDERS)))
    for part in range(parts):
        rows = np.flatnonzero(rank % parts == part)
        numbers[rows] = _difficulty([records[row] for row in rows.tolist()], rank[rows] // parts % FOLDS)
    return numbers


def ranks_of_units(records: TokenRecords, units: Sequence[Hashable | None] | None = None) -> Integers:
    """The place of each record's unit among all units, sorted by contents; `token_difficulty` has the arguments."""
    hashes_of_units: dict[Hashable, list[bytes]] = collections.defaultdict(list)
    unit_of_record = [(row,) if unit is None else unit for row, unit in enumerate(units or [None] * len(records))]
    for unit, (tokens, start) in zip(unit_of_record, records, strict=True):
        hashes_of_units[unit].append(_content_hash(np.array([start, *tokens], "<i8").tobytes()))
    contents = {unit: _content_hash(b"".join(sorted(hashes))) for unit, hashes in hashes_of_units.items()}
    places = {content: place for place, content in enumerate(sorted({*contents.values()}))}
    return np.array([places[contents[unit]] for unit in unit_of_record], int)


def _difficulty(records: TokenRecords, fold_of_record: Integers) -> Float[np.ndarray, "n orders"]:
    """`token_difficulty` of records that teach one another, by their folds."""
    tokens, record, place = _flat_tokens([tokens for tokens, _ in records])
    judged = place >= np.array([start for _, start in records], int)[record]
    fold = np.where(place >= 0, fold_of_record[record], NO_FOLD)
    count = np.maximum(np.bincount(record, judged, len(records)), 1)
    vocabulary = int(tokens.max(initial=1))
    probability, gram, columns = np.full(len(tokens), 1 / vocabulary), np.zeros(len(tokens), int), []
    for order in ORDERS:
        # The context of a token is the shorter n-gram that ends before it.
        context = np.roll(gram, 1)
        gram = np.unique(context * (vocabulary + 1) + tokens, return_inverse=True)[1]
        after, together = _in_other_folds(context, fold), _in_other_folds(gram, fold)
        probability = (together + ADDED * order * probability) / (after + ADDED * order)
        columns.append(np.bincount(record, -np.log(probability) * judged, len(records)) / count)
    return np.stack(columns, axis=1)


def _content_hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _flat_tokens(texts: Sequence[Sequence[int]]) -> tuple[Tokens, Tokens, Tokens]:
    """All tokens (numbered from 1), their records and places; a record begins with `BEGINNING`s, at places below 0."""
    before = max(ORDERS) - 1
    lengths = np.array([len(text) for text in texts], int) + before
    record = np.repeat(np.arange(len(texts)), lengths)
    place = np.arange(len(record)) - np.repeat(np.cumsum(lengths) - lengths, lengths) - before
    tokens = np.full(len(record), BEGINNING)
    numbers = np.fromiter(itertools.chain.from_iterable(texts), np.int64, int((place >= 0).sum()))
    tokens[place >= 0] = 1 + np.unique(numbers, return_inverse=True)[1]
    return tokens, record, place


def _in_other_folds(ids: Tokens, fold: Tokens) -> Tokens:
    """For each token, how many tokens of other folds have its id."""
    count = np.bincount(ids[fold != NO_FOLD], minlength=int(ids.max(initial=0)) + 1)
    elsewhere = count[ids]
    for number in range(FOLDS):
        rows = np.flatnonzero(fold == number)
        elsewhere[rows] -= np.bincount(ids[rows], minlength=len(count))[ids[rows]]
    return elsewhere
