"""A row a record: the `pdtp` answer as a table for other programs."""

from typing import IO

import numpy as np

from jaxaudit.audits.pdtp import PDTPAudit


def _columns(audit: PDTPAudit, class_names: tuple[str, ...]) -> dict[str, np.ndarray]:
    return {
        "index": audit.records.astype(np.int64),
        "pdtp": audit.values,
        "exact_pdtp": audit.exact,
        "dtp_bound": np.full(len(audit.records), np.nan) if audit.dtp_bound is None else audit.dtp_bound,
        "seed_floor": audit.floor.mean,
        "seed_floor_max": audit.floor.largest,
        "class": np.array(class_names)[audit.classes],
        "direction": audit.directions.astype(np.int8),
        "duplicates": audit.duplicates.astype(np.int64),
        "only_member_of_its_class": audit.only_member,
    }


def write_csv(audit: PDTPAudit, class_names: tuple[str, ...], file: IO[bytes]) -> None:
    """The table as CSV, in full precision."""
    import pyarrow.csv

    pyarrow.csv.write_csv(_table(audit, class_names), file)


def write_parquet(audit: PDTPAudit, class_names: tuple[str, ...], file: IO[bytes]) -> None:
    """The table as Parquet."""
    import pyarrow.parquet

    pyarrow.parquet.write_table(_table(audit, class_names), file)


def _table(audit: PDTPAudit, class_names: tuple[str, ...]):
    import pyarrow

    columns = _columns(audit, class_names)
    return pyarrow.table({name: pyarrow.array(values, from_pandas=True) for name, values in columns.items()})
