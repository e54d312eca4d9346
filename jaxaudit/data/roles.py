"""Files by role: the sets of a folder, and where a model's outputs on them are.

A model is one thing: a folder with query.*, holdout.*, ...; a .npz with arrays of these names; a table with a column
`set`; or one file of outputs on the query set, or on a blind challenge.
"""

import os
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from jaxaudit.data.challenge import KEY, check_files, dealt_label, read_key
from jaxaudit.data.challenge import Key as ChallengeKey
from jaxaudit.data.examples import Role, Sets
from jaxaudit.data.files import TABLES
from jaxaudit.data.formats.arrays import NpzArrays
from jaxaudit.data.outputs.form import SET, OutputsPlace, titles_of
from jaxaudit.errors import InputError

OF_SETS, OF_OUTPUTS = (".npz", *TABLES, ".jsonl"), (".npz", ".npy", *TABLES)
"""Endings of the files of sets, and of outputs."""
NAMES = ", ".join(Role)


class NamedSets(NamedTuple):
    """The sets of a folder, such as `deal` writes it, or of a command line.

    Attributes:
        names: the name or path of each set.
        label: the column with the label, where the deal or the command was told; None if the files need no word.
        key: of a blind challenge; None if the deal was not blind.
    """

    names: Sets[str]
    label: str | None = None
    key: ChallengeKey | None = None


class ModelPlaces(NamedTuple):
    """Where the outputs of one model are.

    Attributes:
        name: of the file or folder.
        places: by the set that the outputs are on. Of one file without roles that is the query set.
        has_roles: whether the file or folder says which outputs are on which set.
    """

    name: str
    places: Sets[OutputsPlace]
    has_roles: bool = True


def open_folder(folder: Path) -> NamedSets:
    """The sets in a folder: query.*, and holdout.*, members.*, calibration.* where there are any.

    Raises:
        InputError: there is no query.*, or a set has two files; or the folder has the record or the key of a deal, and
            its files are not those of the deal.
    """
    files = _files_by_role(folder, OF_SETS, "the records in question")
    names = files.map(lambda _, path: str(path))
    if not os.path.lexists(folder / KEY):
        return NamedSets(names, dealt_label(folder, files))
    key = read_key(folder / KEY)
    check_files(key, folder)
    return NamedSets(names, key.label, key)


def model_places(path: Path) -> ModelPlaces:
    """Where a model's outputs are, by the sets that they are on.

    Raises:
        InputError: the file or folder cannot be read; it has no outputs on a query set, two files of one set, or parts
            of other names beside those of sets.
    """
    name = path.resolve().name
    if path.is_dir():
        files = _files_by_role(path, OF_OUTPUTS, "a model's outputs on the query set")
        return ModelPlaces(name, files.map(lambda _, file: OutputsPlace(file, model=name)))
    suffix, rows = path.suffix.lower() if path.is_file() else "", 0
    parts: list[str] = []
    if suffix == ".npz":
        parts = NpzArrays(path).names
        parts = parts if {*parts} & {*Role} else []
    elif suffix in TABLES and SET in [title.lower() for title in titles_of(path)]:
        counts = _rows_by_set(path)
        parts, rows = [*counts], counts.total()
    if not parts:
        return ModelPlaces(name, Sets(query=OutputsPlace(path)), has_roles=False)
    further = [part[:40] for part in parts if part not in [*Role]]
    if further or Role.QUERY not in parts:
        trouble = f"has outputs on {further[0]!r}" if further else "has no outputs on the query set (query)"
        raise InputError(f"{name}: {trouble}; a model's outputs by set are called {NAMES}, and nothing else is there.")
    return ModelPlaces(name, Sets(**{part: OutputsPlace(path, part, rows) for part in parts}))


def _files_by_role(folder: Path, endings: tuple[str, ...], of_query: str) -> Sets[Path]:
    """The one file of each role in a folder."""
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; name the folder with query.*: {of_query}.")
    files: dict[str, Path] = {}
    for role in Role:
        of_role = [path for path in (folder / f"{role}{ending}" for ending in endings) if os.path.lexists(path)]
        if len(of_role) > 1:
            raise InputError(f"{folder}: has {' and '.join(path.name for path in of_role)}; keep one file of a set.")
        files |= {str(role): path for path in of_role}
    if Role.QUERY not in files:
        names = ", ".join(f"query{ending}" for ending in endings)
        raise InputError(f"{folder}: has none of {names}; name the file of {of_query} so.")
    return Sets(**files)


def _rows_by_set(path: Path) -> Counter[str]:
    """The number of rows of each set in a table with a column `set`."""
    # Imported here because pyarrow takes a tenth of a second.
    from jaxaudit.data.formats.parquet_file import read_text_table

    table = read_text_table(path, lambda title: title.strip().lower() == SET)
    place = [title.strip().lower() for title in table.header].index(SET)
    return Counter(cell.strip().lower() for cell in table.columns[place].to_pylist())
