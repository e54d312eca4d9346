"""A data format of your own: a file of JSON lines becomes records, in Python or as a file for the command line.

    python own_data.py records.jsonl records.npz
    jaxaudit ks --query records.npz ...

Each line is an object with a list of numbers and the name of a class: {"features": [0.1, 2.5], "class": "benign"}.
"""

import json
import sys
from pathlib import Path

import numpy as np

import jaxaudit as ja

MOST_BYTES = 1 << 30


def load_lines(path: str | Path) -> ja.Examples:
    """The records of a file.

    Raises:
        InputError: the file is too large or empty, or a line does not have the form above. No message quotes a record.
    """
    path = Path(path)
    if path.stat().st_size > MOST_BYTES:
        raise ja.InputError(f"{path.name} is larger than {MOST_BYTES:,} bytes: split it.")
    rows, names = [], []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            record = json.loads(line)
            rows.append(np.asarray(record["features"], np.float32))
            names.append(str(record["class"]))
        except (ValueError, KeyError, TypeError):
            raise ja.InputError(f"{path.name}, line {number}: not an object with features and class.") from None
    if len({row.shape for row in rows}) != 1:
        raise ja.InputError(f"{path.name} is empty, or its records do not all have the same number of features.")
    classes = tuple(sorted(set(names)))
    labels = np.array([classes.index(name) for name in names])
    return ja.Examples(np.stack(rows), labels, classes, path.stem)


if __name__ == "__main__":
    source, target = sys.argv[1:]
    records = load_lines(source)
    np.savez(target, x=records.inputs, y=records.labels, class_names=np.array(records.class_names))
    print(f"{len(records)} records of {len(records.class_names)} classes")
