"""Can query set and holdout be told apart without the target? Then a difference of its outputs need not be use.

Most published sets for membership inference on language models can (Das, Zhang & Tramer 2024): their two sides were not
dealt at random. A kernel ridge regression predicts the set of each record from what is known of all others: other
models' scores and covariates, or words. A permutation test judges the predictions, so the p-value is exact.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int, Key

from jaxaudit.metrics.checks import HOLDOUT_LIKE_QUERY, MEMBERS_LIKE_QUERY, Check
from jaxaudit.metrics.deal import groups_in_sample
from jaxaudit.metrics.exchangeability import DEALT_LEVEL, PERMUTATIONS, dealt_rows, sampled, standardised
from jaxaudit.metrics.permutation import orders_within, share_as_large
from jaxaudit.metrics.strata import without_strata
from jaxaudit.randomness import generator_of, stream

MOST_RECORDS = 2_000
"""Of more records, a random sample of this many is used; with groups or pairs, whole ones of about as many."""
PENALTY = 0.1
WORDS = 1 << 16
TOKEN = r"(?u)\b\w+\b"


class Baseline(NamedTuple):
    """What an attempt without the target found.

    Attributes:
        p_values: by what was used, `columns` or `texts`: p-value of "query set and holdout cannot be told apart by it".
        revealing: the names of the columns that differ most between the sets, the worst first.
    """

    p_values: dict[str, float]
    revealing: tuple[str, ...] = ()


def blind_baseline(
    key: Key[Array, ""],
    columns: dict[str, Float[np.ndarray, " n"]],
    texts: Sequence[str] | None,
    size: int,
    *,
    groups: Int[np.ndarray, " n"] | None = None,
    pairs: Int[np.ndarray, " n"] | None = None,
    strata: Int[np.ndarray, " n"] | None = None,
) -> Baseline:
    """Tries to tell the first `size` records (query set) from the others (holdout) without the target.

    `columns` holds, by name, numbers of each record that no target enters: covariates, scores of other models; `texts`
    the records as texts, if they are at hand. `groups`, `pairs` and `strata` are as for `permuted_differences`: with
    strata, records are told apart from others of their stratum.
    """
    generator, most = generator_of(stream(key, "sample")), MOST_RECORDS // 2
    records = np.arange(len(next(iter(columns.values()), texts or ())))
    sides, whole = np.split(records, [size]), groups
    if pairs is not None:
        sides, whole = [records], pairs
    elif groups is not None:
        most = groups_in_sample(most, groups)
    chosen = np.concatenate([sampled(generator, side, whole, most) for side in sides])
    if strata is not None:
        chosen = chosen[np.argsort(strata[chosen], kind="stable")]
    within = None if strata is None else strata[chosen]
    units = np.arange(len(chosen)) if whole is None else np.unique(whole[chosen], return_inverse=True)[1]
    rows = _rows(generator, chosen < size, None if whole is None else units, within, paired=pairs is not None)
    kernels = {}
    if columns:
        numbers = np.stack([column[chosen] for column in columns.values()], axis=1)
        numbers = standardised(numbers if within is None else without_strata(numbers, within))
        kernels["columns"] = numbers @ numbers.T
    if texts is not None:
        kernels["texts"] = _shared_words([str(texts[index]) for index in chosen])
    p_values = {name: _p_value(kernel, rows, units, within) for name, kernel in kernels.items()}
    if strata is not None:
        columns = {name: without_strata(column[:, None], strata)[:, 0] for name, column in columns.items()}
    # The difference of both sets' means, in standard deviations.
    apart = {
        name: abs(float((column[:size].mean() - column[size:].mean()) / max(float(column.std()), 1e-12)))
        for name, column in columns.items()
    }
    return Baseline(p_values, tuple(sorted(apart, key=lambda name: -apart[name])[:3]))


def holdout_blind(baseline: Baseline) -> Check:
    """Query set and holdout cannot be told apart without the target.

    The number is the smallest p-value times the number of p-values (Bonferroni). If the sets were dealt at random, the
    check fails with probability at most 1% (`DEALT_LEVEL`).
    """
    if not baseline.p_values:
        message = "whether query set and holdout can be told apart without the target was not measured: the table has "
        message += "neither covariates, nor scores of models that used neither set, nor texts"
        return Check(HOLDOUT_LIKE_QUERY, True, None, DEALT_LEVEL, True, message)
    smallest = min(1.0, len(baseline.p_values) * min(baseline.p_values.values()))
    names = " and ".join(
        {"columns": "other columns", "texts": "their words"}[part_name] for part_name in baseline.p_values
    )
    if smallest > DEALT_LEVEL:
        message = f"query set and holdout were not told apart by {names} (p = {smallest:.2g}, above {DEALT_LEVEL:g})"
        return Check(HOLDOUT_LIKE_QUERY, True, smallest, DEALT_LEVEL, True, message)
    worst = min(baseline.p_values, key=lambda name: baseline.p_values[name])
    by = "their words" if worst == "texts" else ", ".join(baseline.revealing)
    message = (
        f"query set and holdout can be told apart without the target (p = {smallest:.2g}), by {by}; so they were not "
        "dealt at random, and a difference of the target's scores need not be use. Split one set of records at random"
    )
    return Check(HOLDOUT_LIKE_QUERY, False, smallest, DEALT_LEVEL, True, message)


def members_blind(baseline: Baseline) -> Check:
    """Checks that known members were not told apart from query set and holdout together, without the target's outputs.

    A failure takes away a verdict that rests on the members. If nothing was measured, the check is a warning.

    `baseline` has the members as its first records, and all others after them.
    """
    if not baseline.p_values:
        message = "whether known members were sampled like the other two sets was not measured: the table has neither "
        return Check(MEMBERS_LIKE_QUERY, False, None, DEALT_LEVEL, False, f"{message}covariates nor texts")
    smallest = min(1.0, len(baseline.p_values) * min(baseline.p_values.values()))
    passed = smallest > DEALT_LEVEL
    message = (
        f"known members were not told apart from the other two sets (p = {smallest:.2g}, above {DEALT_LEVEL:g})"
        if passed
        else f"known members can be told apart from the other two sets without a model (p = {smallest:.2g}), so what "
        "the target remembers of them is no measure of the query set. Draw them at random from the same records"
    )
    return Check(MEMBERS_LIKE_QUERY, passed, smallest, DEALT_LEVEL, True, message)


def members_of_other_groups() -> Check:
    """The failed check of known members of other groups than query set and holdout, which were dealt within groups."""
    message = (
        "known members are of other groups than query set and holdout, so what the target remembers of them is no "
        "measure of the query set. Deal the records of every group over all three sets"
    )
    return Check(MEMBERS_LIKE_QUERY, False, None, None, True, message)


def revealing_words(texts: Sequence[str], size: int, most: int = 10) -> tuple[str, ...]:
    """The words whose share of records differs most between query set and holdout, the worst first.

    They are words of the records: show them only to who may see these.

    >>> revealing_words(["the red cat", "a red dog", "the blue cat", "a blue dog"], 2, 2)
    ('blue', 'red')
    """
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(binary=True, token_pattern=TOKEN)
    word_counts: Any = counter.fit_transform(texts)
    first, second = (np.asarray(rows.mean(axis=0)).ravel() for rows in (word_counts[:size], word_counts[size:]))
    share = (first * size + second * (len(texts) - size)) / len(texts)
    apart = np.abs(first - second) / np.sqrt(share * (1 - share) + 1 / len(texts))
    names = counter.get_feature_names_out()
    return tuple(str(names[index]) for index in np.argsort(-apart, kind="stable")[:most])


def _rows(
    generator: np.random.Generator,
    row: np.ndarray,
    units: Int[np.ndarray, " some"] | None,
    strata: Int[np.ndarray, " some"] | None,
    *,
    paired: bool,
) -> Float[np.ndarray, "deals some"]:
    """Which records are query records, as dealt and in random other deals; with strata, records are sorted by them."""
    if strata is not None:
        orders = orders_within(generator, strata, PERMUTATIONS)
        return np.concatenate([row[None], *(row[some] for some in orders)]).astype(np.float64)
    if not paired or units is None:
        return np.concatenate([row[None], *dealt_rows(generator, row, units, PERMUTATIONS)]).astype(np.float64)
    flips = generator.integers(0, 2, (PERMUTATIONS, len(units) // 2), np.int8).astype(bool)
    return np.concatenate([row[None], row[None] ^ flips[:, units]]).astype(np.float64)


def _p_value(
    kernel: Float[np.ndarray, "some some"],
    rows: np.ndarray,
    units: np.ndarray,
    strata: Int[np.ndarray, " some"] | None,
) -> float:
    """How well records of other units predict the set of each record, against random other deals.

    The kernel has a similarity of each two records; with strata, of what each differs by from its stratum's mean.
    """
    if strata is None:
        kernel = kernel - kernel.mean(axis=0) - kernel.mean(axis=1)[:, None] + kernel.mean()
    else:
        kernel = without_strata(without_strata(kernel, strata).T, strata)
    scale = max(float(np.trace(kernel)) / len(kernel), 1e-12)
    predicts = np.linalg.solve(kernel + PENALTY * scale * np.eye(len(kernel)), kernel)
    predicts[units[:, None] == units] = 0
    # A stratum has the same number of query records in every deal.
    shares = rows.mean(axis=1, keepdims=True) if strata is None else rows[0] - without_strata(rows[:1].T, strata)[:, 0]
    sides = rows - shares
    return share_as_large(np.einsum("ij,ij->i", sides @ (predicts + predicts.T) / 2, sides))


def _shared_words(texts: Sequence[str]) -> Float[np.ndarray, "some some"]:
    """The cosine of the counts of words, and of pairs of words, of each two records."""
    from sklearn.feature_extraction.text import HashingVectorizer

    counts: Any = HashingVectorizer(n_features=WORDS, ngram_range=(1, 2), token_pattern=TOKEN).transform(texts)
    return (counts @ counts.T).toarray()
