"""Banks of shadow models, as every command reads them that takes one, and what other tools left of theirs."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
from support.banks import HOLDOUT, QUERY, RECORDS, describe, logits, planned, softmax, target, train
from support.deals import write_model
from support.other_tools import POOL, write_lira

from fuzz.commands import command, swept
from fuzz.readers import Reader
from jaxaudit import load_bank

MODELS, MEMORY = 20, 6.0
SHOW = ("shadows", "show", "bank")
USED = np.isin(np.arange(RECORDS), np.arange(QUERY))
OWN_CODE = "import fuzz_canary\n\nNet = fuzz_canary.Thing\n"
"""Of a file that only a command line may name."""


def bank(folder: Path) -> None:
    """Models of logits; a target's outputs on all records and by set; the records that it used."""
    planned(folder / "bank", MODELS, 0, holdout=True, class_names=["x", "y", "z"], versions={"jaxaudit": "0.1.0"})
    train(load_bank(folder / "bank"), range(MODELS), MEMORY)
    np.save(folder / "all.npy", target(folder / "bank", "out", USED, MEMORY))
    target(folder / "bank", "all", USED, MEMORY, roles=("query", "holdout", "calibration"))
    np.save(folder / "members.npy", USED)
    (folder / "bank" / "net.py").write_text(OWN_CODE)


def several_views(folder: Path) -> None:
    """Models of probabilities of two views, dealt by groups; some records are dropped."""
    planned(folder / "bank", MODELS, 0, holdout=True, groups=True, outputs="probabilities", queries=2)
    found = load_bank(folder / "bank")
    dropped = np.arange(RECORDS) % 30 == 7
    np.save(folder / "bank" / "dropped.npy", dropped)
    said = json.loads((folder / "bank" / "bank.json").read_text())
    (folder / "bank" / "bank.json").write_text(json.dumps({**said, "recipe": "mine"}))
    np.save(folder / "members.npy", USED)
    rows = found.membership & ~dropped
    np.save(folder / "bank" / "membership.npy", rows)
    for model, row in enumerate([*rows, USED]):
        values = softmax(np.stack([logits(model + view, row, MEMORY) for view in (0, 500)], axis=1))
        place = folder / "bank" / "outputs" / f"{model:05}.npy" if model < MODELS else folder / "all.npy"
        np.save(place, values.astype(np.float32))


def scores(folder: Path) -> None:
    """Models of one score for each record, without classes, and a target's scores in columns of text."""
    bank(folder)
    found = load_bank(folder / "bank")
    counts = {"query": QUERY, "holdout": HOLDOUT, "calibration": RECORDS - QUERY - HOLDOUT}
    said = describe(models=MODELS, outputs="score", direction="lower", classes=None, counts=counts, seed=3)
    (folder / "bank" / "bank.json").write_text(json.dumps(said))
    own = np.arange(RECORDS), found.labels
    (folder / "bank" / "labels.npy").unlink()
    for path in sorted((folder / "bank" / "outputs").iterdir()):
        np.save(path, -np.load(path)[own])
    everything = -np.load(folder / "all.npy")[own]
    np.savetxt(folder / "all.csv", everything)
    np.save(folder / "all.npy", everything)
    write_model(folder / "out.npz", query=everything[found.query], holdout=everything[found.holdout])


def looked_at(folder: Path, choose: random.Random) -> object:
    return command(folder, (*SHOW, *choose.choice(((), ("--json",)))))


def audited(folder: Path, choose: random.Random) -> object:
    """Judged, attacked, or looked at."""
    attack = ["attack", "--shadows", "bank", "--target", choose.choice(("all.npy", "all.npy", "all.csv"))]
    words = choose.choice(
        (
            [*attack, "--attacks", choose.choice(("lira,base", "bavaria-t,attack-p"))],
            [*attack, "--members", "members.npy", "--attacks", "lira,rmia,base"],
            ["ks", "--shadows", "bank", "--target", "out.npz", *choose.choice(((), ("--leave-one-out",)))],
            ["power", "--shadows", "bank"],
        )
    )
    return _kept(folder, words, choose)


def _kept(folder: Path, words: list[str], choose: random.Random) -> object:
    words += choose.choice((("--out", "run", "--json"), ("--json",), ()))
    with swept(folder):
        found = command(folder, words)
        return [found, *([command(folder, ("cite", "run"))] if "run" in words else [])]


def imported(folder: Path, choose: random.Random) -> object:
    words = ["shadows", "import", "exp", "--labels", "labels.npy", "--out", "bank"]
    words += choose.choice((("--query-rows", "query.npy", "--holdout-rows", "holdout.npy"), ()))
    with swept(folder):
        return command(folder, words), command(folder, SHOW)


def other_tool(write: Callable[[Path], object]) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        write(folder / "exp")
        np.save(folder / "labels.npy", np.arange(POOL) % 4)
        np.save(folder / "query.npy", np.arange(0, POOL, 3))
        np.save(folder / "holdout.npy", np.arange(POOL) % 3 == 1)

    return make


READERS = [
    Reader("bank-show", several_views, looked_at, 4),
    Reader("bank-logits", bank, audited, 8),
    Reader("bank-views", several_views, audited, 3),
    Reader("bank-scores", scores, audited, 3),
    Reader("bank-lira", other_tool(lambda folder: write_lira(folder, 6, 5)), imported, 3),
]
