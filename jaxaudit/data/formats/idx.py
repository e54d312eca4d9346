"""IDX files, the format of MNIST, Fashion-MNIST, EMNIST and their kin."""

import math
import re
import struct
from pathlib import Path

import numpy as np

from jaxaudit.data.formats.bounded import MOST_DEFLATED, open_bounded, read_exactly
from jaxaudit.data.formats.parsing import parsing
from jaxaudit.data.labels import encode_labels
from jaxaudit.data.memory import MAX_BYTES
from jaxaudit.data.paths import entries
from jaxaudit.errors import InputError

FILE_NAME = re.compile(r"(?P<set>.*?)(?P<split>train|t10k|test)-(?P<role>images|labels)[-.]idx\d-ubyte(\.gz)?")
_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: Path, max_bytes: int = MAX_BYTES) -> np.ndarray:
    """The array in an IDX file, gzipped or not.

    The sizes in the header are held against `max_bytes` and the file's length before anything is allocated, and no
    more than they say is ever unpacked.

    Raises:
        InputError: when it is not an IDX file, or is shorter or longer than its header says.
    """
    with (
        open_bounded(path, None) as stream,
        parsing(f"{path}: cannot be read as an IDX file", "was the download interrupted?"),
    ):
        magic = stream.read(4)
        if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _TYPES or not 1 <= magic[3] <= 8:
            raise InputError(f"{path}: is not an IDX file (it starts with {magic.hex() or 'nothing'}).")
        extents = stream.read(4 * magic[3])
        if len(extents) < 4 * magic[3]:
            raise InputError(f"{path}: is cut short within its header; was the download interrupted?")
        shape = struct.unpack(f">{magic[3]}I", extents)
        dtype = np.dtype(_TYPES[magic[2]])
        size = math.prod(shape) * dtype.itemsize
        if size > max_bytes:
            raise InputError(
                f"{path}: its header states {size / 2**30:.1f} GiB, more than the "
                f"allowed {max_bytes / 2**30:.1f} GiB; is it an IDX file?"
            )
        cut = InputError(
            f"{path}: is cut short (its header states {size} bytes of data); was the download interrupted?"
        )
        # Where one axis is 0 the others take no bytes, and could still be walked along for ever.
        if max(size, *shape) > MOST_DEFLATED * path.stat().st_size:
            raise cut
        try:
            data = read_exactly(stream, size)
        except EOFError:
            raise cut from None
        if stream.read(1):
            raise InputError(
                f"{path}: is longer than its header states ({size} bytes of data); was the download interrupted?"
            )
    return data.view(dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def idx_files(folder: Path) -> dict[tuple[str, str], Path]:
    """(split, role) -> file, with splits train and test (also called t10k) and roles images and labels.

    Raises:
        InputError: when two files of the folder claim the same place.
    """
    found: dict[tuple[str, str], Path] = {}
    for path in entries(folder):
        match = FILE_NAME.fullmatch(path.name)
        if match is None:
            continue
        place = ("train" if match["split"] == "train" else "test", match["role"])
        other = found.setdefault(place, path)
        if other is not path and other.name.removesuffix(".gz") != path.name.removesuffix(".gz"):
            raise InputError(
                f"{folder}: {other.name} and {path.name} are both {place[0]} {place[1]}; keep one set per folder."
            )
    return found


def read_idx_folder(folder: Path) -> tuple[dict[str, tuple[Path, np.ndarray]], tuple[str, ...]]:
    """split -> (image file, class indices), and the class names, numbered over the labels of all splits together.

    Raises:
        InputError: when a file of images has no file of labels beside it, or either cannot be read.
    """
    files = idx_files(folder)
    splits = [split for split in ("train", "test") if (split, "images") in files]
    if not splits:
        raise InputError(f"{folder}: there are IDX labels but no images (such as train-images-idx3-ubyte.gz).")
    for split in splits:
        if (split, "labels") not in files:
            images = files[split, "images"].name
            raise InputError(
                f"{folder}: {images} has no labels beside it; put "
                f"{images.replace('images', 'labels').replace('idx3', 'idx1')} into the same folder."
            )
    labels = [read_idx(files[split, "labels"]) for split in splits]
    for split, part in zip(splits, labels, strict=True):
        if part.ndim != 1:
            raise InputError(f"{files[split, 'labels']}: has labels of shape {part.shape}; give one label per record.")
    codes, names = encode_labels(np.concatenate(labels), None, f"{folder.name}, labels")
    parts = np.split(codes, np.cumsum([len(part) for part in labels])[:-1])
    return {split: (files[split, "images"], part) for split, part in zip(splits, parts, strict=True)}, names
