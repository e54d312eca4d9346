"""Evaluation logs of open-unlearning, made into a table of scores."""

import random
from pathlib import Path

from support.evaluation_logs import ATTACKS, SECRET, muse_log, tofu_log, write_log

from fuzz.commands import command, swept
from fuzz.readers import Reader, only
from jaxaudit.data.scores.open_unlearning import read_log

TARGET, RETAINED, OTHER = "target.json", "retained.json", "other.json"


def write_logs(folder: Path) -> None:
    write_log(folder, tofu_log(1, records=20, attacks=ATTACKS), TARGET)
    write_log(folder, tofu_log(2, records=20, form="prob_mean"), RETAINED)
    write_log(folder, muse_log(3, records=20), OTHER)


def read_one(folder: Path, choose: random.Random) -> object:
    return read_log(only(folder))


def made_into_a_table(folder: Path, choose: random.Random) -> object:
    """The table, which has no text of a record."""
    out = choose.choice(("new.csv", "new.parquet"))
    words = ["scores", "open-unlearning", TARGET, "--unused", RETAINED, "--baseline", OTHER, "--out", out]
    if choose.random() < 0.3:
        words += ["--records-per-group", "20"]
    with swept(folder):
        ran = command(folder, words)
        if SECRET.encode() in (folder / out).read_bytes():
            raise AssertionError(f"{out} has text of a record")
    return ran


def write_one(folder: Path) -> None:
    write_log(folder, tofu_log(1, records=20, attacks=ATTACKS), TARGET)


READERS = [
    Reader("evaluation-log", write_one, read_one),
    Reader("evaluation-logs", write_logs, made_into_a_table, writes=True),
]
