"""Adult and Location, the tables of Long et al. (2017) and of the error rates, from their authors' files.

They lie in `$JAXAUDIT_DATA`: UCI's `adult/adult.data` and `adult/adult.test`, gzipped or not, and
`location/dataset_location.tgz` of github.com/privacytrustlab/datasets.
"""

import gzip
import io
import os
import tarfile
from pathlib import Path

import numpy as np

from jaxaudit.data import MISSING, Column, Table, join_tables

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
WEIGHT = "fnlwgt"


def paper_table(name: str) -> Table:
    """The table of this name: `adult` (32,561 people), `adult@all` (48,842), or `location` (5,010)."""
    if name == "location":
        return location()
    parts = [adult("adult.data"), *([adult("adult.test")] if name == "adult@all" else [])]
    return join_tables(parts, name)


def adult(file: str) -> Table:
    """The people of one of UCI's two files.

    13 columns: the paper speaks of 14 attributes and leaves out the weight `fnlwgt`, which is one of UCI's 14. Five are
    numbers, eight categories, those of `adult.names`, so that both files have the same. `?` is the category `MISSING`.

    Source: B. Becker, R. Kohavi (1996), Adult, UCI, CC BY 4.0.
    """
    lines = [line for line in content("adult", file).decode().splitlines() if line.strip()]
    rows = [[cell.strip() for cell in line.split(",")] for line in lines if not line.startswith("|")]
    cells = dict(zip([*ATTRIBUTES, "income"], zip(*rows, strict=True), strict=True))
    columns, arrays = [], []
    for name, words in ATTRIBUTES.items():
        if name == WEIGHT:
            continue
        categories = words.split()
        columns.append(Column(name, tuple(MISSING if word == "?" else word for word in categories)))
        numbers = map(categories.index, cells[name]) if categories else map(int, cells[name])
        arrays.append(np.array([*numbers], np.int32))
    labels = [CLASSES.index(cell.rstrip(" .")) for cell in cells["income"]]
    values = np.stack(arrays, axis=1).astype(np.float32)
    return Table(values, tuple(columns), np.array(labels, np.int32), CLASSES, file)


def location() -> Table:
    """The users of Location: 446 yes/no columns, whether the user was at a place, and 30 clusters of users as classes.

    Source: Shokri, Stronati, Song, Shmatikov (2017), Membership inference attacks against machine learning models.
    """
    with tarfile.open(fileobj=io.BytesIO(content("location", "dataset_location.tgz"))) as archive:
        member = next(filter(tarfile.TarInfo.isfile, archive))
        file = archive.extractfile(member)
        assert file is not None
        numbers = np.loadtxt(file, np.int32, delimiter=",", quotechar='"', ndmin=2, comments=None)
    numbered, labels = np.unique(numbers[:, 0], return_inverse=True)
    columns = tuple(Column(f"place {index}", ("no", "yes")) for index in range(1, numbers.shape[1]))
    names = tuple(map(str, numbered.tolist()))
    return Table(numbers[:, 1:].astype(np.uint8), columns, labels.astype(np.int32), names, "location")


def content(name: str, file: str) -> bytes:
    """The bytes of a file of a set, unpacked if it is gzipped."""
    folder = Path(os.environ["JAXAUDIT_DATA"]) / name
    path = next(path for path in (folder / f"{file}.gz", folder / file) if path.exists())
    packed = path.read_bytes()
    return gzip.decompress(packed) if packed[:2] == b"\x1f\x8b" else packed
