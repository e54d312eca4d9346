"""Class counts as probabilities."""

from typing import Any

import numpy as np
from jaxtyping import Array, Real


def log_shares(counts: Real[Array | np.ndarray, "*many classes"], smoothing: float) -> Any:
    """log((n_y + smoothing) / (n + smoothing * classes)), nats, in the counts' own library.

    Where this is 0 / 0 (nothing counted, nothing added), every class is equally likely. A class that was not counted
    has minus infinity without smoothing.

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
