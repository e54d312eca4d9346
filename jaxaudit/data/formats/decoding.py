"""One image's bytes -> pixels, by Pillow, which is told which formats may be tried."""

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from io import BufferedReader, BytesIO
from typing import TYPE_CHECKING

from jaxaudit.data.formats.bounded import MOST_DEFLATED
from jaxaudit.data.formats.parsing import parsing
from jaxaudit.errors import InputError

if TYPE_CHECKING:
    from PIL import Image


@contextmanager
def opened_image(file: BytesIO | BufferedReader, formats: tuple[str, ...], source: str) -> "Iterator[Image.Image]":
    """An image to take pixels from, quietly, whatever its bytes are.

    Args:
        formats: Pillow's names of those that may be tried: for some others it starts programs.
        source: what to call the image in messages.

    Raises:
        InputError: when it is damaged, or claims more pixels than Pillow holds for safe or its bytes can hold; also for
            what the caller's decoding runs into.
    """
    # Imported here because most runs decode no image.
    from PIL import Image

    quiet = _quiet_tiff() if "TIFF" in formats else nullcontext()
    with parsing(f"{source}: cannot be read as an image", "is it damaged?"), quiet:
        size, most = file.seek(0, os.SEEK_END), Image.MAX_IMAGE_PIXELS
        file.seek(0)
        try:
            image = Image.open(file, formats=formats)
        except Image.DecompressionBombError:
            file.seek(0)
            with _without_limit():
                image = Image.open(file, formats=formats)
        with image:
            claimed = f"{source}: claims {image.width:,} x {image.height:,} pixels"
            # Between one and two times its limit Pillow only warns.
            if most is not None and image.width * image.height > most:
                raise InputError(f"{claimed}, more than the limit of {most:,}; make it smaller first.")
            # A pixel takes a bit at least before it is packed.
            if image.format == "PNG" and image.width * image.height > 8 * MOST_DEFLATED * size:
                raise InputError(f"{claimed}, more than its {size:,} bytes can hold; is it damaged?")
            try:
                yield image
            except MemoryError as error:
                raise InputError(f"{claimed}, more than there is memory for; make it smaller first.") from error


@contextmanager
def _without_limit() -> Iterator[None]:
    """Within it Pillow opens any image, to read its size; nothing is decoded."""
    from PIL import Image

    before = Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = None
    try:
        yield
    finally:
        Image.MAX_IMAGE_PIXELS = before


@contextmanager
def _quiet_tiff() -> Iterator[None]:
    """Within it libtiff, with which Pillow unpacks TIFF, does not print what it finds to stderr by itself."""
    set_handler = _tiff_error_handler()
    before = set_handler(None)
    try:
        yield
    finally:
        set_handler(before)


@cache
def _tiff_error_handler() -> Callable[[int | None], int | None]:
    """libtiff's function that takes another handler of errors and gives back the one before."""
    from PIL import Image

    try:
        function = ctypes.CDLL(Image.core.__file__).TIFFSetErrorHandler
    except (AttributeError, OSError):  # where it is no library of its own there is nobody to ask
        return lambda _: None
    function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    return function
