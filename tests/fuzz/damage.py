"""Damage to bytes, whatever they mean."""

import random
import re
import struct
from collections.abc import Callable

INTEGERS = (0, 1, 2, 7, 127, 128, 255, 256, 32767, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63)
NUMERALS = (b"0", b"-1", b"1e308", b"1e999", b"nan", b"NaN", b"1.5", b"2147483648", b"18446744073709551616", b"true")


def flip(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    changed, places = bytearray(data), []
    for _ in range(choose.choice((1, 1, 1, 2, 8))):
        place = near_an_end(len(data), choose)
        changed[place] ^= 1 << choose.randrange(8)
        places.append(place)
    return bytes(changed), f"bits of bytes {places} flipped"


def splice(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    """An end or a piece cut off, put in, repeated or written over another."""
    start, length = near_an_end(len(data), choose), choose.choice((1, 1, 2, 4, 16, 30, 200))
    head, piece, rest = data[:start], data[start : start + length], data[start + length :]
    match choose.randrange(9):
        case 0 | 1 | 2:
            return head, f"cut to {start} of {len(data)} bytes"
        case 3:
            return data[start:], f"the first {start} bytes cut off"
        case 4:
            return head + rest, f"{length} bytes taken out at {start}"
        case 5:
            times = choose.choice((2, 2, 3, 100, 2000))
            return head + piece * times + rest, f"{length} bytes at {start}, {times} times"
        case 6:
            source = near_an_end(len(data), choose)
            return head + data[source : source + length] + rest, f"those at {source} over {length} bytes at {start}"
        case _:
            count = choose.choice((1, 1, 4, 100, 5000))
            more = choose.choice((choose.randbytes(count), *(count * each for each in (b"\0", b"\xff", b"\n", b","))))
            return head + more + piece + rest, f"{count} bytes {more[:4]!r}... put in at {start}"


def integer(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    form = choose.choice(("B", "<H", ">H", "<I", ">I", "<I", ">I", "<Q", ">Q"))
    size = struct.calcsize(form)
    place = near_an_end(max(1, len(data) - size + 1), choose) // min(4, size) * min(4, size)
    number = choose.choice([each for each in INTEGERS if each < 1 << 8 * size])
    packed = struct.pack(form, number)
    return data[:place] + packed + data[place + size :], f"{number} as {form} at {place}"


def numeral(data: bytes, choose: random.Random) -> tuple[bytes, str]:
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


WAYS: tuple[Callable[[bytes, random.Random], tuple[bytes, str]], ...] = (flip, splice, splice, splice, integer, numeral)


def damaged(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    """`data` changed in one of these ways, and which."""
    return choose.choice(WAYS)(data, choose) if data else (choose.randbytes(choose.randrange(1, 99)), "random bytes")
