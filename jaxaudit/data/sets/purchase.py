"""Purchase: the shopping histories of Kaggle's "Acquire valued shoppers challenge", from the raw transactions file."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from jaxaudit.data.cache import cached_arrays
from jaxaudit.data.formats.csv_file import csv_batches
from jaxaudit.data.tables.table import Column, Table
from jaxaudit.errors import InputError

FILE = "transactions.csv"
CLUSTERS = 10
# Part of what the set is: every run must find the same clusters.
SEED = 2017
_VERSION = 1
_ROWS = 8192


def purchase(
    path: Path,
    *,
    seed: int = SEED,
    clusters: int = CLUSTERS,
    sample: int = 20_000,
    most_customers: int = 2_000_000,
    most_categories: int = 1_024,
    block_bytes: int = 2**24,
    progress: Callable[[int], None] | None = None,
) -> Table:
    """One record a customer: did they buy anything of each product category? The class is a k-means cluster; `uint8`.

    The customers of `transactions.csv`, gzipped or not, in ascending order of their id; a yes/no column for every
    category in the file (the paper counts 836), in ascending order of their numbers. Every line counts, returned goods
    too: they had been bought. The paper speaks of purchases "in the past year"; here it is the whole file.

    k-means (k-means++ start, `clusters` clusters) is fitted to at most `sample` customers, drawn by `seed`; every
    customer then belongs to the closest centre.

    The file has 350 million lines (22 GB); it is read once, in blocks, and the finished table kept in the cache.

    Guarantees: memory while reading is bounded by customers * `most_categories` bits (three times that while the table
    grows) and a few blocks, whatever the number of lines; the order of the lines does not matter.

    Args:
        seed: for the sample and the start of k-means.
        most_customers, most_categories: refuse files with more.
        block_bytes: how much is read at a time.
        progress: called with the number of lines after every block.

    Raises:
        InputError: when the file cannot be read, has no columns `id` and `category` of whole numbers, more customers or
            categories than are allowed, or fewer different customers than clusters.

    Source: Long, Bindschaedler, Gunter (2017), section 5.1; kaggle.com/c/acquire-valued-shoppers-challenge.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error}).") from error
    key = (
        f"purchase {_VERSION} {path.resolve()} {status.st_size} {status.st_mtime_ns} {seed} {clusters} {sample} "
        f"{most_customers} {most_categories}"
    )

    def build() -> dict[str, np.ndarray]:
        bits, categories = read_transactions(path, most_customers, most_categories, block_bytes, progress)
        return {
            "bits": bits,
            "categories": categories,
            "labels": cluster(bits, len(categories), seed, clusters, sample),
        }

    arrays = cached_arrays(key, build)
    categories = arrays["categories"]
    columns = tuple(Column(f"category {number}", ("no", "yes")) for number in categories.tolist())
    names = tuple(f"cluster {number}" for number in range(1, clusters + 1))
    return Table(_unpacked(arrays["bits"], len(categories)), columns, arrays["labels"], names, "purchase")


def read_transactions(
    path: Path,
    most_customers: int,
    most_categories: int,
    block_bytes: int = 2**24,
    progress: Callable[[int], None] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Who bought of what: `uint8[customers, ceil(categories / 8)]`, lowest bit first, and the categories' numbers.

    Args and errors as `purchase`.
    """
    customers, categories = _Numbered(most_customers, "customers", path), _Numbered(most_categories, "categories", path)
    bits = np.zeros((1024, -(-most_categories // 8)), np.uint8)
    lines = 0
    for batch in csv_batches(
        path,
        {"id": pa.int64(), "category": pa.int64()},
        f"{path}: is not Kaggle's {FILE} with the columns id and category",
        "is it the file of transactions, whole?",
        block_bytes=block_bytes,
    ):
        ids, bought = batch.columns
        if ids.null_count or bought.null_count:
            raise InputError(f"{path}: a line after line {lines + 1} has no id or category; is the file damaged?")
        rows, columns = customers.places(ids.to_numpy()), categories.places(bought.to_numpy())
        if len(customers) > len(bits):
            grown = np.zeros((max(len(customers), min(2 * len(bits), most_customers)), bits.shape[1]), np.uint8)
            grown[: len(bits)] = bits
            bits = grown
        flat = rows * bits.shape[1] + (columns >> 3)
        np.bitwise_or.at(bits.reshape(-1), flat, np.uint8(1) << (columns & 7).astype(np.uint8))
        lines += batch.num_rows
        if progress is not None:
            progress(lines)
    if lines == 0:
        raise InputError(f"{path}: there are no transactions below the header line. Is the file empty?")
    return _sorted_bits(bits, customers, categories), categories.numbers


class _Numbered:
    """Different whole numbers, each with its place in the order in which they came."""

    def __init__(self, most: int, what: str, path: Path) -> None:
        self.most, self.what, self.path = most, what, path
        self.numbers, self.order = np.empty(0, np.int64), np.empty(0, np.int64)  # ascending, and the place of each

    def __len__(self) -> int:
        return len(self.numbers)

    def places(self, values: np.ndarray) -> np.ndarray:
        distinct, back = np.unique(values, return_inverse=True)
        new = np.setdiff1d(distinct, self.numbers, assume_unique=True)
        if len(self) + len(new) > self.most:
            raise InputError(
                f"{self.path}: has more than {self.most} {self.what}; is it the transactions file? If so, "
                "raise the bound."
            )
        if len(new):
            at = np.searchsorted(self.numbers, new)
            self.order = np.insert(self.order, at, np.arange(len(self), len(self) + len(new)))
            self.numbers = np.insert(self.numbers, at, new)
        return self.order[np.searchsorted(self.numbers, distinct)][back]


def _sorted_bits(bits: np.ndarray, customers: _Numbered, categories: _Numbered) -> np.ndarray:
    """The rows and columns in ascending order of their numbers."""
    out = np.empty((len(customers), -(-len(categories) // 8)), np.uint8)
    for start in range(0, len(out), _ROWS):
        rows = customers.order[start : start + _ROWS]
        unpacked = np.unpackbits(bits[rows], axis=1, bitorder="little")
        out[start : start + _ROWS] = np.packbits(unpacked[:, categories.order], axis=1, bitorder="little")
    return out


def cluster(bits: np.ndarray, categories: int, seed: int, clusters: int, sample: int) -> np.ndarray:
    """`int32[customers]`: the k-means cluster of every customer; see `purchase`.

    Raises:
        InputError: when fewer different customers were drawn than there are clusters.
    """
    # Imported here because scikit-learn takes about a second to import.
    from sklearn.cluster import KMeans

    generator = np.random.default_rng(seed)
    drawn = np.sort(generator.choice(len(bits), min(sample, len(bits)), replace=False))
    different = len(np.unique(bits[drawn], axis=0))
    if different < clusters:
        raise InputError(
            f"purchase: {different} different customers cannot form {clusters} clusters; is the transactions file "
            "whole?"
        )
    start = int(generator.integers(2**31))
    means = KMeans(clusters, init="k-means++", n_init="auto", random_state=start)
    means.fit(_unpacked(bits[drawn], categories).astype(np.float32))
    labels = np.empty(len(bits), np.int32)
    for first in range(0, len(bits), _ROWS):
        rows = _unpacked(bits[first : first + _ROWS], categories).astype(np.float32)
        labels[first : first + _ROWS] = means.predict(rows)
    return labels


def _unpacked(bits: np.ndarray, categories: int) -> np.ndarray:
    return np.unpackbits(bits, axis=1, count=categories, bitorder="little")
