"""Reads labelled records from a file or folder of any supported kind."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from jaxaudit.data.examples import Examples, joined
from jaxaudit.data.formats.arrays import NpzArrays, read_npy
from jaxaudit.data.formats.parsing import refuse_pickle
from jaxaudit.data.images import IDX_NAME, load_image_folders, read_idx, read_idx_folder
from jaxaudit.data.labels import encode_labels, flat
from jaxaudit.data.memory import MAX_BYTES, refuse_larger
from jaxaudit.data.paths import entries, exists, expanded
from jaxaudit.data.selection import CLASS_NAMES, SPLITS, choose_splits, find_pairs
from jaxaudit.errors import InputError

TABLES = (".csv", ".parquet")
KINDS = (".npz", *TABLES)


def load_path(
    path: str | Path,
    *,
    split: str = "",
    size: tuple[int, int] | None = None,
    gray: bool = True,
    label: str | None = None,
    drop: Sequence[str] = (),
    groups: Sequence[str] = (),
    exact: bool = False,
) -> Examples:
    """The labelled records in a file or folder, named after it.

    | path | holds |
    |---|---|
    | `.npz` | inputs and labels under usual names (`selection`), optionally `class_names` |
    | folder of `.npy` | as the arrays of a `.npz` |
    | `.csv`, `.parquet` | see `own_table.read_own_table` |
    | IDX folder | MNIST's four files, gzipped or not; see `images.read_idx` |
    | folder of folders | see `images.load_image_folders`; or such folders called train and test |

    Labels may have any form of `labels.encode_labels`; they are numbered over all splits together, so that the splits
    of one source agree. Images (three axes or more) of whole numbers within 0..255 become `uint8`, those of `uint16`
    stay that, everything else becomes `float32`, unscaled. Pickled data are never read.

    Args:
        split: "train", "test", "validation" or "all" (one after the other); empty: the records without a split, else
            train, else the only split there is.
        size: (height, width) for folders of images that differ in size: each is resized as by `prepare_images`. Images
            of one size are not changed.
        gray: as for `prepare_images`, if sizes differ.
        label, drop, groups: for CSV and Parquet: see `tables.own_table.read_own_table`.
        exact: inputs keep the type in which they are stored, and numbers in text become `float64`: for files that are
            shared. Other sets are compared with `comparable` of such inputs.
    """
    path = expanded(path)
    if not exists(path):
        raise InputError(f"{path}: there is no such file or folder; is the path right?")
    stored = _checked if exact else comparable
    if path.is_dir():
        refuse_columns(path.name, label, drop)
        return _from_folder(path, split, size, gray, stored)
    suffix = path.suffix.lower()
    if suffix == ".npz":
        archive = NpzArrays(path)
        return _from_named(archive.names, archive.read, path.name, split, stored)
    if suffix not in KINDS:
        refuse_pickle(path)
        raise InputError(f"{path}: is of an unknown kind; give {_KNOWN}.")
    choose_splits([""], split, path.name)
    # Imported here because pyarrow takes a tenth of a second.
    from jaxaudit.data.tables.own_table import read_own_table

    return read_own_table(path, label=label, drop=drop, groups=groups).examples(exact=exact)


_Stored = Callable[[np.ndarray, str], np.ndarray]
_KNOWN = (
    f"{', '.join(KINDS)}, a folder with x.npy and y.npy, a folder of IDX files, or a folder of class-named folders of "
    "images"
)


def _from_folder(path: Path, split: str, size: tuple[int, int] | None, gray: bool, stored: _Stored) -> Examples:
    inside = [entry for entry in entries(path) if not entry.name.startswith(".")]
    if any(IDX_NAME.fullmatch(entry.name) for entry in inside):
        return _from_idx(path, split, path.name, stored)
    arrays = {entry.stem: entry for entry in inside if entry.suffix.lower() == ".npy"}
    if arrays:
        return _from_named(arrays, lambda name: read_npy(arrays[name]), path.name, split, stored)
    folders = [entry for entry in inside if entry.is_dir()]
    if not folders:
        listed = ", ".join(entry.name[:40] for entry in inside[:5]) or "it is empty"
        raise InputError(f"{path}: this folder is no data set ({listed}); name one file in it, or give {_KNOWN}.")
    splits = {SPLITS.get(entry.name.lower(), ""): entry for entry in folders}
    if "" in splits or len(splits) < len(folders):
        choose_splits([""], split, path.name)
        return load_image_folders(path, size, gray)
    chosen = choose_splits(splits, split, path.name)
    parts = [load_image_folders(splits[name], size, gray) for name in chosen]
    return joined(parts, path.name)


def _from_idx(folder: Path, split: str, name: str, stored: _Stored) -> Examples:
    splits, class_names = read_idx_folder(folder)
    parts = []
    for chosen in choose_splits(splits, split, name):
        file, labels = splits[chosen]
        parts.append(Examples(stored(read_idx(file), file.name), labels, class_names, name))
    return joined(parts, name)


def _from_named(
    names: Iterable[str], read: Callable[[str], np.ndarray], source: str, split: str, stored: _Stored
) -> Examples:
    """Records from a mapping of names to arrays; only the needed arrays are read."""
    names = list(names)
    pairs = find_pairs(names, source)
    chosen = choose_splits(pairs, split, source)
    labels = [flat(read(pair.labels)) for pair in pairs.values()]
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
    rows = dict(zip(pairs, np.split(codes, np.cumsum([len(part) for part in labels])[:-1]), strict=True))
    inputs = {s: stored(read(pairs[s].inputs), source) for s in chosen}
    return joined([Examples(inputs[s], rows[s], class_names, source) for s in chosen], source)


def refuse_columns(source: str, label: str | None, drop: Sequence[str]) -> None:
    """Refuses names of columns for a set that has none."""
    if label is not None or drop:
        argument = "`drop`" if label is None else "`label`"
        raise InputError(f"{source}: has no named columns, so {argument} means nothing; leave it out.")


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
