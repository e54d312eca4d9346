"""Parquet files with other columns than were asked for."""

import io
import random
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from fuzz import names
from fuzz.damage import damaged

EQUAL_ROWS = 80 * 2**20
ROWS = (0, 1, 19, 20, 20, 20, 21, 1000)


@cache
def equal_rows() -> bytes:
    """`EQUAL_ROWS` equal rows in a few hundred kilobytes."""
    schema = pa.schema([("pdtp", pa.float64()), ("seed_floor", pa.float64())])
    file = io.BytesIO()
    zeros = pa.array(np.zeros(2**20))
    batch = pa.record_batch([zeros, zeros], schema)
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for _ in range(EQUAL_ROWS >> 20):
            writer.write_batch(batch)
    return file.getvalue()


@cache
def long_lists() -> bytes:
    """Twenty lists of a million zeros each."""
    values = pa.array(np.zeros(20 * 2**20, np.float32))
    lists = pa.ListArray.from_arrays(pa.array(np.arange(21) * 2**20, pa.int32()), values)
    return written(pa.table({"probabilities": lists}), compression="zstd")


def written(table: pa.Table, **options: Any) -> bytes:
    file = io.BytesIO()
    parquet.write_table(table, file, **options)
    return file.getvalue()


def column(rows: int, choose: random.Random) -> Any:
    numbers = np.linspace(0, 1, rows) if rows else np.zeros(0)
    makers: tuple[Any, ...] = (
        lambda: pa.array(numbers),
        lambda: pa.array(numbers, pa.float32()),
        lambda: pa.array(numbers.astype(np.float16)),
        lambda: pa.array(np.arange(rows)),
        lambda: pa.array(np.full(rows, 2**63, np.uint64)),
        lambda: pa.array([None] * rows, pa.float64()),
        lambda: pa.nulls(rows),
        lambda: pa.array([k % 2 == 0 for k in range(rows)]),
        lambda: pa.array([str(k) for k in range(rows)]),
        lambda: pa.array(["a"] * rows, pa.large_string()),
        lambda: pa.array([str(k % 3) for k in range(rows)]).dictionary_encode(),
        lambda: pa.array(np.zeros(rows)).dictionary_encode(),
        lambda: pa.array([b"\xff"] * rows, pa.binary()),
        lambda: pa.array([b"abcd"] * rows, pa.binary(4)),
        lambda: pa.array([Decimal("1.5")] * rows, pa.decimal128(5, 1)),
        lambda: pa.array([0] * rows, pa.timestamp("ns", "Europe/Berlin")),
        lambda: pa.array([0] * rows, pa.date32()),
        lambda: pa.array([0] * rows, pa.duration("s")),
        lambda: pa.array([{"a": 1.0}] * rows, pa.struct([("a", pa.float64())])),
        lambda: pa.array([[("a", 1.0)]] * rows, pa.map_(pa.string(), pa.float64())),
        lambda: pa.array([[0.25] * 4] * rows, pa.list_(pa.float64())),
        lambda: pa.array([[0.25] * 4] * rows, pa.list_(pa.float32(), 4)),
        lambda: pa.array([[0.25] * 4] * rows, pa.large_list(pa.float64())),
        lambda: pa.array([[[0.25]] * 4] * rows, pa.list_(pa.list_(pa.float64()))),
        lambda: pa.array([[0.25] * (k % 5) for k in range(rows)], pa.list_(pa.float64())),
        lambda: pa.array([None if k == 3 else [0.25] * 4 for k in range(rows)], pa.list_(pa.float64())),
        lambda: pa.array([[0.25, None, 0.25, 0.5]] * rows, pa.list_(pa.float64())),
        lambda: pa.array([["a"]] * rows, pa.list_(pa.string())),
        lambda: pa.array([[]] * rows, pa.list_(pa.float64())),
        lambda: pa.array(np.full(rows, np.nan)),
        lambda: pa.array(np.full(rows, np.inf)),
        lambda: pa.array(np.full(rows, 1e300)),
    )
    return choose.choice(makers)()


def table(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    way = choose.randrange(10)
    if way < 2:
        end = len(data) - min(len(data), 600)
        changed, said = damaged(data[end:], choose)
        return data[:end] + changed, f"in its last {len(data) - end} bytes: {said}"
    if way == 2:
        big = choose.choice((equal_rows, long_lists))
        return big(), str(big.__doc__)
    if way == 3:
        metadata = {
            choose.choice((b"pandas", b"ARROW:schema", b"\xff", b"k" * 5000)): choose.choice((b"\xff", b"{", b""))
        }
        try:
            found = parquet.read_table(io.BytesIO(data))
        except (pa.ArrowException, OSError, ValueError):
            return damaged(data, choose)
        return written(found.replace_schema_metadata(metadata)), f"words {metadata}"[:90]
    rows = choose.choice(ROWS)
    count = choose.choice((0, 1, 1, 1, 3, 4, 4, 5, 300))
    titles = [choose.choice((f"c{k}", "ant", "", "probabilities", names.odd(choose))) for k in range(count)]
    titles = [title.encode("utf-8", "replace").decode() for title in titles]
    columns = [column(rows, choose) for _ in range(count)]
    if choose.random() < 0.3 and columns:
        columns = [columns[0]] * count
    fields = [
        pa.field(title, values.type, metadata={b"\xff": b"\xff"} if choose.random() < 0.1 else None)
        for title, values in zip(titles, columns, strict=True)
    ]
    made = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    kinds = sorted({str(values.type)[:30] for values in columns})
    options = {"row_group_size": 1} if choose.random() < 0.2 else {}
    try:
        return written(
            made, compression=choose.choice(("snappy", "zstd", "none", "gzip")), **options
        ), f"{rows} x {kinds}"
    except (pa.ArrowException, ValueError):
        return damaged(data, choose)
