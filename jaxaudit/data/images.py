"""The paper's image preprocessing as one explicit step."""

from jaxaudit.data.examples import Examples


def is_image(examples: Examples) -> bool:
    """True when the records have the shape of images: [h, w] or [h, w, c] with 1, 3 or 4 channels."""
    raise NotImplementedError


def prepare_images(examples: Examples, size: tuple[int, int] = (28, 28), gray: bool = True) -> Examples:
    """Images as `float32[n, height, width, channels]` in [0, 1]."""
    raise NotImplementedError
