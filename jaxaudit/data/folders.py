"""A folder of class-named folders of images."""

import warnings
from pathlib import Path

import numpy as np

from jaxaudit.data.arrays import MAX_BYTES
from jaxaudit.data.examples import Examples
from jaxaudit.errors import InputError

# Only what the suffixes promise: Pillow would otherwise start Ghostscript for an EPS file named a.png.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}


def load_image_folders(root: Path, size: tuple[int, int] | None = None, max_bytes: int = MAX_BYTES) -> Examples:
    """The images in `root/CLASS/*`, as `uint8[n, h, w]` if all are gray, else as `uint8[n, h, w, 3]`.

    Classes are the folders in sorted order, and the images of a class the files in sorted order. Transparency
    is ignored, 16-bit gray is brought to 8 bits, and of an animation the first frame is taken. Hidden files
    and files that are no images (by suffix) are passed over.

    Args:
        size: (height, width) to resize every image to; None demands that all have one size.
        max_bytes: refuse more image data than this.

    Raises:
        InputError: when a class folder holds no images, an image cannot be read, is absurdly large or of
            another shape than the first.
    """
    # Imported here because most runs decode no image.
    from PIL import Image

    files, labels, names = _list_images(root)
    images: np.ndarray | None = None
    with warnings.catch_warnings():
        # Pillow only warns between one and two times its limit on pixels.
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        for place, path in enumerate(files):
            pixels = _decode(path, size)
            if images is None:
                images = _room(root, len(files), pixels, max_bytes)
            if pixels.shape[:2] != images.shape[1:3]:
                raise InputError(
                    f"{path}: is {pixels.shape[0]}x{pixels.shape[1]} pixels but {files[0].name} is "
                    f"{images.shape[1]}x{images.shape[2]}; bring all images to one size (--image-size)."
                )
            if pixels.ndim == 3 and images.ndim == 3:
                # Gray so far, and here is the first in colour.
                images = np.repeat(images[..., None], 3, axis=3)
            images[place] = pixels[..., None] if pixels.ndim == 2 and images.ndim == 4 else pixels
    assert images is not None
    return Examples(images, labels, names, root.name)


def _list_images(root: Path) -> tuple[list[Path], np.ndarray, tuple[str, ...]]:
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    files, labels = [], []
    for label, folder in enumerate(folders):
        entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
        held = [path for path in entries if path.suffix.lower() in SUFFIXES and path.is_file()]
        if not held:
            raise InputError(
                f"{folder}: holds no images ({', '.join(sorted(SUFFIXES))}); every folder in {root.name} is "
                "a class and holds its images directly."
            )
        nested = [path for path in entries if path.is_dir()]
        if nested:
            raise InputError(f"{nested[0]}: is a folder within a class folder; put the images of a class into one.")
        files += held
        labels += [label] * len(held)
    return files, np.array(labels, np.int32), tuple(folder.name for folder in folders)


def _room(root: Path, count: int, pixels: np.ndarray, max_bytes: int) -> np.ndarray:
    size = count * pixels.nbytes * (1 if pixels.ndim == 3 else 3)
    if size > max_bytes:
        raise InputError(
            f"{root}: {count} images of {pixels.shape[0]}x{pixels.shape[1]} need up to {size / 2**30:.1f} "
            f"GiB, more than the {max_bytes / 2**30:.1f} GiB that are allowed; make them smaller "
            "(--image-size)."
        )
    return np.empty((count, *pixels.shape), np.uint8)


def _decode(path: Path, size: tuple[int, int] | None) -> np.ndarray:
    from PIL import Image

    try:
        with Image.open(path, formats=FORMATS) as image:
            mode = image.mode
            if mode in ("F", "I"):
                raise InputError(f"{path}: has 32-bit pixels, whose scale is unknown; save it with 8 or 16 bits.")
            if mode.startswith("I;16"):
                levels = np.asarray(image).astype(np.uint32)
                image = Image.fromarray(((levels * 255 + 32767) // 65535).astype(np.uint8))
            gray = mode in ("1", "L", "LA", "La") or mode.startswith("I;16")
            image = image.convert("L" if gray else "RGB")
            if size is not None and image.size != (size[1], size[0]):
                image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
            return np.asarray(image)
    except InputError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise InputError(f"{path}: has more pixels than is safe to unpack ({error}).") from error
    # Pillow's plugins meet damaged bytes with whatever their parsers raise.
    except Exception as error:
        raise InputError(f"{path}: cannot be read as an image ({error}); is it damaged?") from error
