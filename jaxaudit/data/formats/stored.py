"""The arrays of a .npz file or of a folder of .npy files, of which only what is looked at is read."""

import struct
import zipfile
from io import BufferedReader
from pathlib import Path

import numpy as np

from jaxaudit.data.formats.arrays import NpzArrays, StoredArray
from jaxaudit.data.formats.parsing import parsing
from jaxaudit.data.paths import entries, open_data

LOCAL_HEADER = struct.Struct("<4s5H3L2H")
"""Of a member of an archive; its last two numbers say how long the name and the extra field after it are."""
SUFFIX = ".npy"


def stored_arrays(path: Path) -> dict[str, np.ndarray | StoredArray]:
    """The arrays by name; those that a .npz holds compressed (`np.savez_compressed`) are unpacked into memory.

    Raises:
        InputError: when it is neither a .npz nor a folder, is cut short or damaged, holds pickled objects, or holds
            more compressed arrays than memory allows.
    """
    if path.is_dir():
        inside = [each for each in entries(path) if not each.name.startswith(".")]
        return {each.stem: StoredArray(each, links=True) for each in inside if each.suffix.lower() == SUFFIX}
    with (
        open_data(path) as file,
        parsing(f"{path}: is not a readable .npz file", "save it with np.savez."),
        zipfile.ZipFile(file) as archive,
    ):
        members = [each for each in archive.infolist() if each.filename.endswith(SUFFIX)]
        stored = {
            each.filename.removesuffix(SUFFIX): (_data_of(file, each), each.file_size)
            for each in members
            if each.compress_type == zipfile.ZIP_STORED
        }
    unpacked = NpzArrays(path) if len(stored) < len(members) else None
    return {
        name: StoredArray(path, *stored[name], links=True) if name in stored else unpacked.read(name)  # pyright: ignore
        for name in (each.filename.removesuffix(SUFFIX) for each in members)
    }


def _data_of(file: BufferedReader, member: zipfile.ZipInfo) -> int:
    """Where the bytes of a member begin."""
    file.seek(member.header_offset)
    header = LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))
    if header[0] != b"PK\3\4":
        raise ValueError("a member has no header")
    return member.header_offset + LOCAL_HEADER.size + header[-2] + header[-1]
