"""What `jaxaudit shadows train` takes, by the training sets that were dealt."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from jaxaudit.cli.progress import duration
from jaxaudit.cli.shadows.sets import BankSets
from jaxaudit.data.bank.bank import finished_in
from jaxaudit.data.bank.description import Description
from jaxaudit.ensemble import Speed
from jaxaudit.ensemble.concurrency import concurrent_chunks
from jaxaudit.learners import EarlyStopping, Learner, SteppedLearner

PROGRAM_BYTES = 600 << 20
"""Memory of Python, JAX and compiled programs."""
COMPILE_SECONDS = 3.0
"""Of a design; a deep network takes longer."""


class Recipes(NamedTuple):
    """The designs of a bank.

    Attributes:
        names: of each.
        learners: how each is trained.
        costs: the time of a model of each, in that of the first.
    """

    names: tuple[str, ...]
    learners: tuple[Learner, ...]
    costs: tuple[float, ...]


def estimate_of(
    out: Path,
    there: Description | None,
    sets: BankSets,
    description: Description,
    rows: Bool[np.ndarray, "models n"],
    recipes: Recipes,
    speed: Speed | None,
    number: int,
    spread: bool,
) -> list[str]:
    """What training takes, before it begins; `rows` are the training sets of all models."""
    done = [] if there is None else finished_in(out, there.models)
    members = np.delete(rows, done, axis=0).sum(axis=1)
    models = len(members)
    inputs = sum(part.nbytes for part in sets.parts)
    outputs = 4 * description.records * description.classes
    memory = PROGRAM_BYTES + 3 * inputs + number * outputs
    learner, steps, time = recipes.learners[0], "", "as long as its learner takes"
    if speed is not None and isinstance(learner, SteppedLearner) and models:
        counts = learner.epochs * -(-members // learner.batch_size)
        seconds = (counts.sum() * speed.step + models * description.records * speed.record) * np.mean(recipes.costs)
        seconds += COMPILE_SECONDS * len(recipes.names)
        memory += speed.state_bytes * 2 * number * concurrent_chunks()
        most = "at most " if isinstance(learner, EarlyStopping) else ""
        steps, time = (
            f": {most}{_numbers(counts)} steps of {learner.batch_size} records",
            f"{most}about {duration(float(seconds))}",
        )
    have = f", {len(done)} of them trained" if len(done) else ""
    each = f" on {_numbers(members)} records each{steps} ({', '.join(recipes.names)})" if models else ""
    return [
        f"{description.models} shadow models{have}; {models} to train{each}",
        f"{time} on {description.device}{', in one process' if spread else ''}, {memory / 2**30:.1f} GiB of memory, "
        f"{models * outputs / 2**20:,.0f} MiB of disk for outputs",
    ]


def _numbers(each: Int[np.ndarray, " some"]) -> str:
    """A number of each model: one, or their range with the mean.

    >>> _numbers(np.array([7000, 7000])), _numbers(np.array([5480, 5620]))
    ('7,000', '5,480 to 5,620 (on average 5,550)')
    """
    least, most = each.min(), each.max()
    return f"{least:,}" if least == most else f"{least:,} to {most:,} (on average {each.mean():,.0f})"
