"""Purchase from a raw transactions file: who bought what, their clusters, and what it costs in memory."""

import gzip
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from support.small_sets import TRANSACTIONS, transaction

from jaxaudit.data.sets import purchase as module
from jaxaudit.data.sets.purchase import cluster, purchase, read_transactions
from jaxaudit.data.tables.table import one_hot
from jaxaudit.errors import InputError


def write(path, pairs):
    content = "\n".join([TRANSACTIONS, *(transaction(customer, category) for customer, category in pairs), ""]).encode()
    path.write_bytes(gzip.compress(content, 1) if path.suffix == ".gz" else content)
    return path


def random_pairs(count=3000, customers=60, categories=21):
    generator = np.random.default_rng(11)
    ids = generator.choice(10**9, customers, replace=False)
    # Most categories are bought by few.
    bought = 100 * (generator.random(count) ** 3 * categories).astype(int)
    return list(zip(ids[generator.integers(customers, size=count)].tolist(), bought.tolist(), strict=True))


def bits_by_sets(pairs):
    """(rows of 0 and 1, categories): customers and categories in ascending order."""
    categories = sorted({category for _, category in pairs})
    bought = {}
    for customer, category in pairs:
        bought.setdefault(customer, set()).add(category)
    return [[int(category in bought[customer]) for category in categories] for customer in sorted(bought)], categories


@pytest.mark.parametrize("name", ["transactions.csv", "transactions.csv.gz"])
def test_records_are_those_of_a_loop(tmp_path, monkeypatch, name):
    monkeypatch.setattr(module, "_ROWS", 7)
    pairs = random_pairs()
    path = write(tmp_path / name, pairs)
    table = purchase(path, clusters=3, seed=5, block_bytes=2048)
    rows, categories = bits_by_sets(pairs)
    assert table.values.tolist() == rows
    assert table.values.dtype == np.uint8
    assert [column.name for column in table.columns] == [f"category {number}" for number in categories]
    assert {column.categories for column in table.columns} == {("no", "yes")}
    assert table.class_names == ("cluster 1", "cluster 2", "cluster 3")
    assert one_hot(table).inputs.tolist() == rows


def test_the_table_grows(tmp_path):
    pairs = [(customer, customer % 13) for customer in range(5000)]
    bits, categories = read_transactions(write(tmp_path / "a.csv", pairs), 5000, 13, 4096)
    found = np.unpackbits(bits, axis=1, count=13, bitorder="little")
    assert found.tolist() == np.eye(13, dtype=int)[[category for _, category in pairs]].tolist()
    assert categories.tolist() == list(range(13))


def test_a_customer_belongs_to_the_closest_centre():
    rows = np.random.default_rng(14).integers(0, 2, (300, 8), dtype=np.uint8)
    labels = cluster(np.packbits(rows, axis=1, bitorder="little"), 8, 5, 4, 300)
    centres = np.stack([rows[labels == each].mean(axis=0) for each in range(4)])
    distances = ((rows[:, None] - centres) ** 2).sum(axis=2)
    # Converged k-means: every centre is the mean of its own, every record with the centre closest to it.
    assert (distances[np.arange(300), labels] <= distances.min(axis=1) + 0.05).all()
    assert (labels == distances.argmin(axis=1)).mean() > 0.97


def test_it_is_built_once(tmp_path, monkeypatch):
    pairs = random_pairs(300)
    path = write(tmp_path / "a.csv", pairs)
    first = purchase(path, clusters=3, seed=5)
    lines = []
    with monkeypatch.context() as patch:
        patch.setattr(module, "read_transactions", lambda *_: pytest.fail("the file is read again"))
        assert purchase(path, clusters=3, seed=5).content_hash == first.content_hash
    write(path, [*pairs, (7, 7), (7, 8)])
    assert len(purchase(path, clusters=3, seed=5, progress=lines.append)) == len(first) + 1
    assert lines == [302]


def test_memory_does_not_grow_with_the_lines(tmp_path):
    def peak(path):
        """The most bytes that Python, NumPy and Arrow held at once."""
        before = pa.default_memory_pool()
        pool = pa.proxy_memory_pool(before)
        pa.set_memory_pool(pool)
        tracemalloc.start()
        try:
            bits, _ = read_transactions(path, 2000, 64, 2**16)
            return tracemalloc.get_traced_memory()[1] + (pool.max_memory() or 0), bits.nbytes
        finally:
            tracemalloc.stop()
            pa.set_memory_pool(before)

    pairs = [(i * 7919 % 1000, i % 50) for i in range(3_000)]
    # A few blocks, and so many that any trace a line left would show.
    short, long = write(tmp_path / "a.csv", pairs * 15), write(tmp_path / "b.csv", pairs * 60)
    peak(short)  # what is loaded on first use
    small, large = peak(short), peak(long)
    assert small[1] == large[1] == 1000 * 7
    assert large[0] < 1.1 * small[0]


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("", {}, r"a.csv: is not Kaggle's transactions.csv with the columns id and category \(Empty CSV file"),
        (TRANSACTIONS + "\n", {}, "there are no transactions below the header line"),
        ("id,dept\n1,2\n", {}, r"is not Kaggle's transactions.csv .*'category'"),
        ("id,category\n1,2\n3\n", {}, "is not Kaggle's transactions.csv .*Expected 2 columns, got 1"),
        ("id,category\n1,2\n3,\n", {}, "a line after line 1 has no id or category; is the file damaged"),
        ("id,category\n1,2\n3,4\n5,6\n", {"most_customers": 2}, "more than 2 customers; is it the transactions"),
        ("id,category\n1,2\n3,4\n5,6\n", {"most_categories": 2}, "more than 2 categories"),
        ("id,category\n1,2\n3,2\n5,6\n", {}, "2 different customers cannot form 10 clusters"),
    ],
)
def test_refused(tmp_path, content, options, message):
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(InputError, match=message):
        purchase(tmp_path / "a.csv", **options)


def test_missing_or_cut_file(tmp_path):
    path = write(tmp_path / "a.csv.gz", random_pairs(300))
    path.write_bytes(path.read_bytes()[:-50])
    for name, message in (("none.csv", "cannot be read"), ("a.csv.gz", "cannot be read .*; was the download interru")):
        with pytest.raises(InputError, match=rf"{name}: {message}"):
            purchase(tmp_path / name)
