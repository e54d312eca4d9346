"""One image's bytes -> pixels, by Pillow, which is told which formats may be tried."""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from io import BufferedReader, BytesIO
from typing import TYPE_CHECKING

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
        InputError: when it is damaged, or has more pixels than Pillow holds for safe; also for what the caller's
            decoding runs into.
    """
    # Imported here because most runs decode no image.
    from PIL import Image

    quiet = _quiet_tiff() if "TIFF" in formats else nullcontext()
    with parsing(f"{source}: cannot be read as an image", "is it damaged?"), quiet:
        try:
            image = Image.open(file, formats=formats)
        except Image.DecompressionBombError as error:
            raise _too_many(source) from error
        with image:
            # Between one and two times its limit Pillow only warns.
            if image.width * image.height > (Image.MAX_IMAGE_PIXELS or float("inf")):
                raise _too_many(source)
            yield image


def _too_many(source: str) -> InputError:
    return InputError(f"{source}: has more pixels than can be decoded safely; make it smaller first.")


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
