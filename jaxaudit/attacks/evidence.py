"""Shared by the two targeted attacks: evidence of each class, summed."""

import numpy as np
from jaxtyping import Array, Float

from jaxaudit.errors import InputError


def total(
    of_in: Float[np.ndarray, "targets classes"],
    of_out: Float[np.ndarray, "targets classes"],
    weights: Float[np.ndarray, "targets classes"] | None = None,
) -> Float[np.ndarray, " targets"]:
    """sum over classes of weight * log(of_in / of_out), with a meaning for every 0.

    A class of weight 0, or with 0 on both sides, adds nothing; infinities of both signs cancel.

    >>> total(np.array([[2.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    array([0.69314718, 0.        ])
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # logarithms of 0, differences of two of them
        terms = np.log(of_in) - np.log(of_out)
        if weights is not None:
            terms *= weights
    terms[np.isnan(terms)] = 0.0
    opposed = (terms == np.inf).any(axis=1) & (terms == -np.inf).any(axis=1)
    terms[opposed] = 0.0
    return terms.sum(axis=1)


def check_shadows(
    target: Float[Array | np.ndarray, "targets classes"],
    of_in: Float[Array | np.ndarray, "shadows targets classes"],
    of_out: Float[Array | np.ndarray, "shadows targets classes"],
) -> None:
    """Refuses shadow outputs that do not fit the target's.

    Raises:
        InputError: shapes disagree or there is no shadow.
    """
    if of_in.shape != of_out.shape or of_in.shape[1:] != target.shape or len(of_in) == 0:
        raise InputError(
            f"an attack on outputs of shape {tuple(target.shape)} needs as many shadow models trained with each target "
            f"as without it, at least one, each with outputs of that shape; got {tuple(of_in.shape)} and "
            f"{tuple(of_out.shape)}."
        )
