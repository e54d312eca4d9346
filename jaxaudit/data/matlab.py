"""SVHN's cropped digits as MATLAB files (train_32x32.mat, test_32x32.mat)."""

from pathlib import Path

import numpy as np

from jaxaudit.data.arrays import MAX_BYTES
from jaxaudit.data.examples import Examples
from jaxaudit.data.labels import encode_labels
from jaxaudit.errors import InputError

_NESTED = ("cell", "struct", "object", "function", "opaque", "sparse", "unknown")


def load_mat(path: Path, max_bytes: int = MAX_BYTES) -> Examples:
    """The images `X` (`[h, w, channels, n]`) and labels `y` of a MATLAB file, as `uint8[n, h, w, channels]`.

    Labels that lie within 1..10 are SVHN's: 10 means the digit 0, and the classes are "0".."9".

    Raises:
        InputError: when the file is damaged or of MATLAB's version 7.3, or X and y are not as above.

    Source: Netzer et al. (2011), Reading Digits in Natural Images with Unsupervised Feature Learning, format
        2.
    """
    # Imported here because SciPy's readers take a tenth of a second.
    import scipy.io

    if _head(path).startswith(b"MATLAB 7.3"):
        raise InputError(
            f"{path}: is a MATLAB 7.3 (HDF5) file, which is not read; save it with save(..., '-v7') or as .npz."
        )
    try:
        shapes = {name: (shape, kind) for name, shape, kind in scipy.io.whosmat(path)}
        for name in ("X", "y"):
            if name not in shapes:
                raise InputError(
                    f"{path}: has no variable {name}; SVHN's files hold X [32, 32, 3, n] and y [n, 1], this "
                    f"one {', '.join(shapes) or 'nothing'}."
                )
        (extents, kind) = shapes["X"]
        if len(extents) != 4 or kind != "uint8":
            raise InputError(f"{path}: X is {kind} of shape {extents}, not uint8 [height, width, channels, n].")
        # Images of no pixels could still have any number of labels, of 8 bytes each.
        if max(int(np.prod(extents, dtype=object)), 8 * extents[3]) > max_bytes:
            raise InputError(f"{path}: X of shape {extents} is larger than {max_bytes / 2**30:.1f} GiB; split it.")
        marks, kind = shapes["y"]
        if int(np.prod(marks, dtype=object)) != extents[3] or kind in _NESTED:
            raise InputError(
                f"{path}: y is {kind} of shape {marks}, but X holds {extents[3]} images; give one label for each."
            )
        loaded = scipy.io.loadmat(path, variable_names=["X", "y"])
    except InputError:
        raise
    # SciPy's reader meets damaged bytes with whatever its parts raise.
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise InputError(f"{path}: is not a readable MATLAB file ({reason}).") from error
    labels = np.asarray(loaded["y"]).ravel()
    source = f"{path.name}, y"
    if labels.dtype.kind in "uif" and labels.size and labels.min() >= 1 and labels.max() <= 10:
        codes, _ = encode_labels(labels, None, source)
        codes, names = (labels.astype(np.int64) % 10).astype(np.int32), tuple("0123456789")
    else:
        codes, names = encode_labels(labels, None, source)
    images = np.ascontiguousarray(np.transpose(loaded["X"], (3, 0, 1, 2)))
    return Examples(images, codes, names, path.name)


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(16)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error
