"""Location: where users of Foursquare checked in, Bangkok; stands in for Purchase, which cannot be redistributed."""

import io
import tarfile
from pathlib import Path

import numpy as np

from jaxaudit.data.formats.parsing import open_bounded, parsing
from jaxaudit.data.labels import encode_labels
from jaxaudit.data.tables.table import Column, Table
from jaxaudit.errors import InputError

ARCHIVE = "dataset_location.tgz"
LARGEST_FILE = 2**26
_CATEGORIES = ("no", "yes")


def location(path: Path) -> Table:
    """The users in `dataset_location.tgz`: 5,010 records of 446 yes/no columns in 30 classes, `uint8`.

    A column says whether the user visited a certain region or type of place; the file does not name them, so they are
    `place 1` to `place 446`. The classes, `1` to `30`, are clusters of users. The archive is read as a stream: nothing
    is unpacked to disk, and nothing but its first file, a line a user with the label first, is used, up to 64 MiB.

    Source: Shokri, Stronati, Song, Shmatikov (2017), Membership inference attacks against machine learning models;
    github.com/privacytrustlab/datasets.
    """
    data = _first_file(path)
    with parsing(f"{path}: its first file is not a table of whole numbers", f"is it {ARCHIVE}?"):
        numbers = np.loadtxt(io.BytesIO(data), np.int32, delimiter=",", quotechar='"', ndmin=2, comments=None)
    bad = ~((numbers[:, 1:] == 0) | (numbers[:, 1:] == 1))
    if bad.any():
        record, index = np.argwhere(bad)[0]
        raise InputError(
            f"{path}: record {record + 1} is neither 0 nor 1 in column place {index + 1}; is it {ARCHIVE}?"
        )
    labels, class_names = encode_labels(numbers[:, 0], None, f"{path.name}, labels")
    columns = tuple(Column(f"place {index}", _CATEGORIES) for index in range(1, numbers.shape[1]))
    return Table(numbers[:, 1:].astype(np.uint8), columns, labels, class_names, "location")


def _first_file(path: Path) -> bytes:
    # "r|" reads only forward, so the stream is bounded whatever sizes the archive declares.
    with (
        open_bounded(path, LARGEST_FILE) as stream,
        parsing(f"{path}: cannot be read as a tar archive", "was the download interrupted?"),
        tarfile.open(fileobj=stream, mode="r|") as archive,
    ):
        for member in archive:
            # The holes of a sparse file count, too, although they are not in the stream.
            if member.size > LARGEST_FILE:
                raise InputError(f"{path}: claims more than {LARGEST_FILE >> 20} MiB; is it {ARCHIVE}?")
            opened = archive.extractfile(member) if member.isfile() else None
            if opened is not None:
                return opened.read()
    raise InputError(f"{path}: the archive has no file; is it {ARCHIVE}?")
