"""Purchase: the shopping histories of Kaggle's "Acquire valued shoppers challenge", from the raw transactions file."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from jaxaudit.data.cache import cached_arrays
from jaxaudit.data.formats.csv_file import csv_batches
from jaxaudit.data.tables.table import Column, Table
from jaxaudit.errors import InputError

# Fixed, so that every run finds the same clusters.
SEED, CLUSTERS, SAMPLE = 2017, 10, 20_000
MOST_CUSTOMERS, MOST_CATEGORIES = 2_000_000, 1_024
"""A file with more is not the file of the challenge."""
_VERSION = 2
_ROWS = 8192
_BLOCK = 2**24


def purchase(path: Path) -> Table:
    """One record a customer: did they buy anything of each product category? The class is a k-means cluster; `uint8`.

    The customers of `transactions.csv`, gzipped or not, in ascending order of their id; a yes/no column for every
    category in the file (the paper counts 836), in ascending order of their numbers. Every line counts, returned goods
    too: they had been bought. The paper speaks of purchases "in the past year"; here it is the whole file.

    k-means (k-means++ start, 10 clusters) is fitted to at most 20,000 customers, drawn with a fixed seed; every
    customer then belongs to the closest centre.

    The file has 350 million lines (22 GB); it is read once, in blocks, and the finished table kept in the cache.

    Guarantees: memory while reading is bounded by customers * 1,024 bytes (three times that while the table grows) and
    a few blocks, whatever the number of lines; the order of the lines does not matter.

    Source: Long, Bindschaedler, Gunter (2017), section 5.1; kaggle.com/c/acquire-valued-shoppers-challenge.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error}).") from error

    def build() -> dict[str, np.ndarray]:
        bought, categories = read_transactions(path)
        bits = np.packbits(bought, axis=1)
        return {"bits": bits, "categories": categories, "labels": cluster(bought, SEED, CLUSTERS, SAMPLE)}

    arrays = cached_arrays(f"purchase {_VERSION} {path.resolve()} {status.st_size} {status.st_mtime_ns}", build)
    categories = arrays["categories"]
    columns = tuple(Column(f"category {number}", ("no", "yes")) for number in categories.tolist())
    names = tuple(f"cluster {number}" for number in range(1, CLUSTERS + 1))
    bought = np.unpackbits(arrays["bits"], axis=1, count=len(categories))
    return Table(bought, columns, arrays["labels"], names, "purchase")


def read_transactions(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Which customer bought which category: `uint8[customers, categories]` of 0 and 1, and the category numbers."""
    customers: dict[int, int] = {}
    categories: dict[int, int] = {}
    bought = np.zeros((1024, MOST_CATEGORIES), np.uint8)
    lines = 0
    for batch in csv_batches(
        path,
        {"id": pa.int64(), "category": pa.int64()},
        f"{path}: is not Kaggle's transactions.csv with the columns id and category",
        "is it the file of transactions, whole?",
        block_bytes=_BLOCK,
    ):
        ids, kinds = batch.columns
        if ids.null_count or kinds.null_count:
            raise InputError(f"{path}: a line after line {lines + 1} has no id or category; is the file damaged?")
        rows = _places(customers, ids.to_numpy(), MOST_CUSTOMERS, f"{path}: has more than {MOST_CUSTOMERS} customers")
        columns = _places(
            categories, kinds.to_numpy(), MOST_CATEGORIES, f"{path}: has more than {MOST_CATEGORIES} categories"
        )
        if len(customers) > len(bought):
            more = max(len(customers) - len(bought), len(bought))
            bought = np.concatenate([bought, np.zeros((more, MOST_CATEGORIES), np.uint8)])
        bought[rows, columns] = 1
        lines += batch.num_rows
    if lines == 0:
        raise InputError(f"{path}: there are no transactions below the header line. Is the file empty?")
    rows, columns = (np.argsort(list(keys)) for keys in (customers, categories))
    return bought[np.ix_(rows, columns)], np.array(list(categories))[columns]


def _places(places: dict[int, int], values: np.ndarray, most: int, complaint: str) -> np.ndarray:
    """The index of each value in `places`, to which new values are appended."""
    distinct, back = np.unique(values, return_inverse=True)
    place_of_value = np.array([places.setdefault(value, len(places)) for value in distinct.tolist()])
    if len(places) > most:
        raise InputError(f"{complaint}; is it the transactions file?")
    return place_of_value[back]


def cluster(bought: np.ndarray, seed: int, clusters: int, sample: int) -> np.ndarray:
    """`int32[customers]`: the k-means cluster of every customer; see `purchase`.

    Args:
        bought: which goods each customer bought, one row each.
        seed: of the sample and of the start.
        clusters: the number of clusters.
        sample: the number of customers, drawn at random, from which the cluster centres are computed.

    Raises:
        InputError: fewer different customers than clusters.
    """
    # Imported here because scikit-learn takes about a second to import.
    from sklearn.cluster import KMeans

    generator = np.random.default_rng(seed)
    drawn = np.sort(generator.choice(len(bought), min(sample, len(bought)), replace=False))
    different = len(np.unique(bought[drawn], axis=0))
    if different < clusters:
        raise InputError(f"purchase: {different} different customers cannot form {clusters} clusters; is it whole?")
    start = int(generator.integers(2**31))
    means = KMeans(clusters, init="k-means++", n_init="auto", random_state=start)
    means.fit(bought[drawn].astype(np.float32))
    labels = np.empty(len(bought), np.int32)
    for first in range(0, len(bought), _ROWS):
        rows = slice(first, first + _ROWS)
        labels[rows] = means.predict(bought[rows].astype(np.float32))
    return labels
