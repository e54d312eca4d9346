"""NumPy and IDX files whose headers and numbers are not what they should be."""

import io
import random
import struct

import numpy as np

from fuzz.damage import damaged

EMPTY = (2**32, 2**39, 10**8, 2**62, f"{2**32}, {2**32}")
SHAPES = (
    *(f"({extent},)" for extent in (0, -1, "None", "1e9", "False", "(12, 4)", 3 * 10**9, 10**30, 2**63, "9" * 5000)),
    *(f"({extent}, 4)" for extent in ("True", "12.0", "'12'", -12, 0, 2**62, 10**6)),
    *(f"({extents}, 0)" for extents in (12, *EMPTY)),
    *(f"(0, {extents})" for extents in ("3, 4", *EMPTY)),
    *(f"({'1, ' * count})" for count in (7, 40, 70)),
    *("()", "None", "12", "[12, 4]", "{12, 4}", "(12, True)", f"({2**62}, {2**62})", "(1000000, 1000000)"),
    "(" * 200 + ")" * 200,
    "(1,)" + "+(1,)" * 3000,
)
NUMBERS = ("<f8", ">f4", "<f2", "<f16", "<c16", "|b1", "|i1", "<u8", "<i8", "<M8[s]", "<m8")
TEXTS = ("|O", "|V8", "|V0", "|S0", "<U0", "|S4", "<U1", "<U999999999", "|S2147483647")
DTYPES = (
    *(f"'{each}'" for each in (*NUMBERS, *TEXTS, "<i8,<i8", "<f4," * 3000, "float", "jaxaudit", "fuzz_canary.Thing")),
    *("[('a', '<i4')]", "[('a', '|O')]", "('<f4', (2, 3))", "{'names': []}", "None", "7", "b'<f4'"),
    "{'names': ['a'], 'formats': ['<f4'], 'offsets': [99999999]}",
)
EXTENTS = (0, 1, 3, 12, 255, 65536, 2**27, 2**31 - 1, 2**31, 2**32 - 1)


def npy(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    if choose.random() < 0.35:
        array, said = odd_array(choose)
        return save(array), f"an array of {said}"
    length = 10 + int.from_bytes(data[8:10], "little")
    head, body = data[10:length].decode("latin-1"), data[length:]
    fields = {"descr": "'<f4'", "fortran_order": "False", "shape": "(12, 4)"}
    for field in fields:
        start = head.find(f"'{field}':")
        if start >= 0:
            start += len(field) + 3
            ends = [head.find(f", '{other}'", start) for other in fields] + [head.find(", }", start)]
            fields[field] = head[start : min([end for end in ends if end > 0], default=len(head))].strip()
    for _ in range(choose.choice((1, 1, 2))):
        field = choose.choice(("descr", "shape", "shape", "fortran_order"))
        fields[field] = choose.choice(
            {"descr": DTYPES, "shape": SHAPES}.get(field, ("True", "1", "None", "'no'", "9e9"))
        )
    text = "{" + ", ".join(f"'{field}': {value}" for field, value in fields.items()) + ", }"
    said = f"a header of {text[:120]}"
    match choose.randrange(8):
        case 0:
            text = text[: choose.randrange(len(text))]
        case 1:
            text = text.replace("}", ", 'more': [1, 2]}")
        case 2:
            text = text.replace("}", "")
        case 3:
            text = choose.choice(("__import__('fuzz_canary')", "[" * 5000, "{" * 90, "lambda: 0", "'''", "\0", "\\"))
        case _:
            pass
    version = choose.choice(((1, 0), (1, 0), (1, 0), (2, 0), (3, 0), (9, 9)))
    encoded = (text + "\n").encode("utf-8")
    size = len(encoded) if choose.random() < 0.85 else choose.choice((0, 1, 65535, len(encoded) + 9))
    size = min(size, 65535) if version[0] == 1 else size
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H" if version[0] == 1 else "<I", size) + encoded + body, said


def odd_array(choose: random.Random) -> tuple[np.ndarray, str]:
    rng = np.random.default_rng(choose.getrandbits(32))
    shape = choose.choice(((12,), (12, 1), (12, 3), (12, 4), (12, 6, 5), (11, 4), (0, 4), (12, 0), (), (1,), (20, 4)))
    kind = choose.choice(("f8", "f4", "f2", "i8", "u8", "u1", "?", "U3", "S3", "c8", "M8[s]", ">f4", "f16", "O"))
    if kind in ("U3", "S3"):
        array = np.array(choose.choices(("a", "b", "1", "", "\0x", "-1", "nan"), k=int(np.prod(shape)))).astype(kind)
        return array.reshape(shape), f"{kind} {shape}"
    same = [np.full(shape, each) for each in (np.nan, np.inf, -1, 2**53, 1e300, -(2**63), 99_999, 0.0)]
    numbers = choose.choice((rng.integers(0, 3, shape), rng.normal(size=shape) * 1e3, *same))
    with np.errstate(all="ignore"):
        return np.asarray(numbers).astype(kind), f"{kind} {shape} such as {np.ravel(numbers)[:1]}"


def save(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def idx(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    if len(data) < 8:
        return damaged(data, choose)
    kind, rank = data[2], data[3]
    extents = list(struct.unpack_from(f">{min(rank, len(data) // 4 - 1)}I", data, 4))
    body = data[4 + 4 * rank :]
    match choose.randrange(4):
        case 0:
            kind = choose.choice((8, 9, 10, 11, 12, 13, 14, 15, 255))
        case 1:
            rank = choose.choice((0, 1, 2, 4, 8, 9, 64, 255))
            extents = (extents + [1] * rank)[:rank]
        case _:
            pass
    for _ in range(choose.choice((0, 1, 1, 2))):
        if extents:
            extents[choose.randrange(len(extents))] = choose.choice(EXTENTS)
    body = choose.choice((body, body, body, b"", bytes(1000)))
    header = bytes((0, 0, kind, rank)) + struct.pack(f">{len(extents)}I", *extents)
    return header + body, f"type {kind}, rank {rank}, extents {extents[:8]}"
