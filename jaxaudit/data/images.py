"""Images: read from a folder of class-named folders or as known sets are published, and preprocessed in one step.

Known sets are IDX files (MNIST and its kin).
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxaudit.data.examples import Examples
from jaxaudit.data.formats.parsing import open_bounded, parsing, quietly
from jaxaudit.data.labels import encode_labels, split_as
from jaxaudit.data.memory import MAX_BYTES, refuse_larger
from jaxaudit.data.paths import entries, open_data
from jaxaudit.errors import InputError

if TYPE_CHECKING:
    from PIL import Image


# In thousandths, so that gray levels are whole numbers.
LUMA = np.array([299, 587, 114])
WEIGHT_ONE = 2**16
COARSE_WEIGHT_ONE = 2**13
"""For colours of 16 bits that become gray, whose sums would not be exact otherwise."""
CHUNK_BYTES = 2**22  # of float64 at a time: what stays in cache is 2-4 times faster than 2**25


def is_image(examples: Examples) -> bool:
    """Whether the records have the shape of images: `[h, w]`, or `[h, w, c]` with 1, 3 or 4 channels."""
    shape = examples.inputs.shape[1:]
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
        size: (height, width). `gray`: False keeps three channels; one channel stays one.

    Reference: Liu & Tsaftaris (2020), section 3.1: gray, 28x28, [0, 1].

    >>> red = Examples(np.full((1, 2, 2, 3), (255, 0, 0), np.uint8), np.array([0]), ("a",), "red")
    >>> prepare_images(red, size=(1, 1)).inputs.ravel().round(3)
    array([0.299], dtype=float32)
    """
    images = examples.inputs
    if min(size) < 1:
        raise InputError(f"the image size must be at least 1x1, got {size[0]}x{size[1]}.")
    whole, floats = images.dtype in (np.uint8, np.uint16), images.dtype.kind == "f"
    if not is_image(examples) or not (whole or (floats and images.min() >= 0 and images.max() <= 1)):
        span = f" from {images.min():g} to {images.max():g}" if floats else ""
        raise InputError(
            f"{examples.name}: has records of shape {images.shape[1:]}, numbers of type {images.dtype}{span}. Images "
            "are [height, width], or [height, width, channels] with 1, 3 or 4 channels, of uint8 (0..255), uint16 "
            "(0..65535) or floats in [0, 1]: rescale those of all sets alike, such as (images - a) / (b - a); a "
            "model's outputs stay as they are. Tabular records need no image preprocessing."
        )
    if whole:
        refuse_black(int(images.max()), images.dtype, examples.name)
    images = images[..., None] if images.ndim == 3 else images
    return replace(examples, inputs=scale_images(images, size, gray))


def refuse_black(largest: int, kind: np.dtype, name: str) -> None:
    """Rejects `uint8` images whose largest value is 1, and `uint16` images of at most 255: in [0, 1] all are black."""
    if 0 < largest <= (1 if kind == np.uint8 else 255):
        raise InputError(
            f"{name}: {kind} images with a largest value of {largest}, of {np.iinfo(kind).max}: save 8 bits as uint8, "
            "and multiply nearly black images of all sets alike."
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
    full *= one ** sum(weights is not None for weights in (rows, columns))
    step = max(1, CHUNK_BYTES // (8 * images[0].size))
    for start in range(0, len(images), step):
        # Whole numbers below 2**53 (8 + 10 + 16 + 16 bits, 16 + 16 + 16, or 16 + 10 + 13 + 13): exact in any order.
        chunk = images[start : start + step].astype(np.float64)
        chunk = chunk @ LUMA[:, None].astype(np.float64) if to_gray else chunk
        planes = chunk.transpose(0, 3, 1, 2)
        planes = planes if rows is None else rows @ planes
        planes = planes if columns is None else planes @ columns.T
        result[start : start + step] = planes.transpose(0, 2, 3, 1) / full
    return result


def _weights(old: int, new: int, one: int = WEIGHT_ONE) -> np.ndarray | None:
    """`[new, old]`: whole-number weights of a linear resize as Pillow's, each row sums to `one`; None for no change."""
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
    """`count` images, each `[h, w]` or `[h, w, channels]`, as one array; `called` names a row's image in messages.

    Images of one size are returned unchanged, gray ones repeated to three channels if others have colour. If sizes
    differ, each is resized to `size`, (height, width), as by `prepare_images` with this `gray`; without a `size` they
    are refused. `prepare_images` then gives the same bits for an image whatever the others' sizes are, so that equal
    images are found by hash. Values are whole numbers without a sign.
    """
    stack: np.ndarray | None = None
    scaled, largest, kind, shape = False, 0, np.dtype(np.uint8), (0, 0)
    for row, image in enumerate(images):
        pixels = image[..., None] if image.ndim == 2 else image
        largest = max(largest, int(pixels.max(initial=0)))
        if stack is None:
            stack, kind, shape = _room(count, pixels, source), pixels.dtype, pixels.shape[:2]
        differs = pixels.shape[:2] != shape
        if pixels.dtype != kind or (differs and size is None):
            raise InputError(
                f"{called(row)}: is {pixels.shape[0]}x{pixels.shape[1]} pixels of {pixels.dtype} but {called(0)} is "
                f"{shape[0]}x{shape[1]} of {kind}; save all images with as many bits, and convert them to one size "
                "(`image_size`, such as 28x28)."
            )
        if size is not None and (differs or scaled):
            if not scaled:
                before = scale_images(stack[:row], size, gray)
                stack, scaled = _room(count, before[0], source), True
                stack[:row] = before
            pixels = scale_images(pixels[None], size, gray)[0]
        if pixels.shape[2] > stack.shape[3]:
            stack, grays = _room(count, pixels, source), stack
            stack[:row] = grays[:row]
            del grays
        stack[row] = pixels
    assert stack is not None
    if scaled:
        refuse_black(largest, kind, source)
        return stack
    return stack[..., 0] if stack.shape[3] == 1 else stack


def _room(count: int, pixels: np.ndarray, source: str) -> np.ndarray:
    # Images that are gray so far may turn out to be coloured.
    size = count * pixels.nbytes * (3 if pixels.shape[2] == 1 else 1)
    size_words = f"{source}, {count} images of {pixels.shape[0]}x{pixels.shape[1]}"
    refuse_larger(size_words, size, MAX_BYTES, "make them smaller first")
    return np.empty((count, *pixels.shape), pixels.dtype)


# Only formats that the suffixes name: Pillow would otherwise start Ghostscript for an EPS file named a.png.
FORMATS = ("PNG", "JPEG", "BMP", "WEBP")
COLOURS = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "YCbCr")
"""Modes that have one reading as gray or RGB."""
MOST_PIXELS = 2**26
"""Of an image; to decode it takes eight bytes for each of them, or more."""
SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".webp"}


def load_image_folders(root: Path, size: tuple[int, int] | None, gray: bool) -> Examples:
    """The images in `root/CLASS/*`, as `[n, h, w]` if all are gray, else as `[n, h, w, 3]`.

    Classes are the folders in sorted order, and the images of a class the files in sorted order. Values are `uint8`, or
    `uint16` of gray images of 16 bits: levels are those of the file. An image is turned as its EXIF tag says. Hidden
    files are skipped. `size` and `gray` are as for `stack_images`.
    """
    folders = [path for path in entries(root) if path.is_dir() and not path.name.startswith(".")]
    files, labels = [], []
    for label, folder in enumerate(folders):
        inside = [path for path in entries(folder) if not path.name.startswith(".")]
        held = [path for path in inside if path.suffix.lower() in SUFFIXES and path.is_file()]
        if not held or len(held) < len(inside):
            raise InputError(
                f"{folder}: contains no images ({', '.join(sorted(SUFFIXES))}), or something else beside them; every "
                f"folder in {root.name} must be a class and contain its images directly, and nothing else."
            )
        files += held
        labels += [label] * len(held)
    with quietly():
        images = stack_images(map(_decode, files), len(files), str(root), size, gray, lambda row: str(files[row]))
    return Examples(images, np.array(labels, np.int32), tuple(folder.name for folder in folders), root.name)


def _decode(path: Path) -> np.ndarray:
    from PIL import ImageOps

    with open_data(path) as file, opened_image(file, FORMATS, str(path)) as image:
        _refuse_lossy(image, str(path))
        ImageOps.exif_transpose(image, in_place=True)
        if image.mode[0] == "I":
            return np.asarray(image).astype(np.uint16)
        return np.asarray(image.convert("L" if image.mode in ("1", "L", "LA", "La") else "RGB"))


def _refuse_lossy(image: "Image.Image", path: str) -> None:
    """Refuses an image that Pillow would not give as the file has it."""
    animated = getattr(image, "is_animated", False) and image.format != "MPO"  # a photograph, and a preview of it
    tiles: Any = getattr(image, "tile", ())
    # How the values of a PNG are stored, such as RGB;16B.
    sixteen = bool(tiles) and ";16" in str(tiles[0].args)
    gray = image.mode.startswith("I")
    shows_through = "transparency" in image.info or image.mode[-1] in "Aa"
    if shows_through and image.mode in COLOURS:
        shows_through = bool(np.asarray(image.convert("RGBA"))[..., 3].min(initial=255) < 255)
    if animated or shows_through or not (gray or (image.mode in COLOURS and not sixteen)):
        raise InputError(
            f"{path}: has {image.format} pixels of the kind {image.mode}; an image is one frame, gray of 8 or 16 bits, "
            "or RGB of 8 bits, and nothing shows through. Save it as such, as the target's training read it, or all "
            "images as an array in a .npz."
        )


@contextmanager
def opened_image(file: BytesIO | BufferedReader, formats: tuple[str, ...], source: str) -> "Iterator[Image.Image]":
    """Opens an image, quietly, as one of these formats of Pillow (for some others it starts programs), if it has at
    most `MOST_PIXELS` by its header; the caller's errors while decoding are InputErrors.
    """
    # Imported here because most runs decode no image.
    from PIL import Image

    with (
        parsing(f"{source}: cannot be read as an image", "is it damaged, or far too large?"),
        Image.open(file, formats=formats) as image,
    ):
        width, height = image.size
        if width * height > MOST_PIXELS:
            raise InputError(
                f"{source}: has {width}x{height} pixels, more than the allowed {MOST_PIXELS:,}; make it smaller first."
            )
        yield image


IDX_NAME = re.compile(r"(?P<set>.*?)(?P<split>train|t10k|test)-(?P<role>images|labels)[-.]idx\d-ubyte(\.gz)?")


def read_idx(path: Path, max_bytes: int = MAX_BYTES) -> np.ndarray:
    """The bytes in an IDX file, gzipped or not, as an array; their number must be what its header says."""
    with open_bounded(path, max_bytes) as stream:
        data = stream.read()
    magic, axes = data[:3], data[3:4].ljust(1, b"\0")[0]
    begin = 4 + 4 * axes
    shape = tuple(np.frombuffer(data[4:begin].ljust(4 * axes, b"\0"), ">u4").tolist())
    is_whole = len(data) == begin + math.prod(shape)
    # If one axis is 0 the other axes take no bytes, but could still be iterated over endlessly.
    if magic != b"\0\0\x08" or not 1 <= axes <= 8 or not is_whole or max(shape) > len(data):
        raise InputError(
            f"{path}: is not a whole IDX file of 8-bit numbers: it has {len(data)} bytes and starts with "
            f"{data[:4].hex() or 'nothing'}; was the download interrupted?"
        )
    return np.frombuffer(data, np.uint8, offset=begin).reshape(shape)


def read_idx_folder(folder: Path) -> tuple[dict[str, tuple[Path, np.ndarray]], tuple[str, ...]]:
    """A mapping from split (train, or test, also called t10k) to (image file, class indices); and all class names."""
    files: dict[str, dict[str, Path]] = {}
    twice = False
    for path in entries(folder):
        if match := IDX_NAME.fullmatch(path.name):
            of_split = files.setdefault(match["split"].replace("t10k", "test"), {})
            # A file and its packed copy are one.
            same = of_split.setdefault(match["role"], path)
            twice |= same.name.removesuffix(".gz") != path.name.removesuffix(".gz")
    pairs = {split: files[split] for split in ("train", "test") if "images" in files.get(split, {})}
    labels = [read_idx(pair["labels"]) for pair in pairs.values() if "labels" in pair]
    if twice or not pairs or len(labels) < len(pairs) or any(part.ndim != 1 for part in labels):
        raise InputError(
            f"{folder}: keep one file of images and one of labels, a label an image, for training and test each, such "
            "as train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz."
        )
    codes, names = encode_labels(np.concatenate(labels), None, f"{folder.name}, labels")
    return {
        split: (pairs[split]["images"], part) for split, part in zip(pairs, split_as(codes, labels), strict=True)
    }, names
