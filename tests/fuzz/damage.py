"""Damage to bytes, whatever they mean."""

import random
import re
import struct
from collections.abc import Callable

INTEGERS = (0, 1, 2, 7, 127, 128, 255, 256, 32767, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63)
NUMERALS = (b"0", b"-1", b"1e308", b"1e999", b"nan", b"NaN", b"1.5", b"2147483648", b"18446744073709551616", b"true")


def flip(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    """A few single bits."""
    changed, places = bytearray(data), []
    for _ in range(choose.choice((1, 1, 1, 2, 8))):
        place = near_an_end(len(data), choose)
        changed[place] ^= 1 << choose.randrange(8)
        places.append(place)
    return bytes(changed), f"bits of bytes {places} flipped"


def truncate(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    """An end cut off."""
    length = near_an_end(len(data), choose)
    return data[:length], f"cut to {length} of {len(data)} bytes"


def behead(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    """A beginning cut off."""
    start = near_an_end(len(data), choose)
    return data[start:], f"the first {start} bytes cut off"


def insert(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    """Bytes that were not there: random ones, zeros or line breaks."""
    place, count = near_an_end(len(data), choose), choose.choice((1, 1, 4, 100, 5000))
    piece = choose.choice((choose.randbytes(count), bytes(count), b"\xff" * count, b"\n" * count, b"," * count))
    return data[:place] + piece + data[place:], f"{count} bytes {piece[:4]!r}... put in at {place}"


def remove(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    """Bytes taken out."""
    start = near_an_end(len(data), choose)
    count = choose.choice((1, 1, 2, 4, 30))
    return data[:start] + data[start + count :], f"{count} bytes taken out at {start}"


def repeat(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    """A range there twice, or very often."""
    start = near_an_end(len(data), choose)
    piece = data[start : start + choose.choice((1, 4, 16, 200))]
    times = choose.choice((1, 1, 2, 100, 2000))
    return data[:start] + piece * times + data[start:], f"{len(piece)} bytes at {start} repeated {times} times"


def move(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    """A range written over another."""
    source, target = near_an_end(len(data), choose), near_an_end(len(data), choose)
    piece = data[source : source + choose.choice((1, 4, 16, 200))]
    changed = data[:target] + piece + data[target + len(piece) :]
    return changed, f"{len(piece)} bytes at {source} written over those at {target}"


def integer(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    """A number that programs trip over, in place of whatever stands there."""
    form = choose.choice(("B", "<H", ">H", "<I", ">I", "<I", ">I", "<Q", ">Q"))
    size = struct.calcsize(form)
    place = near_an_end(max(1, len(data) - size + 1), choose) // min(4, size) * min(4, size)
    number = choose.choice([each for each in INTEGERS if each < 1 << 8 * size])
    packed = struct.pack(form, number)
    return data[:place] + packed + data[place + size :], f"{number} as {form} at {place}"


def numeral(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    """Another number in digits."""
    found = list(re.finditer(rb"-?[0-9]+(\.[0-9]+)?", data[: 2**20]))
    if not found:
        return flip(data, choose)
    match, digits = choose.choice(found), choose.choice((*NUMERALS, b"9" * 400, b"9" * 5000))
    changed = data[: match.start()] + digits + data[match.end() :]
    return changed, f"the number at {match.start()} made {digits[:24].decode()}"


def near_an_end(length: int, choose: random.Random) -> int:
    """A place among so many, more often near the beginning or the end, where headers stand."""
    near = choose.randrange(min(length, 128)) if length else 0
    if choose.random() < 0.4:
        return near
    return max(0, length - 1 - near) if choose.random() < 0.25 else choose.randrange(max(1, length))


WAYS: tuple[Callable[[bytes, random.Random], tuple[bytes, str]], ...] = (
    flip,
    flip,
    truncate,
    truncate,
    behead,
    insert,
    remove,
    repeat,
    move,
    integer,
    integer,
    numeral,
)


def damaged(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    """`data` changed in one of these ways, and which."""
    return choose.choice(WAYS)(data, choose) if data else (choose.randbytes(choose.randrange(1, 99)), "random bytes")
