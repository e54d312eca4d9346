"""The groups of records that a command line names, or that `jaxaudit deal` wrote into the files of the sets.

One rule for every command with groups: where none are named, those that the files of all sets have are taken, and
stderr says so. Records that were dealt by groups would else be compared, or left out, one by one, as if they had been
dealt so: p-values would be too small, and what is measured would be that of a record in place of a person.
"""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from jaxaudit.cli.options import Options, fields_of, with_values
from jaxaudit.cli.parsers import is_texts
from jaxaudit.cli.progress import say
from jaxaudit.cli.sets import Held
from jaxaudit.data.group_values import COLUMN, are_dealt
from jaxaudit.data.groups import Groups, as_groups, groups_file, groups_in_file, load_groups
from jaxaudit.data.paths import expanded
from jaxaudit.data.texts import read_texts
from jaxaudit.errors import InputError, without_folders


def with_dealt_groups(options: Options, **files: str | None) -> Options:
    """The options with the groups that the files of all sets have, where none were given; says so on stderr.

    Of one set alone only the random numbers of a deal are groups: nothing else tells them from another array of this
    name. Of several sets an array of an archive, and a key of texts, are groups if no value stands in two sets.

    Args:
        options: of any command.
        files: the file of each set, by the option of its groups; None if there is no such set.
    """
    values_of_options = {field.name: field.value for field in fields_of(options)}
    sets = {option: file for option, file in files.items() if file is not None}
    if any(values_of_options[option] is not None for option in files):
        return options
    groups_by_option = {option: _written_groups(file) for option, file in sets.items()}
    distinct = [np.unique(values) for values in groups_by_option.values() if values is not None]
    if not distinct or (len(sets) == 1 and not are_dealt(distinct[0])):
        return options
    if len(distinct) < len(sets):
        without = next(sets[option] for option, values in groups_by_option.items() if values is None)
        say(f"groups: none. {without_folders(without)} has no {COLUMN!r}, as the file of another set has")
        return options
    if sum(map(len, distinct)) > len(np.unique(np.concatenate(distinct))):
        say(f"groups: none. Values of {COLUMN!r} of the files stand in several sets, as of no deal by groups")
        return options
    say(f"groups: those that the files have ({COLUMN}), so groups are taken whole; --groups names others")
    return with_values(options, **dict.fromkeys(sets, COLUMN))


def with_groups_of_sets(options: Options) -> Options:
    """As `with_dealt_groups`, of query set, holdout and known members; without a holdout only coins deal groups."""
    data, coins = options.data, getattr(options.data, "coins", False)
    if getattr(data, "challenge", None) is not None or (data.holdout is None and not coins):
        return options
    members = {"members_groups": data.members} if hasattr(data, "members") else {}
    return with_dealt_groups(options, groups=data.query, holdout_groups=data.holdout, **members)


def _written_groups(data: str) -> Shaped[np.ndarray, " records"] | None:
    """As `groups_in_file`, of texts, too."""
    if not is_texts(data):
        return groups_in_file(data)
    values = read_texts(expanded(data)).column(COLUMN)
    return None if values is None else np.array(values)


def group_columns(data: Held) -> tuple[str, ...]:
    """Names of columns with groups, which are not inputs in any set."""
    groups = (data.groups, data.holdout_groups, getattr(data, "members_groups", None))
    return tuple(dict.fromkeys(group for group in groups if group is not None and groups_file(group) is None))


def read_groups(text: str, data: str, records: int, of: str, data_dir: Path | None) -> Shaped[np.ndarray, " records"]:
    """As `load_groups`, and the values of a key of texts."""
    if not is_texts(data) or groups_file(text) is not None:
        return load_groups(text, data, records, of, data_dir)
    values = read_texts(expanded(data)).column(text)
    if values is None:
        raise InputError(f"groups {text!r}: is neither a file nor a key of the texts of the {of}.")
    return np.array(values)


def read_dealt_groups(data: Any, query: int, holdout: int | None, members: int | None = None) -> Groups | None:
    """The groups of the records of each set, if groups were dealt whole.

    Args:
        data: the options of the sets.
        query, holdout, members: the number of records of each set; None if there is no such set.

    Returns:
        None if no groups are given.
    """
    if data.groups is None:
        return None
    groups = read_groups(data.groups, data.query or "", query, "query set", data.data_dir)
    if holdout is None:
        return as_groups(groups, groups[:0])
    member_groups, of_members = None, getattr(data, "members_groups", None)
    if of_members is not None and members is not None:
        member_groups = read_groups(of_members, data.members or "", members, "members", data.data_dir)
    return as_groups(
        groups,
        read_groups(data.holdout_groups, data.holdout or "", holdout, "holdout", data.data_dir),
        member_groups,
    )
