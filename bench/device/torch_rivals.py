"""PyTorch's forms of training as contenders, by the names of `measuring.RIVALS`."""

import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import nn

from bench.device.measuring import Asked, Contender, Outcome
from bench.device.torch_loops import Loop, Optimizer, Pool, as_graph, ensemble, single, train, wait

TRIED_STEPS = 5
CPU_SIZES = 2, 8
MOST_STEPS = 100
"""Of an epoch, so that one of small minibatches does not take seconds."""


def device() -> str:
    """PyTorch's name of the device."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def set_fast() -> None:
    """Products as fast as PyTorch has them in float32: TF32 on a GPU."""
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True


def contenders(
    asked: Asked,
    outcome: Outcome,
    make: Callable[[], nn.Module],
    pool: Pool,
    members: torch.Tensor,
    batch_size: int,
    optimizer: Optimizer,
    sizes: Sequence[int],
    in_: str = "float32",
) -> dict[str, Callable[[], Contender]]:
    """Builders of the wanted forms that the device has; units are model-steps.

    Ensembles have the number of models, of `sizes`, whose model-step is the fastest as it is.
    """
    here, chosen = pool.inputs.device.type, list[int]()

    def models() -> int:
        if not chosen:
            trials = sizes if here == "cuda" or asked.reduced else CPU_SIZES
            chosen.append(
                fastest_size(
                    outcome, lambda size: ensemble(make(), pool, optimizer, size, in_), trials, pool, batch_size
                )
            )
        return chosen[0]

    def build(form: str) -> Contender:
        compiled = "compiled" in form
        if "ensemble" in form:
            loop = ensemble(make(), pool, optimizer, models(), in_, compiled)
        else:
            loop = single(make(), pool, optimizer, in_, compiled)
        loop = as_graph(loop, batch_size, here) if "graph" in form else loop
        steps = min(MOST_STEPS, len(members) // batch_size)
        return Contender(partial(train, loop, members[: steps * batch_size], batch_size), steps * loop.models)

    forms = [form for form in asked.rivals if here == "cuda" or "graph" not in form]
    return {f"pytorch {form}": partial(build, form) for form in forms}


def fastest_size(
    outcome: Outcome, make: Callable[[int], Loop], sizes: Sequence[int], pool: Pool, batch_size: int
) -> int:
    """The number of models whose model-step takes the least time; those that do not fit into memory are passed over."""
    took: dict[int, float] = {}
    for size in sizes:
        try:
            took[size] = step_seconds(make(size), pool, batch_size)
        except torch.cuda.OutOfMemoryError:
            break
    tried = ", ".join(f"{size}: {1e6 * seconds:.3g}" for size, seconds in took.items())
    outcome.notes.append(f"torch.func, microseconds a model-step by number of models: {tried}")
    return min(took, key=lambda size: took[size])


def step_seconds(loop: Loop, pool: Pool, batch_size: int) -> float:
    """Seconds a model-step, of a few."""
    here = pool.inputs.device.type
    chosen = torch.randint(len(pool.labels), (loop.models, batch_size), device=here)
    start = 0.0
    for step in range(2 * TRIED_STEPS):
        if step == TRIED_STEPS:
            wait(here)
            start = time.perf_counter()
        loop.step(chosen)
    wait(here)
    return (time.perf_counter() - start) / TRIED_STEPS / loop.models
