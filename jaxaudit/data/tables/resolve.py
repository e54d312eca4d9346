"""A name -> `Table`: the only place where a string selects a table."""

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from jaxaudit.data.paths import exists
from jaxaudit.data.selection import choose_parts, nearest_names, read_slices, split_name
from jaxaudit.data.sets.embedded import breast_cancer, wine
from jaxaudit.data.tables.columns import recode
from jaxaudit.data.tables.table import Table, join_tables
from jaxaudit.data.tfds.tfds import data_folder, on_disk
from jaxaudit.errors import InputError

Splits = dict[str, Callable[[], Table]]
_ALL = "all"


def load_table(
    name_or_path: str,
    *,
    label: str | None = None,
    categorical: Sequence[str] = (),
    numeric: Sequence[str] = (),
    drop: Sequence[str] = (),
    missing: Literal["error", "drop", "mean", "category"] = "error",
    delimiter: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    data_dir: Path | None = None,
) -> Table:
    """The table with a name: `NAME_OR_PATH[@SPLIT]`, with SPLIT as in `load`.

    | name | splits | where |
    |---|---|---|
    | `breast-cancer`, `wine` | `train` | come with scikit-learn |
    | `adult` | `train` (also without SPLIT), `test`, `all` | DATA_DIRECTORY/adult/adult.data and adult.test, or .gz |
    | `location` | `train` | DATA_DIRECTORY/location/dataset_location.tgz |
    | `purchase` | `train` | DATA_DIRECTORY/purchase/transactions.csv, or .gz |
    | `acs` | one per file, by its name; `all` (also without SPLIT) | DATA_DIRECTORY/acs/*.csv, or .csv.gz |
    | a CSV or Parquet file | `train` | here, else in the data directory; see `read_people` |

    The data directory is `data_dir`, else `$JAXAUDIT_DATA`. The name of a set takes precedence; write `./adult` for a
    file of that name.

    Args:
        label: the label column of a file; the named sets have theirs.
        categorical: columns to be categorical.
        numeric: columns to be numeric.
        drop: columns to leave out.
        missing: what happens to missing numbers of a file: `error` refuses them, `drop` leaves out their records,
            `mean` uses the mean of the others, `category` does that and adds a column that marks them.
        delimiter: the delimiter of a CSV file; detected if None, like the next two.
        encoding: of a CSV file, such as utf-8, utf-16 or cp1252.
        decimal: the decimal sign of a CSV file, a point or a comma.

    Raises:
        InputError: nothing fits (with near matches), the files are not there (with what to put where), they cannot be
            read, or a column cannot be what it is said to be.

    >>> load_table("wine@train[:50]", drop=["ash"])
    Table(wine@train[:50]: 50 records of 12 columns, 12 of them numeric, 3 classes)
    """
    # A path may itself contain an '@'.
    whole = name_or_path not in _NAMES and exists(Path(name_or_path))
    source, split = (name_or_path, "") if whole else split_name(name_or_path)
    how: dict[str, Any] = {"categorical": categorical, "numeric": numeric, "drop": drop}
    if source not in _NAMES:
        # Imported here because pyarrow takes a tenth of a second.
        from jaxaudit.data.formats.csv_file import CsvOptions
        from jaxaudit.data.tables.people import read_people

        options = CsvOptions(delimiter, encoding, decimal)
        read = partial(read_people, _file(source, data_dir), label=label, **how, missing=missing, options=options)
        return _select({"train": read}, split, name_or_path)
    splits = {"train": _EMBEDDED[source]} if source in _EMBEDDED else _in_folder(source, data_dir)
    if missing != "error" or not label is delimiter is encoding is decimal is None:
        raise InputError(
            f"{source}: is read as it is, with its own labels; `label`, `missing`, `delimiter`, `encoding` and "
            "`decimal` are for files."
        )
    return recode(_select(splits, split, name_or_path), **how)


def table_names() -> tuple[str, ...]:
    """The names of the known tables."""
    return _NAMES


def what_is_missing(name: str) -> str:
    """Which files are missing for a table of this name, and where they belong; empty if none. Files are not read."""
    try:
        if name not in _EMBEDDED:
            _in_folder(name, None)
    except InputError as error:
        return str(error)
    return ""


def _select(splits: Splits, split: str, name: str) -> Table:
    parts = choose_parts(_ALL if not split and _ALL in splits else split, tuple(splits), name)
    parts_and_rows = read_slices(parts, lambda split_name: splits[split_name](), name)
    pieces = [whole if rows == slice(0, len(whole)) else whole.take(rows) for whole, rows in parts_and_rows]
    return join_tables(pieces, name)


def _in_folder(source: str, data_dir: Path | None) -> Splits:
    directory = data_folder(data_dir)
    files = _files(source, directory / source) if directory else {}
    if not files:
        where = directory / source if directory else f"a folder DIR/{source} and set JAXAUDIT_DATA=DIR (`data_dir`)"
        raise InputError(f"{source}: its files are missing; put {_NEEDED[source]} into {where}.")
    splits = (_ALL, *files) if source == "acs" else files
    return {split: partial(_read, source, files, split) for split in splits}


def _files(source: str, folder: Path) -> dict[str, Path]:
    """The file of each split that exists; a split with a plain and a gzipped file counts once."""
    if source == "acs":
        paths = sorted([*folder.glob("*.csv.gz"), *folder.glob("*.csv")])
        return {path.name.removesuffix(".gz").removesuffix(".csv"): path for path in paths}
    split_paths = ((split, folder / f"{name}{end}") for split, name in _FILES[source].items() for end in (".gz", ""))
    return {split: path for split, path in split_paths if path.is_file()}


def _read(source: str, files: dict[str, Path], split: str) -> Table:
    # Imported here because most runs read none of these.
    read = getattr(import_module(f"jaxaudit.data.sets.{_MODULES.get(source, source)}"), _MODULES.get(source, source))
    if source != "acs":
        return read(files[split])
    return read([files[split]], split) if split != _ALL else read(list(files.values()), source)


def _file(source: str, data_dir: Path | None) -> Path:
    path, directory = on_disk(source, data_dir), data_folder(data_dir)
    if path is None:
        searched = "" if directory is None else f" or in {directory}"
        raise InputError(
            f"{source[:100]!r} is not a file here{searched} and not a known table ({', '.join(_NAMES)}). "
            f"{nearest_names(source, _NAMES)}"
        )
    if path.is_dir():
        raise InputError(f"{path}: is a folder; give a CSV or Parquet file or one of {', '.join(_NAMES)}.")
    return path


_EMBEDDED: dict[str, Callable[[], Table]] = {"breast-cancer": breast_cancer, "wine": wine}
_FILES = {
    "adult": {"train": "adult.data", "test": "adult.test"},
    "location": {"train": "dataset_location.tgz"},
    "purchase": {"train": "transactions.csv"},
}
_NEEDED = {
    "adult": "UCI's adult.data and adult.test (or .gz)",
    "location": "dataset_location.tgz of github.com/privacytrustlab/datasets",
    "purchase": "transactions.csv (or .gz) of Kaggle's acquire-valued-shoppers-challenge",
    "acs": "person files of the American Community Survey (.csv or .csv.gz)",
}
_NAMES = (*_EMBEDDED, *_NEEDED)
_MODULES = {"acs": "census"}
"""The file and function in `sets` of a table, where they have another name than it."""
