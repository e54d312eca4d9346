"""Banks of shadow models, as every command reads them that takes one, and what other tools left of theirs."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
from support.banks import CLASSES, HOLDOUT, QUERY, RECORDS, describe, logits, planned, softmax, target, train
from support.deals import write_deal, write_model
from support.other_tools import POOL, write_lira, write_privacy_meter

from fuzz.commands import command, swept
from fuzz.readers import Reader
from jaxaudit.data.bank.bank import load_bank

MODELS, MEMORY = 20, 6.0
SHOW = ("shadows", "show", "bank")
USED = np.isin(np.arange(RECORDS), np.arange(QUERY))
PLAN = ("shadows", "plan", "--deal", "deal", "--groups", "who", "--out", "bank")
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


def log_odds(folder: Path) -> None:
    """Models in one file of log-odds, as `ks --out` leaves them, and the outputs of a target in all forms."""
    bank(folder)
    found = load_bank(folder / "bank")
    outputs = [np.load(path) for path in sorted((folder / "bank" / "outputs").iterdir())]
    for path in sorted((folder / "bank" / "outputs").iterdir()):
        path.unlink()
    (folder / "bank" / "outputs").rmdir()
    own = np.arange(RECORDS), found.labels
    odds = [_log_odds(values)[own] for values in outputs]
    np.save(folder / "bank" / "outputs.npy", np.array(odds, np.float32))
    np.save(folder / "bank" / "correct.npy", np.array([values.argmax(1) == found.labels for values in outputs]))
    counts = {"query": QUERY, "holdout": HOLDOUT, "calibration": RECORDS - QUERY - HOLDOUT}
    said = describe(models=MODELS, outputs="log_odds", counts=counts, seed=3)
    (folder / "bank" / "bank.json").write_text(json.dumps(said))


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
    write_model(folder / "out.npz", query=everything[found.query], holdout=everything[found.holdout])


def _log_odds(values: np.ndarray) -> np.ndarray:
    share = softmax(values)
    return np.log(share) - np.log1p(-share)


def asked(*words: str) -> Callable[[Path, random.Random], object]:
    return lambda folder, choose: command(folder, (*words, *choose.choice(((), ("--json",)))))


def judged(folder: Path, choose: random.Random) -> object:
    words = ["ks", "--shadows", "bank", "--target", choose.choice(("out.npz", "all.npz"))]
    words += choose.choice(((), ("--before", "out.npz"), ("--leave-one-out",)))
    return _kept(folder, words, choose)


def attacked(folder: Path, choose: random.Random) -> object:
    words = ["attack", "--shadows", "bank"]
    words += choose.choice((("--target", "all.npy", "--members", "members.npy"), ("--target", "all.npy"), ()))
    words += choose.choice((("--attacks", "lira,rmia,base"), ("--attacks", "bavaria-t,attack-r"), ()))
    return _kept(folder, words, choose)


def scored(folder: Path, choose: random.Random) -> object:
    attack = ["attack", "--shadows", "bank", "--attacks", "lira,base", "--target", "all.csv"]
    judge = ["ks", "--shadows", "bank", "--target", "out.npz"]
    return _kept(folder, choose.choice((attack, judge)), choose)


def _kept(folder: Path, words: list[str], choose: random.Random) -> object:
    words += choose.choice((("--out", "run", "--json"), ("--json",), ()))
    with swept(folder):
        found = command(folder, words)
        return [
            found,
            *(command(folder, (*each, "run")) for each in (("cite",), ("report", "--card")) if "run" in words),
        ]


def added(folder: Path, choose: random.Random) -> object:
    model = choose.choice((("--model", "19"), (), ("--model", "3")))
    command(folder, ("shadows", "add", "bank", choose.choice(("bank/outputs/00019.npy", "all.npy")), *model))
    return asked(*SHOW)(folder, choose)


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


def planned_bank(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for place, name in enumerate(("query", "holdout", "calibration")):
        arrays = {"x": rng.normal(size=(40, 3)).astype(np.float32), "y": np.arange(40) % CLASSES}
        write_deal(folder / "deal", **{name: {**arrays, "who": 100 * place + np.arange(40) // 4}})
    command(folder, (*PLAN, "--models", "20"))


def planned_again(folder: Path, choose: random.Random) -> object:
    return command(folder, (*PLAN, "--models", choose.choice(("20", "24"))))


READERS = [
    Reader("bank-show", several_views, asked(*SHOW), 4),
    Reader("bank-ks", bank, judged, 4),
    Reader("bank-ks-log-odds", log_odds, judged, 3),
    Reader("bank-attack", bank, attacked, 4),
    Reader("bank-attack-views", several_views, attacked, 3),
    Reader("bank-scores", scores, scored, 3),
    Reader("bank-power", log_odds, asked("power", "--shadows", "bank"), 2),
    Reader("bank-add", bank, added, 3, writes=True),
    Reader("bank-plan", planned_bank, planned_again, 3, writes=True),
    Reader("bank-lira", other_tool(lambda folder: write_lira(folder, 6, 5)), imported, 3),
    Reader("bank-lira-scores", other_tool(lambda folder: write_lira(folder, 6, scores=True)), imported, 2),
    Reader("bank-privacy-meter", other_tool(lambda folder: write_privacy_meter(folder, 6, 5)), imported, 3),
]
