"""Folders for `scores lm`: a causal model, its tokenizer, and texts; where transformers is installed."""

import hashlib
import json
import math
import random
from importlib.util import find_spec
from pathlib import Path

from pyarrow import csv
from support.language_models import save_model, write_lines

from fuzz.cases import Reader
from fuzz.commands import MADE, command
from fuzz.odd import OWN_CODE, SECRET

MODEL, SETS, RECORDS = "target", ("query.jsonl", "holdout.jsonl"), 6
OPTIONS = ((), (), ("--answer-start", "prompt-tokens"), ("--template", "Q {} A "), ("--precision", "bfloat16"))


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
        path = write_lines(folder / name, lines)
        sides[path.stem] = {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    (folder / "deal.json").write_text(json.dumps(sides))


def scored(folder: Path, choose: random.Random) -> object:
    """A table of scores: finite numbers, and no text of a record."""
    ran = command(folder, ("scores", "lm", MODEL, *SETS, *choose.choice(OPTIONS), "--out", f"{MADE}new.csv"))
    table = folder / MADE / "new.csv"
    assert SECRET not in ran.out + ran.err + table.read_text(), "the text of a record was shown"
    losses = csv.read_csv(table).to_pydict()["target.loss"]
    assert losses
    assert all(math.isfinite(loss) and loss > -1e-4 for loss in losses), f"losses {losses[:3]}"
    return losses


READERS = [Reader("lm-model", model, scored)] if find_spec("transformers") else []
