"""Resolves a name to `Examples` or to a `Table`: the only place where a string selects a data set."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TypeVar

import jaxaudit.data.tfds as tfds
from jaxaudit.data.examples import Examples, joined
from jaxaudit.data.files import load_path, refuse_columns
from jaxaudit.data.paths import entries, exists
from jaxaudit.data.selection import choose_parts, nearest_names, parse_split, read_slices, split_name
from jaxaudit.data.sets.embedded import breast_cancer, digits, printed_digits, wine
from jaxaudit.data.tables.table import Table, join_tables
from jaxaudit.data.tfds import data_folder, on_disk, read_prepared
from jaxaudit.errors import InputError, without_folders

_EMBEDDED: dict[str, Callable[[], Examples]] = {"digits": digits, "printed-digits": printed_digits}
"""The sets that come with this package and with scikit-learn; their one split is `train`."""
Labelled = TypeVar("Labelled", Examples, Table)


def load(
    name: str,
    *,
    data_dir: Path | None = None,
    image_size: tuple[int, int] | None = None,
    gray: bool = True,
    label: str | None = None,
    drop: Sequence[str] = (),
    groups: Sequence[str] = (),
    exact: bool = False,
) -> Examples:
    """The labelled records that `name` names: `NAME_OR_PATH[@SPLIT]`.

    SPLIT is a split or a slice of one, several joined by `+`: `test`, `train[:10000]`, `train[:100]+extra`; `all` is
    every split. Without it: the only split there is, else `train`.

    NAME_OR_PATH is the first of these that fits:
        1. an embedded set: `digits`, `printed-digits` (one split, `train`);
        2. a file or folder that exists (see `load_path`), also the folder of a version of a prepared TFDS set;
        3. a file or folder of that name in the data directory (`data_dir`, else `$JAXAUDIT_DATA`): with the
           four IDX files in `$JAXAUDIT_DATA/mnist`, `mnist` needs neither TensorFlow nor a network;
        4. a TFDS set `name[/config][:version]` already prepared in the data directory, `$TFDS_DATA_DIR` or
           `~/tensorflow_datasets`: read without TensorFlow. One-channel images have the shape `[n, height, width]`,
           others `[n, height, width, channels]`.

    Args:
        image_size: (height, width) to which images of differing sizes are resized, as by `prepare_images`: `float32` in
            [0, 1]. Images of one size are returned as stored; `prepare_images` leaves prepared images unchanged.
        gray: as for `prepare_images`, if sizes differ.
        label: the column of a CSV or Parquet file with the label; by default that named `label`.
        drop: columns of such a file to leave out.
        groups: columns with groups, which are no inputs; a file may lack them.
        exact: inputs keep the type in which they are stored, see `load_path`.

    Raises:
        InputError: nothing fits (with near matches), the set is not prepared here (with the line that prepares it, or
            which files to put where), or it cannot be read.

    >>> load("digits@train[:100]")
    Examples(digits@train[:100]: 100 records of shape (8, 8), 10 classes)
    """
    source, split = tfds.name_and_split(name)
    if split:
        parse_split(split)  # a misprint is found before anything is read
    path = None if source in _EMBEDDED else on_disk(source, data_dir)
    prepared = None if source in _EMBEDDED else _prepared(source, path, data_dir)
    if path is None or prepared is not None:
        refuse_columns(source, label, drop)
    if source in _EMBEDDED:
        examples = joined(_pieces(lambda _: _EMBEDDED[source](), split, source, ("train",)), source)
    elif prepared is not None:
        examples = read_prepared(prepared, split, source, image_size, gray)
    elif path is None:
        raise _unknown(source, data_dir)
    else:
        read = partial(load_path, path, size=image_size, gray=gray, label=label, drop=drop, groups=groups, exact=exact)
        pieces = _pieces(lambda part: read(split=part), split, source) if split else [read()]
        examples = joined(pieces, source)
    return replace(examples, name=without_folders(name))


def _prepared(source: str, path: Path | None, data_dir: Path | None) -> Path | None:
    """The folder of the prepared TFDS set that a name means; None if it means the file or folder at `path`, or none."""
    name, folder = tfds.parse_set_name(source), data_folder(data_dir)
    if path is None:
        return tfds.find_prepared(name, tfds.set_folders(data_dir)) if name else None
    if tfds.is_prepared_folder(path):
        return path
    # TFDS leaves a set in the data directory, under the name of the set.
    is_set = name is not None and folder is not None and path == folder / source and path.is_dir()
    has_files = is_set and any(child.is_file() for child in entries(path) if not child.name.startswith("."))
    return tfds.find_prepared(name, (folder,)) if name and folder and is_set and not has_files else None


def _pieces(read: Callable[[str], Labelled], split: str, name: str, available: tuple[str, ...] = ()) -> list[Labelled]:
    """The parts that `split` names; `read` returns a whole split by its name."""
    parts = choose_parts(split, available, name) if available else parse_split(split)
    return [whole.take(rows) for whole, rows in read_slices(parts, read, name)]


def _unknown(source: str, data_dir: Path | None) -> InputError:
    name, folder = tfds.parse_set_name(source), data_folder(data_dir)
    if name is not None and name.base in tfds.known_names():
        return InputError(
            f"{source} is not prepared here, and nothing is downloaded here. Where TensorFlow is installed, this "
            f'prepares it in $TFDS_DATA_DIR: python -c "import tensorflow_datasets as tfds; tfds.builder({source!r}, '
            "file_format='array_record').download_and_prepare()\". IDX files of such a set may lie in "
            f"{folder or 'a folder that JAXAUDIT_DATA names'}/{name.base}."
        )
    places = [place for place in tfds.set_folders(data_dir) if exists(place) and place.is_dir()]
    beside = [child.name for place in places for child in entries(place) if not child.name.startswith(".")]
    return InputError(
        f"{source[:100]!r} is not a file or folder here or in {folder or 'a data directory (JAXAUDIT_DATA)'}, not an "
        f"embedded set ({', '.join(_EMBEDDED)}) and not a TensorFlow Datasets name. "
        f"{nearest_names(source, [*_EMBEDDED, *tfds.known_names(), *beside])}"
    )


Splits = dict[str, Callable[[], Table]]


def load_table(
    name_or_path: str,
    *,
    label: str | None = None,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    data_dir: Path | None = None,
) -> Table:
    """The table with a name: `NAME_OR_PATH[@SPLIT]`, with SPLIT as in `load`.

    | name | splits | where |
    |---|---|---|
    | `breast-cancer`, `wine` | `train` | come with scikit-learn |
    | `adult` | `train` (also without SPLIT), `test`, `all` | DATA_DIRECTORY/adult/adult.data and adult.test, or .gz |
    | `location` | `train` | DATA_DIRECTORY/location/dataset_location.tgz |
    | a CSV or Parquet file | `train` | here, else in the data directory; see `read_own_table` |

    The data directory is `data_dir`, else `$JAXAUDIT_DATA`. The name of a set takes precedence; write `./adult` for a
    file of that name.

    Args:
        label: the label column of a file, by default that named `label`; the named sets are read as they are.
        categorical: columns of numbers of a file whose different values are categories.
        drop: columns of a file to leave out.

    Raises:
        InputError: nothing fits (with near matches), the files are not there (with what to put where), they cannot be
            read, or a column cannot be what it is said to be.

    >>> load_table("wine@train[:50]")
    Table(wine@train[:50]: 50 records of 13 columns, 13 of them numeric, 3 classes)
    """
    source, split = (split_name if name_or_path in _NAMES else tfds.name_and_split)(name_or_path)
    if source not in _NAMES:
        # Imported here because pyarrow takes a tenth of a second.
        from jaxaudit.data.tables.own_table import read_own_table

        read = partial(read_own_table, _file(source, data_dir), label=label, drop=drop, categorical=categorical)
        splits = {"train": lambda: read().table(categorical)}
    elif label is not None or categorical or drop:
        raise InputError(f"{source}: is read as it is; `label`, `categorical` and `drop` are for files.")
    else:
        splits = {"train": _EMBEDDED_TABLES[source]} if source in _EMBEDDED_TABLES else _in_folder(source, data_dir)
    pieces = _pieces(lambda part: splits[part](), split, name_or_path, tuple(splits))
    return join_tables(pieces, name_or_path)


def table_names() -> tuple[str, ...]:
    """The names of the known tables."""
    return _NAMES


def _in_folder(source: str, data_dir: Path | None) -> Splits:
    # Imported here because most runs read none of these.
    directory, read = data_folder(data_dir), getattr(import_module("jaxaudit.data.sets.tables"), source)
    folder = (directory or Path()) / source
    paths = ((split, folder / f"{name}{end}") for split, name in _FILES[source].items() for end in (".gz", ""))
    # A split with a plain and a gzipped file counts once.
    files = {split: path for split, path in paths if directory and path.is_file()}
    if not files:
        where = directory / source if directory else f"a folder DIR/{source} and set JAXAUDIT_DATA=DIR"
        raise InputError(f"{source}: its files are missing; put {_NEEDED[source]} into {where}.")
    return {split: partial(read, path) for split, path in files.items()}


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


_EMBEDDED_TABLES: dict[str, Callable[[], Table]] = {"breast-cancer": breast_cancer, "wine": wine}
_FILES = {
    "adult": {"train": "adult.data", "test": "adult.test"},
    "location": {"train": "dataset_location.tgz"},
}
_NEEDED = {
    "adult": "UCI's adult.data and adult.test (or .gz)",
    "location": "dataset_location.tgz of github.com/privacytrustlab/datasets",
}
_NAMES = (*_EMBEDDED_TABLES, *_NEEDED)
