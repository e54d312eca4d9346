"""Readers of what the package itself wrote: runs, and chunks of training."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
from support.saved_runs import RUNS, save

from fuzz.commands import command
from fuzz.printed import check_bibliography, check_page
from fuzz.readers import Reader
from jaxaudit.ensemble import kept_models
from jaxaudit.ensemble.chunk import models_per_batch_of, read_chunk, write_chunk
from jaxaudit.report import report_html
from jaxaudit.runs import read_run

MEMBERS = np.arange(4)


def saved(kind: str) -> Callable[[Path], object]:
    return lambda folder: save(RUNS[kind](), folder / "run")


def read_shown(folder: Path, choose: random.Random) -> object:
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


READERS = [
    *(Reader(f"run-{kind}", saved(kind), read_shown, 3) for kind in RUNS),
    Reader("chunk", chunk, read_kept, 4),
]
