"""What a Parquet footer declares is what pyarrow says of it, and a damaged one is an error and nothing else."""

from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from jaxaudit.data.formats.parquet_footer import declared_columns


def written(table: pa.Table, **how: Any) -> bytes:
    stream = BytesIO()
    parquet.write_table(table, stream, **how)
    return stream.getvalue()


TABLE = pa.table(
    {
        "a": np.arange(1000.0),
        "text": [f"{n % 7}" for n in range(1000)],
        "lists": [[1.0] * (n % 4) for n in range(1000)],
        "empty": pa.array([None] * 1000, pa.int32()),
    }
)


@pytest.mark.parametrize("how", [{}, {"row_group_size": 77}, {"compression": "gzip", "use_dictionary": False}])
def test_the_footer_is_read_as_pyarrow_reads_it(how):
    data = written(TABLE, **how)
    metadata = parquet.ParquetFile(BytesIO(data)).metadata
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    for column, found in enumerate(declared_columns(BytesIO(data))):
        parts = [group.column(column) for group in groups]
        assert found.values == sum(part.num_values for part in parts)
        assert found.unpacked_bytes == sum(part.total_uncompressed_size for part in parts)


def test_lists_are_counted_by_their_values():
    few = written(pa.table({"p": [[0.5] * 2_000_000]}))
    assert len(few) < 100_000
    assert declared_columns(BytesIO(few))[0].values == 2_000_000


@settings(max_examples=300)
@given(st.integers(0, 2**32))
def test_a_damaged_footer_is_an_error(seed):
    random, data = np.random.default_rng(seed), bytearray(SMALL)
    for _ in range(random.integers(1, 4)):
        data[random.integers(len(data))] = random.integers(256)
    try:
        found = declared_columns(BytesIO(bytes(data[: random.integers(len(data) // 2, len(data) + 1)])))
    except ValueError:
        return
    assert all(min(column) >= 0 for column in found)


SMALL = written(pa.table({"a": [0.5, 0.5], "b": [0.5, 0.5]}))
