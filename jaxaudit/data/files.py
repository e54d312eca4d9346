"""Labelled records by name or path, as `Examples` or as a `Table`: the only place where a string selects a data set.

The sets known by name are digits, tumours and wines of scikit-learn, which need no network.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import jaxaudit.data.tfds as tfds
from jaxaudit.data.examples import Examples, joined
from jaxaudit.data.formats import LABELLED, TABLES, Reading
from jaxaudit.data.formats.arrays import NpzArrays, read_npy
from jaxaudit.data.formats.parsing import refuse_pickle
from jaxaudit.data.images import IDX_NAME, load_image_folders, read_idx, read_idx_folder
from jaxaudit.data.labels import encode_labels, flat, split_as
from jaxaudit.data.memory import MAX_BYTES, refuse_larger
from jaxaudit.data.paths import entries, exists
from jaxaudit.data.selection import (
    CLASS_NAMES,
    SPLITS,
    choose_parts,
    choose_splits,
    find_pairs,
    nearest_names,
    parse_split,
    read_slices,
    split_name,
)
from jaxaudit.data.table import Column, Table, join_tables
from jaxaudit.data.tfds import data_folder, on_disk, read_prepared
from jaxaudit.errors import InputError, without_folders

Labelled = TypeVar("Labelled", Examples, Table)


def load(
    name: str | Path,
    *,
    image_size: tuple[int, int] | None = None,
    gray: bool = True,
    label: str | None = None,
    drop: Sequence[str] = (),
    groups: Sequence[str] = (),
    exact: bool = False,
    gaps: bool = False,
) -> Examples:
    """The labelled records that `name` names: `NAME_OR_PATH[@SPLIT]`.

    SPLIT is a split or a slice of one, several joined by `+`: `test`, `train[:10000]`, `train[:100]+extra`; `all` is
    every split. Without it: the only split there is, else `train`.

    NAME_OR_PATH is the first of these that fits:
        1. the embedded set `digits` (one split, `train`);
        2. a file or folder that exists, also the folder of a version of a prepared TFDS set;
        3. a file or folder of that name in the data directory (`$JAXAUDIT_DATA`): with the
           four IDX files in `$JAXAUDIT_DATA/mnist`, `mnist` needs neither TensorFlow nor a network;
        4. a TFDS set `name[/config][:version]` already prepared in the data directory, `$TFDS_DATA_DIR` or
           `~/tensorflow_datasets`: read without TensorFlow. One-channel images have the shape `[n, height, width]`,
           others `[n, height, width, channels]`.

    | file or folder | holds |
    |---|---|
    {formats}
    | folder of `.npy` | as the arrays of a `.npz` |
    | IDX folder | MNIST's four files, gzipped or not; see `images.read_idx` |
    | folder of folders | see `images.load_image_folders`; or such folders called train and test |

    Labels may have any form of `labels.encode_labels`; they are numbered over all splits together, so that the splits
    of one source agree. Images (three axes or more) of whole numbers within 0..255 become `uint8`, those of `uint16`
    stay that, everything else becomes `float32`, unscaled.

    Args:
        image_size: (height, width) to which images of differing sizes are resized, as by `prepare_images`: `float32` in
            [0, 1]. Images of one size are returned as stored; `prepare_images` leaves prepared images unchanged.
        gray: as for `prepare_images`, if sizes differ.
        label: the column of a table with the label; by default that named `label`. `drop`: columns to leave out.
        groups: columns with groups, which are no inputs; a file may lack them.
        gaps: whether columns of numbers of a table may have empty cells, which are NaN (`Examples.gaps`).
        exact: for files that are shared: inputs keep the type in which they are stored, and numbers in text become
            `float64`; other sets are compared with `comparable` of such inputs.

    >>> load("digits@train[:100]")
    Examples(digits@train[:100]: 100 records of shape (8, 8), 10 classes)
    """
    name = str(name)
    source, split = tfds.name_and_split(name)
    if split:
        parse_split(split)  # a misprint is found before anything is read
    embedded = _EMBEDDED.get(source)
    path = None if embedded else on_disk(source)
    prepared = None if embedded else _prepared(source, path)
    if path is None or prepared is not None:
        refuse_columns(source, label, drop)
    if embedded:
        examples = joined(_pieces(lambda _: embedded(), split, source, ("train",)), source)
    elif prepared is not None:
        examples = read_prepared(prepared, split, source, image_size, gray)
    elif path is None:
        raise _unknown(source)
    else:
        how = Reading(image_size, gray, label, drop, groups, exact, gaps)

        def read(part: str) -> Examples:
            return _read(path, how._replace(split=part))

        examples = joined(_pieces(read, split, source) if split else [read("")], source)
    return replace(examples, name=without_folders(name))


_ROWS = (f"| `{entry.ending}` | {entry.holds} |" for entry in LABELLED.values())
load.__doc__ = (load.__doc__ or "").replace("{formats}", "\n    ".join(_ROWS))


def _prepared(source: str, path: Path | None) -> Path | None:
    """The folder of the prepared TFDS set that a name means; None if it means the file or folder at `path`, or none."""
    name, folder = tfds.parse_set_name(source), data_folder()
    if path is None:
        return tfds.find_prepared(name, tfds.set_folders()) if name else None
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


def _unknown(source: str) -> InputError:
    name, folder = tfds.parse_set_name(source), data_folder()
    if name is not None and name.base in tfds.known_names():
        return InputError(
            f"{source} is not prepared here, and nothing is downloaded here. Where TensorFlow is installed, this "
            f'prepares it in $TFDS_DATA_DIR: python -c "import tensorflow_datasets as tfds; tfds.builder({source!r}, '
            "file_format='array_record').download_and_prepare()\". IDX files of such a set may lie in "
            f"{folder or 'a folder that JAXAUDIT_DATA names'}/{name.base}."
        )
    places = [place for place in tfds.set_folders() if exists(place) and place.is_dir()]
    beside = [child.name for place in places for child in entries(place) if not child.name.startswith(".")]
    return InputError(
        f"{source[:100]!r} is not a file or folder here or in {folder or 'a data directory (JAXAUDIT_DATA)'}, not an "
        f"embedded set ({', '.join(_EMBEDDED)}) and not a TensorFlow Datasets name. "
        f"{nearest_names(source, [*_EMBEDDED, *tfds.known_names(), *beside])}"
    )


def load_table(
    name_or_path: str,
    *,
    label: str | None = None,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
) -> Table:
    """The table with a name: `NAME_OR_PATH[@SPLIT]`, with SPLIT as in `load`.

    | name | splits | where |
    |---|---|---|
    | `breast-cancer`, `wine` | `train` | come with scikit-learn |
    | a CSV or Parquet file | `train` | here, else in the data directory; see `read_own_table` |

    The data directory is `$JAXAUDIT_DATA`. The name of a set takes precedence; write `./wine` for a file of that name.

    Args:
        label, drop: of a file, as for `load`; the named sets are read as they are.
        categorical: columns of numbers of a file whose different values are categories.

    >>> load_table("wine@train[:50]")
    Table(wine@train[:50]: 50 records of 13 columns, 13 of them numeric, 3 classes)
    """
    source, split = (split_name if name_or_path in TABLE_NAMES else tfds.name_and_split)(name_or_path)
    if source not in TABLE_NAMES:
        # Imported here because pyarrow takes a tenth of a second.
        from jaxaudit.data.own_table import read_own_table

        whole = read_own_table(_file(source), label=label, drop=drop, categorical=categorical).table(categorical)
    elif label is not None or categorical or drop:
        raise InputError(f"{source}: is read as it is; `label`, `categorical` and `drop` are for files.")
    else:
        whole = _embedded_table(source)
    return join_tables(_pieces(lambda _: whole, split, name_or_path, ("train",)), name_or_path)


def _file(source: str) -> Path:
    path, directory = on_disk(source), data_folder()
    if path is None:
        searched = "" if directory is None else f" or in {directory}"
        raise InputError(
            f"{source[:100]!r} is not a file here{searched} and not a known table ({', '.join(TABLE_NAMES)}). "
            f"{nearest_names(source, TABLE_NAMES)}"
        )
    if path.is_dir():
        raise InputError(f"{path}: is a folder; give a CSV or Parquet file or one of {', '.join(TABLE_NAMES)}.")
    return path


def _read(path: Path, how: Reading) -> Examples:
    """The records in a file or folder, named after it."""
    if path.suffix.lower() not in TABLES or path.is_dir():
        refuse_columns(path.name, how.label, how.drop)
    if path.is_dir():
        return _from_folder(path, how)
    if path.suffix.lower() not in LABELLED:
        refuse_pickle(path)
        raise InputError(f"{path}: is of an unknown kind; give {_KNOWN}.")
    module, _, name = LABELLED[path.suffix.lower()].reader.partition(":")
    # Imported here because a format's library may take long, pyarrow a tenth of a second.
    return getattr(import_module(f"jaxaudit.data.{module}"), name)(path, how)


def read_npz(path: Path, how: Reading) -> Examples:
    """The labelled records in a .npz."""
    archive = NpzArrays(path)
    return _from_named(archive.names, archive.read, path.name, how)


_KNOWN = (
    f"{', '.join(LABELLED)}, a folder with x.npy and y.npy, a folder of IDX files, or a folder of class-named folders "
    "of images"
)


def _from_folder(path: Path, how: Reading) -> Examples:
    inside = [entry for entry in entries(path) if not entry.name.startswith(".")]
    if any(IDX_NAME.fullmatch(entry.name) for entry in inside):
        return _from_idx(path, how)
    arrays = {entry.stem: entry for entry in inside if entry.suffix.lower() == ".npy"}
    if arrays:
        return _from_named(arrays, lambda name: read_npy(arrays[name]), path.name, how)
    folders = [entry for entry in inside if entry.is_dir()]
    if not folders:
        listed = ", ".join(entry.name[:40] for entry in inside[:5]) or "it is empty"
        raise InputError(f"{path}: this folder is no data set ({listed}); name one file in it, or give {_KNOWN}.")
    splits = {SPLITS.get(entry.name.lower(), ""): entry for entry in folders}
    if "" in splits or len(splits) < len(folders):
        choose_splits([""], how.split, path.name)
        return load_image_folders(path, how.image_size, how.gray)
    chosen = choose_splits(splits, how.split, path.name)
    parts = [load_image_folders(splits[name], how.image_size, how.gray) for name in chosen]
    return joined(parts, path.name)


def _from_idx(folder: Path, how: Reading) -> Examples:
    splits, class_names = read_idx_folder(folder)
    parts = []
    for chosen in choose_splits(splits, how.split, folder.name):
        file, labels = splits[chosen]
        parts.append(Examples(_stored(read_idx(file), file.name, how), labels, class_names, folder.name))
    return joined(parts, folder.name)


def _from_named(names: Collection[str], read: Callable[[str], np.ndarray], source: str, how: Reading) -> Examples:
    """Records from a mapping of names to arrays; only the needed arrays are read."""
    pairs = find_pairs(names, source)
    chosen = choose_splits(pairs, how.split, source)
    labels = [flat(read(name)) for _, name in pairs.values()]
    if any(part.ndim == 0 or part.shape[1:] != labels[0].shape[1:] for part in labels):
        shapes = ", ".join(str(part.shape) for part in labels)
        raise InputError(f"{source}: labels have shapes {shapes}; give one label for each record.")
    class_names = None
    for name in [name for name in CLASS_NAMES if name in names][:1]:
        values = read(name)
        if values.ndim != 1 or values.dtype.kind == "S" or len(set(values.tolist())) < len(values):
            raise InputError(f"{source}[{name}]: class names must be texts, each once, in label order.")
        class_names = [str(value) for value in values.tolist()]
    codes, class_names = encode_labels(np.concatenate(labels), class_names, f"{source}, labels")
    rows = dict(zip(pairs, split_as(codes, labels), strict=True))
    inputs = [_stored(read(pairs[split][0]), source, how) for split in chosen]
    parts = zip(inputs, chosen, strict=True)
    return joined([Examples(part, rows[split], class_names, source) for part, split in parts], source)


def refuse_columns(source: str, label: str | None, drop: Sequence[str]) -> None:
    """Refuses names of columns for a set that has none."""
    if label is not None or drop:
        argument = "`drop`" if label is None else "`label`"
        raise InputError(f"{source}: has no named columns, so {argument} means nothing; leave it out.")


def _stored(inputs: np.ndarray, source: str, how: Reading) -> np.ndarray:
    return _checked(inputs, source) if how.exact else comparable(inputs, source)


def comparable(inputs: np.ndarray, source: str) -> np.ndarray:
    """Inputs in the types in which sets are compared: `uint8` or `uint16` of images, else `float32`."""
    inputs = _checked(inputs, source)
    if inputs.ndim >= 3 and inputs.dtype.kind in "ui":
        if inputs.dtype in (np.uint8, np.uint16):
            # Whatever their range, which in one of several sets that must be scaled alike may be that of fewer bits.
            return inputs
        if inputs.size and inputs.min() >= 0 and inputs.max() <= 255:
            return inputs.astype(np.uint8)
    refuse_larger(f"{source}, as float32", 4 * inputs.size, MAX_BYTES)
    with np.errstate(over="ignore"):
        return inputs.astype(np.float32, copy=False)


def _checked(inputs: np.ndarray, source: str) -> np.ndarray:
    """Checks that inputs are numbers, at least one for each record, and returns them unchanged."""
    if inputs.ndim < 2 or inputs.dtype.kind not in "buif":
        raise InputError(
            f"{source}: inputs are {inputs.dtype} of shape {inputs.shape}; give numbers of shape [records, "
            "features] or [records, height, width, ...]."
        )
    if len(inputs) and not inputs.size:
        raise InputError(f"{source}: inputs of shape {inputs.shape} are empty; was the file written completely?")
    return inputs


def digits() -> Examples:
    """The 1,797 handwritten digits that scikit-learn carries, as `uint8[1797, 8, 8]`, white ink on black.

    scikit-learn stores 17 gray levels v = 0..16 (counts of set pixels in 4x4 blocks). They become round(v * 255 / 16),
    which is one-to-one: the level is `round(pixel * 16 / 255)`.

    Source: E. Alpaydin, C. Kaynak (1998), Optical Recognition of Handwritten Digits, UCI, CC BY 4.0 (its test part).

    >>> digits()
    Examples(digits: 1797 records of shape (8, 8), 10 classes)
    """
    # Imported here because scikit-learn takes about a second to import.
    from sklearn.datasets import load_digits

    levels, labels = load_digits(return_X_y=True)
    images = np.rint(levels.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    return Examples(images, np.asarray(labels, np.int32), tuple("0123456789"), "digits")


def _embedded_table(name: str) -> Table:
    # Imported here because scikit-learn takes about a second to import.
    bunch: Any = getattr(import_module("sklearn.datasets"), _EMBEDDED_TABLES[name])()
    columns = tuple(Column(str(feature)) for feature in bunch.feature_names)
    return Table(bunch.data, columns, bunch.target.astype(np.int32), tuple(map(str, bunch.target_names)), name)


_EMBEDDED: dict[str, Callable[[], Examples]] = {"digits": digits}
"""Sets that scikit-learn brings, so that they need no network; their one split is `train`."""
_EMBEDDED_TABLES = {"breast-cancer": "load_breast_cancer", "wine": "load_wine"}
"""The functions of scikit-learn that load its tables. 569 tumours, 30 numbers each: W. Wolberg et al. (1995), Breast
Cancer Wisconsin (Diagnostic), UCI, CC BY 4.0. 178 wines of three growers, 13 numbers each: S. Aeberhard, M. Forina
(1992), Wine, UCI, CC BY 4.0."""
TABLE_NAMES = tuple(_EMBEDDED_TABLES)
