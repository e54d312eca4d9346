"""JSON and tables of text whose values are not what they should be."""

import copy
import json
import random
from typing import Any

from fuzz import names
from fuzz.readers import SECRET

CANARY = "fuzz_canary.Thing"
"""A class of a module that notes when it is imported."""
DEEP = (20, 60, 1000, 100_000)
MARK = "marked place"
FEATURE = "tensorflow_datasets.core.features."
HOSTILE_FEATURES = (
    {"pythonClassName": CANARY},
    {"type": CANARY, "content": "{}"},
    {
        "pythonClassName": f"{FEATURE}features_dict.FeaturesDict",
        "jsonFeature": {"json": json.dumps({"image": {"pythonClassName": CANARY}})},
    },
    {
        "type": f"{FEATURE}features_dict.FeaturesDict",
        "proto_cls": "tensorflow_datasets.FeaturesDict",
        "content": json.dumps({"features": {"image": {"pythonClassName": CANARY}}}),
    },
    {
        "type": f"{FEATURE}features_dict.FeaturesDict",
        "content": json.dumps({"image": {"type": CANARY, "content": "{}"}}),
    },
    {
        "pythonClassName": f"{FEATURE}features_dict.FeaturesDict",
        "featuresDict": {"features": {"image": {"pythonClassName": CANARY, "jsonFeature": {"json": "{}"}}}},
    },
    {"pythonClassName": "os.system", "jsonFeature": {"json": '"true"'}},
    {"pythonClassName": f"{FEATURE}sequence_feature.Sequence", "sequence": {"feature": {"python_class_name": CANARY}}},
    {
        "pythonClassName": f"{FEATURE}image_feature.Image",
        "image": {"shape": {"dimensions": ["-1", "9999999999"]}, "dtype": CANARY},
    },
)

DEEPEST = 200


def json_document(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    """The same document with a few other values, or not quite JSON."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return data + b"}", "a brace too many"
    said = []
    for _ in range(choose.choice((1, 1, 1, 2, 4))):
        document, words = changed(document, choose)
        said.append(words)
    text = json.dumps(document, indent=choose.choice((None, 1)))
    raw, words = choose.choice(MARKED)
    if f'"{MARK}"' in text:
        text, said = text.replace(f'"{MARK}"', raw()), [*said, words]
    return text.encode("utf-8", "surrogatepass"), "; ".join(said)


MARKED = (
    (lambda: "NaN", "NaN"),
    (lambda: "-Infinity", "-Infinity"),
    (lambda: "9" * 400, "400 digits"),
    (lambda: "-" + "9" * 5000, "5,000 digits"),
    (lambda: "1e400", "1e400"),
    (lambda: "[" * 100_000, "100,000 open brackets"),
    (lambda: "[" * 60 + "]" * 60, "60 brackets"),
    (lambda: "[" + "[]," * 3_000_000 + "[]]", "three million empty lists"),
    (lambda: "[" + "0," * 3_000_000 + "0]", "three million zeros"),
    (lambda: '{"a": 1, "a": 2}', "a name twice"),
    (lambda: '"\\ud800"', "half a surrogate"),
    (lambda: "'x'", "another kind of quote"),
    (lambda: "", "nothing"),
)


def changed(document: Any, choose: random.Random) -> tuple[Any, str]:
    """The document with one value, name or place changed."""
    paths = list(places(document))
    if not paths:
        return odd_value(choose), "the whole replaced"
    path = choose.choice(paths)
    holder = document
    for step in path[:-1]:
        holder = holder[step]
    last, where = path[-1], "/".join(map(str, path))[:80]
    match choose.randrange(10):
        case 0:
            del holder[last]
            return document, f"{where} gone"
        case 1 if isinstance(holder, dict):
            holder[names.odd(choose)] = holder.pop(last)
            return document, f"{where} renamed"
        case 2 if isinstance(holder, dict):
            holder[names.odd(choose)] = copy.deepcopy(odd_value(choose))
            return document, f"a neighbour of {where}"
        case 3 if isinstance(holder, list):
            # Lists of lists of a thousand copies would be larger than any file.
            many = 9 if isinstance(holder[last], dict | list) else 1000
            holder += [holder[last]] * choose.choice((1, 9, many))
            return document, f"{where} repeated"
        case 4:
            other = choose.choice(paths)
            source: Any = document
            for step in other:
                source = source[step]
            # A copy: what stands in two places could come to hold itself.
            if path[: len(other)] != other:
                holder[last] = copy.deepcopy(source)
            return document, f"{where} made what is at {'/'.join(map(str, other))[:80]}"
        case _:
            holder[last] = copy.deepcopy(odd_value(choose, holder[last]))
            return document, f"{where} made {str(holder[last])[:60]!r}"


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
    kind = choose.randrange(9)
    if kind < 2:
        return choose.choice(
            (None, True, False, 0, -1, 1.5, 2**64, 10**19, "", [], {}, [[]], [None], "infinity", "nan")
        )
    if kind == 2:
        return MARK
    if kind == 3:
        return choose.choice(HOSTILE_FEATURES)
    if kind == 4:
        return nested(choose.choice(DEEP[:3]))
    if kind == 5 and choose.random() < 0.5:
        return choose.choice(("fuzz_canary:Thing", "net.py:Net", "modeling_own.Model", CANARY))
    if kind == 5:
        return json.dumps(choose.choice(HOSTILE_FEATURES))
    if kind == 6:
        return [instead] * choose.choice((0, 1, 2, 2 if isinstance(instead, dict | list) else 500))
    return names.odd(choose)


def nested(depth: int) -> list[Any]:
    """A list in a list, so often."""
    found: list[Any] = []
    for _ in range(min(depth, 400)):
        found = [found]
    return found


CELLS = ("", " ", '"', '""', '"\n"', "nan", "inf", "-inf", "1e999", "1_000", "١٢", "0x10", "=cmd|' /C calc'!A0", "1,5")
CELLS += ("\x1b[31m", "\0", "\u202e", "é", "-0", "?", "NA", "1e-320", "9" * 400, "c" * 100_000, "True", f"{SECRET}2")


def table(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    """The lines of a table with other cells, other lines, or in another form."""
    way = choose.randrange(16)
    lines = data.decode("utf-8", "replace").split("\n")
    row = choose.randrange(len(lines))
    cells = lines[row].split(",")
    column = choose.randrange(len(cells))
    match way:
        case 0 | 1 | 2:
            cells[column] = choose.choice(CELLS)
            lines[row], said = ",".join(cells), f"{cells[column][:20]!r} in line {row}, column {column}"
        case 3:
            title = choose.choice((names.odd(choose), lines[0].split(",")[0]))
            lines[0], said = ",".join([*lines[0].split(",")[1:], title]), f"a column called {title[:40]!r}"
        case 4:
            lines, said = lines[1:], "without the first line"
        case 5:
            lines, said = lines[:1], "the first line alone"
        case 6:
            lines.insert(row, choose.choice(("", ",", lines[0], ",".join(cells[1:]), lines[row] + ",1", "\t", "#")))
            said = f"another line before line {row}"
        case 7:
            lines[row], said = choose.choice(('"', 'a"', '"a"b', '"a\n')) + lines[row], f"a quote in line {row}"
        case 8:
            many = choose.choice((300, 10_001, 40_000, 2**18, 2**20))
            lines[row : row + 1], said = [choose.choice((",", "1,", "a,")) * many], f"{many} columns in line {row}"
        case 9:
            ending = choose.choice(("\r\n", "\r", "\n\n", "\x0b", "\u2028", ";", "\0"))
            return ending.join(lines).encode(), f"lines end with {ending!r}"
        case 10:
            separator = choose.choice((";", "\t", " ", "|", ", ", "\0", ",,"))
            return "\n".join(lines).replace(",", separator).encode(), f"cells end with {separator!r}"
        case 11:
            coding = choose.choice(("utf-16", "utf-8-sig", "utf-32", "utf-7", "cp037", "utf-16-le"))
            return "\n".join([*lines, "é"]).encode(coding, "replace"), f"as {coding}"
        case 12:
            return data.replace(b"1", "é".encode("latin-1"), 1), "a letter of Latin-1"
        case 13:
            many = choose.choice((1000, 20_000))
            wide = [f"{place}" if choose.random() < 0.5 else f"x{place}" for place in range(many)]
            body = [",".join([*cells[:column], each, *cells[column + 1 :]]) for each in wide]
            lines, said = [lines[0], *body], f"{many} different cells in column {column}"
        case 14:
            return data + b"\n" * choose.choice((1, 2, 100_000)) + data, "twice, with blank lines between"
        case _:
            lines = [",".join(line.split(",")[::-1]) for line in lines]
            lines, said = choose.choice((lines, lines[::-1], [line.split(",")[0] for line in lines])), "turned round"
    return "\n".join(lines).encode("utf-8", "surrogateescape"), said
