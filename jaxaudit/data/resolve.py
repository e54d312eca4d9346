"""Resolves a name to `Examples` or to a `Table`: the only place where a string selects a data set."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

import jaxaudit.data.tfds as tfds
from jaxaudit.data.examples import Examples
from jaxaudit.data.files import load_path, refuse_columns
from jaxaudit.data.images import join_images
from jaxaudit.data.paths import entries, exists, expanded
from jaxaudit.data.selection import choose_parts, nearest_names, parse_split, read_slices, split_name
from jaxaudit.data.sets.embedded import breast_cancer, digits, printed_digits, wine
from jaxaudit.data.tables.table import Table, join_tables
from jaxaudit.data.tfds import data_folder, on_disk, read_prepared
from jaxaudit.errors import InputError, without_folders

_EMBEDDED: dict[str, dict[str, Callable[[], Examples]]] = {
    "digits": {"train": digits, "all": digits},
    "printed-digits": {"train": printed_digits, "all": printed_digits},
}
"""The sets that come with this package and with scikit-learn, by split."""
_FORCE_TFDS = "tfds:"


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

    SPLIT is a split or a slice of one, several joined by `+`, as in TensorFlow Datasets: `test`, `train[:10000]`,
    `train[:10%]+extra`; `all` is every split. Without it: the only split there is, else `train`.

    NAME_OR_PATH is the first of these that fits:
        1. an embedded set: `digits` (splits `train`, all of it, and its random halves `shared` and `kept`),
           `printed-digits` (one split, `train`);
        2. a file or folder that exists (see `load_path`), also the folder of a version of a prepared TFDS set;
        3. a file or folder of that name in the data directory (`data_dir`, else `$JAXAUDIT_DATA`): with the
           four IDX files in `$JAXAUDIT_DATA/mnist`, `mnist` needs neither TensorFlow nor a network;
        4. a TFDS set `name[/config][:version]` already prepared in the data directory, `$TFDS_DATA_DIR` or
           `~/tensorflow_datasets`: read without TensorFlow.

    The prefix `tfds:` (`tfds:mnist`) skips to step 4. TFDS shuffles when it prepares, so `tfds:mnist` holds the
    records of `mnist` in another, fixed order. One-channel TFDS images have the shape `[n, height, width]`, others
    `[n, height, width, channels]`.

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
    if source.startswith(_FORCE_TFDS) or source in _EMBEDDED:
        refuse_columns(source, label, drop)
    if source.startswith(_FORCE_TFDS):
        examples = load_tfds(source.removeprefix(_FORCE_TFDS), split, data_dir, image_size, gray)
    elif source in _EMBEDDED:
        splits = _EMBEDDED[source]
        examples = _select(lambda part: splits[part or "train"](), split, source, image_size, gray, tuple(splits))
    else:
        read = partial(load_path, size=image_size, gray=gray, label=label, drop=drop, groups=groups, exact=exact)
        loaded = _from_disk(source, split, data_dir, image_size, gray, read)
        if loaded is None:
            refuse_columns(source, label, drop)
            loaded = load_tfds(source, split, data_dir, image_size, gray)
        examples = loaded
    return replace(examples, name=without_folders(name))


def load_tfds(
    source: str,
    split: str,
    data_dir: Path | None,
    image_size: tuple[int, int] | None = None,
    gray: bool = True,
) -> Examples:
    """The prepared TFDS set `source` (`name[/config][:version]`): step 4 of `load`.

    `split`, `data_dir`, `image_size` and `gray` are as for `load`.

    Raises:
        InputError: no such set is known, or it is not prepared.
    """
    set_name = tfds.parse_set_name(source)
    folders = tfds.set_folders(data_dir)
    prepared = tfds.find_prepared(set_name, folders) if set_name else None
    if prepared is None:
        if set_name is None or set_name.base not in tfds.known_names():
            raise InputError(_unknown(source, data_dir))
        tfds.refuse_unprepared(source, set_name, data_dir)
    return read_prepared(prepared, split, source, image_size, gray)


def _from_disk(
    source: str,
    split: str,
    data_dir: Path | None,
    image_size: tuple[int, int] | None,
    gray: bool,
    read: Callable[..., Examples],
) -> Examples | None:
    """The file or folder `source`, here or in the data directory, as `read` gives it; None if TFDS must be tried."""
    path, folder = tfds.on_disk(source, data_dir), tfds.data_folder(data_dir)
    if path is None:
        return None
    if tfds.is_prepared_folder(path):
        return read_prepared(path, split, source, image_size, gray)
    set_name = tfds.parse_set_name(source)
    in_data_folder = path != expanded(source)
    if set_name is not None and folder is not None and in_data_folder and path.is_dir():
        # TFDS leaves a prepared set here, or an empty folder after a failure.
        content = [child for child in entries(path) if not child.name.startswith(".")]
        has_files = any(child.is_file() for child in content)
        if not content or (not has_files and tfds.find_prepared(set_name, (folder,))):
            return None
    return _select(lambda part: read(path, split=part), split, source, image_size, gray)


def _select(
    read: Callable[[str], Examples],
    split: str,
    name: str,
    image_size: tuple[int, int] | None,
    gray: bool,
    available: tuple[str, ...] = (),
) -> Examples:
    """The parts that `split` names; `read` returns a whole split by its name, and chooses one for ""."""
    if not split:
        return read("")
    parts = choose_parts(split, available, name) if available else parse_split(split)
    pieces = [whole.take(rows) for whole, rows in read_slices(parts, read, name)]
    return join_images(pieces, name, image_size, gray)


def _unknown(source: str, data_dir: Path | None) -> str:
    folder = tfds.data_folder(data_dir)
    places = [place for place in tfds.set_folders(data_dir) if exists(place) and place.is_dir()]
    beside = [child.name for place in places for child in entries(place) if not child.name.startswith(".")]
    searched = str(folder) if folder else "a data directory (none is set: `data_dir` or JAXAUDIT_DATA)"
    return (
        f"{source[:100]!r} is not a file or folder here or in {searched}, not an embedded set ({', '.join(_EMBEDDED)}) "
        f"and not a TensorFlow Datasets name. {nearest_names(source, [*_EMBEDDED, *tfds.known_names(), *beside])}"
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
        return _select_table({"train": lambda: read().table(categorical)}, split, name_or_path)
    splits = {"train": _EMBEDDED_TABLES[source]} if source in _EMBEDDED_TABLES else _in_folder(source, data_dir)
    if label is not None or categorical or drop:
        raise InputError(f"{source}: is read as it is; `label`, `categorical` and `drop` are for files.")
    return _select_table(splits, split, name_or_path)


def table_names() -> tuple[str, ...]:
    """The names of the known tables."""
    return _NAMES


def _select_table(splits: Splits, split: str, name: str) -> Table:
    parts = choose_parts(split, tuple(splits), name)
    parts_and_rows = read_slices(parts, lambda split_name: splits[split_name](), name)
    pieces = [whole if rows == slice(0, len(whole)) else whole.take(rows) for whole, rows in parts_and_rows]
    return join_tables(pieces, name)


def _in_folder(source: str, data_dir: Path | None) -> Splits:
    # Imported here because most runs read none of these.
    directory, read = data_folder(data_dir), getattr(import_module("jaxaudit.data.sets.tables"), source)
    folder = (directory or Path()) / source
    paths = ((split, folder / f"{name}{end}") for split, name in _FILES[source].items() for end in (".gz", ""))
    # A split with a plain and a gzipped file counts once.
    files = {split: path for split, path in paths if directory and path.is_file()}
    if not files:
        where = directory / source if directory else f"a folder DIR/{source} and set JAXAUDIT_DATA=DIR (`data_dir`)"
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
