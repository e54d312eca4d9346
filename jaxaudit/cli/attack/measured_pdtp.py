"""PDTP of a bank's records, from a finished run of `jaxaudit pdtp`."""

from pathlib import Path

import numpy as np
from jaxtyping import Float

from jaxaudit.data.bank.bank import Bank
from jaxaudit.errors import InputError
from jaxaudit.report.pdtp.record import PDTPRecord
from jaxaudit.report.record import as_float
from jaxaudit.runs.saved import read_run


def measured_pdtp(path: Path, bank: Bank, records: int) -> Float[np.ndarray, " records"]:
    """Nats, of the first so many records of a bank; NaN of those that were not measured.

    Raises:
        InputError: it is no run of `pdtp`, of other records than each of the bank's sets, or one that lists only the
            riskiest.
    """
    result = read_run(path).result
    if not isinstance(result, PDTPRecord):
        raise InputError(f"--pdtp {path}: is not a run of `jaxaudit pdtp`; give a directory that its --out wrote.")
    if len(result.records) < result.records_measured:
        raise InputError(
            f"--pdtp {path}: measured {result.records_measured:,} records and lists the {len(result.records):,} "
            "riskiest; measure fewer (--measured-records)."
        )
    said, start = bank.description, 0
    found = np.full(said.records, np.nan)
    theirs = result.provenance.data.get("records_content_hash")
    for role, count in said.sizes._asdict().items():
        if theirs is not None and getattr(said.hashes, role) == theirs:
            places = np.array([risk.index for risk in result.records])
            if places.max() < count:
                found[start + places] = [as_float(risk.pdtp) for risk in result.records]
                if start >= records:
                    raise InputError(
                        f"--pdtp {path}: measured the {role} set, which is not attacked here; measure the query set, "
                        "or leave out --target."
                    )
                return found[:records]
        start += count
    raise InputError(
        f"--pdtp {path}: its table has the same records as none of the bank's sets. Make both of one file of rows of "
        "numbers (images and categories are stored in other ways), and the run with this version and all records."
    )
