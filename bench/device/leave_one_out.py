"""Leave-one-out models: `fit_many` beside a PyTorch loop, as it is and as one CUDA graph a step."""

from collections.abc import Callable
from functools import partial

import numpy as np

from bench.device.chunks import Choice, choose, contender
from bench.device.measuring import ABSENT, JAXAUDIT, UNIT, Asked, Contender, Outcome, in_turns, library
from bench.training import CLASSES, Job, leaving_one_out

GOAL = 100
EAGER = "pytorch eager"


def piece(asked: Asked, outcome: Outcome) -> None:
    chosen = outcome.chosen or {}
    outcome.notes.append(f"Times are for {UNIT:,} model-steps.")
    if library("torch") is None:
        outcome.leave_out("PyTorch", ABSENT)
    for batch_size in (10,) if asked.reduced else (1, 10, 32):
        models = 16 if asked.reduced else 1000
        job = leaving_one_out(batch_size, models, epochs=1 if asked.reduced else 30)
        earlier = chosen.get(str(batch_size))
        choice = Choice(earlier["number"], earlier["form"]) if earlier else choose(job)
        chosen[str(batch_size)], outcome.chosen = choice._asdict(), chosen
        outcome.notes.append(f"{job.name}: {choice}")
        builders = {JAXAUDIT: partial(contender, job, choice, asked.region)}
        if library("torch") is not None:
            builders |= rivals(asked, outcome, job)
        timings = in_turns(asked, outcome, job.name, builders, unit=UNIT)
        if EAGER in timings.seconds:
            outcome.promise(asked, f"{job.name}: {EAGER} / {JAXAUDIT}", timings.ratio(EAGER, JAXAUDIT), GOAL)


def rivals(asked: Asked, outcome: Outcome, job: Job) -> dict[str, Callable[[], Contender]]:
    """Full minibatches alone, which a graph wants."""
    from torch import nn

    from bench.device import torch_loops, torch_rivals

    torch_rivals.set_fast()
    pool = torch_loops.torch_pool(job, torch_rivals.device())
    members = torch_loops.torch.from_numpy(np.flatnonzero(job.membership[0])).to(pool.labels.device)
    make = lambda: nn.Sequential(nn.Linear(836, 64), nn.Tanh(), nn.Linear(64, CLASSES))  # noqa: E731
    sizes = (2, 4) if asked.reduced else (64, 1024)
    built = torch_rivals.contenders(
        *(asked, outcome, make, pool, members, job.learner.batch_size, torch_loops.gradient_descent, sizes)
    )
    return {name: build for name, build in built.items() if "compiled" not in name}
