"""Files of a few records in the formats of well-known sets."""

import gzip
import io
import struct
import tarfile
from pathlib import Path

import numpy as np

IDX_CODES = {"u1": 8, "i1": 9, ">i2": 11, ">i4": 12, ">f4": 13, ">f8": 14}
PERSON = "{}, State-gov, 77516, Bachelors, 13, Never-married, Sales, Wife, White, {}, 2174, 0, 40, {}, {}"


def packed(content: bytes) -> bytes:
    """By gzip, without the time."""
    return gzip.compress(content, mtime=0)


def idx_bytes(array: np.ndarray, code: str = "u1") -> bytes:
    header = bytes([0, 0, IDX_CODES[code], array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(code).tobytes()


def write_mnist(folder: Path, ending: str = "-idx{}-ubyte.gz") -> Path:
    """Images whose every pixel is their label: 7 to train, 0 to 6, and 4 to test, without 0."""
    folder.mkdir(exist_ok=True)
    for split, labels in (("train", np.arange(7)), ("t10k", np.arange(1, 5))):
        images = np.repeat(labels, 12).reshape(-1, 3, 4)
        for role, array in (("images", images), ("labels", labels)):
            path = folder / (f"{split}-{role}" + ending.format(array.ndim))
            path.write_bytes(packed(idx_bytes(array)) if path.suffix == ".gz" else idx_bytes(array))
    return folder


def write_archive(path: Path, *files: tuple[str, bytes], folder: bool = True) -> Path:
    """A tar archive, in which a folder may stand before the files."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content in (*([("data", None)] if folder else []), *files):
            info = tarfile.TarInfo(name)
            info.type, info.size = (tarfile.DIRTYPE, 0) if content is None else (tarfile.REGTYPE, len(content))
            archive.addfile(info, io.BytesIO(content or b""))
    path.write_bytes(packed(file.getvalue()))
    return path


def write_adult(folder: Path) -> None:
    """UCI's two files: three men, and two women, packed and with something missing."""
    lines = [PERSON.format(39, sex, "?" if sex == "Female" else "Japan", "<=50K") for sex in ("Male", "Female")]
    (folder / "adult.data").write_text(f"{lines[0]}\n" * 3)
    (folder / "adult.test.gz").write_bytes(packed(f"|comment\n{lines[1]}.\n{lines[1]}.\n".encode()))


def write_location(folder: Path) -> None:
    """Three check-ins at three places, of two classes."""
    content = b'"2",0,1,1\n"10",1,0,1\n"2",0,0,0\n'
    write_archive(folder / "dataset_location.tgz", ("bangkok", content), folder=False)


TABLES = {"adult": write_adult, "location": write_location}
