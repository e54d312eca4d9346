"""Log-odds of models that were never trained: a record's own level, a gap for members, and noise."""

from typing import NamedTuple

import numpy as np


class Provider(NamedTuple):
    """Records: their log-odds without training on them, and what training on them adds."""

    level: np.ndarray
    gap: np.ndarray

    def outputs(self, generator: np.random.Generator, membership: np.ndarray) -> np.ndarray:
        return self.level + self.gap * membership + generator.normal(size=membership.shape)


def provider(generator: np.random.Generator, records: int, gap: float) -> Provider:
    """Records of very different difficulty, whose gaps are up to `gap`."""
    return Provider(generator.normal(0, 2, records), generator.uniform(0, gap, records))


def halves(generator: np.random.Generator, models: int, records: int, size: int) -> np.ndarray:
    """Every model is trained on `size` of the records."""
    return generator.random((models, records)).argsort(axis=1) < size
