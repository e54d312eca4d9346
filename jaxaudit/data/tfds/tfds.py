"""Parses names of TensorFlow Datasets sets, and finds prepared sets."""

import json
import os
import re
from pathlib import Path
from typing import NamedTuple

from jaxaudit.data.paths import entries, exists, expanded, read_small
from jaxaudit.data.selection import split_name
from jaxaudit.errors import InputError

_NAME = re.compile(r"(?P<base>\w+)(?:/(?P<config>[\w\-.+]+))?(?::(?P<version>\d+\.\d+\.\d+))?", re.ASCII)
_LONGEST_NAME = 200  # a folder's cannot have more than 255 bytes


class SetName(NamedTuple):
    """A TFDS name: `base[/config][:version]`."""

    base: str
    config: str = ""
    version: str = ""


def parse_set_name(name: str) -> SetName | None:
    """`name` as a TFDS name, or None where it cannot be one.

    >>> parse_set_name("emnist/letters:3.1.0")
    SetName(base='emnist', config='letters', version='3.1.0')
    """
    match = _NAME.fullmatch(name) if len(name) <= _LONGEST_NAME else None
    return SetName(**match.groupdict("")) if match else None


def data_folder(data_dir: Path | None) -> Path | None:
    """The data directory: `data_dir`, else `$JAXAUDIT_DATA`, else none."""
    chosen = data_dir or os.environ.get("JAXAUDIT_DATA")
    return expanded(chosen) if chosen else None


def on_disk(source: str, data_dir: Path | None) -> Path | None:
    """The file or folder of this name, here or else in the data directory; None if there is none."""
    in_folder, folder = expanded(source), data_folder(data_dir)
    path = in_folder if exists(in_folder) or folder is None else folder / source
    return path if exists(path) else None


def file_and_split(name: str, data_dir: Path | None) -> tuple[Path | None, str]:
    """The path and the split of the set `NAME[@SPLIT]`.

    The path is None if NAME is no file or folder, here or in `data_dir`. The split is empty if none is named. An
    existing path may itself contain an `@`.
    """
    # A path may itself contain an '@'.
    source, split = (name, "") if exists(expanded(name)) else split_name(name)
    return on_disk(source, data_dir), split


def set_folders(data_dir: Path | None) -> tuple[Path, ...]:
    """The folders in which prepared sets are searched: the data directory, `$TFDS_DATA_DIR`,
    `~/tensorflow_datasets`.
    """
    candidates = [data_folder(data_dir), os.environ.get("TFDS_DATA_DIR"), Path("~/tensorflow_datasets")]
    folders = (expanded(folder) for folder in candidates if folder)
    # If the home folder is unknown, the path still begins with `~`, and would be relative to the current folder.
    return tuple(dict.fromkeys(folder for folder in folders if folder.parts[:1] != ("~",)))


def find_prepared(name: SetName, folders: tuple[Path, ...]) -> Path | None:
    """The folder of the prepared set, in the first of `folders` that has it.

    The newest version unless one is named. If no config is named: the default config recorded by TFDS on disk, or the
    only one.
    """
    for folder in folders:
        root = folder / name.base
        if name.config:
            root = root / name.config
        elif not _versions(root):
            configs = sorted(path.name for path in _subfolders(root) if _versions(path))
            if default := _default_config(root):
                configs = [default] if default in configs else []
            if len(configs) > 1:
                raise InputError(
                    f"{name.base} is prepared in {folder} with several configs; name one: "
                    + ", ".join(f"{name.base}/{config}" for config in configs)
                )
            if configs:
                root = root / configs[0]
        versions = _versions(root)
        if name.version:
            versions = [version for version in versions if version.name == name.version]
        if versions:
            return versions[-1]
    return None


def prepared_names(folder: Path) -> list[str]:
    """The names of the TensorFlow Datasets that are prepared in a folder, as `NAME`, or `NAME/CONFIG` for each config.

    Empty if the folder does not exist.
    """
    names = []
    for root in _subfolders(folder):
        if _versions(root):
            names.append(root.name)
        names += [f"{root.name}/{config.name}" for config in _subfolders(root) if _versions(config)]
    return names


def is_prepared_folder(path: Path) -> bool:
    """Whether `path` is the folder of one version of a prepared set."""
    return (path / "dataset_info.json").is_file() and (path / "features.json").is_file()


def _subfolders(path: Path) -> list[Path]:
    return [child for child in entries(path) if child.is_dir()] if exists(path) and path.is_dir() else []


def _versions(path: Path) -> list[Path]:
    version_folders = [child for child in _subfolders(path) if re.fullmatch(r"\d+\.\d+\.\d+", child.name)]
    return sorted(
        filter(is_prepared_folder, version_folders), key=lambda child: [int(part) for part in child.name.split(".")]
    )


def _default_config(root: Path) -> str | None:
    try:
        name = json.loads(read_small(root / ".config" / "metadata.json", 2**20)).get("default_config_name")
    except (ValueError, AttributeError, RecursionError):
        return None
    return name if isinstance(name, str) else None


def known_names() -> tuple[str, ...]:
    """The names of the sets that the installed TensorFlow Datasets can prepare."""
    import tensorflow_datasets as tfds

    return tuple(tfds.list_builders(with_community_datasets=False))
