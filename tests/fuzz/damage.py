"""Ways to change a file: its bytes, whatever they mean, or what its format means."""

import copy
import gzip
import io
import json
import lzma
import random
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any

import numpy as np

from fuzz import odd

Way = Callable[[bytes, random.Random], tuple[bytes, str]]
"""Content changed, and how."""


def damaged(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    """An end or a piece cut off, put in, repeated or turned over; or a number made another."""
    start, length = near_an_end(len(data), choose), choose.choice((1, 1, 2, 4, 16, 200))
    head, piece, rest = data[:start], data[start : start + length], data[start + length :]
    match choose.randrange(8):
        case 0 | 1:
            return head, f"cut to {start} of {len(data)} bytes"
        case 2:
            return choose.choice((data[start:], head + rest)), f"the first {start} bytes, or {length} there, cut off"
        case 3:
            times = choose.choice((2, 2, 3, 100, 2000))
            return head + piece * times + rest, f"{length} bytes at {start}, {times} times"
        case 4:
            count = choose.choice((1, 1, 4, 100, 5000))
            more = choose.choice((choose.randbytes(count), *(count * each for each in (b"\0", b"\xff", b"\n", b","))))
            return head + more + piece + rest, f"{count} bytes {more[:4]!r}... put in at {start}"
        case 5:
            form = choose.choice(("B", "<H", ">H", "<I", ">I", "<Q"))
            size, start = struct.calcsize(form), start // 4 * 4
            number = choose.choice([each for each in odd.INTEGERS if each < 1 << 8 * size])
            return data[:start] + struct.pack(form, number) + data[start + size :], f"{number} as {form} at {start}"
        case 6 if numbers := list(re.finditer(rb"-?[0-9]+(\.[0-9]+)?", data[: 2**20])):
            match, digits = choose.choice(numbers), choose.choice(odd.NUMERALS)
            changed = data[: match.start()] + digits + data[match.end() :]
            return changed, f"the number at {match.start()} made {digits[:24].decode()}"
        case _:
            mask = 1 << choose.randrange(8)
            return head + bytes(each ^ mask for each in piece) + rest, f"{mask} in {length} bytes at {start} flipped"


def near_an_end(length: int, choose: random.Random) -> int:
    """A place among so many, more often near the beginning or the end, where headers stand."""
    near = choose.randrange(min(length, 128)) if length else 0
    return choose.choice((near, near, max(0, length - 1 - near), *[choose.randrange(max(1, length))] * 2))


def npy(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    """The same numbers as another array, another array, or another header."""
    shape = choose.choice(((12,), (12, 1), (12, 4), (12, 6, 5), (11, 4), (0, 4), (12, 0), (), (20, 4), (10**5, 3)))
    kind = choose.choice(("f8", "f4", "f2", "i8", "u8", "u1", "?", "U3", "S3", "c8", "M8[s]", ">f4", "f16", "O"))
    if choose.random() < 0.35:
        with np.errstate(all="ignore"):
            content = saved(np.full(shape, choose.choice((0, 1, np.nan, np.inf, -1, 2**53, 1e300))).astype(kind))
        return content, f"{kind} of {shape}"
    text = f"{{'descr': {choose.choice(odd.DTYPES)}, 'fortran_order': False, 'shape': {choose.choice(odd.SHAPES)}, }}"
    encoded = choose.choice((text, text, text, text.replace("}", ", 'more': 1}"), *odd.HEADERS)).encode() + b"\n"
    version = choose.choice((1, 1, 2, 3, 9))
    size = choose.choice((*[len(encoded)] * 6, 0, 65535, len(encoded) + 9))
    head = struct.pack("<H", min(size, 65535)) if version == 1 else struct.pack("<I", size)
    body = data[10 + int.from_bytes(data[8:10], "little") :]
    return b"\x93NUMPY" + bytes((version, 0)) + head + encoded + body, f"a header of {encoded[:120]!r}"


def saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    """A member damaged, called otherwise, gone, or there again."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(member.filename, archive.read(member)) for member in archive.infolist()]
        name, content = members.pop(choose.randrange(len(members)))
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, ValueError):
        return damaged(data, choose)
    other = choose.choice(odd.MEMBERS).encode("utf-8", "replace").decode() + ".npy"
    changed, said = choose.choice((npy, npy, damaged))(content, choose)
    others = ([], [(other, content)], [(name, content), (name, b"")], [(f"{k}.npy", content) for k in range(5000)])
    instead = choose.choice((*others, *[[(name, changed)]] * 4))
    file, method = io.BytesIO(), choose.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA))
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", method) as archive:
        warnings.simplefilter("ignore")
        for each, content in (*members, *instead):
            archive.writestr(zipfile.ZipInfo(each), content, method)
    return file.getvalue(), f"for {name}: {[each[:60] for each, _ in instead[:2]]}, or {said}"


def packed(inner: Way) -> Way:
    """Gzip, with something behind its end or other content."""

    def way(data: bytes, choose: random.Random) -> tuple[bytes, str]:
        try:
            content = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            return damaged(data, choose)
        if choose.random() < 0.3:
            more = choose.choice((data, b"\0" * 100, b"no gzip"))
            return data + more, f"{len(more)} bytes behind its end"
        content, said = choose.choice((inner, inner, damaged))(content, choose)
        return gzip.compress(content, 1, mtime=0), f"within: {said}"

    return way


def safetensors(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    """A header that says something else, or another length of its own."""
    length = int.from_bytes(data[:8], "little")
    text, said = document(data[8 : 8 + length], choose)
    size = choose.choice((*[len(text)] * 5, 0, 2**40, 2**63, len(text) + 1))
    return size.to_bytes(8, "little") + text + data[8 + length :], f"{said}; of {size} bytes"


def document(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    """One value of a JSON document gone, renamed, repeated, made another of the same document or an odd one."""
    try:
        root = [json.loads(data if len(data) < 2**20 else "")]
    except (ValueError, RecursionError):
        return damaged(data, choose)
    holder, key = choose.choice([*slots(root)])
    value = holder[key]
    of_a_model = isinstance(root[0], dict) and {"model_type", "tokenizer_class"} & {*root[0]}
    match choose.randrange(8):
        case 4 | 5 | 6 | 7 if of_a_model:
            key = choose.choice([*odd.ENTRIES])
            root[0][key] = value = choose.choice(odd.ENTRIES[key])
        case 0:
            del holder[key]
            value = "gone"
        case 1 if isinstance(holder, dict):
            holder[choose.choice(odd.NAMES)] = holder.pop(key)
        case 2 if isinstance(holder, list):
            # Lists of lists of a thousand copies would be larger than any file.
            holder += [value] * choose.choice((1, 9, 9 if isinstance(value, dict | list) else 1000))
        case 3:
            other, place = choose.choice([*slots(root)])
            holder[key] = value = copy.deepcopy(other[place])
        case _:
            likely = {int: odd.NUMBERS, float: odd.NUMBERS, list: odd.EXTENTS}.get(type(value), odd.VALUES)
            kinds = (odd.NAMES, odd.CODE, odd.VALUES, odd.NUMBERS, likely, likely)
            several = [value] * choose.choice((0, 2, 2 if isinstance(value, dict | list) else 500))
            holder[key] = value = copy.deepcopy(choose.choice((*map(choose.choice, kinds), several)))
    text = json.dumps(root[0], indent=choose.choice((None, 1))) if root else ""
    text = text.replace(f'"{odd.MARK}"', choose.choice(odd.MARKED))
    return text.encode("utf-8", "surrogatepass"), f"at {str(key)[:40]!r} {str(value)[:60]!r}"


def slots(node: Any, deepest: int = odd.DEEPEST) -> Iterator[tuple[Any, Any]]:
    """Where every value in it stands, as deep as a program can go by calling itself."""
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for key in keys if deepest else ():
        yield node, key
        yield from slots(node[key], deepest - 1)


def rows_of(change: Callable[[str, random.Random], tuple[str, str]]) -> Way:
    """Lines of text: one changed in this way, lines gone or more, or how all of them are written."""

    def way(data: bytes, choose: random.Random) -> tuple[bytes, str]:
        rows = data.decode("utf-8", "surrogateescape").split("\n")
        row, coding = choose.randrange(len(rows)), "utf-8"
        match choose.randrange(10):
            case 0:
                rows, said = choose.choice((rows[1:], rows[:1], rows[::-1])), "other lines"
            case 1:
                rows.insert(
                    row, choose.choice(("", ",", rows[0], rows[row] + ",1", "#", '"', "[1]", "null", "{}", "{" * 60))
                )
                said = "another line"
            case 2:
                rows[row], said = rows[row] * choose.choice((2, 1000, 30_000)), "again and again"
            case 3:
                ending, coding = choose.choice(("\n", "\r\n", "\r", "\x0b", "\u2028", "\0")), choose.choice(odd.CODINGS)
                rows, said = [ending.join([*rows, "é"])], f"as {coding}, lines end with {ending!r}"
            case 4:
                separator = choose.choice((";", "\t", " ", "|", ", ", "\0", ",,"))
                rows, said = [line.replace(",", separator) for line in rows], f"{separator!r} for commas"
            case _:
                rows[row], said = change(rows[row], choose)
        return "\n".join(rows).encode(
            coding, "surrogateescape" if coding == "utf-8" else "replace"
        ), f"line {row}: {said}"

    return way


def line(text: str, choose: random.Random) -> tuple[str, str]:
    changed, said = document(text.encode("utf-8", "surrogateescape"), choose)
    return changed.decode("utf-8", "surrogateescape"), said


def cells(text: str, choose: random.Random) -> tuple[str, str]:
    """One cell another, or many different ones in its place, in as many lines or in one."""
    row = text.split(",")
    column, many = choose.randrange(len(row)), choose.choice((300, 10_001, 20_000))
    match choose.randrange(6):
        case 0:
            return choose.choice((",", "1,", "a,")) * many, f"{many} columns"
        case 1:
            letter = choose.choice(("", "x"))
            lines = [",".join([*row[:column], f"{letter}{k}", *row[column + 1 :]]) for k in range(many)]
            return "\n".join(lines), f"{many} different cells in column {column}"
        case 2:
            row[column] = choose.choice((*odd.NAMES, row[0]))
        case _:
            row[column] = choose.choice(odd.CELLS)
    return ",".join(row), f"{row[column][:20]!r} in column {column}"


def name(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    """A name with pieces of its language, or odd ones, in other places."""
    text = data.decode("utf-8", "surrogatepass")
    start = choose.randint(0, len(text))
    piece = choose.choice((*[choose.choice(odd.PIECES)] * 2, choose.choice(odd.NAMES)))
    text = text[:start] + piece + text[start + choose.choice((0, 0, 1, 3, 8)) :]
    return text.encode("utf-8", "surrogatepass"), f"{text[:90]!r}"


BY_ENDING: dict[str, Way] = {
    ".npy": npy,
    ".npz": npz,
    ".safetensors": safetensors,
    ".json": document,
    ".jsonl": rows_of(line),
    ".csv": rows_of(cells),
    ".name": name,
}


def way_of(name: str, content: bytes) -> Way:
    """What changes a file as what it is; those of other kinds are damaged as bytes."""
    path = PurePath(name)
    if path.suffix in (".gz", ".tgz"):
        return packed(way_of(path.stem, b""))
    if content[:1] == b"{" and path.suffix not in (".csv", ".jsonl"):
        return document
    return BY_ENDING.get(path.suffix.lower(), damaged)
