"""Shadow models trained one after another in PyTorch, in its fastest forms.

All records lie on the device, minibatches are gathered there, Adam is fused, and one network and one optimiser serve
all models, so that a graph is captured and a program compiled once.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from bench.training import Job

LEARNING_RATE = 1e-3
WARM_UP = 3
"""Steps before a graph is captured, as PyTorch's documentation has it."""


class Loop(NamedTuple):
    """A network in training: `epoch(order)` takes the minibatches of one epoch, `restart` makes it a new model."""

    net: nn.Module
    restart: Callable[[], None]
    epoch: Callable[[torch.Tensor], None]


class Pool(NamedTuple):
    """All records, images with channels first, and labels."""

    inputs: torch.Tensor
    labels: torch.Tensor


def torch_pool(job: Job, device: str) -> Pool:
    """The job's records on the device; on a GPU images keep their channels last in memory, for the tensor cores."""
    inputs = torch.from_numpy(np.moveaxis(job.inputs, -1, 1) if job.inputs.ndim == 4 else job.inputs)
    if inputs.ndim == 4:
        layout = torch.channels_last if device == "cuda" else torch.contiguous_format
        inputs = inputs.contiguous(memory_format=layout)
    return Pool(inputs.to(device), torch.from_numpy(job.labels.astype(np.int64)).to(device))


def eager_loop(net: nn.Module, pool: Pool, batch_size: int, compiled: bool = False) -> Loop:
    """Every step is handed over by Python; `compiled` by TorchInductor."""
    device = pool.inputs.device.type
    layout = torch.channels_last if device == "cuda" else torch.preserve_format
    net = net.to(device, memory_format=layout)  # pyright: ignore[reportCallIssue]
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE, fused=True, capturable=device == "cuda")
    forward = torch.compile(net) if compiled else net

    def step(chosen: torch.Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(forward(pool.inputs[chosen]), pool.labels[chosen]).backward()
        optimizer.step()

    def epoch(order: torch.Tensor) -> None:
        for chosen in order.split(batch_size):
            step(chosen)

    return Loop(net, lambda: _restart(net, optimizer), epoch)


def graph_loop(net: nn.Module, pool: Pool, batch_size: int, compiled: bool = False) -> Loop:
    """A whole step, its gathering and its optimiser included, is one CUDA graph; every minibatch must be full."""
    chosen = torch.zeros(batch_size, dtype=torch.int64, device=pool.inputs.device)
    plain = eager_loop(net, pool, batch_size, compiled)
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(WARM_UP):
            plain.epoch(chosen)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    # JAX's threads may call the driver meanwhile; only this thread's calls are recorded.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        plain.epoch(chosen)

    def epoch(order: torch.Tensor) -> None:
        for indices in order.split(batch_size):
            chosen.copy_(indices)
            graph.replay()

    return plain._replace(epoch=epoch)


FORMS: dict[str, Callable[[nn.Module, Pool, int], Loop]] = {
    "pytorch": eager_loop,
    "pytorch compiled": lambda *parts: eager_loop(*parts, compiled=True),
    "pytorch CUDA graph": graph_loop,
    "pytorch compiled, CUDA graph": lambda *parts: graph_loop(*parts, compiled=True),
}


def forms(device: str) -> list[str]:
    """The forms that this device has."""
    return [name for name in FORMS if device == "cuda" or "CUDA" not in name]


def train(loop: Loop, models: Iterable[Iterator[torch.Tensor]]) -> None:
    """One model after another; each gives the order of its members for every epoch."""
    for orders in models:
        loop.restart()
        for order in orders:
            loop.epoch(order)
    if next(loop.net.parameters()).is_cuda:
        torch.cuda.synchronize()


def shuffled(job: Job, model: int, device: str) -> Iterator[torch.Tensor]:
    """Each epoch's order of one model's members, drawn on the device."""
    members = torch.from_numpy(np.flatnonzero(job.membership[model])).to(device)
    for _ in range(job.learner.epochs):
        yield members[torch.randperm(len(members), device=device)]


def _restart(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """New weights and an optimiser that has taken no step, in place, where a graph reads and writes them."""
    with torch.no_grad():
        for layer in net.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d | nn.GroupNorm):
                layer.reset_parameters()
        for state in optimizer.state.values():
            for value in state.values():
                value.zero_()
