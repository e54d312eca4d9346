"""Arrays whose headers and numbers are not what they should be: NumPy's files and those of safetensors."""

import io
import json
import math
import random
import struct

import numpy as np

from fuzz import names, texts
from fuzz.damage import damaged
from fuzz.places import Hole, Tree

LARGEST = 64 << 20
"""Bytes that a sparse file seems to have: what it takes to read them grows with these alone."""
SHAPES = (
    *("(0,)", "(-1,)", "(None,)", "(1e9,)", "(False,)", "((12, 4),)", f"({10**30},)", f"({2**63},)"),
    *("(True, 4)", "('12', 4)", f"({2**62}, 4)", "(12, 0)", f"({2**32}, 0)", f"(0, {2**62})", f"({'1, ' * 70})"),
    *("()", "None", "12", "[12, 4]", "{12, 4}", f"({2**62}, {2**62})", "(1000000, 1000000)", "(" * 200 + ")" * 200),
)
DTYPES = (
    *(f"'{each}'" for each in ("<f8", ">f4", "<f2", "<f16", "<c16", "|b1", "<u8", "<M8[s]", "|O", "|V8", "|S0", "<U1")),
    *("'<U999999999'", "'|S2147483647'", "'<i8,<i8'", f"'{'<f4,' * 3000}'", "'jaxaudit'", "'fuzz_canary.Thing'"),
    *("[('a', '<i4')]", "[('a', '|O')]", "('<f4', (2, 3))", "{'names': []}", "None", "7", "b'<f4'"),
)
WHOLE = ("__import__('fuzz_canary')", "[" * 5000, "{" * 90, "lambda: 0", "'''", "\0", "\\")
KINDS = ("F64", "F16", "BF16", "F8_E4M3", "BOOL", "I64", "U8", "C64", "F128", "", "x" * 3000)


def npy(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    if choose.random() < 0.35:
        array, said = odd_array(choose)
        return save(array), f"an array of {said}"
    kind, shape = choose.choice((*DTYPES, "'<f4'")), choose.choice((*SHAPES, "(12, 4)", "(20,)"))
    text = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}"
    text = choose.choice((text, text, text, text.replace("}", ", 'more': [1, 2]}"), text[:-1], *WHOLE))
    encoded = f"{text}\n".encode()
    version = choose.choice(((1, 0), (1, 0), (2, 0), (3, 0), (9, 9)))
    size = choose.choice((*[len(encoded)] * 6, 0, 65535, len(encoded) + 9))
    head = struct.pack("<H", min(size, 65535)) if version[0] == 1 else struct.pack("<I", size)
    body = data[10 + int.from_bytes(data[8:10], "little") :]
    return b"\x93NUMPY" + bytes(version) + head + encoded + body, f"a header of {text[:120]}"


def odd_array(choose: random.Random) -> tuple[np.ndarray, str]:
    rng = np.random.default_rng(choose.getrandbits(32))
    shape = choose.choice(((12,), (12, 1), (12, 3), (12, 4), (12, 6, 5), (11, 4), (0, 4), (12, 0), (), (1,), (20, 4)))
    kind = choose.choice(("f8", "f4", "f2", "i8", "u8", "u1", "?", "U3", "S3", "c8", "M8[s]", ">f4", "f16", "O"))
    if kind in ("U3", "S3"):
        array = np.array(choose.choices(("a", "b", "1", "", "\0x", "-1", "nan"), k=math.prod(shape))).astype(kind)
        return array.reshape(shape), f"{kind} {shape}"
    same = [np.full(shape, each) for each in (np.nan, np.inf, -1, 2**53, 1e300, -(2**63), 99_999, 0.0)]
    numbers = choose.choice((rng.integers(0, 3, shape), rng.normal(size=shape) * 1e3, *same))
    with np.errstate(all="ignore"):
        return np.asarray(numbers).astype(kind), f"{kind} {shape} such as {np.ravel(numbers)[:1]}"


def save(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def sparse_array(tree: Tree, choose: random.Random) -> str | None:
    """One of the arrays replaced by a large one of zeros that takes no room."""
    found = [name for name in sorted(tree) if name.endswith(".npy")]
    if not found:
        return None
    name, dtype = choose.choice(found), choose.choice(("<f4", "<i8", "|b1", "<U2", "|u1"))
    rows = choose.choice((10**6, 10**7))
    shape = choose.choice(((rows,), (rows, 3), (90, rows // 90), (20, rows // 20), (1, rows), (rows, 0), (rows, 1, 1)))
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size > LARGEST:
        return None
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    tree[name] = Hole(file.getvalue(), len(file.getvalue()) + size)
    return f"{name}: {dtype} {shape} of zeros in a sparse file"


def safetensors(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    length = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + length])
        entry = header[
            choose.choice([name for name, each in header.items() if isinstance(each, dict) and "shape" in each])
        ]
    except (ValueError, AttributeError, IndexError, RecursionError):
        return damaged(data, choose)
    way = choose.randrange(5)
    if way == 0:
        entry["dtype"] = choose.choice(KINDS)
    elif way == 1:
        entry["shape"] = choose.choice(([2**40, 0], [0], [2**63], [-1], [], [1] * 70, [3.0], "4", [0, 2**62, 2**62]))
    elif way == 2:
        entry["data_offsets"] = choose.choice(([0, 0], [0, 2**40], [48, 0], [-4, 4], [2**63, 2**63 + 4], [1, 49]))
    elif way == 3:
        header[choose.choice((names.odd(choose), "a/b", "/", "n" * 100_000))] = entry
    text, said = json.dumps(header).encode("utf-8", "surrogatepass"), str(entry)[:80]
    if way == 4:
        text, said = texts.json_document(text, choose)
    size = len(text) if choose.random() < 0.85 else choose.choice((0, 1, 2**40, 2**63, len(text) + 1))
    return size.to_bytes(8, "little") + text + data[8 + length :], said
