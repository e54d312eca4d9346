"""Tables of scores in every format."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from fuzz.commands import command, swept
from fuzz.readers import SECRET, Reader, only
from jaxaudit import load_scores

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
    more = choose.choice(((), (), ("--direction", "mine=lower")))
    found = load_scores(path) if not more else None
    if choose.random() < 0.5:
        return found
    words = ("ks", "--scores", path.name, *more, *choose.choice(((), ("--json",), ("--out", "run"))))
    with swept(folder):
        ran = command(folder, words)
        assert SECRET not in ran.out + ran.err, "a cell was printed"
        return ran


READERS = [
    Reader("scores-csv", as_csv, judged, 4),
    Reader("scores-parquet", as_parquet, judged, 4),
]
