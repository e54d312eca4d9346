"""Tables of the papers, as they are published: UCI Adult, the American Community Survey, Location.

Location, where users of Foursquare checked in (Bangkok), stands in for the papers' Purchase, which nobody may hand on.
"""

import csv
import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from jaxaudit.data.formats.parsing import open_bounded, parsing
from jaxaudit.data.formats.text_table import FIRST_LINE
from jaxaudit.data.labels import encode_labels
from jaxaudit.data.memory import MAX_BYTES, MOST_COLUMNS
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
    indices = {text: index for index, text in enumerate(categories)}
    codes = np.array([indices.get(cell, -1) for cell in cells], np.int32)
    if (codes < 0).any():
        row = int(np.argmax(codes < 0))
        raise InputError(
            f"{path}: record {row + 1} has a text for {name} that is not in adult.names; was the file changed? "
            "A table of your own can be read as CSV with a header line."
        )
    return codes


RACES = (
    "White",
    "Black or African American",
    "American Indian",
    "Alaska Native",
    "American Indian or Alaska Native, tribes specified or not, no other races",
    "Asian",
    "Native Hawaiian or Other Pacific Islander",
    "Some Other Race",
    "Two or More Races",
)
# Codes count from 1.
_ALONE = ("Widowed", "Divorced", "Separated", "Never married")
MARITAL = {
    "MAR": ("Married", *_ALONE),
    "MSP": ("Married, spouse present", "Married, spouse absent", *_ALONE),
}
MINIMUM_AGE = 15
SEXES = ("Male", "Female")
_NOT_APPLICABLE = ["", "N", "NA", "b", "bb", "bbbbbbb"]


def census(paths: Sequence[Path], name: str) -> Table:
    """The persons in ACS person files (`.csv`, gzipped or not), one after the other.

    Columns: `age` (AGEP, a number: `recode(table, categorical=["age"])` makes every year a category), `marital-status`
    (MAR, or MSP where a file has no MAR), `race` (RAC1P), `sex` (SEX), with the categories of the Bureau's dictionary
    whether they occur or not. Classes: PINCP, the person's income in dollars, is over 50,000 or not. Incomes are not
    adjusted for inflation within the survey's year (ADJINC).

    Persons to whom income does not apply (empty or `N`: all below 15) are left out; the table's notes say how many, and
    how many of the others are below 15. The paper speaks of "all 1.6 million records" of 2013 and not of whom that
    leaves out; all who have an income figure is this function's choice.

    Source: U.S. Census Bureau, ACS PUMS data dictionary, 2018; NIST, Diverse Community Data Excerpts. Used in Long et
    al. (2017), section 8.
    """
    headers = {path: _header(path) for path in paths}
    marital = next((key for key in MARITAL if all(key in header for header in headers.values())), "MAR or MSP")
    for path, header in headers.items():
        lacking = [column for column in ("AGEP", "RAC1P", "SEX", "PINCP", marital) if column not in header]
        if lacking:
            raise InputError(
                f"{path}: has no column {', '.join(lacking)}, or not that of the other files; is it a file of ACS "
                "*person* records with a header line?"
            )
    parts, labels, without, young = [], [], 0, 0
    limits = (None, len(MARITAL[marital]), len(RACES), len(SEXES))
    for path, header in headers.items():
        needed_columns = [header[column] for column in ("AGEP", marital, "RAC1P", "SEX", "PINCP")]
        cells = _cells(path, needed_columns)
        has_income = ~np.isnan(cells[:, 4])
        without += int((~has_income).sum())
        old_enough = ~(cells[:, 0] < MINIMUM_AGE)
        young += int((has_income & ~old_enough).sum())
        kept = cells[has_income & old_enough]
        for index, limit in enumerate(limits):
            _check(kept[:, index], limit, needed_columns[index], path)
        parts.append((kept[:, :4] - [0, 1, 1, 1]).astype(np.float32))
        labels.append((kept[:, 4] > 50_000).astype(np.int32))
    values = np.concatenate(parts)
    notes = []
    if without:
        persons = len(values) + without + young
        notes.append(f"{without} of {persons} persons are left out because income does not apply to them")
    if young:
        notes.append(f"{young} persons with an income are left out: they are younger than {MINIMUM_AGE}")
    if len(values) == 0:
        raise InputError(f"{name}: no person is left ({'; '.join(notes) or 'the files have no records'}).")
    kinds = {"age": (), "marital-status": MARITAL[marital], "race": RACES, "sex": SEXES}
    columns = tuple(Column(*name_and_kind) for name_and_kind in kinds.items())
    return Table(values, columns, np.concatenate(labels), CLASSES, name, tuple(notes))


def _header(path: Path) -> dict[str, str]:
    """The columns of a file by their names in capitals; a parser can take seconds, or crash, on too many."""
    with open_bounded(path, None) as stream:
        line = stream.readline(FIRST_LINE)
    if len(line) == FIRST_LINE or line.count(b",") >= MOST_COLUMNS:
        raise InputError(f"{path}: its first line has more than {MOST_COLUMNS:,} columns or 1 MiB; is it a table?")
    with parsing(f"{path}: its first line is not a CSV header", "is it a file of ACS person records?"):
        names = next(csv.reader([line.decode("utf-8-sig")]), [])
    return {name.strip().upper(): name for name in names}


def _cells(path: Path, needed_columns: Sequence[str]) -> np.ndarray:
    """`float64[n, wanted]`: these columns, NaN for empty cells; some lines are read at a time."""
    convert = arrow_csv.ConvertOptions(
        column_types=dict.fromkeys(needed_columns, pa.float64()),
        include_columns=list(needed_columns),
        null_values=_NOT_APPLICABLE,
    )
    read = arrow_csv.ReadOptions(use_threads=False, block_size=2**24)
    with (
        open_bounded(path, MAX_BYTES) as stream,
        parsing(f"{path}: cannot be read as ACS person records", "is the file whole?"),
    ):
        batches = arrow_csv.open_csv(stream, read, convert_options=convert)
        blocks = [np.stack([cells.to_numpy(zero_copy_only=False) for cells in b.columns], axis=1) for b in batches]
    return np.concatenate([np.empty((0, len(needed_columns))), *blocks])


def _check(cells: np.ndarray, codes: int | None, column: str, path: Path) -> None:
    bad = ~((cells >= 0) & (cells < 200)) if codes is None else ~((cells >= 1) & (cells <= codes))
    bad |= cells != np.rint(cells)
    if bad.any():
        raise InputError(
            f"{path}: {int(bad.sum())} persons with an income have a {column} that is not in the ACS dictionary; "
            "is it a file of ACS person records?"
        )


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
        member = next(filter(tarfile.TarInfo.isfile, archive), None)
        opened = None if member is None else archive.extractfile(member)
        # The holes of a sparse file count, too, although they are not in the stream.
        if member is None or opened is None or member.size > LARGEST_FILE:
            raise InputError(f"{path}: has no file of at most {LARGEST_FILE >> 20} MiB; is it {ARCHIVE}?")
        return opened.read()
