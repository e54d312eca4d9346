"""Readers of folders for `scores lm`: a causal model, its tokenizer, and texts."""

import hashlib
import json
import math
import random
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pyarrow import csv
from support.language_models import save_model, write_lines

from fuzz.commands import command, swept
from fuzz.language import MODEL, OWN_CODE
from fuzz.readers import SECRET, Reader

SETS, RECORDS = ("query", "holdout"), 6
OPTIONS: tuple[tuple[str, ...], ...] = (
    *((), (), ("--answer-start", "prompt-tokens")),
    *(("--template", "Q {} A "), ("--precision", "bfloat16")),
)


def model(folder: Path) -> None:
    """A model, and a file of questions for each set, with groups, and what says that they were dealt."""
    save_model(folder / MODEL)
    (folder / MODEL / "modeling_own.py").write_text(OWN_CODE)
    sides = {}
    for name in SETS:
        lines = [
            {"question": f"{SECRET} {name} {row}?", "answer": f"A {row} {name}", "group": f"{name} {row // 2}"}
            for row in range(RECORDS)
        ]
        path = write_lines(folder / f"{name}.jsonl", lines)
        sides[name] = {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    (folder / "deal.json").write_text(json.dumps(sides))


def scored(folder: Path, words: tuple[str, ...]) -> list[Any]:
    """The sets of a table of scores: finite numbers, and no text of a record."""
    sets = [f"{name}.jsonl" for name in SETS]
    with swept(folder):
        ran = command(folder, ("scores", "lm", MODEL, *sets, *words, "--out", "new.csv"))
        table = (folder / "new.csv").read_bytes()
        assert SECRET not in ran.out + ran.err, "the text of a record was printed"
        assert SECRET.encode() not in table, "the table has the text of a record"
        columns = csv.read_csv(folder / "new.csv").to_pydict()
    losses = columns["target.loss"]
    assert losses
    assert all(math.isfinite(loss) and loss > -1e-4 for loss in losses), f"losses {losses[:3]}"
    return columns["set"]


def read_model(folder: Path, choose: random.Random) -> object:
    return scored(folder, choose.choice(OPTIONS))


READERS = [Reader("lm-model", model, read_model, 3, writes=True)] if find_spec("transformers") else []
