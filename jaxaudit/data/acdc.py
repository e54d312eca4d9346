"""ACDC: cardiac MR volumes (NIfTI) as labelled 2-D slices."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxaudit.data.examples import Examples


class AcdcSlices(NamedTuple):
    """Slices and, for each, the patient it comes from (`str[n]`)."""

    examples: Examples
    patients: np.ndarray


def load_acdc(
    root: str | Path, field_strength_table: str | Path, strength: float, *, size: int = 256
) -> AcdcSlices:
    """All slices of all frames of the patients scanned at `strength` tesla."""
    raise NotImplementedError
