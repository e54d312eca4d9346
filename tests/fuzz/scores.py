"""Evaluation logs of open-unlearning and samples of lm-evaluation-harness, made into a table of scores."""

import json
import random
from pathlib import Path

from support.evaluation_logs import ATTACKS, SECRET, muse_log, tofu_log, write_log

from fuzz.commands import command, swept
from fuzz.readers import Reader, only
from jaxaudit.data.scores.lm_eval import read_samples
from jaxaudit.data.scores.open_unlearning import read_log

TASKS = ("choices", "texts")
TARGET, RETAINED, OTHER = "target.json", "retained.json", "other.json"


def write_logs(folder: Path) -> None:
    write_log(folder, tofu_log(1, records=20, attacks=ATTACKS), TARGET)
    write_log(folder, tofu_log(2, records=20, form="prob_mean"), RETAINED)
    write_log(folder, muse_log(3, records=20), OTHER)


def read_one(folder: Path, choose: random.Random) -> object:
    return read_log(only(folder), choose.choice(("privleak", "verbmem", "knowmem")))


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


def write_samples(folder: Path) -> None:
    """A task of several choices and one of texts, as release 0.4.13 writes them."""
    for place, task in enumerate(TASKS):
        lines = []
        for row in range(12):
            numbers = [str(-1.5 - row - choice * 0.3) for choice in range(3 - 2 * place)]
            lines.append(
                {
                    "doc_id": row,
                    "doc": {"question": SECRET},
                    "target": SECRET if place else str(row % 3),
                    "arguments": {
                        f"gen_args_{choice}": {"arg_0": SECRET, "arg_1": f" {SECRET}{choice}"}
                        for choice in range(len(numbers))
                    },
                    "filtered_resps": [[number, "False"] for number in numbers],
                    "doc_hash": f"{row}",
                    "prompt_hash": f"{row}",
                }
            )
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (folder / f"samples_{task}_2026-01-05T10-11-12.123456.jsonl").write_text(text)


def read_task(folder: Path, choose: random.Random) -> object:
    return read_samples(folder, {"query": TASKS[0], "holdout": TASKS[1]})


def write_one(folder: Path) -> None:
    write_log(folder, tofu_log(1, records=20, attacks=ATTACKS), TARGET)


READERS = [
    Reader("evaluation-log", write_one, read_one),
    Reader("evaluation-samples", write_samples, read_task),
    Reader("evaluation-logs", write_logs, made_into_a_table, writes=True),
]
