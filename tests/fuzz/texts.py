"""JSON and tables of text whose values are not what they should be."""

import copy
import json
import random
from typing import Any

from fuzz import names
from fuzz.readers import SECRET

CANARY = "fuzz_canary.Thing"
"""A class of a module that notes when it is imported."""
MARK = "marked place"
FEATURE = "tensorflow_datasets.core.features."
IMAGE = {"image": {"pythonClassName": CANARY}}
CONTAINER = f"{FEATURE}features_dict.FeaturesDict"
ALIKE = (("pythonClassName", f"tensorflow_datasets.x.{CANARY}"), ("type", f"tensorflow_datasets_{CANARY}"))
HOSTILE_FEATURES = (
    {"pythonClassName": CANARY},
    {"type": CANARY, "content": "{}"},
    {"pythonClassName": CONTAINER, "jsonFeature": {"json": json.dumps(IMAGE)}},
    {"type": CONTAINER, "proto_cls": "tensorflow_datasets.FeaturesDict", "content": json.dumps({"features": IMAGE})},
    {"type": CONTAINER, "content": json.dumps({"image": {"type": CANARY, "content": "{}"}})},
    {"pythonClassName": CONTAINER, "featuresDict": {"features": IMAGE}},
    {"pythonClassName": "os.system", "jsonFeature": {"json": '"true"'}},
    # Names that begin as those of TensorFlow Datasets do.
    *({"featuresDict": {"features": {"image": {key: name}}}, "pythonClassName": CONTAINER} for key, name in ALIKE),
    {"pythonClassName": f"{FEATURE}sequence_feature.Sequence", "sequence": {"feature": {"python_class_name": CANARY}}},
    {"pythonClassName": f"{FEATURE}image_feature.Image", "image": {"shape": {"dimensions": ["-1"]}, "dtype": CANARY}},
)

DEEPEST = 200
MARKED = {
    "NaN": "NaN",
    "5,000 digits": "-" + "9" * 5000,
    "1e400": "1e400",
    "100,000 open brackets": "[" * 100_000,
    "a name twice": '{"a": 1, "a": 2}',
    "half a surrogate": '"\\ud800"',
    "nothing": "",
    "three million zeros": f"[{'0,' * 3_000_000}0]",
}
"""What no value of Python is written as."""


def json_document(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return data + b"}", "a brace too many"
    said = []
    for _ in range(choose.choice((1, 1, 1, 2, 4))):
        document, words = changed(document, choose)
        said.append(words)
    text = json.dumps(document, indent=choose.choice((None, 1)))
    words = choose.choice(list(MARKED))
    if f'"{MARK}"' in text:
        text, said = text.replace(f'"{MARK}"', MARKED[words]), [*said, words]
    return text.encode("utf-8", "surrogatepass"), "; ".join(said)


def json_lines(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    """One line changed as a document, or the lines as text."""
    lines = data.split(b"\n")
    row = choose.randrange(len(lines))
    match choose.randrange(8):
        case 0:
            lines.insert(row, choose.choice((b"", b"[1]", b"null", b'"a"', b"\xff", b"{}", b"{" * 60)))
            said = f"another line before line {row}"
        case 1:
            return recoded(data.decode("utf-8", "replace"), choose)
        case 2:
            lines[row], said = lines[row] * choose.choice((2, 1000, 30_000)), f"line {row} again and again"
        case 3:
            return b"[" + b",".join(lines) + b"]", "one array"
        case _:
            lines[row], said = json_document(lines[row], choose)
    return b"\n".join(lines), f"line {row}: {said}"


def recoded(text: str, choose: random.Random) -> tuple[bytes, str]:
    coding = choose.choice(("utf-16", "utf-8-sig", "utf-32", "utf-7", "cp037", "latin-1"))
    ending = choose.choice(("\n", "\r\n", "\r", "\x0b", "\u2028", "\0"))
    return f"{text}\né".replace("\n", ending).encode(coding, "replace"), f"as {coding}, lines end with {ending!r}"


def changed(document: Any, choose: random.Random) -> tuple[Any, str]:
    paths = list(places(document))
    if not paths:
        return odd_value(choose), "the whole replaced"
    path = choose.choice(paths)
    holder, last, where = at(document, path[:-1]), path[-1], "/".join(map(str, path))[:80]
    match choose.randrange(9):
        case 0:
            del holder[last]
            return document, f"{where} gone"
        case 1 if isinstance(holder, dict):
            holder[names.odd(choose)] = holder.pop(last)
            return document, f"{where} renamed"
        case 2 if isinstance(holder, list):
            # Lists of lists of a thousand copies would be larger than any file.
            many = 9 if isinstance(holder[last], dict | list) else 1000
            holder += [holder[last]] * choose.choice((1, 9, many))
            return document, f"{where} repeated"
        case 3:
            other = choose.choice(paths)
            # A copy: what stands in two places could come to hold itself.
            if path[: len(other)] != other:
                holder[last] = copy.deepcopy(at(document, other))
            return document, f"{where} made what is at {'/'.join(map(str, other))[:80]}"
        case _:
            holder[last] = copy.deepcopy(odd_value(choose, holder[last]))
            return document, f"{where} made {str(holder[last])[:60]!r}"


def at(node: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        node = node[step]
    return node


def places(node: Any, path: tuple[Any, ...] = ()) -> Any:
    """The path of every value in it, as deep as a program can go by calling itself."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items if len(path) < DEEPEST else ():
        yield (*path, key)
        yield from places(value, (*path, key))


def odd_value(choose: random.Random, instead: Any = None) -> Any:
    """A value of another kind, or a number of the same with which something may be wrong."""
    if isinstance(instead, int | float) and choose.random() < 0.4:
        return choose.choice((0, -1, 1, 2**31, 2**53, 2**63, 10**30, 1e308, -1e308, 1e-320, -0.0, 0.5, instead * 1000))
    if isinstance(instead, str) and choose.random() < 0.4:
        return choose.choice((names.odd(choose), instead + names.odd(choose), instead * 100, instead.upper()))
    other = (None, True, False, 0, -1, 1.5, 2**64, 10**19, "", [], {}, [[]], [None], "infinity", "nan")
    code = ("fuzz_canary:Thing", "net.py:Net", "modeling_own.Model", CANARY, *HOSTILE_FEATURES)
    several = [instead] * choose.choice((0, 1, 2, 2 if isinstance(instead, dict | list) else 500))
    nested = json.loads("[" * DEEPEST + "]" * DEEPEST)
    return choose.choice((choose.choice(other), MARK, choose.choice(code), several, nested, names.odd(choose)))


CELLS = ("", " ", '"', '""', '"\n"', "nan", "inf", "-inf", "1e999", "1_000", "١٢", "0x10", "=cmd|' /C calc'!A0", "1,5")
CELLS += ("\x1b[31m", "\0", "\u202e", "é", "-0", "?", "NA", "1e-320", "9" * 400, "c" * 100_000, "True", f"{SECRET}2")


def table(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    lines = data.decode("utf-8", "replace").split("\n")
    row = choose.randrange(len(lines))
    cells = lines[row].split(",")
    column = choose.randrange(len(cells))
    match choose.randrange(10):
        case 0 | 1 | 2:
            cells[column] = choose.choice(CELLS if row else CELLS[:-1])  # names of columns are shown
            lines[row], said = ",".join(cells), f"{cells[column][:20]!r} in line {row}, column {column}"
        case 3:
            title = choose.choice((names.odd(choose), lines[0].split(",")[0]))
            lines[0], said = ",".join([*lines[0].split(",")[1:], title]), f"a column called {title[:40]!r}"
        case 4:
            lines, said = choose.choice((lines[1:], lines[:1], lines[::-1])), "other lines"
        case 5:
            lines.insert(row, choose.choice(("", ",", lines[0], ",".join(cells[1:]), lines[row] + ",1", "#", '"')))
            said = f"another line before line {row}"
        case 6:
            many = choose.choice((300, 10_001, 2**20))
            lines[row : row + 1], said = [choose.choice((",", "1,", "a,")) * many], f"{many} columns in line {row}"
        case 7:
            separator = choose.choice((";", "\t", " ", "|", ", ", "\0", ",,"))
            return "\n".join(lines).replace(",", separator).encode(), f"cells end with {separator!r}"
        case 8:
            return recoded("\n".join(lines), choose)
        case _:
            many = choose.choice((1000, 20_000))
            wide = [f"{place}" if choose.random() < 0.5 else f"x{place}" for place in range(many)]
            body = [",".join([*cells[:column], each, *cells[column + 1 :]]) for each in wide]
            lines, said = [lines[0], *body], f"{many} different cells in column {column}"
    return "\n".join(lines).encode("utf-8", "surrogateescape"), said
