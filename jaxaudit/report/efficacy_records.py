"""A row a record: the `efficacy` answer as a table for other programs."""

from typing import IO

import numpy as np

from jaxaudit.audits.efficacy import EfficacyAudit


def write_csv(audit: EfficacyAudit, class_names: tuple[str, ...], file: IO[bytes]) -> None:
    """The table as CSV, in full precision."""
    import pyarrow.csv

    pyarrow.csv.write_csv(_table(audit, class_names), file)


def write_parquet(audit: EfficacyAudit, class_names: tuple[str, ...], file: IO[bytes]) -> None:
    """The table as Parquet."""
    import pyarrow.parquet

    pyarrow.parquet.write_table(_table(audit, class_names), file)


def _table(audit: EfficacyAudit, class_names: tuple[str, ...]):
    import pyarrow

    columns = {"index": np.arange(len(audit.labels)), "class": np.array(class_names)[audit.labels]}
    informations = {f"information of {model.name}": model.measured.per_example for model in audit.models}
    return pyarrow.table({**columns, **informations})
