"""SVHN's cropped digits as MATLAB files (train_32x32.mat, test_32x32.mat)."""

import math
from pathlib import Path

import numpy as np

from jaxaudit.data.examples import Examples
from jaxaudit.data.formats.parsing import parsing
from jaxaudit.data.labels import encode_labels
from jaxaudit.data.memory import MAX_BYTES
from jaxaudit.data.paths import open_data
from jaxaudit.errors import InputError


def load_mat(path: Path, max_bytes: int = MAX_BYTES) -> Examples:
    """The images `X` (`[h, w, channels, n]`) and labels `y` of a MATLAB file, as `uint8[n, h, w, channels]`.

    Labels that lie within 1..10 are SVHN's: 10 means the digit 0, and the classes are "0".."9".

    Args:
        path: the file.
        max_bytes: refuse images that take more than an eighth of this.

    Raises:
        InputError: when the file is damaged or of MATLAB's version 7.3, or X and y are not as above.

    Source: Netzer et al. (2011), Reading Digits in Natural Images with Unsupervised Feature Learning, format
        2.
    """
    # Imported here because few runs read MATLAB's files.
    from scipy.io import loadmat, whosmat

    with (
        open_data(path) as file,
        parsing(f"{path}: is not a readable MATLAB file", "save it with save(..., '-v7') or as .npz."),
    ):
        _check({name: (kind, shape) for name, shape, kind in whosmat(file)}, path, max_bytes)
        file.seek(0)
        found = loadmat(file, variable_names=("X", "y"))
    labels, source = found["y"].ravel(), f"{path.name}, y"
    codes, names = encode_labels(labels, None, source)
    if labels.min() >= 1 and labels.max() <= 10:
        codes, names = (labels.astype(np.int64) % 10).astype(np.int32), tuple("0123456789")
    return Examples(np.ascontiguousarray(np.transpose(found["X"], (3, 0, 1, 2))), codes, names, path.name)


def _check(stated: dict[str, tuple[str, tuple[int, ...]]], path: Path, max_bytes: int) -> None:
    """Refuses what is no such set before its numbers are read."""
    for name in ("X", "y"):
        if name not in stated:
            raise InputError(
                f"{path}: has no variable {name}; SVHN's files have X [32, 32, 3, n] and y [n, 1], this "
                f"one has {', '.join(list(stated)[:10]) or 'nothing'}."
            )
    kind, shape = stated["X"]
    if len(shape) != 4 or 0 in shape or kind != "uint8":
        raise InputError(f"{path}: X is {kind} of shape {shape}, not uint8 [height, width, channels, n].")
    if 8 * math.prod(shape) > max_bytes:
        raise InputError(f"{path}: X of shape {shape} is larger than {max_bytes / 2**30:.1f} GiB; split it.")
    kind, marks = stated["y"]
    if math.prod(marks) != shape[3] or kind in ("cell", "struct", "object", "char", "sparse", "function", "opaque"):
        raise InputError(
            f"{path}: y is {kind} of shape {marks}, but X has {shape[3]} images; give one label per image."
        )
