"""Tables of the papers, as they are published: UCI Adult, the American Community Survey, Purchase, Location.

Purchase is Kaggle's "Acquire valued shoppers challenge", from the raw transactions. Location stands in for it, which
cannot be redistributed: where users of Foursquare checked in, Bangkok.
"""

import csv
import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from jaxaudit.data.cache import cached_arrays
from jaxaudit.data.formats.parsing import open_bounded, parsing
from jaxaudit.data.formats.text_table import csv_batches, header_line
from jaxaudit.data.labels import encode_labels
from jaxaudit.data.memory import MAX_BYTES
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
    line = header_line(path)
    with parsing(f"{path}: its first line is not a CSV header", "is it a file of ACS person records?"):
        names = next(csv.reader([line.decode("utf-8-sig")]), [])
    return {name.strip().upper(): name for name in names}


def _cells(path: Path, needed_columns: Sequence[str]) -> np.ndarray:
    """`float64[n, wanted]`: these columns, NaN for empty cells."""
    batches = csv_batches(
        path,
        dict.fromkeys(needed_columns, pa.float64()),
        f"{path}: cannot be read as ACS person records",
        "is the file whole?",
        max_bytes=MAX_BYTES,
        null_values=_NOT_APPLICABLE,
    )
    read = [np.stack([column.to_numpy(zero_copy_only=False) for column in batch.columns], axis=1) for batch in batches]
    return np.concatenate([np.empty((0, len(needed_columns))), *read])


def _check(cells: np.ndarray, codes: int | None, column: str, path: Path) -> None:
    bad = ~((cells >= 0) & (cells < 200)) if codes is None else ~((cells >= 1) & (cells <= codes))
    bad |= cells != np.rint(cells)
    if bad.any():
        raise InputError(
            f"{path}: {int(bad.sum())} persons with an income have a {column} that is not in the ACS dictionary; "
            "is it a file of ACS person records?"
        )


# Fixed, so that every run finds the same clusters.
SEED, CLUSTERS, SAMPLE = 2017, 10, 20_000
MOST_CUSTOMERS, MOST_CATEGORIES = 2_000_000, 1_024
"""A file with more is not the file of the challenge."""
_VERSION = 2
_ROWS = 8192
_BLOCK = 2**24


def purchase(path: Path) -> Table:
    """One record a customer: did they buy anything of each product category? The class is a k-means cluster; `uint8`.

    The customers of `transactions.csv`, gzipped or not, in ascending order of their id; a yes/no column for every
    category in the file (the paper counts 836), in ascending order of their numbers. Every line counts, returned goods
    too: they had been bought. The paper speaks of purchases "in the past year"; here it is the whole file.

    k-means (k-means++ start, 10 clusters) is fitted to at most 20,000 customers, drawn with a fixed seed; every
    customer then belongs to the closest centre.

    The file has 350 million lines (22 GB); it is read once, in blocks, and the finished table kept in the cache. Memory
    while reading is bounded by customers * 1,024 bytes (three times that while the table grows) and a few blocks.

    Source: Long, Bindschaedler, Gunter (2017), section 5.1; kaggle.com/c/acquire-valued-shoppers-challenge.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error}).") from error

    def build() -> dict[str, np.ndarray]:
        bought, categories = read_transactions(path)
        bits = np.packbits(bought, axis=1)
        return {"bits": bits, "categories": categories, "labels": cluster(bought, SEED, CLUSTERS, SAMPLE)}

    key = f"purchase {_VERSION} {path.resolve()} {status.st_size} {status.st_mtime_ns}"
    arrays = cached_arrays(key, build, dict.fromkeys(("bits", "categories", "labels"), ()))
    categories = arrays["categories"]
    columns = tuple(Column(f"category {number}", ("no", "yes")) for number in categories.tolist())
    names = tuple(f"cluster {number}" for number in range(1, CLUSTERS + 1))
    bought = np.unpackbits(arrays["bits"], axis=1, count=len(categories))
    return Table(bought, columns, arrays["labels"], names, "purchase")


def read_transactions(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Which customer bought which category: `uint8[customers, categories]` of 0 and 1, and the category numbers."""
    customers: dict[int, int] = {}
    categories: dict[int, int] = {}
    bought = np.zeros((1024, MOST_CATEGORIES), np.uint8)
    lines = 0
    for batch in csv_batches(
        path,
        {"id": pa.int64(), "category": pa.int64()},
        f"{path}: is not Kaggle's transactions.csv with the columns id and category",
        "is it the file of transactions, whole?",
        block_bytes=_BLOCK,
    ):
        ids, kinds = batch.columns
        if ids.null_count or kinds.null_count:
            raise InputError(f"{path}: a line after line {lines + 1} has no id or category; is the file damaged?")
        rows = _places(customers, ids.to_numpy(), MOST_CUSTOMERS, f"{path}: has more than {MOST_CUSTOMERS} customers")
        columns = _places(
            categories, kinds.to_numpy(), MOST_CATEGORIES, f"{path}: has more than {MOST_CATEGORIES} categories"
        )
        if len(customers) > len(bought):
            more = max(len(customers) - len(bought), len(bought))
            bought = np.concatenate([bought, np.zeros((more, MOST_CATEGORIES), np.uint8)])
        bought[rows, columns] = 1
        lines += batch.num_rows
    if lines == 0:
        raise InputError(f"{path}: there are no transactions below the header line. Is the file empty?")
    rows, columns = (np.argsort(list(keys)) for keys in (customers, categories))
    return bought[np.ix_(rows, columns)], np.array(list(categories))[columns]


def _places(places: dict[int, int], values: np.ndarray, most: int, complaint: str) -> np.ndarray:
    """The index of each value in `places`, to which new values are appended."""
    distinct, back = np.unique(values, return_inverse=True)
    place_of_value = np.array([places.setdefault(value, len(places)) for value in distinct.tolist()])
    if len(places) > most:
        raise InputError(f"{complaint}; is it the transactions file?")
    return place_of_value[back]


def cluster(bought: np.ndarray, seed: int, clusters: int, sample: int) -> np.ndarray:
    """`int32[customers]`: the k-means cluster of every customer, by centres of `sample` customers drawn at random."""
    # Imported here because scikit-learn takes about a second to import.
    from sklearn.cluster import KMeans

    generator = np.random.default_rng(seed)
    drawn = np.sort(generator.choice(len(bought), min(sample, len(bought)), replace=False))
    different = len(np.unique(bought[drawn], axis=0))
    if different < clusters:
        raise InputError(f"purchase: {different} different customers cannot form {clusters} clusters; is it whole?")
    start = int(generator.integers(2**31))
    means = KMeans(clusters, init="k-means++", n_init="auto", random_state=start)
    means.fit(bought[drawn].astype(np.float32))
    labels = np.empty(len(bought), np.int32)
    for first in range(0, len(bought), _ROWS):
        rows = slice(first, first + _ROWS)
        labels[rows] = means.predict(bought[rows].astype(np.float32))
    return labels


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
