"""Class counts as probabilities."""

from typing import Any

import numpy as np
from jaxtyping import Array, Real


def log_shares(counts: Real[Array | np.ndarray, "*many classes"], smoothing: float) -> Any:
    """log((n_y + smoothing) / (n + smoothing * classes)), in nats, for NumPy and JAX arrays.

    If this is 0 / 0 (no record and no smoothing), every class is equally likely. Without smoothing, a class without
    records has minus infinity.

    >>> np.exp(log_shares(np.array([[3, 1], [0, 0]]), 1.0)).round(3)
    array([[0.667, 0.333],
           [0.5  , 0.5  ]])
    """
    xp: Any = counts.__array_namespace__()
    classes = counts.shape[-1]
    total = counts.sum(axis=-1, keepdims=True) + smoothing * classes
    share = xp.where(total > 0, (counts + smoothing) / xp.where(total > 0, total, 1), 1 / classes)
    with np.errstate(divide="ignore"):
        return xp.log(share)
