"""The data room: a name or a path -> `Examples`. The only door to disk and network; NumPy only, no JAX."""

from jaxaudit.data.classes import align_classes, align_target_data, drop_unshared
from jaxaudit.data.embedded import digits
from jaxaudit.data.examples import Examples, concatenate
from jaxaudit.data.files import load_path
from jaxaudit.data.images import is_image, prepare_images
from jaxaudit.data.printed import printed_digits
from jaxaudit.data.resolve import load, load_tfds

__all__ = [
    "Examples",
    "align_classes",
    "align_target_data",
    "concatenate",
    "digits",
    "drop_unshared",
    "is_image",
    "load",
    "load_path",
    "load_tfds",
    "prepare_images",
    "printed_digits",
]
