"""Tables of scores in every format, and texts with groups beside what a model says of them: what `ks` judges."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from fuzz.commands import command, swept
from fuzz.readers import SECRET, Reader, only
from jaxaudit.data.scores.files import load_scores

RECORDS = 180
SETS = ("query", "holdout", "members")


def columns() -> dict[str, Any]:
    """A column of every kind that a table of scores has, in no order of the sets."""
    random = np.random.default_rng(3)
    sets = random.permutation(np.arange(RECORDS) % 3)
    difficulty = random.normal(2.5, 0.5, RECORDS)
    models = ("target", "baseline", "before", "unused.1", "unused.2", "used.1")
    scores = {
        f"{model}.{score}": (difficulty + random.normal(0, 0.1, RECORDS) - 0.3 * (sets == 0)).round(4).tolist()
        for model in models
        for score in ("loss", "min_k")
    }
    # Two records are one author's, who is in one set.
    place = np.empty(RECORDS, int)
    for number in range(3):
        place[sets == number] = 100 * number + np.arange((sets == number).sum()) // 2
    return {
        "set": [SETS[number] for number in sets],
        "group": [f"{SECRET} {each}" for each in place],
        "index": list(range(RECORDS)),
        "covariate.tokens": random.integers(3, 90, RECORDS).tolist(),
        "text": [f"{SECRET} é {row}" for row in range(RECORDS)],
        **scores,
    }


def as_csv(folder: Path) -> None:
    cells = [map(str, column) for column in columns().values()]
    lines = [",".join(columns()), *map(",".join, zip(*cells, strict=True)), ""]
    (folder / "x.csv").write_text("\n".join(lines))


def as_parquet(folder: Path) -> None:
    parquet.write_table(pa.table(columns()), folder / "x.parquet")


def judged(folder: Path, choose: random.Random) -> object:
    """The table, and now and then its verdict; neither shows a cell of text."""
    path = only(folder, "x")
    more = choose.choice(((), (), ("--lower", "mine"), ("--column", "target.loss=mine")))
    found = load_scores(path) if not more else None
    if choose.random() < 0.5:
        return found
    with swept(folder):
        ran = command(folder, ("ks", "--scores", path.name, *more, *choose.choice(((), ("--json",), ("--out", "run")))))
        assert SECRET not in ran.out + ran.err, "a cell was printed"
        return ran


def texts_and_outputs(folder: Path) -> None:
    """Three sets of texts, two an author, and the mean log-likelihood of each."""
    random = np.random.default_rng(5)
    (folder / "deal").mkdir()
    (folder / "model").mkdir()
    for place, name in enumerate(SETS):
        lines = [
            {"prompt": f"{name} {row} ", "answer": f"é {row % 7}", "author": f"{SECRET} {100 * place + row // 2}"}
            for row in range(RECORDS)
        ]
        (folder / f"deal/{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
        said = -random.uniform(0.5, 4, RECORDS).round(4)
        (folder / f"model/{name}.csv").write_text("\n".join(["score", *map(str, said), ""]))


def judged_texts(folder: Path, choose: random.Random) -> object:
    words = ["ks", "--deal", "deal", "--target", "model"]
    words += choose.choice((("--groups", "author"), ("--groups", "author"), ()))
    with swept(folder):
        ran = command(folder, (*words, *choose.choice(((), ("--json",)))))
        assert SECRET not in ran.out + ran.err, "the name of a group was printed"
        return ran


FORMATS: dict[str, Callable[[Path], None]] = {
    "csv": as_csv,
    "parquet": as_parquet,
}
READERS = [
    *(Reader(f"scores-{name}", make, judged, 4) for name, make in FORMATS.items()),
    Reader("texts-ks", texts_and_outputs, judged_texts, 3),
]
