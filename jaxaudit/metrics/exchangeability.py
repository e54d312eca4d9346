"""Tests whether the holdout and the query set are exchangeable, as the holdout test assumes.

The records cannot prove that, but they can show many violations: other classes, other inputs, easier or harder records,
duplicates or similar records that are all in one set. `blind_baseline` asks whether the sets can be told apart without
the target, as in most published sets for membership inference on language models (Das, Zhang & Tramer 2024): a kernel
ridge regression predicts the set of each record from what is known of all others. A permutation test judges the
predictions, so the p-value is exact.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped

from jaxaudit.errors import check_ranges
from jaxaudit.metrics.arrays import Indices, Integers, Numbers, OneKey, units_of_records
from jaxaudit.metrics.checks import HOLDOUT_APART, HOLDOUT_LIKE_QUERY, MEMBERS_LIKE_QUERY, Check
from jaxaudit.metrics.deal import groups_in_sample, merge_groups
from jaxaudit.metrics.permutation import orders_within, share_as_large, shuffled, without_strata
from jaxaudit.randomness import generator_of, stream

PERMUTATIONS = 999
MOST_RECORDS = 5_000
"""From sets of more records, a random sample of this many is used; with groups, whole groups of about as many."""
MOST_FEATURES = 64
"""At most this many features are used; more are replaced by this many random combinations."""
NOT_MEASURED = float("nan")
DEALT_LEVEL = 0.01
WRONG = {
    "labels": "class frequencies differ",
    "inputs": "inputs differ in mean or spread",
    "difficulty": "one of them is easier for models that were not trained on it",
    "copies": "duplicate records have all their copies in one of them",
    "clustered": "similar records are in the same one of them, as if groups were dealt whole (then name them)",
}
ROWS = 64
BLOCK = 1024


class Alike(NamedTuple):
    """p-values of "query set and holdout are exchangeable", one per statistic of `alike`; NaN if it was not measured.

    `clustered` is small if nearest neighbours are in the same set too often, as if whole groups of similar records were
    assigned to a set; `mixed`, if they are too seldom.
    """

    labels: float
    inputs: float
    difficulty: float
    copies: float
    clustered: float
    mixed: float


def alike(
    key: OneKey,
    inputs: Shaped[np.ndarray, "n_plus_m ..."] | None,
    labels: Int[np.ndarray, " n_plus_m"],
    difficulty: Float[np.ndarray, " n_plus_m"] | None,
    copies: Shaped[np.ndarray, " n_plus_m"] | None,
    size: int,
    *,
    groups: Int[np.ndarray, " n_plus_m"] | None = None,
    permutations: int = PERMUTATIONS,
) -> Alike:
    """Is there evidence that the first `size` records (query set) and the others (holdout) were sampled differently?

    - `labels`, `inputs`, `difficulty`: permutation tests of the squared distance between the two sets' means, of class
      indicators, of standardised inputs and their squares, and of `difficulty`. Exact.
    - `copies`: 1 if a duplicate record is in both sets. Otherwise the probability that none is, which is small for many
      duplicates, since at random about half of them would be.
    - `clustered`, `mixed`: permutation tests of the number of records whose nearest neighbour (by standardised inputs,
      or random combinations of them) is in the same set (Schilling 1986; Henze 1988). Exact: nearest neighbours do not
      depend on the sets, and ties are broken at random.

    Args:
        inputs: the features of all records, of any shape; NaN counts as its column's mean, infinity as 0.
        difficulty: one number per record that does not depend on its set, such as mean log-odds of models without it.
        copies: equal for equal records, such as a hash. The p-values of what is None are NaN.
        groups: the group of each record, if whole groups were assigned at random: then whole groups are permuted and
            sampled, and copies and nearest neighbours are sought in other groups only.

    >>> import jax, numpy as np
    >>> random = np.random.default_rng(1)
    >>> inputs, labels = random.normal(size=(200, 3)), random.integers(0, 2, 200)
    >>> inputs[100:] *= 2
    >>> alike(jax.random.key(1), inputs, labels, labels + 0.0, np.arange(200), 100).inputs
    0.001
    """
    check_ranges(f"[1, {len(labels) - 1}]", size=size)
    generator = generator_of(key)
    most = groups_in_sample(MOST_RECORDS, units_of_records(groups, len(labels)))
    query, holdout = (sampled(generator, side, groups, most) for side in np.split(np.arange(len(labels)), [size]))
    chosen, count = np.concatenate([query, holdout]), len(query)
    classes = (labels[chosen, None] == np.unique(labels)).astype(np.float32)
    flat = None if inputs is None else features(generator, inputs[chosen])
    moments = None if flat is None else np.concatenate([flat, flat**2], axis=1)
    unlike = None if difficulty is None else difficulty[chosen, None].astype(np.float32)
    whole = None if groups is None else np.unique(groups[chosen], return_inverse=True)[1]
    # A random stream of its own, so that the p-value is the same without inputs.
    of_models = generator_of(stream(key, "difficulty"))
    p_values = [
        NOT_MEASURED if columns is None else _p_value(random, standardised(columns), count, permutations, whole)
        for random, columns in ((generator, classes), (generator, moments), (of_models, unlike))
    ]
    more = fewer = duplicates = NOT_MEASURED
    if flat is not None:
        more, fewer = _neighbours(generator_of(stream(key, "neighbours")), flat, count, permutations, whole)
    if copies is not None:
        units, inside = copies, size
        if groups is not None:
            # Groups are copies if they share a record; all so connected count as one pair, which is conservative.
            first = np.sort(np.unique(groups, return_index=True)[1])
            units, inside = merge_groups(groups, copies)[first], int((first < size).sum())
        duplicates = _copies(units, inside)
    return Alike(*p_values, copies=duplicates, clustered=more, mixed=fewer)


def sampled(generator: np.random.Generator, records: Integers, groups: np.ndarray | None, most: int) -> Indices:
    """A random sample of at most `most` records; with groups, all records of at most `most` groups."""
    units = records if groups is None else np.unique(groups[records])
    if len(units) <= most:
        return records
    drawn = generator.choice(units, most, replace=False)
    return drawn if groups is None else records[np.isin(groups[records], drawn)]


def features(generator: np.random.Generator, inputs: Shaped[np.ndarray, "n ..."]) -> Float[np.ndarray, "n features"]:
    """Standardised inputs, or `MOST_FEATURES` random combinations of more. NaN counts as its column's mean, infinity as
    0.
    """
    flat = filled(inputs.reshape(len(inputs), -1).astype(np.float32))
    flat = standardised(np.nan_to_num(flat, copy=False, posinf=0, neginf=0))
    if flat.shape[1] > MOST_FEATURES:
        flat = standardised(flat @ generator.normal(size=(flat.shape[1], MOST_FEATURES)).astype(np.float32))
    return flat


def filled(flat: Shaped[np.ndarray, "n columns"]) -> Shaped[np.ndarray, "n columns"]:
    """Records with the mean of a column in place of its NaN; 0 in a column of nothing else."""
    empty = np.isnan(flat)
    if not empty.any():
        return flat
    return np.where(empty, np.nansum(flat, axis=0) / np.maximum((~empty).sum(axis=0), 1), flat).astype(flat.dtype)


def standardised(features: np.ndarray) -> np.ndarray:
    """Features with mean 0 and variance 1; a constant feature becomes 0."""
    standard = features - features.mean(axis=0)
    deviation = standard.std(axis=0)
    standard /= np.maximum(deviation, 1e-6)
    standard[:, ~(deviation > 1e-6)] = 0
    return standard


def dealt_rows(
    generator: np.random.Generator, row: Shaped[np.ndarray, " n"], groups: np.ndarray | None, permutations: int
) -> Iterator[Shaped[np.ndarray, "some n"]]:
    """Permutations of `row`, some at a time; with groups numbered from 0, all records of a group move together."""
    once = row if groups is None else row[np.unique(groups, return_index=True)[1]]
    for rows in shuffled(generator, once, permutations, ROWS):
        yield rows if groups is None else rows[:, groups]


def _p_value(
    generator: np.random.Generator, features: np.ndarray, size: int, permutations: int, groups: np.ndarray | None
) -> float:
    """The p-value of the distance between the sets' means; features are centred, so one set's sum determines it."""

    def distances(rows: np.ndarray) -> np.ndarray:
        squared = ((rows @ features) ** 2).sum(axis=1)
        if groups is None:
            return squared
        inside = rows.sum(axis=1)
        return squared * (1 / inside + 1 / (rows.shape[1] - inside)) ** 2

    row = (np.arange(len(features)) < size).astype(np.float32)
    observed = float(distances(row[None])[0])
    # A distance that equals the observed one up to rounding counts as at least as large, which is conservative.
    drawn_rows = dealt_rows(generator, row, groups, permutations)
    as_far = sum(int((distances(rows) >= observed * (1 - 1e-4)).sum()) for rows in drawn_rows)
    return (1 + as_far) / (1 + permutations)


def _neighbours(
    generator: np.random.Generator, features: np.ndarray, size: int, permutations: int, groups: np.ndarray | None
) -> tuple[float, float]:
    """p-values: records have their nearest neighbour in the same set more often, and less often, than by chance."""
    # In random order, since `argmin` takes the first of several nearest neighbours.
    order = generator.permutation(len(features))
    groups = None if groups is None else groups[order]
    nearest = _nearest(features[order], units_of_records(groups, len(order)))
    row = order < size
    observed = int((row == row[nearest]).sum())
    drawn_rows = dealt_rows(generator, row, groups, permutations)
    counts = np.concatenate([(rows == rows[:, nearest]).sum(axis=1) for rows in drawn_rows])
    as_many, as_few = int((counts >= observed).sum()), int((counts <= observed).sum())
    return (1 + as_many) / (1 + permutations), (1 + as_few) / (1 + permutations)


def _nearest(features: Float[np.ndarray, "n features"], groups: Integers) -> Integers:
    """For each record, the index of the nearest record in another group."""
    squares, parts = (features**2).sum(axis=1), []
    for start in range(0, len(features), BLOCK):
        block = slice(start, start + BLOCK)
        distances = squares - 2 * features[block] @ features.T
        distances[groups[block, None] == groups] = np.inf
        parts.append(distances.argmin(axis=1))
    return np.concatenate(parts)


def _copies(copies: np.ndarray, size: int) -> float:
    """1 if a duplicate record is in both sets; else the probability that none is, as if each had one copy."""
    _, where, counts = np.unique(copies, return_inverse=True, return_counts=True)
    inside = np.bincount(where[:size], minlength=len(counts))
    if ((inside > 0) & (inside < counts)).any():
        return 1.0
    total, holdout_size = len(copies), len(copies) - size
    together = (size * (size - 1) + holdout_size * (holdout_size - 1)) / (total * (total - 1))
    return float(together ** int((counts > 1).sum()))


def holdout_like_query(
    alikeness: Alike, *, name: str = HOLDOUT_LIKE_QUERY, sets: str = "query set and holdout"
) -> Check:
    """There is no evidence that query set and holdout were sampled differently (or other `sets`).

    The number is the smallest p-value times the number of p-values (Bonferroni): five, or fewer if some were not
    measured. If the sets are exchangeable, the check fails with probability at most 1% (`DEALT_LEVEL`).
    """
    measured = {name: value for name, value in alikeness._asdict().items() if name in WRONG and not math.isnan(value)}
    if not measured:
        message = f"not measured whether {sets} were sampled differently, because the records are not at hand"
        return Check(name, False, None, DEALT_LEVEL, False, message)
    smallest = min(1.0, len(measured) * min(measured.values()))
    if smallest > DEALT_LEVEL:
        words = {name: "near-copies" if name == "clustered" else name for name in WRONG} | {"labels": "classes"}
        left = [words[name] for name in WRONG if name not in measured and name != "difficulty"]
        message = (
            f"no evidence that {sets} were sampled differently "
            f"({', '.join(words[name] for name in measured)}: p = {smallest:.2g})"
        )
        message += f"; not measured, because the records are not at hand: {', '.join(left)}" if left else ""
        message += (
            "" if "difficulty" in measured else "; which set is more difficult is not compared without shadow models"
        )
    else:
        wrong = [WRONG[name] for name, value in measured.items() if len(measured) * value <= DEALT_LEVEL]
        message = (
            f"{sets} were sampled differently (p = {smallest:.2g}): {', and '.join(wrong)}; a "
            "difference between them need not be use. Split the provider's records at random, with one copy of each"
        )
    return Check(name, smallest > DEALT_LEVEL, smallest, DEALT_LEVEL, True, message)


def holdout_apart(alikeness: Alike) -> Check:
    """Near-copies of query records are no more frequent in the holdout than by chance; a failure is a warning.

    If the target used the query set, the holdout then looks used, too, and the difference is harder to detect.
    """
    if math.isnan(alikeness.mixed):
        message = "near-copies of query records in the holdout were not counted, because the records are not at hand"
        return Check(HOLDOUT_APART, False, None, DEALT_LEVEL, False, message)
    passed = alikeness.mixed > DEALT_LEVEL
    message = f"near-copies of query records in the holdout: {'no more' if passed else 'more'} than by chance"
    advice = "" if passed else "; use of the query set also shows on the holdout. Deal near-copies as one group"
    return Check(
        HOLDOUT_APART, passed, alikeness.mixed, DEALT_LEVEL, False, f"{message} (p = {alikeness.mixed:.2g}){advice}"
    )


MOST_BLIND = 2_000
"""Of more records, a random sample of this many is used; with groups or pairs, whole ones of about as many."""
PENALTY, EQUAL = 0.1, 1e-9
WORDS = 1 << 16
TOKEN = r"(?u)\b\w+\b"


class Baseline(NamedTuple):
    """What an attempt without the target found: `revealing` has the columns that differ most, the worst first.

    `p_values`, of `columns` and of `texts`, are of "query set and holdout cannot be told apart by it".
    """

    p_values: dict[str, float]
    revealing: tuple[str, ...] = ()


def blind_baseline(
    key: OneKey,
    columns: dict[str, Numbers],
    texts: Sequence[str] | None,
    size: int,
    *,
    groups: Integers | None = None,
    pairs: Integers | None = None,
    strata: Integers | None = None,
) -> Baseline:
    """Tries to tell the first `size` records (query set) from the others (holdout) without the target.

    `columns` holds numbers that no target enters. Other arguments are as for `permuted_differences`.
    """
    generator, most = generator_of(stream(key, "sample")), MOST_BLIND // 2
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
    units = np.unique(units_of_records(whole, len(records))[chosen], return_inverse=True)[1]
    rows = _rows(generator, chosen < size, None if whole is None else units, within, paired=pairs is not None)
    kernels = {}
    if columns:
        numbers = np.stack([column[chosen] for column in columns.values()], axis=1)
        numbers = standardised(numbers if within is None else without_strata(numbers, within))
        kernels["columns"] = numbers @ numbers.T
    if texts is not None:
        kernels["texts"] = _shared_words([str(texts[index]) for index in chosen])
    p_values = {
        name: _blind_p_value(kernel, rows, units, within) for name, kernel in kernels.items() if np.ptp(kernel) > EQUAL
    }
    if strata is not None:
        columns = {name: without_strata(column[:, None], strata)[:, 0] for name, column in columns.items()}
    apart = {
        name: abs(float((column[:size].mean() - column[size:].mean()) / max(float(column.std()), 1e-12)))
        for name, column in columns.items()
    }
    return Baseline(p_values, tuple(sorted(apart, key=lambda name: -apart[name])[:3]))


NO_MEASURE = "so what the target remembers of them is no measure of the query set"
NOT_DEALT = (
    "so they were not dealt at random, and a difference of the target's scores need not be use. Split one set of "
    "records at random"
)


def holdout_blind(baseline: Baseline) -> Check:
    """Query set and holdout cannot be told apart without the target; a warning if nothing was measured.

    If the sets were dealt at random, the check fails with probability at most 1% (`DEALT_LEVEL`).
    """
    return _blind(baseline, HOLDOUT_LIKE_QUERY, "query set and holdout", NOT_DEALT)


def members_blind(baseline: Baseline) -> Check:
    """Known members, the first records of `baseline`, cannot be told apart from the others without the target."""
    advice = f"{NO_MEASURE}. Draw them at random from the same records"
    return _blind(baseline, MEMBERS_LIKE_QUERY, "known members and the other two sets", advice)


def members_of_other_groups() -> Check:
    """The failed check of known members of other groups than query set and holdout, which were dealt within groups."""
    message = f"known members are of other groups than query set and holdout, {NO_MEASURE}. Deal the records of every "
    return Check(MEMBERS_LIKE_QUERY, False, None, None, True, f"{message}group over all three sets")


def _blind(baseline: Baseline, name: str, sets: str, advice: str) -> Check:
    if not baseline.p_values:
        message = f"whether {sets} can be told apart without the target was not measured: the table has neither "
        message += "covariates, nor scores of models that used neither set, nor texts. Sets of two sources look like "
        message += "use: add what is known of records, such as their lengths (columns `covariate.`)"
        return Check(name, False, None, DEALT_LEVEL, False, message)
    smallest = min(1.0, len(baseline.p_values) * min(baseline.p_values.values()))
    words = {"columns": "other columns", "texts": "their words"}
    if smallest > DEALT_LEVEL:
        names = " and ".join(words[part_name] for part_name in baseline.p_values)
        message = f"{sets} were not told apart by {names} (p = {smallest:.2g}, above {DEALT_LEVEL:g})"
        return Check(name, True, smallest, DEALT_LEVEL, True, message)
    worst = min(baseline.p_values, key=lambda part_name: baseline.p_values[part_name])
    by = words[worst] if worst == "texts" else ", ".join(baseline.revealing)
    message = f"{sets} can be told apart without the target (p = {smallest:.2g}), by {by}; {advice}"
    return Check(name, False, smallest, DEALT_LEVEL, True, message)


def _rows(
    generator: np.random.Generator,
    row: np.ndarray,
    units: Indices | None,
    strata: Indices | None,
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


def _blind_p_value(
    kernel: Float[np.ndarray, "some some"],
    rows: np.ndarray,
    units: np.ndarray,
    strata: Indices | None,
) -> float:
    """How well other units' records predict each record's set by a centred `kernel`, against random other deals."""
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
