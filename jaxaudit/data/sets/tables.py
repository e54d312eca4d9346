"""Tables of the papers, as they are published: UCI Adult and Location.

Location, where users of Foursquare checked in (Bangkok), stands in for the papers' Purchase, which nobody may hand on.
"""

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxaudit.data.formats.parsing import open_bounded, parsing
from jaxaudit.data.labels import encode_labels
from jaxaudit.data.tables.table import MISSING, Column, Table
from jaxaudit.errors import InputError

# The attributes in the files' order with their categories as adult.names lists them; a number has none.
ATTRIBUTES: dict[str, str] = {
    "age": "",
    "workclass": "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked ?",
    "fnlwgt": "",
    "education": "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th Masters "
    "1st-4th 10th Doctorate 5th-6th Preschool",
    "education-num": "",
    "marital-status": "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent "
    "Married-AF-spouse",
    "occupation": "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners "
    "Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv Armed-Forces ?",
    "relationship": "Wife Own-child Husband Not-in-family Other-relative Unmarried",
    "race": "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black",
    "sex": "Female Male",
    "capital-gain": "",
    "capital-loss": "",
    "hours-per-week": "",
    "native-country": "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) India "
    "Japan Greece South China Cuba Iran Honduras Philippines Italy Poland Jamaica Vietnam Mexico Portugal Ireland "
    "France Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary Guatemala Nicaragua Scotland Thailand "
    "Yugoslavia El-Salvador Trinadad&Tobago Peru Hong Holand-Netherlands ?",
}
CLASSES = ("<=50K", ">50K")
LARGEST_FILE = 2**26
_WEIGHT = "fnlwgt"


def adult(path: Path) -> Table:
    """The people of `adult.data` (32,561) or `adult.test` (16,281), gzipped or not.

    13 columns: the paper speaks of 14 attributes and leaves out the weight `fnlwgt`, which is one of UCI's 14. Five are
    numbers, eight categories, those of `adult.names`, so that both splits have the same. `?` is the category `MISSING`;
    rows with it are kept. The comment line of the test file is skipped, the full stop after its labels removed.

    Source: B. Becker, R. Kohavi (1996), Adult, UCI, CC BY 4.0. Used in Long et al. (2017), section 5.1, whose 48,842
    records are both splits.
    """
    names = [*ATTRIBUTES, "income"]
    with open_bounded(path, LARGEST_FILE) as stream, parsing(f"{path}: is not UCI's text", "download it again."):
        lines = [line for line in stream.read().decode().splitlines() if line.strip()]
    rows = [[cell.strip() for cell in line.split(",")] for line in lines if not line.startswith("|")]
    if not rows or any(len(row) != len(names) for row in rows):
        raise InputError(f"{path}: is not UCI's {path.name}: {len(names)} values in every line; download it again.")
    cells = dict(zip(names, zip(*rows, strict=True), strict=True))
    columns, arrays = [], []
    for name, categories in ATTRIBUTES.items():
        if name == _WEIGHT:
            continue
        if not categories:
            columns.append(Column(name))
            with parsing(f"{path}: {name} has a value that is not a whole number", "was the file changed?"):
                arrays.append(np.array(cells[name]).astype(np.int32))
        else:
            categories_of_column = categories.split()
            columns.append(
                Column(name, tuple(MISSING if category == "?" else category for category in categories_of_column))
            )
            arrays.append(_codes(cells[name], categories_of_column, name, path))
    labels = _codes([cell.rstrip(" .") for cell in cells["income"]], CLASSES, "income", path)
    return Table(np.stack(arrays, axis=1).astype(np.float32), tuple(columns), labels, CLASSES, path.name)


def _codes(cells: Sequence[str], categories: Sequence[str], name: str, path: Path) -> np.ndarray:
    if not {*cells} <= {*categories}:
        raise InputError(f"{path}: {name} has a text that is not in adult.names; was the file changed?")
    indices = {text: index for index, text in enumerate(categories)}
    return np.array([indices[cell] for cell in cells], np.int32)


ARCHIVE = "dataset_location.tgz"
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
    if not np.isin(numbers[:, 1:], (0, 1)).all():
        raise InputError(f"{path}: a column of a place has another number than 0 and 1; is it {ARCHIVE}?")
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
        member = next(filter(tarfile.TarInfo.isfile, archive), None)
        opened = None if member is None else archive.extractfile(member)
        # The holes of a sparse file count, too, although they are not in the stream.
        if member is None or opened is None or member.size > LARGEST_FILE:
            raise InputError(f"{path}: has no file of at most {LARGEST_FILE >> 20} MiB; is it {ARCHIVE}?")
        return opened.read()
