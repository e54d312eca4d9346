"""Images one after another -> one array, where they differ in size or colour too."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from jaxaudit.data.examples import Examples, concatenate
from jaxaudit.data.images import is_image, prepare_images, refuse_black, scale_images
from jaxaudit.errors import InputError

Shape = tuple[int, ...]


def stack_images(
    images: Iterable[np.ndarray],
    count: int,
    source: str,
    size: tuple[int, int] | None,
    gray: bool,
    refuse: Callable[[int, Shape, Shape], InputError],
    max_bytes: int | None = None,
) -> np.ndarray:
    """`count` images, each `[h, w]` or `[h, w, channels]`, as one array.

    Images of one size are returned as they are, gray ones brought to three channels where others have colour:
    `[n, h, w]` or `[n, h, w, channels]`. From the first `uint8` image of another size on, each is brought to `size`:
    `float32[n, *size, channels]` in [0, 1].

    Guarantees: `prepare_images` with this size and `gray` gives the same bits for an image whether or not the others
    have its size, so that equal images are found by hash. Memory: the result and, where sizes differ, the images
    before the first of another size.

    Args:
        source: what to call the images in messages.
        size: (height, width); None demands that all have one size.
        gray: as for `prepare_images`, where sizes differ.
        refuse: (row, its shape, the first's shape) -> what to raise where sizes differ and may not.
        max_bytes: raise rather than hold more than this; None bounds nothing.

    Raises:
        InputError: that of `refuse`, or more than `max_bytes`.
    """
    stack: np.ndarray | None = None
    scaled, largest = False, 0
    for row, image in enumerate(images):
        pixels = image[..., None] if image.ndim == 2 else image
        if stack is None:
            stack = _room(count, pixels, source, max_bytes)
        if not scaled and pixels.shape[:2] != stack.shape[1:3]:
            if size is None or stack.dtype != np.uint8:
                raise refuse(row, image.shape, stack.shape[1:])
            largest = stack[:row].max()
            before = scale_images(stack[:row], size, gray)
            stack = _room(count, before[0], source, max_bytes)
            stack[:row] = before
            scaled = True
        if scaled:
            assert size is not None
            largest = max(largest, pixels.max())
            pixels = scale_images(pixels[None], size, gray)[0]
        if pixels.shape[2] == 3 and stack.shape[3] == 1:
            # Gray so far, and here is the first in colour.
            stack = np.repeat(stack, 3, axis=3)
        stack[row] = pixels
    assert stack is not None
    if scaled:
        refuse_black(int(largest), source)
        return stack
    return stack[..., 0] if stack.shape[3] == 1 else stack


def join_images(parts: Sequence[Examples], name: str, size: tuple[int, int] | None, gray: bool) -> Examples:
    """The records of `parts` one after another; images that differ from part to part are prepared first.

    Raises:
        InputError: where parts differ and cannot be made alike.
    """
    if len(parts) == 1:
        return parts[0].take(slice(None), name)
    differ = len({(part.inputs.shape[1:], part.inputs.dtype) for part in parts}) > 1
    if differ and size is not None and all(map(is_image, parts)):
        parts = [prepare_images(part, size, gray) for part in parts]
        channels = max(part.inputs.shape[3] for part in parts)
        parts = [
            replace(part, inputs=np.repeat(part.inputs, channels, axis=3)) if part.inputs.shape[3] < channels else part
            for part in parts
        ]
    return concatenate(parts, name)


def _room(count: int, pixels: np.ndarray, source: str, max_bytes: int | None) -> np.ndarray:
    # Images that are gray so far may turn out to be coloured.
    size = count * pixels.nbytes * (3 if pixels.shape[2] == 1 else 1)
    if max_bytes is not None and size > max_bytes:
        raise InputError(
            f"{source}: {count} images of {pixels.shape[0]}x{pixels.shape[1]} need up to {size / 2**30:.1f} GiB, more "
            f"than the allowed {max_bytes / 2**30:.1f} GiB; make them smaller first."
        )
    return np.empty((count, *pixels.shape), pixels.dtype)
