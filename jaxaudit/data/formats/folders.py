"""A folder of class-named folders of images, each decoded by Pillow."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxaudit.data.examples import Examples
from jaxaudit.data.formats.parsing import parsing, quietly
from jaxaudit.data.images import stack_images
from jaxaudit.data.paths import entries, open_data
from jaxaudit.errors import InputError

if TYPE_CHECKING:
    from PIL import Image

# Only formats that the suffixes name: Pillow would otherwise start Ghostscript for an EPS file named a.png.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
COLOURS = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "YCbCr")
"""Modes that have one reading as gray or RGB."""
MOST_PIXELS = 2**26
"""Of an image; to decode it takes eight bytes for each of them, or more."""
SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}


def load_image_folders(root: Path, size: tuple[int, int] | None = None, gray: bool = True) -> Examples:
    """The images in `root/CLASS/*`, as `[n, h, w]` if all are gray, else as `[n, h, w, 3]`, or 4 if any is transparent.

    Classes are the folders in sorted order, and the images of a class the files in sorted order. Values are `uint8`, or
    `uint16` of gray images of 16 bits: levels are those of the file (of PGM, in proportion to its largest one). An
    image is turned as its EXIF tag says. Hidden files and files without an image suffix are skipped. `size` and `gray`
    are as for `stack_images`.

    Raises:
        InputError: an image would lose something (colours of 16 bits, CMYK, frames of an animation), or has values
            whose scale is unknown; or images have different numbers of bits.
    """
    folders = [path for path in entries(root) if path.is_dir() and not path.name.startswith(".")]
    files, labels = [], []
    for label, folder in enumerate(folders):
        inside = [path for path in entries(folder) if not path.name.startswith(".")]
        held = [path for path in inside if path.suffix.lower() in SUFFIXES and path.is_file()]
        if not held:
            raise InputError(
                f"{folder}: contains no images ({', '.join(sorted(SUFFIXES))}); every folder in {root.name} must "
                "be a class and contain its images directly."
            )
        nested = [path for path in inside if path.is_dir()]
        if nested:
            raise InputError(f"{nested[0]}: is a folder inside a class folder; put the images of a class into one.")
        files += held
        labels += [label] * len(held)
    with quietly():
        images = stack_images(map(_decode, files), len(files), str(root), size, gray, lambda row: str(files[row]))
    return Examples(images, np.array(labels, np.int32), tuple(folder.name for folder in folders), root.name)


def _decode(path: Path) -> np.ndarray:
    from PIL import ImageOps

    with open_data(path) as file, opened_image(file, FORMATS, str(path)) as image:
        transparent = "transparency" in image.info or image.mode[-1] in "Aa"
        _refuse_lossy(image, transparent, str(path))
        ImageOps.exif_transpose(image, in_place=True)
        if image.mode[0] == "I":
            return np.asarray(image).astype(np.uint16)
        if transparent:
            pixels = np.asarray(image.convert("RGBA"))
            if pixels[..., 3].min(initial=255) < 255:
                return pixels
        return np.asarray(image.convert("L" if image.mode in ("1", "L", "LA", "La") else "RGB"))


def _refuse_lossy(image: "Image.Image", transparent: bool, path: str) -> None:
    """Refuses an image that Pillow would not give as the file has it; looks at its header alone."""
    if getattr(image, "is_animated", False) and image.format != "MPO":  # a photograph, and a preview of it
        raise InputError(f"{path}: has several frames; save each as an image of its own.")
    tiles: Any = getattr(image, "tile", ())
    how = tiles[0].args if tiles else ()
    how = how if isinstance(how, tuple) else (how,)
    # Of PNG and TIFF how values are stored, such as RGB;16B; of PPM the largest one.
    sixteen = image.format in ("PNG", "TIFF") and ";16" in str(how[:1])
    sixteen |= image.format == "PPM" and max((0, *how[1:2])) > 255
    if image.mode[0] == "I" or image.mode == "F":
        if not (image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))):
            raise InputError(f"{path}: has 32-bit or signed pixels, whose scale is unknown; save it with 8 or 16 bits.")
        if transparent:
            raise InputError(f"{path}: has 16 bits and transparency; save it without transparency.")
    elif sixteen:
        raise InputError(
            f"{path}: has 16 bits in each of several channels, of which 8 would be lost; save it with 8 bits, or all "
            "images as an array of uint16 in a .npz."
        )
    elif image.mode not in COLOURS:
        raise InputError(
            f"{path}: has colours of the kind {image.mode}, and how they look as RGB depends on who converts them; "
            "save it as RGB, as the target's training did."
        )


@contextmanager
def opened_image(file: BytesIO | BufferedReader, formats: tuple[str, ...], source: str) -> "Iterator[Image.Image]":
    """Opens an image with warnings and output suppressed, for the caller to decode, whose errors are an InputError,
    too. One of more than `MOST_PIXELS` is refused by its header.

    `formats` are the Pillow formats to try; for some others Pillow starts programs.
    """
    # Imported here because most runs decode no image.
    from PIL import Image

    if "TIFF" in formats:
        # Keeps libtiff from printing messages of its own; where it is no separate library, it has no handler.
        with suppress(AttributeError, OSError):
            ctypes.CDLL(Image.core.__file__).TIFFSetErrorHandler(None)
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
