"""One image's bytes -> pixels, by Pillow, which is told which formats may be tried."""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from jaxaudit.data.parsing import parsing
from jaxaudit.errors import InputError

if TYPE_CHECKING:
    from PIL import Image


@contextmanager
def opened_image(file: IO[bytes], formats: Sequence[str], source: str) -> "Iterator[Image.Image]":
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

    with parsing(f"{source}: cannot be read as an image", "is it damaged?"), _quiet_tiff():
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
    return InputError(f"{source}: has more pixels than is safe to unpack; make it smaller first.")


@contextmanager
def _quiet_tiff() -> Iterator[None]:
    """Within it libtiff, with which Pillow unpacks TIFF, does not print what it finds to stderr by itself."""
    from PIL import Image

    handler = None
    with suppress(AttributeError, OSError):  # where it is no library of its own there is nothing to ask
        handler = ctypes.CDLL(Image.core.__file__).TIFFSetErrorHandler
        handler.restype, handler.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    before = handler(None) if handler is not None else None
    try:
        yield
    finally:
        if handler is not None:
            handler(before)
