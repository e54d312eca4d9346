"""Archives: .npz, gzip and tar whose members are not what they should be."""

import gzip
import io
import lzma
import random
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable
from functools import cache

from fuzz import arrays, names
from fuzz.damage import INTEGERS, damaged

Way = Callable[[bytes, random.Random], tuple[bytes, str]]
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
MEMBERS = ("x.npy", "y.npy", "../x.npy", "/etc/x.npy", "x", ".npy", "x.npy/", "x_train.npy", "class_names.npy", "0.npy")
# Where each number stands in a member's entry in the directory at the end, and in its own header.
ENTRY = {"version": (6, "H"), "flags": (8, "H"), "method": (10, "H"), "crc": (16, "I"), "packed": (20, "I")}
ENTRY |= {"size": (24, "I"), "name": (28, "H"), "extra": (30, "H"), "comment": (32, "H"), "offset": (42, "I")}
HEADER = {"version": (4, "H"), "flags": (6, "H"), "method": (8, "H"), "size": (22, "I"), "name": (26, "H")}


def npz(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(member.filename, archive.read(member)) for member in archive.infolist()]
            method = archive.infolist()[0].compress_type
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, ValueError, IndexError):
        return damaged(data, choose)
    place = choose.randrange(len(members))
    said = ""
    match choose.randrange(10):
        case 0 | 1 | 2 | 3:
            name, content = members[place]
            content, said = (arrays.npy if choose.random() < 0.75 else damaged)(content, choose)
            members[place], said = (name, content), f"{name}: {said}"
        case 4:
            name = choose.choice((*MEMBERS, names.odd(choose) + ".npy", "n" * 60_000 + ".npy"))
            members[place], said = (name[:65_000], members[place][1]), f"{members[place][0]} called {name[:60]!r}"
        case 5:
            members.append(
                choose.choice(((members[place][0], b""), members[place], ("z.npy", bomb()), ("big", bomb())))
            )
            said = f"joined by {members[-1][0]!r}"
        case 6:
            members, said = members[:place] + members[place + 1 :], f"without {members[place][0]}"
        case 7:
            count, method = choose.choice((100, 5000)), zipfile.ZIP_STORED
            members, said = [(f"{k}.npy", members[place][1]) for k in range(count)], f"{count} members"
        case 8:
            return patched(data, choose)
        case _:
            method = choose.choice(METHODS)
    said += f" (method {method})"
    packed = zipped(members, method)
    return patched(packed, choose, said) if choose.random() < 0.3 else (packed, said)


def zipped(members: list[tuple[str, bytes]], method: int) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", method) as archive:
        warnings.simplefilter("ignore")
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name.encode("utf-8", "replace").decode() or "_"), content, method)
    return file.getvalue()


def patched(data: bytes, choose: random.Random, said: str = "") -> tuple[bytes, str]:
    changed = bytearray(data)
    field = choose.choice(list(ENTRY))
    value = choose.choice((*INTEGERS, 10, 14, 45, 63, 93, 99, 0x51, 0x800, 0x41))
    places = [(b"PK\1\2", ENTRY)] if choose.random() < 0.5 else [(b"PK\1\2", ENTRY), (b"PK\3\4", HEADER)]
    for mark, fields in places:
        start = changed.find(mark)
        if start < 0 or field not in fields:
            continue
        offset, form = fields[field]
        packed = struct.pack(f"<{form}", value % (1 << 8 * struct.calcsize(form)))
        changed[start + offset : start + offset + len(packed)] = packed
    return bytes(changed), f"{said} {field} of a member made {value}"


@cache
def bomb() -> bytes:
    """A .npy file of 32 MiB of zeros, which packs to 32 KiB."""
    head = arrays.save(arrays.np.zeros((2**20, 8), "f4"))[:128]
    return head + bytes(2**25)


@cache
def packed_zeros() -> bytes:
    return gzip.compress(bytes(96 * 2**20), 6, mtime=0)


def gzipped(inner: Way) -> Way:
    def way(data: bytes, choose: random.Random) -> tuple[bytes, str]:
        try:
            content = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            return damaged(data, choose)
        match choose.randrange(8):
            case 0:
                return damaged(data, choose)
            case 1:
                more = choose.choice((data, b"\0" * 100, b"no gzip", packed_zeros()))
                return data + more, f"{len(more)} bytes behind its end"
            case 2:
                return gzip.compress(data, mtime=0), "packed twice"
            case 3:
                start = content[: choose.choice((0, 16, 600))]
                return gzip.compress(start, mtime=0) + packed_zeros(), f"96 MiB of zeros after {len(start)} bytes"
            case _:
                content, said = (inner if choose.random() < 0.75 else damaged)(content, choose)
                return gzip.compress(content, 1, mtime=0), f"within: {said}"

    return way


KINDS = (
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.DIRTYPE,
    tarfile.FIFOTYPE,
    tarfile.CHRTYPE,
    tarfile.CONTTYPE,
    b"S",
    b"Z",
)
KINDS += (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE)
SIZES = (0, 1, 600, 2**20, 3_000_000_000, 2**33 - 1, 2**40, 10**15, 2**62)


def tar(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            members = [(member.name, archive.extractfile(member).read()) for member in archive if member.isreg()]  # pyright: ignore
    except (tarfile.TarError, AttributeError, OSError, ValueError, EOFError, MemoryError):
        return damaged(data, choose)
    name, content = members[0] if members else ("a", b"1,0,1\n2,1,0\n")
    size = choose.choice(SIZES)
    match choose.randrange(6):
        case 0:
            kind = choose.choice(KINDS)
            target = choose.choice((name, "/etc/passwd", "../x", ""))
            return entry(name, b"", type=kind, linkname=target) + data, f"a member of kind {kind!r} to {target!r}"
        case 1:
            inner, said = damaged(content, choose)
            return entry(name, inner) + bytes(1024), f"in its file: {said}"
        case 2:
            block = bytearray(data)
            field, text = choose.choice(((124, b"%011o\0" % (size % 8**11)), (124, b"\x80" + size.to_bytes(11, "big"))))
            block[field : field + 12] = text
            block[148:156] = b"%06o\0 " % (sum(block[:148]) + 256 + sum(block[156:512]))
            return bytes(block), f"a header that announces {size} bytes"
        case 3:
            keys = choose.choice(
                ("size", "path", "hdrcharset", "GNU.sparse.name", "mtime", "GNU.sparse.numblocks", "uid")
            )
            value = choose.choice((str(size), "nan", "-1", names.odd(choose), "BINARY", "\0"))
            return pax({keys: value}) + data, f"a PAX record {keys}={value[:40]!r}"
        case 4:
            odd = names.odd(choose).replace("\0", "")
            return entry(odd, content) + bytes(1024), f"a file called {odd[:40]!r}"
        case _:
            many = choose.choice((2, 3000))
            return entry("d", b"", type=tarfile.DIRTYPE) * many + data, f"{many} folders before it"


def entry(name: str, content: bytes, **fields: object) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    head = info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
    return head + content + bytes(-len(content) % 512)


def pax(records: dict[str, str]) -> bytes:
    """A header of further records for the next member."""
    lines = b""
    for key, value in records.items():
        text = f" {key}={value}\n".encode("utf-8", "surrogateescape")
        length = len(text) + len(str(len(text)))
        length = len(text) + len(str(length))
        lines += str(length).encode() + text
    return entry("./PaxHeaders/x", lines, type=tarfile.XHDTYPE)
