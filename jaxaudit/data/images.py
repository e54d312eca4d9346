"""The paper's preprocessing of images in one step (grayscale, one size, [0, 1]), and images joined into one array."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from jaxaudit.data.examples import Examples, concatenate
from jaxaudit.data.memory import MAX_BYTES, refuse_larger
from jaxaudit.errors import InputError

# In thousandths, so that gray levels are whole numbers.
LUMA = np.array([299, 587, 114])
WEIGHT_ONE = 2**16
COARSE_WEIGHT_ONE = 2**13
"""For colours of 16 bits that become gray, whose sums would not be exact otherwise."""
CHUNK_BYTES = 2**22  # of float64 at a time: what stays in cache is 2-4 times faster than 2**25


def is_image(examples: Examples) -> bool:
    """True when the records have the shape of images; see `has_image_shape`."""
    return has_image_shape(examples.inputs.shape[1:])


def has_image_shape(shape: tuple[int, ...]) -> bool:
    """Whether this is the shape of an image: `[h, w]`, or `[h, w, c]` with 1, 3 or 4 channels."""
    return len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3, 4))


def prepare_images(examples: Examples, size: tuple[int, int] = (28, 28), gray: bool = True) -> Examples:
    """Images as `float32[n, height, width, channels]` in [0, 1]: optionally gray, then resized.

    Accepts `[n, h, w]`, and `[n, h, w, c]` with 1, 3 or 4 channels (a fourth, alpha, is ignored), as `uint8` 0..255 or
    `uint16` 0..65535, each divided by the largest value of its type, or as floats that lie in [0, 1] already. Gray is
    0.299 R + 0.587 G + 0.114 B. The resize is bilinear, and averages over a triangle as wide as the scale when
    shrinking (Pillow's BILINEAR; it rounds to 8 bits after each of its two passes, so it differs by up to 1.5/255).

    Guarantees: for whole numbers the sums are exact integer sums, so the result is a bitwise function of the image
    alone: not of its index, the chunk or the machine's matrix library. So equal images can be found by hash afterwards.
    Memory beyond the result is about 100 MB for any number of images.

    Args:
        size: (height, width) of the result.
        gray: False keeps three channels; one channel stays one.

    Raises:
        InputError: when the records are not images, or floats outside [0, 1].

    Reference: Liu & Tsaftaris (2020), section 3.1: gray, 28x28, [0, 1].

    >>> red = Examples(np.full((1, 2, 2, 3), (255, 0, 0), np.uint8), np.array([0]), ("a",), "red")
    >>> prepare_images(red, size=(1, 1)).inputs.ravel().round(3)
    array([0.299], dtype=float32)
    """
    images = examples.inputs
    if not is_image(examples):
        raise InputError(
            f"{examples.name}: records of shape {images.shape[1:]} are not images: [height, width], or [height, width, "
            "channels] with 1, 3 or 4 channels. Tabular records need no image preprocessing."
        )
    if min(size) < 1:
        raise InputError(f"the image size must be at least 1x1, got {size[0]}x{size[1]}.")
    if images.dtype in (np.uint8, np.uint16):
        refuse_black(int(images.max()), images.dtype, examples.name)
    elif not np.issubdtype(images.dtype, np.floating):
        raise InputError(
            f"{examples.name}: images of type {images.dtype}; save uint8 (0..255), uint16 (0..65535) or "
            "floats in [0, 1]."
        )
    elif images.min() < 0 or images.max() > 1:
        hint = "divide by 255, or save them as uint8, first"
        if images.min() < 0 or images.max() > 255:
            hint = "rescale those of all sets alike, such as (images - a) / (b - a); outputs may stay as they are"
        raise InputError(
            f"{examples.name}: float images must be in [0, 1], but are from {images.min():g} to {images.max():g}; "
            f"{hint}."
        )
    images = images[..., None] if images.ndim == 3 else images
    return replace(examples, inputs=scale_images(images, size, gray))


def refuse_black(largest: int, kind: np.dtype, name: str) -> None:
    """Rejects `uint8` images whose largest value is 1, and `uint16` images of at most 255: in [0, 1] all are black."""
    if kind == np.uint8 and largest == 1:
        raise InputError(f"{name}: uint8 images with a largest value of 1; save black and white as bool or times 255.")
    if kind == np.uint16 and 0 < largest <= 255:
        raise InputError(
            f"{name}: uint16 images with a largest value of {largest}, of 65535: either they have 8 bits, then save "
            "them as uint8, or they are nearly black, then multiply those of all sets alike."
        )


def scale_images(images: np.ndarray, size: tuple[int, int], gray: bool) -> np.ndarray:
    """The arithmetic of `prepare_images` on `[n, h, w, channels]` with 1, 3 or 4 channels."""
    images = images[..., :3]
    to_gray = gray and images.shape[3] == 3
    channels = 1 if to_gray else images.shape[3]
    one = COARSE_WEIGHT_ONE if to_gray and images.dtype == np.uint16 else WEIGHT_ONE
    rows, columns = _weights(images.shape[1], size[0], one), _weights(images.shape[2], size[1], one)
    result = np.empty((len(images), *size, channels), np.float32)
    full = 1.0 if images.dtype.kind == "f" else float(np.iinfo(images.dtype).max)
    full *= LUMA.sum() if to_gray else 1
    full *= 1.0 if rows is None else one
    full *= 1.0 if columns is None else one
    step = max(1, CHUNK_BYTES // (8 * images[0].size))
    for start in range(0, len(images), step):
        # Whole numbers below 2**53 in float64 (8 + 10 + 16 + 16 bits, 16 + 16 + 16, or 16 + 10 + 13 + 13): exact in any
        # order of summation.
        chunk = images[start : start + step].astype(np.float64)
        chunk = chunk @ LUMA[:, None].astype(np.float64) if to_gray else chunk
        planes = chunk.transpose(0, 3, 1, 2)
        planes = planes if rows is None else rows @ planes
        planes = planes if columns is None else planes @ columns.T
        result[start : start + step] = planes.transpose(0, 2, 3, 1) / full
    return result


def _weights(old: int, new: int, one: int = WEIGHT_ONE) -> np.ndarray | None:
    """`float64[new, old]`: whole-number weights of a linear resize, each row sums to `one`; None for no change.

    Pixel centres lie at k + 1/2, as in Pillow.
    """
    if old == new:
        return None
    scale = old / new
    centres = (np.arange(new) + 0.5) * scale
    reach = max(scale, 1.0)
    triangle = np.maximum(0.0, 1.0 - np.abs(np.arange(old) + 0.5 - centres[:, None]) / reach)
    weights = np.rint(triangle * (one / triangle.sum(axis=1, keepdims=True)))
    weights[np.arange(new), weights.argmax(axis=1)] += one - weights.sum(axis=1)
    return weights


def stack_images(
    images: Iterable[np.ndarray],
    count: int,
    source: str,
    size: tuple[int, int] | None,
    gray: bool,
    called: Callable[[int], str],
) -> np.ndarray:
    """`count` images, each `[h, w]` or `[h, w, channels]`, as one array.

    Images of one size are returned unchanged, gray ones repeated to three channels if others have colour, and with an
    opaque fourth if others are transparent: `[n, h, w]` or `[n, h, w, channels]`. All must be of one type. If sizes of
    whole-number images differ, each is resized to `size`, (height, width), as by
    `prepare_images` with this `gray`: `float32[n, *size, channels]` in [0, 1]; without a `size` they are refused.

    Guarantees: for every image, `prepare_images` with this size and `gray` gives the same bits whether or not the other
    images have its size, so that equal images are found by hash. Memory: the result and, if sizes differ, the images
    before the first of another size.

    In messages, `source` is the name of the images, and `called` gives that of the image of a row.
    """
    stack: np.ndarray | None = None
    scaled, largest, kind = False, 0, np.dtype(np.uint8)
    for row, image in enumerate(images):
        pixels = image[..., None] if image.ndim == 2 else image
        if stack is None:
            stack, kind = _room(count, pixels, source), pixels.dtype
        if pixels.dtype != kind:
            raise InputError(
                f"{called(row)}: has values of type {pixels.dtype}, and {called(0)} of {kind}, so nobody can tell "
                "which values are equally bright; save all images with as many bits."
            )
        if not scaled and pixels.shape[:2] != stack.shape[1:3]:
            if size is None or kind.kind != "u":
                raise InputError(
                    f"{called(row)}: is {pixels.shape[0]}x{pixels.shape[1]} pixels but {called(0)} is "
                    f"{stack.shape[1]}x{stack.shape[2]}; convert all images to one size (`image_size`, such as 28x28)."
                )
            largest = stack[:row].max()
            before = scale_images(stack[:row], size, gray)
            stack = _room(count, before[0], source)
            stack[:row] = before
            scaled = True
        if scaled:
            assert size is not None
            largest = max(largest, pixels.max())
            pixels = scale_images(pixels[None], size, gray)[0]
        if pixels.shape[2] > stack.shape[3]:
            _check_room(count, pixels, source)
            stack = _with_channels(stack, pixels.shape[2])
        stack[row] = _with_channels(pixels, stack.shape[3])
    assert stack is not None
    if scaled:
        refuse_black(int(largest), kind, source)
        return stack
    return stack[..., 0] if stack.shape[3] == 1 else stack


def _with_channels(images: np.ndarray, channels: int) -> np.ndarray:
    """Images of as many channels, if they have fewer: gray as three equal ones, a fourth (alpha) as opaque."""
    if images.shape[-1] >= channels:
        return images
    images = np.repeat(images, 3, axis=-1) if images.shape[-1] == 1 else images
    if images.shape[-1] == channels:
        return images
    opaque = np.full((*images.shape[:-1], 1), np.iinfo(images.dtype).max, images.dtype)
    return np.concatenate([images, opaque], axis=-1)


def join_images(
    parts: Sequence[Examples], name: str, size: tuple[int, int] | None = None, gray: bool = True
) -> Examples:
    """The records of `parts` one after another; images that differ from part to part are prepared first."""
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


def _room(count: int, pixels: np.ndarray, source: str) -> np.ndarray:
    _check_room(count, pixels, source)
    return np.empty((count, *pixels.shape), pixels.dtype)


def _check_room(count: int, pixels: np.ndarray, source: str) -> None:
    # Images that are gray so far may turn out to be coloured.
    size = count * pixels.nbytes * (3 if pixels.shape[2] == 1 else 1)
    size_words = f"{source}, {count} images of {pixels.shape[0]}x{pixels.shape[1]}"
    refuse_larger(size_words, size, MAX_BYTES, "make them smaller first")
