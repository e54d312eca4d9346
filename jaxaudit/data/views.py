"""Views of images: each image, and copies of it that are shifted by one pixel.

A model that was trained with random shifts remembers an image as a whole neighbourhood of shifted ones, so its outputs
on several of them tell more of the image than its output on one (`jaxaudit.metrics.views`).
"""

import numpy as np
from jaxtyping import Shaped

from jaxaudit.data.images import has_image_shape
from jaxaudit.data.memory import MAX_BYTES, refuse_larger
from jaxaudit.errors import InputError

SHIFTS = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))
"""Pixels down and to the right: the image as it is, then up, down, left, right, and the four diagonals."""


def shifted_views(images: Shaped[np.ndarray, "n *shape"], views: int) -> Shaped[np.ndarray, "n views *shape"]:
    """The first so many of `SHIFTS` of each image, the image itself first; an edge that is left free is repeated.

    Raises:
        InputError: the records are no images, or their views would take more memory than a file may.

    >>> shifted_views(np.array([[[1, 2], [3, 4]]]), 3)[0].tolist()
    [[[1, 2], [3, 4]], [[3, 4], [3, 4]], [[1, 2], [1, 2]]]
    """
    if not has_image_shape(images.shape[1:]):
        raise InputError(
            f"records of shape {images.shape[1:]} are not images, so there are no shifted views of them: ask for none. "
            "An image is [height, width], or [height, width, channels] with 1, 3 or 4 channels."
        )
    refuse_larger(f"{views} views of each image", views * images.nbytes, MAX_BYTES, "ask for fewer views")
    height, width = images.shape[1:3]
    padded = np.pad(images, [(0, 0), (1, 1), (1, 1), *[(0, 0)] * (images.ndim - 3)], mode="edge")
    corners = [(1 - down, 1 - right) for down, right in SHIFTS[:views]]
    return np.stack([padded[:, top : top + height, left : left + width] for top, left in corners], axis=1)
