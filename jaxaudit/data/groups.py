"""Groups of records, such as patients or near-copies, that are kept whole in every random split.

No message and no result contains a group's value.
"""

from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
from jaxtyping import Int, Shaped

from jaxaudit.data.examples import Examples, Role, Sets
from jaxaudit.data.formats import TABLES
from jaxaudit.data.formats.arrays import NpzArrays, read_npy
from jaxaudit.data.labels import COLUMN, LONGEST, checked_groups, flat, join_groups, split_as
from jaxaudit.data.paths import expanded
from jaxaudit.data.selection import choose_splits, find_pairs, named_in, parse_split, read_slices
from jaxaudit.data.tfds import file_and_split
from jaxaudit.errors import InputError
from jaxaudit.json_types import hash_of


def groups_by_role(sets: Sets[Examples]) -> Sets[Int[np.ndarray, " _"]]:
    """The group of each record of query set, holdout and known members, numbered from 0 in the order in which they
    first occur; of no set if records were dealt one by one.

    >>> one = Examples(np.zeros((3, 1)), np.array([0, 0, 0]), ("a",), "one", groups=np.array(["b", "a", "b"]))
    >>> groups_by_role(Sets(query=one.take(np.array([0, 2])), holdout=one.take(slice(1, 2)), calibration=one))
    Sets(query=array([0, 0]), holdout=array([1]))
    """
    dealt_sets = sets.only(Role.QUERY, Role.HOLDOUT, Role.MEMBERS)
    values = dealt_sets.map(lambda _, examples: examples.groups)
    if 0 < len(values) < len(dealt_sets):
        with_groups, without = (
            " and ".join(role.words for role in dealt_sets if (role in values) == has) for has in (True, False)
        )
        raise InputError(
            f"records of {with_groups} have groups, and those of {without} have none: give each record of all of them "
            "its group."
        )
    return number_sets(values)


def number_sets(values: Sets[Shaped[np.ndarray, " _"]]) -> Sets[Int[np.ndarray, " _"]]:
    """Groups from one value per record, numbered from 0 in the order in which they first occur."""
    checked = [checked_groups(values_of_set, role.words) for role, values_of_set in values.items()]
    if not checked:
        return Sets()
    numbers = join_groups(checked)
    groups = Sets(**dict(zip(values, split_as(numbers, checked), strict=True)))
    for (first, first_groups), (second, other) in combinations(groups.items(), 2):
        common_groups = len(np.intersect1d(first_groups, other))
        if common_groups:
            raise InputError(
                f"{common_groups} of {numbers.max() + 1} groups have records in the {first.words} and in the "
                f"{second.words}: groups must be dealt whole. Give all records of a group to one of them (`deal` does, "
                "given `groups`), or leave groups out if records were dealt one by one."
            )
    return groups


def groups_in_words(groups: Sets[Int[np.ndarray, " _"]]) -> str:
    """The number of groups of each set that has some."""
    counts = {role.words: len(np.unique(of_set)) for role, of_set in groups.items()}
    return f"{', '.join(f'{count:,} of the {words}' for words, count in counts.items() if count)}, dealt whole"


def hash_of_groups(groups: Sets[Int[np.ndarray, " _"]]) -> str:
    """`blake2b:...` of the partition of the sets into groups, whatever the groups are called."""
    query_size = len(groups[Role.QUERY]).to_bytes(8, "little")
    return hash_of([query_size, np.concatenate([*groups.values()]).astype("<i8").tobytes()])


def groups_file(text: str) -> Path | None:
    """The file that `--groups` names; None if it is the name of an array or column in the set's own file."""
    path = expanded(text)
    return path if path.suffix.lower() == ".npy" else None


def groups_in_file(data: str) -> Shaped[np.ndarray, " records"] | None:
    """The groups, a value a record, that `jaxaudit deal` wrote into this file (`COLUMN`); None if it did not."""
    path = expanded(data)
    if path.suffix.lower() not in (".npz", *TABLES) or not path.is_file():
        return None
    if path.suffix.lower() == ".npz":
        has_groups = COLUMN in NpzArrays(path).names
    else:
        # Imported here because pyarrow takes a tenth of a second.
        from jaxaudit.data.formats.parquet_file import has_dealt_groups, read_text_table

        has_groups = has_dealt_groups(read_text_table(path, lambda name: name == COLUMN))
    return _in_set(COLUMN, data) if has_groups else None


def load_groups(text: str, data: str, records: int, of: str) -> Shaped[np.ndarray, " records"]:
    """One value per record, integers or text.

    Args:
        text: a `.npy`, or the name of an array or column in the `.npz`, `.csv` or `.parquet` that `data` names.
            In a `.npz` of several splits that with the split in its name: `patient_train` is `patient` of `train`.
        of: the name of the set, with its number of `records`, in messages.
    """
    path = groups_file(text)
    values = checked_groups(flat(_in_set(text, data) if path is None else read_npy(path)), of)
    if len(values) != records:
        raise InputError(
            f"the groups of the {of} have {len(values)} values, but it has {records} records; give one each."
        )
    return values


def load_ids(key: str, data: str, records: int, of: str) -> Shaped[np.ndarray, " records"]:
    """The caller's own name of each record, as text, from the column or array `key` of the set's own file."""
    values = flat(_in_set(key, data))
    if len(values) != records or values.dtype.kind not in "iuU" or values.dtype.itemsize > 4 * LONGEST:
        raise InputError(
            f"the ids of the {of} ({key!r}) must be one integer, or one text of at most {LONGEST} characters, for each "
            f"of its {records:,} records."
        )
    return values.astype(str)


def _in_set(key: str, data: str) -> np.ndarray:
    """The array or column `key` of the set's own file, for the records that the set's name selects."""
    path, split = file_and_split(data)
    suffix = path.suffix.lower() if path is not None and path.is_file() else None
    if path is None or suffix not in (".npz", *TABLES):
        raise InputError(
            f"{key!r}: the set is no .npz, .csv or .parquet of which an array or column could be meant. (Groups may "
            "also be a .npy with one value per record.)"
        )
    read = partial(_of_archive, NpzArrays(path), key) if suffix == ".npz" else partial(_of_table, path, key)
    if not split:
        return read("")
    return np.concatenate([whole[rows] for whole, rows in read_slices(parse_split(split), read, data)])


def _of_archive(archive: NpzArrays, key: str, split: str) -> np.ndarray:
    source, parts = archive.path.name, []
    pairs = find_pairs(archive.names, source)
    for split_name in choose_splits(pairs, split, source):
        alone = len(pairs) == 1 and key in archive.names
        name = key if alone else named_in(archive.names, key, split_name)
        # A slice with another number of values would belong to other records.
        records = archive.header(pairs[split_name][1]).shape[:1]
        if name is None or archive.header(name).shape[:1] != records:
            raise InputError(
                f"{key!r}: is no .npy, and {source} has no array of that name with a value for each "
                f"record{f' of the split {split_name}' if split_name else ''} (arrays: "
                f"{', '.join(map(repr, archive.names[:10]))}); is the name right?"
            )
        parts.append(archive.read(name))
    return np.concatenate(parts)


def _of_table(path: Path, key: str, split: str) -> np.ndarray:
    """The values of all records of a table with named columns, which has one split."""
    # Imported here because pyarrow takes a tenth of a second.
    from jaxaudit.data.formats.parquet_file import read_text_table
    from jaxaudit.data.formats.text_table import trimmed

    table = read_text_table(path, lambda name: name == key)
    if table.header.count(key) != 1:
        raise InputError(f"{key!r}: {path.name} has not one column of that name; is the name right?")
    choose_splits([""], split, path.name)
    # No longer than may be refused: the cells of an array are all as wide as the longest.
    return np.array([text[: LONGEST + 1] for text in trimmed(table.column(key)).to_pylist()], str)
