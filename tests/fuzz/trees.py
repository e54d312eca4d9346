"""Trees of arrays and pictures: safetensors, msgpack, MATLAB, NIfTI, PNG and records of TFDS."""

import io
import json
import random
import struct
import zlib
from typing import Any

import msgpack
import numpy as np
import scipy.io

from fuzz import names, texts
from fuzz.damage import INTEGERS, damaged, integer

KINDS = ("F32", "F64", "F16", "BF16", "F8_E4M3", "BOOL", "I64", "U8", "C64", "F128", "", "x" * 3000)


def safetensors(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    length = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + length])
        entries = [name for name, each in header.items() if isinstance(each, dict) and "shape" in each]
    except (ValueError, AttributeError):
        return damaged(data, choose)
    if choose.random() < 0.35 or not entries:
        text, said = texts.json_document(data[8 : 8 + length], choose)
    else:
        name = choose.choice(entries)
        match choose.randrange(5):
            case 0:
                header[name]["dtype"], said = choose.choice(KINDS), f"{name} of another type"
            case 1:
                odd = choose.choice(
                    ([2**40, 0], [0], [2**63], [-1], [], [1] * 70, [2, 2], [3.0], "4", [0, 2**62, 2**62])
                )
                header[name]["shape"], said = odd, f"{name} of shape {str(odd)[:40]}"
            case 2:
                ends = choose.choice(
                    ([0, 0], [0, 2**40], [48, 0], [-4, 4], [2**63, 2**63 + 4], [0, len(data)], [1, 49])
                )
                header[name]["data_offsets"], said = ends, f"{name} at {ends}"
            case 3:
                odd = choose.choice((names.odd(choose), "a/b", "layers", "/", "n" * 100_000))
                header[odd], said = header.pop(name), f"{name} called {odd[:40]!r}"
            case _:
                body = bytearray(data[8 + length :])
                body[:4] = choose.choice((struct.pack("<f", np.nan), struct.pack("<f", np.inf), b"\xff\xff\x7f\x7f"))
                return data[: 8 + length] + body, "NaN, infinity or the largest number in its numbers"
        text = json.dumps(header).encode("utf-8", "surrogatepass")
    size = len(text) if choose.random() < 0.85 else choose.choice((0, 1, 2**40, 2**63, len(text) + 1))
    return size.to_bytes(8, "little") + text + data[8 + length :], said


def packed(value: Any) -> bytes:
    data = msgpack.packb(value, unicode_errors="surrogatepass")
    assert data is not None
    return data


def flax(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    if choose.random() < 0.2:
        return hostile_tree(choose)
    try:
        tree = msgpack.unpackb(data, strict_map_key=False)
        paths = list(texts.places(tree))
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        return damaged(data, choose)
    if not paths:
        return damaged(data, choose)
    said = []
    for _ in range(choose.choice((1, 1, 2))):
        path = choose.choice(paths)
        where = "/".join(map(str, path))[:60]
        try:
            holder, instead = texts.at(tree, path[:-1]), texts.at(tree, path)
        except (KeyError, IndexError, TypeError):
            continue
        if choose.random() < 0.3 and isinstance(holder, dict):
            key = choose.choice((1, -1, None, True, 1.5, b"\xff", b"bytes", (), 2**63, names.odd(choose)))
            holder[key] = holder.pop(path[-1])
            said.append(f"{where} called {str(key)[:40]!r}")
        elif isinstance(holder, dict | list):  # not where an earlier change put bytes or text in its place
            holder[path[-1]] = odd_leaf(instead, choose)
            said.append(f"{where} made {str(holder[path[-1]])[:60]}")
    return packed(tree), "; ".join(said)


PIECES: tuple[dict[str, Any], ...] = (
    {},
    {"shape": {}, "chunks": {"0": None}},
    *({"shape": {"0": size}, "chunks": {"0": 1.0}} for size in (-1, "x", 2**63)),
)
LEAVES = (None, True, -1, 2**64 - 1, 1.5, float("nan"), "text", b"bytes", [], {}, [[]] * 3, {"shape": 1})
LEAVES += (msgpack.ExtType(2, b"\x92\x01\xa1x"), msgpack.ExtType(5, b"\x92\x01\xa1x"), msgpack.Timestamp(1, 2))
ARRAY_SHAPES = ([2], [2**40, 0], [-1], [0], [], [2**63 - 1], [1] * 70, "2", None, [b"2"], [2.0], [[2]], 2)
ARRAY_KINDS = ("float32", "float32", "object", "O", "int8", "bfloat16", "S4", "V8", 7, None, [], {}, "é")
ARRAY_BODIES = (bytes(8), b"", bytes(7), "text", None, 5, [1], struct.pack("<2f", np.nan, np.inf))


def odd_leaf(instead: Any, choose: random.Random) -> Any:
    """Something else for a value of a tree; for an array more often an array."""
    if isinstance(instead, msgpack.ExtType) and choose.random() < 0.7:
        fields = tuple(map(choose.choice, (ARRAY_SHAPES, ARRAY_KINDS, ARRAY_BODIES)))
        fields = choose.choice((*[fields] * 6, fields[:2], (), fields[0], {1: 2}, None))
        return msgpack.ExtType(choose.choice((1, 1, 1, 1, 2, 3, 4, 127)), packed(fields))
    pieces = {"__msgpack_chunked_array__": True, **choose.choice(PIECES)}
    return choose.choice((*LEAVES, *[pieces] * 5))


ANNOUNCED = {
    "a list of 2**32 - 1 values": b"\x81\xa1a\xdd",
    "4 GiB": b"\x81\xa1a\xc6",
    "an extension of 4 GiB": b"\x81\xa1a\xc9",
}


def hostile_tree(choose: random.Random) -> tuple[bytes, str]:
    """A few bytes that mean very much."""
    depth, long = choose.choice((300, 600, 5000, 400_000)), choose.choice((1000, 100_000))
    leaf, announced = choose.choice((None, 1)), choose.choice((*ANNOUNCED, "a map of 2**32 - 1 values"))
    match choose.randrange(5):
        case 0:
            return b"\x81\xa1a" * depth + b"\xc0", f"{depth} maps in one another"
        case 1:
            return b"\x81\xa1a" + b"\x91" * depth + b"\xc0", f"{depth} lists in one another"
        case 2:
            return packed({"n" * long: {str(k): leaf for k in range(20_000)}}), f"20,000 names below one of {long}"
        case 3:
            return packed({"a": list(range(900_000))}), "900,000 numbers"
        case _:
            return ANNOUNCED.get(announced, b"\xdf") + b"\xff\xff\xff\xff\x01", f"{announced} announced"


def matlab(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    way = choose.randrange(5)
    if way < 2:
        return integer(data, choose)
    if way == 2:
        packed = zlib.compress(struct.pack("<II", 14, 2**26) + bytes(2**26))
        tag = struct.pack("<II", 15, len(packed))
        return data[:128] + tag + packed + data[128:], "an element that unpacks to 64 MiB"
    images, labels = np.zeros((4, 5, 3, 8), np.uint8), np.arange(8)[:, None] % 10
    odd: tuple[Any, ...] = ("text", np.zeros((0, 0)), {"a": 1}, [1, "a", 2.5], 1.5, np.nan, np.eye(3), np.arange(8.0))
    odd += (np.full(8, np.nan), np.array(["a"] * 8), np.zeros((0, 5, 3, 8), np.uint8), np.zeros((4, 5, 3, 0), np.uint8))
    odd += (np.zeros((4, 5, 8), np.uint8), np.zeros((4, 5, 3, 8), bool), np.arange(8) * 1j, np.array([{}] * 8))
    content = {"X": images, "y": labels}
    content[choose.choice(("X", "y", "z"))] = choose.choice(odd)
    file = io.BytesIO()
    scipy.io.savemat(file, content, do_compression=choose.random() < 0.5)
    return file.getvalue(), f"variables {[(name, np.shape(value)) for name, value in content.items()]}"


FIELDS = {"size": (0, "i"), "dims": (40, "8h"), "kind": (70, "h"), "bits": (72, "h"), "offset": (108, "f")}
FIELDS |= {"slope": (112, "f"), "intercept": (116, "f"), "magic": (344, "i")}


def nifti(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    field = choose.choice(list(FIELDS))
    place, form = FIELDS[field]
    if form == "8h":
        numbers: list[Any] = [choose.choice((-1, 0, 1, 2, 4, 5, 7, 300, 32767)) for _ in range(8)]
        numbers[0] = choose.choice((4, 4, 4, 3, 7, -1))
    elif form == "f":
        numbers = [choose.choice((np.nan, np.inf, -1.0, 0.0, 1e38, -1e38, 352.0, 353.0, 1e9, 1e-38))]
    else:
        numbers = [choose.choice((0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1536, 2048, 2304, -1, 540, 348))]
    packed = struct.pack(f"<{form}", *numbers)
    return data[:place] + packed + data[place + len(packed) :], f"{field} {numbers}"


def png(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    if data[:4] != b"\x89PNG":
        return damaged(data, choose)
    if choose.random() < 0.6:
        width, height = (choose.choice((0, 1, 5, 6, 9000, 20_000, 2**31 - 1, 2**32 - 1)) for _ in range(2))
        depth, colour = choose.choice((1, 2, 4, 8, 16, 3)), choose.choice((0, 2, 3, 4, 6, 1))
        head = piece(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, choose.choice((0, 1))))
        return data[:8] + head + data[33:], f"{width} by {height} pixels of kind {depth}, {colour}"
    body = zlib.compress(bytes(choose.choice((100, 2**26))))
    kind, start = choose.choice(
        ((b"zTXt", b"k\0\0"), (b"iCCP", b"k\0\0"), (b"iTXt", b"k\0\1\0\0\0"), (b"tRNS", b"\0"), (b"acTL", b""))
    )
    return data[:33] + piece(kind, start + body) + data[33:], f"a chunk {kind.decode()} of {len(body)} bytes"


def piece(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def tfrecord(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    length = choose.choice((*INTEGERS, 2**27, 10**6))
    return length.to_bytes(8, "little", signed=False) + data[8:], f"a record of {length} bytes announced"
