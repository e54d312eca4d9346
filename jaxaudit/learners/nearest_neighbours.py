"""k-nearest neighbours, with distances that are integers and so do not depend on how they are computed.

The counter-example of Long, Bindschaedler & Gunter (2017), section 6.3: not training stable for any constant.
"""

from dataclasses import dataclass
from functools import partial
from math import log1p
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jaxaudit.errors import InputError, check_ranges
from jaxaudit.learners.learner import (
    PIECE,
    Indices,
    Inputs,
    Labels,
    LeftOut,
    Pool,
    PoolLabels,
    Progress,
    Weights,
    check_left_out,
    in_chunks,
    log_shares,
    tell,
)

FAR = (1 << 31) - 1
PAIRS_AT_A_TIME = 1 << 22
BLOCK = 16


class TrainingSet(NamedTuple):
    """A trained model: the records and their weights; records of weight 0 are never neighbours."""

    inputs: Float[Array, "n ..."]
    labels: Int[Array, " n"]
    weights: Float[Array, " n"]


@dataclass(frozen=True)
class NearestNeighbours:
    """k-nearest neighbours as a `LeavesOneOut` learner; fields: the arguments of `nearest_neighbours`."""

    classes: int
    neighbours: int
    smoothing: float
    kind = "nearest neighbours"
    piece = PIECE
    """The largest number of left-out records in a piece: see `ReadsAllForEach`."""

    def fit(self, key: Key[Array, ""], inputs: Inputs, labels: Labels, weights: Weights) -> TrainingSet:
        check_ranges(f"[1, {len(inputs)}]", neighbours=self.neighbours)
        return TrainingSet(inputs, labels, weights)

    def log_probs(self, params: TrainingSet, inputs: Float[Array, "n ..."]) -> Float[Array, "n classes"]:
        records, member = _flat(params.inputs), params.weights > 0
        queries, unit = _flat(inputs), unit_of(records.shape[1])

        def votes(query: Float[Array, " inputs"]) -> Int[Array, " classes"]:
            near = nearest_indices(jnp.where(member, squared_distances(query, records, unit), FAR), self.neighbours)
            vote_of_class = (params.labels[near][:, None] == jnp.arange(self.classes)) & member[near][:, None]
            return jnp.sum(vote_of_class, axis=0)

        counts = jax.lax.map(votes, queries, batch_size=max(1, PAIRS_AT_A_TIME // len(records)))
        sound = _in_range(queries) & jnp.all(_in_range(records) | ~member)
        return jnp.where(sound[:, None], log_shares(counts, self.smoothing), jnp.nan)

    def leave_one_out(
        self, key: Key[Array, ""], inputs: Pool, labels: PoolLabels, records: Indices, progress: Progress | None = None
    ) -> LeftOut:
        """Finds k + 1 neighbours of each record once, then drops the record from among them; see `LeavesOneOut`.

        Equal to refits up to the rounding of logarithms (1e-6 nats: float32 in refits, float64 here). Time is
        `len(records)` times n; about four million distances are in memory at a time. A class that loses its last member
        keeps its smoothing (without smoothing: log-probability -inf). With n = k records, the models without one have k
        - 1 neighbours.

        Raises:
            InputError: labels or records do not exist, there are fewer than k records, or an input lies outside [0, 1].
        """
        check_left_out(inputs, labels, records, self.classes)
        check_ranges(f"[1, {len(inputs)}]", neighbours=self.neighbours)
        rows = _flat(inputs)
        outside = ~((rows >= 0) & (rows <= 1)).all(axis=0)
        if outside.any():
            raise InputError(
                f"inputs must lie in [0, 1], but {int(outside.sum())} of {rows.shape[1]} do not (the first is number "
                f"{int(np.flatnonzero(outside)[0])}): pass one_hot(table), which scales numbers."
            )
        binary = ((rows == 0) | (rows == 1)).all(axis=0)
        pool = jnp.asarray(rows[:, binary]), jnp.asarray(rows[:, ~binary])
        count = min(self.neighbours + 1, len(rows))
        chunks = in_chunks(records, max(1, PAIRS_AT_A_TIME // len(rows)))
        parts = [np.empty((0, count), np.int32)]
        for chunk in chunks:
            parts.append(np.asarray(_nearest_records(chunk, pool, count)))
            tell(progress, sum(map(len, parts)), len(records))
        near = np.concatenate(parts)[: len(records)]
        itself_last = np.argsort(near == records[:, None], axis=1, kind="stable")
        without_itself = np.take_along_axis(near, itself_last, axis=1)[:, : len(rows) - 1]
        return LeftOut(*(self._votes(labels[chosen[:, : self.neighbours]]) for chosen in (near, without_itself)))

    @property
    def largest_dtp(self) -> float | None:
        """log(1 + 1 / smoothing), since one of k votes moves from one class to another; None without smoothing."""
        return log1p(1 / self.smoothing) if self.smoothing > 0 else None

    def dtp_bound(
        self, all_labels: Int[np.ndarray, " n"], labels: Int[np.ndarray, " k"], left: LeftOut
    ) -> Float[np.ndarray, " k"] | None:
        """`largest_dtp` for every record, since PDTP gives no bound here (Long et al. 2017, section 6.3)."""
        return None if self.largest_dtp is None else np.full(len(labels), self.largest_dtp)

    def _votes(self, labels: Int[np.ndarray, "k neighbours"]) -> Float[np.ndarray, "k classes"]:
        counts = np.stack([np.sum(labels == label, axis=1) for label in range(self.classes)], axis=1)
        return log_shares(counts, self.smoothing)


def unit_of(columns: int) -> int:
    """The inverse of the unit of squared distances: the largest power of 2 for which int32 does not overflow."""
    return 1 << (31 - columns.bit_length())


def squared_distances(
    query: Float[Array, " columns"], records: Float[Array, "n columns"], unit: int
) -> Int[Array, " n"]:
    """sum_j round(unit * (query_j - record_j)^2): whole numbers, the same on every device and in every order; values 0
    and 1 count exactly.
    """

    def add(total: Int[Array, " n"], column: tuple[Array, Array]) -> tuple[Int[Array, " n"], None]:
        one, all_ = column
        return total + jnp.round((one - all_) ** 2 * unit).astype(jnp.int32), None

    return jax.lax.scan(add, jnp.zeros(len(records), jnp.int32), (query, records.T))[0]


def nearest_indices(distances: Int[Array, " n"], count: int) -> Int[Array, " count"]:
    """The indices of the `count` smallest distances, ordered by distance, then by index. They lie in the `count` blocks
    with the smallest minima, so `top_k`, which sorts on a CPU, is applied to few numbers.
    """
    blocks = -(-len(distances) // BLOCK)
    if blocks <= 2 * count:
        return jax.lax.top_k(-distances, count)[1]
    full = jnp.pad(distances, (0, blocks * BLOCK - len(distances)), constant_values=FAR).reshape(blocks, BLOCK)
    chosen = jnp.sort(nearest_indices(full.min(axis=1), count))
    places = jax.lax.top_k(-full[chosen].reshape(-1), count)[1]
    return chosen[places // BLOCK] * BLOCK + places % BLOCK


@partial(jax.jit, static_argnames="count")
def _nearest_records(chosen: Array, pool: tuple[Array, Array], count: int) -> Int[Array, "k count"]:
    """The `count` nearest records to each chosen one; columns of 0 and 1 are compared by one exact matrix product."""
    binary, numeric = pool
    unit = unit_of(binary.shape[1] + numeric.shape[1])
    common = jnp.matmul(binary[chosen], binary.T, precision="highest")
    ones = jnp.sum(binary, axis=1)
    mismatches = (ones[chosen][:, None] + ones - 2 * common).astype(jnp.int32)
    apart = jax.vmap(squared_distances, (0, None, None))(numeric[chosen], numeric, unit)
    return jax.vmap(nearest_indices, (0, None))(mismatches * unit + apart, count)


def nearest_neighbours(classes: int, *, neighbours: int, smoothing: float = 0.01) -> NearestNeighbours:
    """The learner of the k nearest neighbours (`neighbours`).

        p(y|x) = (members of class y among the k nearest + smoothing) / (k + smoothing * classes)

    Distances are Euclidean on inputs in [0, 1], as `one_hot(table)` makes them: a category that differs adds 2 to the
    squared distance (1 in a column of two categories, which is one input), a number the square of its difference. Among
    records at the same distance, the first in the pool counts as nearer. Squared distances are sums of squares rounded
    to multiples of 2^-s, with s = 31 - (bits of the number of inputs), 21 for 836 inputs: integers, so that they are
    the same with and without a record, and ties stay ties.

    A model of fewer than k members uses all of them; one of none gives 1 / classes. Every weight above 0 is one vote.
    With `smoothing=0`, as in the paper, probabilities may be 0 and their logarithms minus infinity.

    Guarantees: a zero weight deletes the record exactly. No record moves any output by more than log(1 + 1 / smoothing)
    nats: 4.6 with the default, log 2 with 1, where every model passes the DTP-1 rule by construction. Log-probabilities
    are NaN, never wrong, where an input of a query or of a member lies outside [0, 1].

    Raises:
        InputError: from `fit` and `leave_one_out`, if there are fewer records than neighbours.

    >>> learner = nearest_neighbours(2, neighbours=1, smoothing=1.0)
    >>> inputs, labels = np.array([[0.0], [0.1], [1.0]], np.float32), np.array([0, 0, 1])
    >>> told = learner.leave_one_out(jax.random.key(7), inputs, labels, np.array([0, 2]))
    >>> np.exp(told.with_record).round(3)
    array([[0.667, 0.333],
           [0.333, 0.667]])
    >>> np.exp(told.without_record).round(3)
    array([[0.667, 0.333],
           [0.667, 0.333]])
    """
    check_ranges("[2, inf)", classes=classes)
    check_ranges("[1, inf)", neighbours=neighbours)
    check_ranges("[0, inf)", smoothing=smoothing)
    return NearestNeighbours(classes, neighbours, float(smoothing))


def _flat(inputs: Any) -> Any:
    return inputs.reshape(len(inputs), -1)


def _in_range(rows: Float[Array, "n columns"]) -> Bool[Array, " n"]:
    return jnp.all((rows >= 0) & (rows <= 1), axis=1)
