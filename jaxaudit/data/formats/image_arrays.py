"""Images as arrays, as known sets are published: IDX files (MNIST and its kin) and SVHN's MATLAB files."""

import math
import re
from pathlib import Path

import numpy as np

from jaxaudit.data.examples import Examples
from jaxaudit.data.formats.parsing import open_bounded, parsing
from jaxaudit.data.labels import encode_labels
from jaxaudit.data.memory import MAX_BYTES, refuse_larger
from jaxaudit.data.paths import entries, open_data
from jaxaudit.errors import InputError

IDX_NAME = re.compile(r"(?P<set>.*?)(?P<split>train|t10k|test)-(?P<role>images|labels)[-.]idx\d-ubyte(\.gz)?")
_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: Path, max_bytes: int = MAX_BYTES) -> np.ndarray:
    """The array in an IDX file, gzipped or not, whose length must be what its header says."""
    with open_bounded(path, max_bytes) as stream:
        data = stream.read()
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _TYPES or not 1 <= data[3] <= 8:
        raise InputError(f"{path}: is not an IDX file (it starts with {data[:4].hex() or 'nothing'}).")
    dtype, begin = np.dtype(_TYPES[data[2]]), 4 + 4 * data[3]
    shape = tuple(np.frombuffer(data[4:begin].ljust(begin - 4, b"\0"), ">u4").tolist())
    stated = begin + math.prod(shape) * dtype.itemsize
    if len(data) != stated:
        raise InputError(
            f"{path}: has {len(data)} bytes where its header states {stated}; was the download interrupted?"
        )
    # If one axis is 0 the other axes take no bytes, but could still be iterated over endlessly.
    if max(shape) > len(data):
        raise InputError(f"{path}: is not an IDX file (shape {shape}).")
    return np.frombuffer(data, dtype, offset=begin).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def read_idx_folder(folder: Path) -> tuple[dict[str, tuple[Path, np.ndarray]], tuple[str, ...]]:
    """A mapping from split (train, or test, also called t10k) to (image file, class indices); and all class names.

    Raises:
        InputError: when two files are of one split and kind, or a file of images has no file of labels beside it.
    """
    files: dict[tuple[str, str], Path] = {}
    for path in entries(folder):
        match = IDX_NAME.fullmatch(path.name)
        if match is None:
            continue
        split, role = match["split"].replace("t10k", "test"), match["role"]
        other = files.setdefault((split, role), path)
        if other.name.removesuffix(".gz") != path.name.removesuffix(".gz"):
            raise InputError(
                f"{folder}: {other.name} and {path.name} are both {split} {role}; keep one set per folder."
            )
    splits = [split for split in ("train", "test") if (split, "images") in files]
    if not splits:
        raise InputError(f"{folder}: there are IDX labels but no images (such as train-images-idx3-ubyte.gz).")
    labels = []
    for split in splits:
        images, beside = files[split, "images"].name, files.get((split, "labels"))
        if beside is None:
            labels_name = images.replace("images", "labels").replace("idx3", "idx1")
            raise InputError(f"{folder}: {images} has no labels beside it; put {labels_name} into the same folder.")
        labels.append(read_idx(beside))
        if labels[-1].ndim != 1:
            raise InputError(f"{beside}: has labels of shape {labels[-1].shape}; give one label per record.")
    codes, names = encode_labels(np.concatenate(labels), None, f"{folder.name}, labels")
    parts = np.split(codes, np.cumsum([len(part) for part in labels])[:-1])
    return {split: (files[split, "images"], part) for split, part in zip(splits, parts, strict=True)}, names


def load_mat(path: Path, max_bytes: int = MAX_BYTES) -> Examples:
    """The images `X` (`[h, w, channels, n]`) and labels `y` of a MATLAB file, as `uint8[n, h, w, channels]`.

    Labels that lie within 1..10 are SVHN's: 10 means the digit 0, and the classes are "0".."9". Images may take an
    eighth of `max_bytes`.

    Source: Netzer et al. (2011), Reading Digits in Natural Images with Unsupervised Feature Learning, format 2.
    """
    # Imported here because few runs read MATLAB's files.
    from scipy.io import loadmat, whosmat

    with (
        open_data(path) as file,
        parsing(f"{path}: is not a readable MATLAB file", "save it with save(..., '-v7') or as .npz."),
    ):
        _check_svhn({name: (kind, shape) for name, shape, kind in whosmat(file)}, path, max_bytes)
        file.seek(0)
        variables = loadmat(file, variable_names=("X", "y"))
    labels, source = variables["y"].ravel(), f"{path.name}, y"
    codes, names = encode_labels(labels, None, source)
    if labels.min() >= 1 and labels.max() <= 10:
        codes, names = (labels.astype(np.int64) % 10).astype(np.int32), tuple("0123456789")
    return Examples(np.ascontiguousarray(np.transpose(variables["X"], (3, 0, 1, 2))), codes, names, path.name)


def _check_svhn(stated: dict[str, tuple[str, tuple[int, ...]]], path: Path, max_bytes: int) -> None:
    kind, shape = stated.get("X", ("nothing", ()))
    if len(shape) != 4 or 0 in shape or kind != "uint8":
        raise InputError(f"{path}: X is {kind} of shape {shape}, not uint8 [height, width, channels, n], as SVHN's.")
    refuse_larger(path, 8 * math.prod(shape), max_bytes)
    kind, marks = stated.get("y", ("nothing", ()))
    no_numbers = kind in ("nothing", "cell", "struct", "object", "char", "sparse", "function", "opaque")
    if no_numbers or math.prod(marks) != shape[3]:
        raise InputError(
            f"{path}: y is {kind} of shape {marks}, but X has {shape[3]} images; give one label per image."
        )
