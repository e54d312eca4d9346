"""Strings and numbers that stand in inputs, and where they are found in what a command writes."""

import io
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet

from support.cli_runs import records
from support.evaluation_logs import SECRET, muse_log, write_log

RECORDS, FEATURES, GROUPS = 300, 12, 100
LISTED = 60
"""An array with as many numbers or objects in JSON has one for each record of some set."""
WORDS = {
    "folder": "leakfolder",
    "file": "leakfile",
    "column": "leakcolumn",
    "class": "leakclass",
    "group": "leakgroup",
    "cell": "leakcell",
    "category": "leakcategory",
}
"""Canaries that are text; `cell` is in a column or array that no command needs, `category` in one that it uses."""
_LISTS = re.compile(
    r"^\W*(index|record|place|set,place)\b|<th scope=\"col\"[^>]*>record</th>|^The \d+ .*(record|target)s", re.MULTILINE
)
"""The heading of a table with a row for each record, in CSV, on a terminal, on a page."""


def write_inputs(folder: Path) -> np.ndarray:
    """Records with canaries: `leakfile.npz`, `.csv`, `.jsonl` and others; returns the first record."""
    inputs, labels = records(2, 0.0, RECORDS)
    classes = np.array([f"{WORDS['class']}{place}" for place in range(3)])
    groups = [f"{WORDS['group']}{place * GROUPS // RECORDS:03}" for place in range(RECORDS)]
    cells = [f"{WORDS['cell']}{place:03}" for place in range(RECORDS)]
    own: dict[str, Any] = {"x": inputs, "y": labels, "class_names": classes}
    name = WORDS["file"]
    np.savez(folder / f"{name}.npz", patient=np.array(groups), town=np.array(cells), **own)
    further = records(3, 0.7, RECORDS)
    np.savez(folder / f"{name}_other.npz", x=further[0], y=further[1], class_names=classes)
    texts = [
        {"prompt": cell, "answer": f"{place}", "patient": group}
        for place, (cell, group) in enumerate(zip(cells, groups, strict=True))
    ]
    (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, texts)))
    header = [f"{WORDS['column']}{place}" for place in range(FEATURES)]
    _write_csv(folder / f"{name}.csv", [*header, "patient", "diagnosis"], inputs, groups, classes[labels].tolist())
    kinds = [f"{WORDS['category']}{place % 4}" for place in range(RECORDS)]
    lines = [f"{kind},{cell}" for kind, cell in zip(kinds, cells, strict=True)]
    header = [*header[:4], "colour", "town", "diagnosis"]
    _write_csv(folder / f"{name}_people.csv", header, inputs[:, :4], lines, classes[labels].tolist())
    return inputs[0]


def write_evaluations() -> None:
    """Logs of other tools, whose texts are canaries: `samples/` of lm-evaluation-harness, `muse.json`, `other.json`."""
    Path("samples").mkdir()
    for shift, task in enumerate(("query", "holdout")):
        lines = [
            {
                "doc_id": row,
                "doc": {"question": f"{WORDS['cell']}{row}"},
                "target": f" {WORDS['cell']}{row}",
                "arguments": {"gen_args_0": {"arg_0": WORDS["cell"], "arg_1": f" {WORDS['cell']}{row}"}},
                "filtered_resps": [[f"{-1.5 - row - shift / 7}", "False"]],
            }
            for row in range(RECORDS)
        ]
        path = Path(f"samples/samples_{task}_2026-01-05T10-11-12.123456.jsonl")
        path.write_text("\n".join(map(json.dumps, lines)))
    for seed, name in enumerate(("muse.json", "other.json")):
        path = write_log(Path(), muse_log(seed), name)
        path.write_text(path.read_text().replace(SECRET, WORDS["cell"]))


def _write_csv(path: Path, header: list[str], numbers: np.ndarray, words: list[str], labels: list[str]) -> None:
    rows = zip(numbers.tolist(), words, labels, strict=True)
    lines = [",".join([*(f"{number:.7f}" for number in row), word, label]) for row, word, label in rows]
    path.write_text("\n".join([",".join(header), *lines, ""]))


def write_outputs(path: Path, labels: np.ndarray, surer: float) -> np.ndarray:
    """Probabilities of a model, every one another number; returns those of each record's own class."""
    own = np.round(0.6 + surer + 0.2 * np.random.default_rng(len(labels)).random(len(labels)), 5)
    next_best = np.round(0.7 * (1 - own), 5)
    rows = np.arange(len(labels))
    found = np.empty((len(labels), 3))
    found[rows, labels], found[rows, (labels + 1) % 3] = own, next_best
    found[rows, (labels + 2) % 3] = np.round(1 - own - next_best, 5)
    np.savetxt(path, found, "%.5f", ",")
    return own.astype(np.float32)


def pieces(name: str, content: bytes) -> Iterator[bytes]:
    """The content of a file, unpacked: the bytes of arrays, text of any width as one byte a character."""
    if name.endswith(".npz"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for member in archive.namelist():
                yield member.encode()
                yield from pieces(member, archive.read(member))
    elif name.endswith(".npy"):
        array = np.load(io.BytesIO(content), allow_pickle=False)
        yield array.tobytes().replace(b"\0\0\0", b"") if array.dtype.kind == "U" else array.tobytes()
    elif name.endswith(".parquet"):
        text = io.BytesIO()
        pyarrow.csv.write_csv(pyarrow.parquet.read_table(io.BytesIO(content)), text)
        yield text.getvalue().replace(b'"', b"")
    else:
        yield content


def found_in(name: str, content: bytes, numbers: Mapping[str, np.ndarray]) -> set[str]:
    """The canaries in a file of this name; `numbers` are further ones, each some float32 that are searched for."""
    whole = b"\n".join(pieces(name, content))
    text = whole.decode("utf-8", "replace")
    seen = {canary for canary, word in WORDS.items() if word in text}
    for canary, values in numbers.items():
        forms = [value.tobytes() for value in (*values, *values.astype(np.float64))]
        # All digits of these numbers; what is rounded for a table shows fewer. A place in a drawing, such as 212.61234,
        # is none of them.
        digits = [f"{value:.5f}".removeprefix("0") for value in values]
        written = re.search(rf"(?<![0-9])0?(?:{'|'.join(map(re.escape, digits))})".encode(), whole) if digits else None
        seen |= {canary} if written or any(form in whole for form in forms) else set()
    listed = _lists(json.loads(text)) if name.endswith(".json") else _LISTS.search(text) is not None
    return seen | ({"record"} if listed else set())


def _lists(value: Any) -> bool:
    """Whether JSON holds something of each record."""
    if isinstance(value, dict):
        return any(map(_lists, value.values()))
    # The words of a command are a long list, too.
    own = [each for each in value if not isinstance(each, str)] if isinstance(value, list) else []
    return len(own) >= LISTED or any(map(_lists, own))
