"""Banks of shadow models, as every command reads them that takes one, and what another tool left of its own."""

import json
import random
from pathlib import Path

import numpy as np
from support.banks import HOLDOUT, QUERY, RECORDS, describe, logits, planned, save, softmax, target, train
from support.deals import write_model
from support.other_tools import POOL, write_lira

from fuzz import odd
from fuzz.cases import Reader
from fuzz.commands import MADE, command
from jaxaudit import load_bank

MODELS, MEMORY = 20, 6.0
USED = np.isin(np.arange(RECORDS), np.arange(QUERY))


def bank(folder: Path) -> None:
    """Models of logits; a target's outputs on all records and by set; the records that it used."""
    planned(folder / "bank", MODELS, 0, holdout=True, class_names=["x", "y", "z"], versions={"jaxaudit": "0.1.0"})
    train(load_bank(folder / "bank"), range(MODELS), MEMORY)
    np.save(folder / "all.npy", target(folder / "bank", "out", USED, MEMORY))
    np.save(folder / "members.npy", USED)
    (folder / "bank" / "net.py").write_text(odd.OWN_CODE)


def several_views(folder: Path) -> None:
    """Models of probabilities of two views, dealt by groups; some records are dropped."""
    planned(
        *(folder / "bank", MODELS, 0),
        holdout=True,
        groups=True,
        outputs="probabilities",
        queries=2,
        recipe="mine",
    )
    dropped = np.arange(RECORDS) % 30 == 7
    rows = load_bank(folder / "bank").membership & ~dropped
    for name, values in (("bank/dropped", dropped), ("bank/membership", rows), ("members", USED)):
        np.save(folder / f"{name}.npy", values)
    views = [softmax(np.stack([logits(m + v, row, MEMORY) for v in (0, 500)], axis=1)) for m, row in enumerate(rows)]
    for model, values in enumerate(views):
        save(folder / "bank", model, values.astype(np.float32))
    np.save(folder / "all.npy", views[0])


def scores(folder: Path) -> None:
    """Models of one score for each record, without classes, and a target's scores in columns of text."""
    bank(folder)
    found = load_bank(folder / "bank")
    counts = {"query": QUERY, "holdout": HOLDOUT, "calibration": RECORDS - QUERY - HOLDOUT}
    said = describe(models=MODELS, outputs="score", direction="lower", classes=None, counts=counts, seed=3)
    (folder / "bank" / "bank.json").write_text(json.dumps(said))
    (folder / "bank" / "labels.npy").unlink()
    for path in (*sorted((folder / "bank" / "outputs").iterdir()), folder / "all.npy"):
        np.save(path, -np.load(path)[np.arange(RECORDS), found.labels])
    everything = np.load(folder / "all.npy")
    np.savetxt(folder / "all.csv", everything)
    write_model(folder / "out.npz", query=everything[found.query], holdout=everything[found.holdout])


def audited(folder: Path, choose: random.Random) -> object:
    """Looked at; judged, or attacked."""
    attack = ["attack", "--shadows", "bank", "--target", choose.choice(("all.npy", "all.npy", "all.csv"))]
    words = choose.choice(
        (
            [*attack, "--attacks", choose.choice(("lira,base", "bavaria-t,attack-p"))],
            [*attack, "--members", "members.npy", "--attacks", "lira,rmia,base"],
            ["ks", "--shadows", "bank", "--target", "out.npz", *choose.choice(((), ("--leave-one-out",)))],
            ["power", "--shadows", "bank"],
        )
    )
    out = choose.choice((("--out", f"{MADE}run"), ()))
    command(folder, ("shadows", "show", "bank", *choose.choice(((), ("--json",)))))
    found = command(folder, (*words, *out, *choose.choice((("--json",), ()))))
    return [found, *([command(folder, ("cite", out[-1]))] if out else [])]


def other_tool(folder: Path) -> None:
    write_lira(folder / "exp", 6, 5)
    rows = {"labels": np.arange(POOL) % 4, "query": np.arange(0, POOL, 3), "holdout": np.arange(POOL) % 3 == 1}
    for name, values in rows.items():
        np.save(folder / f"{name}.npy", values)


def imported(folder: Path, choose: random.Random) -> object:
    words = ["shadows", "import", "exp", "--labels", "labels.npy", "--out", f"{MADE}bank"]
    words += choose.choice((("--query-rows", "query.npy", "--holdout-rows", "holdout.npy"), ()))
    return command(folder, words), command(folder, ("shadows", "show", f"{MADE}bank"))


READERS = [
    Reader("bank-logits", bank, audited),
    Reader("bank-views", several_views, audited),
    Reader("bank-scores", scores, audited),
    Reader("bank-lira", other_tool, imported),
]
