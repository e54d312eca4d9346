"""How difficult the tokens of a text are, by n-grams that other texts of the same table teach: no model enters.

A language model's loss on a text it never saw is mostly how difficult the text is. What tells that from the texts alone
is a covariate of the test of scores (`score_permutation`), and leaves more of what use changed: with TOFU's answers,
where half or a quarter was used, it found 77 of 120 deals in place of 65; with notes that are all alike, 60 as without
(`experiments/score_rates_texts.py`).

The numbers are a function of tokens and units (authors, pairs, or single records) alone, and the same in whatever order
the records come. Sets do not enter, so whatever deal was made, each record has the number that it has: query set and
holdout stay exchangeable, and a permutation test that takes the numbers off stays exact. Known members teach as all
others do, so their numbers are alike, too, if they were dealt with the others.

Sets of two sources are another matter: words that only one of them has make it look easier or harder than it is for a
model, and so used or not. `jaxaudit scores lm` adds these numbers only to files that a deal made.

- **Out of fold.** Units are sorted by their contents, and dealt in turn over `FOLDS`. A record is judged by what the
  units of the other folds teach; copies of a unit are in its fold, and so are both records of a pair.
- **Tokens** are those that the target reads, in any language, with blanks or without: what is one word or several for
  the model is so here. A tokenizer is part of its model. If the target never used the query set, nor did its tokenizer.
- **Smoothing**: a context of k tokens counts as `ADDED` (k + 1) further observations of the distribution by the shorter
  context (MacKay & Peto 1995); no context, as those of the table's different tokens, equally likely. A token that no
  other fold has, as in a name, therefore costs a lot, as it costs the model.
"""

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import chain

import numpy as np
from jaxtyping import Float, Int

FOLDS, ORDERS, ADDED = 10, (1, 2, 3), 0.5
MOST_TOKENS = 2_000_000
"""Of more tokens, units are dealt into parts of at most so many on average, by their order, each with its own folds."""
BEGINNING, NO_FOLD = 0, -1
"""The number of what stands before the first token, and its fold: it teaches nothing, and nobody judges it."""


def token_difficulty(
    records: Sequence[tuple[Sequence[int], int]], units: Sequence[Hashable | None] | None = None
) -> Float[np.ndarray, "n orders"]:
    """How difficult the tokens of each record are, in nats a token: minus the mean of their log-probabilities.

    The probabilities are those by no context, and by the one and two tokens before: a column for each of `ORDERS`.
    A million tokens take a second. Memory is some 300 MB at most, beside the records.

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


def ranks_of_units(
    records: Sequence[tuple[Sequence[int], int]], units: Sequence[Hashable | None] | None = None
) -> Int[np.ndarray, " n"]:
    """The place of each record's unit among all units, sorted by contents; `token_difficulty` has the arguments.

    >>> ranks_of_units([((3,), 0), ((4,), 0), ((4,), 0), ((3,), 0), ((5,), 0)], [7, 7, 5, 5, None])
    array([0, 0, 0, 0, 1])
    """
    hashes_of_units: dict[Hashable, list[bytes]] = defaultdict(list)
    unit_of_record = [(row,) if unit is None else unit for row, unit in enumerate(units or [None] * len(records))]
    for unit, (tokens, start) in zip(unit_of_record, records, strict=True):
        hashes_of_units[unit].append(_content_hash(np.array([start, *tokens], "<i8").tobytes()))
    contents = {unit: _content_hash(b"".join(sorted(hashes))) for unit, hashes in hashes_of_units.items()}
    places = {content: place for place, content in enumerate(sorted({*contents.values()}))}
    return np.array([places[contents[unit]] for unit in unit_of_record], int)


def _difficulty(
    records: Sequence[tuple[Sequence[int], int]], fold_of_record: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "n orders"]:
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


def _flat_tokens(
    texts: Sequence[Sequence[int]],
) -> tuple[Int[np.ndarray, " tokens"], Int[np.ndarray, " tokens"], Int[np.ndarray, " tokens"]]:
    """The tokens of all records, one after another, with the record of each and its place in it.

    Before each record stands a `BEGINNING` for each token that the longest context may need: their places are below 0.
    Other tokens are numbered from 1.
    """
    before = max(ORDERS) - 1
    lengths = np.array([len(text) for text in texts], int) + before
    record = np.repeat(np.arange(len(texts)), lengths)
    place = np.arange(len(record)) - np.repeat(np.cumsum(lengths) - lengths, lengths) - before
    tokens = np.full(len(record), BEGINNING)
    numbers = np.fromiter(chain.from_iterable(texts), np.int64, int((place >= 0).sum()))
    tokens[place >= 0] = 1 + np.unique(numbers, return_inverse=True)[1]
    return tokens, record, place


def _in_other_folds(ids: Int[np.ndarray, " tokens"], fold: Int[np.ndarray, " tokens"]) -> Int[np.ndarray, " tokens"]:
    """For each token, how many tokens of other folds have its id."""
    count = np.bincount(ids[fold != NO_FOLD], minlength=int(ids.max(initial=0)) + 1)
    elsewhere = count[ids]
    for number in range(FOLDS):
        rows = np.flatnonzero(fold == number)
        elsewhere[rows] -= np.bincount(ids[rows], minlength=len(count))[ids[rows]]
    return elsewhere
