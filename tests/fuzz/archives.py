"""Archives, .npz and gzip, whose members are not what they should be."""

import gzip
import io
import lzma
import random
import warnings
import zipfile
import zlib
from collections.abc import Callable
from functools import cache

from fuzz import arrays, names
from fuzz.damage import damaged

Way = Callable[[bytes, random.Random], tuple[bytes, str]]
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
MEMBERS = ("x.npy", "y.npy", "../x.npy", "/etc/x.npy", "x", ".npy", "x.npy/", "x_train.npy", "class_names.npy", "0.npy")


def npz(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(member.filename, archive.read(member)) for member in archive.infolist()]
        name, content = members.pop(choose.randrange(len(members)))
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, ValueError):
        return damaged(data, choose)
    said = f"without {name}"
    match choose.randrange(8):
        case 0 | 1 | 2 | 3:
            content, said = (arrays.npy if choose.random() < 0.75 else damaged)(content, choose)
            members.append((name, content))
        case 4:
            other = choose.choice((*MEMBERS, names.odd(choose) + ".npy", "n" * 60_000 + ".npy"))[:65_000]
            members.append((other, content))
            said = f"{name} called {other[:60]!r}"
        case 5:
            members += [(name, content), choose.choice(((name, b""), (name, content), ("z.npy", bomb())))]
            said = f"joined by {members[-1][0]!r}"
        case 6:
            members += [(f"{place}.npy", content) for place in range(choose.choice((100, 5000)))]
            said = "many members"
        case _:
            pass
    return zipped(members, choose.choice(METHODS)), said


def zipped(members: list[tuple[str, bytes]], method: int) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", method) as archive:
        warnings.simplefilter("ignore")
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name.encode("utf-8", "replace").decode() or "_"), content, method)
    return file.getvalue()


@cache
def bomb() -> bytes:
    """A .npy file of 32 MiB of zeros, which packs to 32 KiB."""
    return arrays.save(arrays.np.zeros((2**20, 8), "f4"))


@cache
def packed_zeros() -> bytes:
    return gzip.compress(bytes(96 * 2**20), 6, mtime=0)


def gzipped(inner: Way) -> Way:
    def way(data: bytes, choose: random.Random) -> tuple[bytes, str]:
        try:
            content = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            return damaged(data, choose)
        match choose.randrange(6):
            case 0:
                more = choose.choice((data, b"\0" * 100, b"no gzip", packed_zeros()))
                return data + more, f"{len(more)} bytes behind its end"
            case 1:
                start = content[: choose.choice((0, 16, 600))]
                return gzip.compress(start, mtime=0) + packed_zeros(), f"96 MiB of zeros after {len(start)} bytes"
            case _:
                content, said = (inner if choose.random() < 0.75 else damaged)(content, choose)
                return gzip.compress(content, 1, mtime=0), f"within: {said}"

    return way
