"""Tables of scores in every format, and what the package itself wrote: runs, and chunks of training."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet
from support.saved_runs import RUNS, save

from fuzz.cases import Reader, only
from fuzz.commands import MADE, command
from fuzz.odd import SECRET
from fuzz.printed import check_bibliography, check_page
from jaxaudit import load_scores
from jaxaudit.ensemble import kept_models
from jaxaudit.ensemble.chunk import models_per_batch_of, read_chunk, write_chunk
from jaxaudit.report import report_html
from jaxaudit.runs import read_run

RECORDS = 180
SETS = ("query", "holdout", "members")
MEMBERS = np.arange(4)


def table() -> pa.Table:
    """A column of every kind that a table of scores has, in no order of the sets."""
    random = np.random.default_rng(3)
    sets = random.permutation(np.arange(RECORDS) % 3)
    difficulty = random.normal(2.5, 0.5, RECORDS)
    models = ("target", "baseline", "before", "unused.1", "unused.2", "used.1")
    scores = {
        f"{model}.{score}": (difficulty + random.normal(0, 0.1, RECORDS) - 0.3 * (sets == 0)).round(4)
        for model in models
        for score in ("loss", "min_k")
    }
    columns: dict[str, Any] = {
        "set": [SETS[number] for number in sets],
        # Two records are one author's, who is in one set.
        "group": [f"{SECRET} {number} {np.sum(sets[:row] == number) // 2}" for row, number in enumerate(sets)],
        "index": np.arange(RECORDS),
        "covariate.tokens": random.integers(3, 90, RECORDS),
        "text": [f"{SECRET} é {row}" for row in range(RECORDS)],
    }
    return pa.table({**columns, **scores})


def as_csv(folder: Path) -> None:
    csv.write_csv(table(), folder / "x.csv", csv.WriteOptions(quoting_style="none"))


def judged(folder: Path, choose: random.Random) -> object:
    """The table, and now and then its verdict; neither shows a cell of text."""
    path = only(folder, "x")
    more = choose.choice(((), (), ("--direction", "mine=lower")))
    found = load_scores(path) if not more else None
    if choose.random() < 0.5:
        return found
    words = ("ks", "--scores", path.name, *more, *choose.choice(((), ("--json",), ("--out", f"{MADE}run"))))
    ran = command(folder, words)
    assert SECRET not in ran.out + ran.err, "a cell was printed"
    return ran


def shown(folder: Path, choose: random.Random) -> object:
    """All runs there in one of the forms in which they are shown, which has nothing that it should not have."""
    paths = sorted(folder.iterdir()) or [folder / "run"]
    if choose.choice((True, True, False)):
        pages = [report_html(read_run(path)) for path in paths]
        for page in pages:
            check_page(page)
        return pages
    text = command(folder, ("cite", "--", *(path.name for path in paths))).out
    check_bibliography(text)
    return text


def chunk(folder: Path) -> None:
    leaves = (np.ones((4, 3), np.float32), np.arange(8).reshape(4, 2))
    write_chunk(folder / "call" / "4-0123456789abcdef.npz", MEMBERS, leaves)


def kept(folder: Path, choose: random.Random) -> object:
    """What is kept: a damaged chunk is as good as none, and never an error."""
    for place in sorted(folder.iterdir()):
        models_per_batch_of(place)
        for path in sorted(place.glob("*")):
            found = read_chunk(path, MEMBERS)
            if found is not None and (type(found) is not tuple or [len(leaf) for leaf in found] != [4, 4]):
                raise AssertionError("a chunk was read with other leaves than were written")
    return kept_models(folder)


READERS = [
    Reader("scores-csv", as_csv, judged),
    Reader("scores-parquet", lambda folder: parquet.write_table(table(), folder / "x.parquet"), judged),
    *(Reader(f"run-{kind}", lambda folder, run=run: save(run(), folder / "run"), shown) for kind, run in RUNS.items()),
    Reader("chunk", chunk, kept),
]
