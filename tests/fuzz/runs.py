"""Readers of what the package itself wrote: runs, unfinished work, chunks, reports in their place."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from support.saved_runs import RUNS, save
from support.saved_runs.ks import ks_run, without_rho

from fuzz import banks
from fuzz.commands import command
from fuzz.printed import check_bibliography, check_card, check_markdown, check_page
from fuzz.readers import Reader, only
from jaxaudit.ensemble.checkpoint import kept_models, models_per_batch_of, read_chunk, write_chunk
from jaxaudit.errors import InputError
from jaxaudit.report.html.render import report_html
from jaxaudit.report.record import to_json
from jaxaudit.runs.directory import claim, claim_report, write_report
from jaxaudit.runs.saved import read_run
from jaxaudit.runs.unfinished import is_unfinished, open_unfinished

SELF = {name: {"name": "ks", "epochs": 15} for name in ("command", "options", "data", "code", "machine")}
MEMBERS = np.arange(4)


def saved(kind: str) -> Callable[[Path], object]:
    return lambda folder: save(RUNS[kind](), folder / "run")


def many_records(folder: Path) -> None:
    """A run of `pdtp` whose records lie in a file of their own."""
    run = RUNS["pdtp"]()
    result = to_json(run.result)
    result["distribution"][0]["records"] += 960
    save(run, folder / "run", {**result, "records_measured": 1000, "training_records": 1000})
    parquet.write_table(pa.table({"pdtp": np.full(1000, 0.02)}), folder / "run" / "records.parquet")


def of_bank(folder: Path) -> None:
    with TemporaryDirectory() as place:
        banks.bank(Path(place))
        command(Path(place), ("attack", "--shadows", "bank", "--target", "all.npy", "--out", "run"))
        (Path(place) / "run").rename(folder / "run")


def several(folder: Path) -> None:
    for name in ("before", "after"):
        save(RUNS["efficacy"](name), folder / name)


def read_shown(folder: Path, choose: random.Random) -> object:
    """All runs there in one of the forms in which they are shown, which has nothing that it should not have."""
    paths = sorted(folder.iterdir()) or [folder / "run"]
    form = choose.choice(("page", "--card", "--markdown", "cite", "--text", "page"))
    if form == "page":
        text = report_html([read_run(path) for path in paths])
        check_page(text)
        return text
    words = ("cite",) if form == "cite" else ("report", form)
    text = command(folder, (*words, "--", *(path.name for path in paths))).out
    if form == "--card":
        check_card(text, len(paths))
    elif form == "--markdown":
        check_markdown(text, len(paths))
    elif form == "cite":
        check_bibliography(text)
    return text


def chunk(folder: Path) -> None:
    place = folder / "call"
    write_chunk(place / "4-0123456789abcdef.npz", MEMBERS, (np.ones((4, 3), np.float32), np.arange(8).reshape(4, 2)))


def read_kept(folder: Path, choose: random.Random) -> object:
    """What is kept: a damaged chunk is as good as none, and never an error."""
    for place in sorted(folder.iterdir()):
        models_per_batch_of(place)
        for path in sorted(place.glob("*")):
            found = read_chunk(path, MEMBERS)
            if found is not None and (type(found) is not tuple or [len(leaf) for leaf in found] != [4, 4]):
                raise AssertionError("a chunk was read with other leaves than were written")
    return kept_models(folder)


def unfinished(folder: Path) -> None:
    work = open_unfinished(folder / "out" / "unfinished", SELF)
    chunk(work.checkpoints)
    work.keep()
    (folder / "out" / "unfinished" / "owner").write_text("4194303\n")


def go_on(folder: Path, choose: random.Random) -> object:
    place = only(folder, "out")
    claim(place)
    is_unfinished(place / "unfinished")
    # The process that signs beside the lock has the same number of digits in few runs only.
    try:
        work = open_unfinished(place / "unfinished", SELF)
    except OSError as error:
        raise InputError(f"{place.name} cannot be written: {error.strerror}") from error
    try:
        return kept_models(work.checkpoints)
    finally:
        work.remove() if choose.random() < 0.5 else work.keep()


def reported(folder: Path) -> object:
    return (folder / "report.html").write_text(report_html([RUNS["efficacy"]()]))


def write_again(folder: Path, choose: random.Random) -> object:
    place = only(folder, "report")
    claim_report(place, choose.choice((None, folder / "out")))
    return write_report(place, [RUNS["efficacy"]()])


READERS = [
    *(Reader(f"run-{kind}", saved(kind), read_shown, 3) for kind in RUNS),
    Reader("run-of-bank", of_bank, read_shown, 3),
    Reader("run-without-rho", lambda folder: save(ks_run(audit=without_rho()), folder / "run"), read_shown, 2),
    Reader("run-records", many_records, read_shown, 2),
    Reader(
        "run-json", lambda at: (at / "run.json").write_text(json.dumps(to_json(RUNS["ks"]().result))), read_shown, 2
    ),
    Reader("run-several", several, read_shown, 1),
    Reader("chunk", chunk, read_kept, 4),
    Reader("unfinished", unfinished, go_on, 4, writes=True),
    Reader("report-place", reported, write_again, 2, writes=True),
]
