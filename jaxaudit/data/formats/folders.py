"""A folder of class-named folders of images, each decoded by Pillow."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

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
SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}


def load_image_folders(root: Path, size: tuple[int, int] | None = None, gray: bool = True) -> Examples:
    """The images in `root/CLASS/*`, as `uint8[n, h, w]` if all are gray, else as `uint8[n, h, w, 3]`.

    Classes are the folders in sorted order, and the images of a class the files in sorted order. Transparency is
    ignored, 16-bit gray is reduced to 8 bits, and of an animation the first frame is used. Hidden files and files
    without an image suffix are skipped. `size` and `gray` are as for `stack_images`.
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
    from PIL import Image

    with open_data(path) as file, opened_image(file, FORMATS, str(path)) as image:
        mode = image.mode
        if mode in ("F", "I"):
            raise InputError(f"{path}: has 32-bit pixels, whose scale is unknown; save it with 8 or 16 bits.")
        if mode.startswith("I;16"):
            levels = np.asarray(image).astype(np.uint32)
            image = Image.fromarray(((levels * 255 + 32767) // 65535).astype(np.uint8))
        gray = mode in ("1", "L", "LA", "La") or mode.startswith("I;16")
        return np.asarray(image.convert("L" if gray else "RGB"))


@contextmanager
def opened_image(file: BytesIO | BufferedReader, formats: tuple[str, ...], source: str) -> "Iterator[Image.Image]":
    """Opens an image with warnings and output suppressed, for the caller to decode, whose errors are an InputError,
    too.

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
        yield image
