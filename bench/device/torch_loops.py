"""Models trained in PyTorch, in its fastest forms: one after another, and as ensembles of `torch.func`.

All records lie on the device, minibatches are gathered there, optimisers are fused, and one network and one optimiser
serve all models, so that a graph is captured and a program compiled once. Of an ensemble all weights are stacked, the
gradient of one model is vmapped over them, and one optimiser takes the steps of all.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from bench.training import Job

LEARNING_RATE = 1e-3
WARM_UP = 3
"""Steps before a graph is captured, as PyTorch's documentation has it."""

Optimizer = Callable[[list[torch.Tensor]], torch.optim.Optimizer]
Step = Callable[[torch.Tensor], None]
"""Takes a step with the records of these indices: those of a minibatch, or a row a model of an ensemble."""


class Pool(NamedTuple):
    """All records, images with channels first, and labels."""

    inputs: torch.Tensor
    labels: torch.Tensor


class Loop(NamedTuple):
    """Networks in training.

    Attributes:
        step: takes a step of each.
        restart: makes them new models.
        models: how many there are.
        weights: their parameters, by name.
    """

    step: Step
    restart: Callable[[], None]
    models: int
    weights: dict[str, torch.Tensor]


def torch_pool(job: Job, device: str) -> Pool:
    """The job's records on the device; on a GPU images keep their channels last in memory, for the tensor cores."""
    inputs = torch.from_numpy(np.moveaxis(job.inputs, -1, 1) if job.inputs.ndim == 4 else job.inputs)
    if inputs.ndim == 4:
        layout = torch.channels_last if device == "cuda" else torch.contiguous_format
        inputs = inputs.contiguous(memory_format=layout)
    return Pool(inputs.to(device), torch.from_numpy(job.labels.astype(np.int64)).to(device))


def adam(weights: list[torch.Tensor]) -> torch.optim.Optimizer:
    return torch.optim.Adam(weights, lr=LEARNING_RATE, fused=True, capturable=weights[0].is_cuda)


def gradient_descent(weights: list[torch.Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(weights, lr=0.01, fused=True)


def precision(device: str, name: str) -> AbstractContextManager[Any]:
    """Autocast for bfloat16. Casts of weights are not kept, as a graph would keep those of its first step."""
    return torch.autocast(device, torch.bfloat16, cache_enabled=False) if name == "bfloat16" else nullcontext()


def single(net: nn.Module, pool: Pool, optimizer: Optimizer, in_: str = "float32", compiled: bool = False) -> Loop:
    """One model; every step is handed over by Python. `compiled` by TorchInductor."""
    device = pool.inputs.device.type
    layout = torch.channels_last if device == "cuda" and pool.inputs.ndim == 4 else torch.preserve_format
    net = net.to(device, memory_format=layout)  # pyright: ignore[reportCallIssue]
    steps = optimizer(list(net.parameters()))
    forward = torch.compile(net) if compiled else net

    def step(chosen: torch.Tensor) -> None:
        steps.zero_grad(set_to_none=True)
        with precision(device, in_):
            loss = nn.functional.cross_entropy(forward(pool.inputs[chosen]), pool.labels[chosen])
        loss.backward()
        steps.step()

    def restart() -> None:
        with torch.no_grad():
            for layer in net.modules():
                if isinstance(layer, nn.Linear | nn.Conv2d | nn.GroupNorm):
                    layer.reset_parameters()
        _forget(steps)

    return Loop(step, restart, 1, dict(net.named_parameters()))


def ensemble(
    net: nn.Module, pool: Pool, optimizer: Optimizer, models: int, in_: str = "float32", compiled: bool = False
) -> Loop:
    """So many models at once, by `torch.func`. They start from one model's weights and noise."""
    device = pool.inputs.device.type
    net = net.to(device)
    start = {name: weight.detach().repeat(models, *[1] * weight.ndim) for name, weight in net.named_parameters()}
    weights = {name: nn.Parameter(first + 0.01 * torch.randn_like(first)) for name, first in start.items()}
    steps = optimizer(list(weights.values()))

    def loss(params: dict[str, torch.Tensor], inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(torch.func.functional_call(net, params, (inputs,)), labels)

    gradient = torch.func.vmap(torch.func.grad(loss))
    gradients: Callable[..., dict[str, torch.Tensor]] = torch.compile(gradient) if compiled else gradient

    def step(chosen: torch.Tensor) -> None:
        inputs, labels = pool.inputs[chosen], pool.labels[chosen]
        with precision(device, in_):
            of_all = gradients({name: weight.detach() for name, weight in weights.items()}, inputs, labels)
        for name, weight in weights.items():
            weight.grad = of_all[name].contiguous()  # as fused optimisers want gradients
        steps.step()

    def restart() -> None:
        with torch.no_grad():
            for name, weight in weights.items():
                weight.copy_(start[name])
        _forget(steps)

    return Loop(step, restart, models, dict(weights))


def as_graph(loop: Loop, batch_size: int, device: str) -> Loop:
    """A whole step, its gathering and its optimiser included, is one CUDA graph; every minibatch must be full."""
    shape = (batch_size,) if loop.models == 1 else (loop.models, batch_size)
    chosen = torch.zeros(shape, dtype=torch.int64, device=device)
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(WARM_UP):
            loop.step(chosen)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    # JAX's threads may call the driver meanwhile; only this thread's calls are recorded.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        loop.step(chosen)

    def step(indices: torch.Tensor) -> None:
        chosen.copy_(indices)
        graph.replay()

    return loop._replace(step=step)


def train(loop: Loop, members: torch.Tensor, batch_size: int, epochs: int) -> None:
    """New models for so many epochs of full minibatches, each in an order drawn on the device."""
    loop.restart()
    whole = len(members) // batch_size * batch_size
    for _ in range(epochs):
        if loop.models == 1:
            order = members[torch.randperm(len(members), device=members.device)[:whole]]
        else:
            drawn = torch.rand(loop.models, len(members), device=members.device)
            order = members[drawn.argsort(1)[:, :whole]]
        for chosen in order.split(batch_size, -1):
            loop.step(chosen)
    wait(members.device.type)


def wait(device: str) -> None:
    """Until the device has done what it was given."""
    if device == "cuda":
        torch.cuda.synchronize()


def _forget(steps: torch.optim.Optimizer) -> None:
    """An optimiser that has taken no step, in place, where a graph reads and writes."""
    for state in steps.state.values():
        for value in state.values():
            if isinstance(value, torch.Tensor):
                value.zero_()
