"""Training many models: `fit_many` against a plain PyTorch loop, `python -m bench.fit_many` (5 minutes, two cores).

Promised, on two CPU cores, in model-steps a second, against the fastest of PyTorch's three forms (as it is; with a
fused optimizer; with that, and network and loss compiled by `torch.compile`): 1.3 times for Liu's network at batch size
64 and for a 784-512-256-128-10 network at 32; 20, 8 and 6 times for leave-one-out of an 836-64-10 network at 1, 10 and
32.

`fit_many` is timed as it is called: making the initial weights and the tables of minibatches and reporting progress
count, compilation and choosing the models a batch do not (a first call does them). PyTorch trains one model after
another, as its tutorials do, with all cores; making its networks and compiling do not count; where it is compiled, one
network serves all models, as a program is one network's. Before anything is timed, both train the same initial weights
on the same minibatches and must end with the same loss.

PyTorch's fused form is ahead for Liu's network, whose 6.4 million parameters get a step for every 64 records: XLA's
backend for CPUs makes Adam's update in three loops, which pass over ten arrays of that size, and PyTorch in one, over
seven. Alone, on two cores of an AMD EPYC, XLA's takes 20 ms and PyTorch's 6 (the least of 60, in turn): that is most of
the difference.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
import torch
from torch import nn

from bench.harness import Bench, Claim, Spread, Timings, interleave, report
from bench.training import CLASSES, Job, leaving_one_out, liu_cnn, mlp
from jaxaudit.ensemble import Execution, fit_many, log_probs_many, suitable_models_per_batch
from jaxaudit.learners.learner import epoch_bits, init_key, own_batches, pool_batches, takes_pool_order

ROUNDS = 5
UNIT = 1000  # model-steps; timings are seconds for so many
WHOLE_EPOCHS = 30
PLAIN, FUSED, COMPILED = "pytorch", "pytorch, fused", "pytorch, fused and compiled"
Optimizer = Callable[[Any], torch.optim.Optimizer]
AGREE = 0.01
"""The largest relative difference of the two final losses."""


def torch_cnn() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 32, 7, padding=3),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(6272, 1024),
        nn.ReLU(),
        nn.Linear(1024, CLASSES),
    )


def torch_mlp() -> nn.Sequential:
    hidden = (nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU())
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(128, CLASSES))


def torch_tanh() -> nn.Sequential:
    return nn.Sequential(nn.Linear(836, 64), nn.Tanh(), nn.Linear(64, CLASSES))


def adam(beta: float) -> dict[str, Optimizer]:
    """PyTorch's own Adam as it is, and in its fused form, which is the faster one by far where parameters are many."""
    return {
        PLAIN: lambda params: torch.optim.Adam(params, lr=1e-3, betas=(beta, 0.999)),
        FUSED: lambda params: torch.optim.Adam(params, lr=1e-3, betas=(beta, 0.999), fused=True),
    }


def gradient_descent() -> dict[str, Optimizer]:
    return {
        PLAIN: lambda params: torch.optim.SGD(params, lr=0.01),
        FUSED: lambda params: torch.optim.SGD(params, lr=0.01, fused=True),
    }


def loss_of(net: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(net(inputs), labels)


def train_torch(
    nets: list[nn.Sequential],
    optimizer: Optimizer,
    inputs: torch.Tensor,
    labels: torch.Tensor,
    batches: Callable[[int], Iterator[torch.Tensor]],
    loss: Callable[..., Any] = loss_of,
) -> None:
    """One model after another; `batches(model)` yields the record indices of every step."""
    for model, net in enumerate(nets):
        steps = optimizer(net.parameters())
        for chosen in batches(model):
            steps.zero_grad()
            loss(net, inputs[chosen], labels[chosen]).backward()
            steps.step()


def shuffled(job: Job, model: int) -> Iterator[torch.Tensor]:
    """The minibatches of one model as PyTorch draws them."""
    members = torch.from_numpy(np.flatnonzero(job.membership[model]))
    for _ in range(job.learner.epochs):
        yield from members[torch.randperm(len(members))].split(job.learner.batch_size)


def in_batch_order(job: Job, model: int) -> Iterator[torch.Tensor]:
    """The minibatches of one model as `fit_many` draws them, without the records that weigh nothing."""
    row, key = job.membership[model], job.keys[model]
    members, size = np.flatnonzero(row), job.learner.batch_size
    for epoch in range(job.learner.epochs):
        if takes_pool_order(len(members), len(row), job.learner.batch_coupled):
            chosen, real = pool_batches(np.asarray(epoch_bits(key, epoch, len(row))), size)
        else:
            chosen, real = own_batches(np.asarray(epoch_bits(key, epoch, len(members))), members, size)
        for indices, kept in zip(chosen, (real > 0) & row[chosen], strict=True):
            if kept.any():
                yield torch.from_numpy(indices[kept])


def torch_pool(job: Job) -> tuple[torch.Tensor, torch.Tensor]:
    """Records (images with channels first) and labels."""
    inputs = np.moveaxis(job.inputs, -1, 1) if job.inputs.ndim == 4 else job.inputs
    return torch.from_numpy(np.ascontiguousarray(inputs)), torch.from_numpy(job.labels.astype(np.int64))


def copy_initial(job: Job, model: int, net: nn.Sequential) -> None:
    """Gives a PyTorch network the weights with which `fit_many` starts this model."""
    params = job.learner.init(init_key(job.keys[model])).params
    named = {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(params)}
    parts = dict.fromkeys(path.split("['kernel']")[0] for path in named if "['kernel']" in path)
    layers = [layer for layer in net if isinstance(layer, nn.Conv2d | nn.Linear)]
    for layer, part in zip(layers, _in_order(list(parts)), strict=True):
        kernel = next(leaf for path, leaf in named.items() if path.startswith(f"{part}['kernel']"))
        bias = next(leaf for path, leaf in named.items() if path.startswith(f"{part}['bias']"))
        if kernel.ndim == 4:
            kernel = kernel.transpose(3, 2, 0, 1)
        elif kernel.shape[0] == 6272:  # flattened maps: channels last here, first in PyTorch
            kernel = kernel.reshape(14, 14, 32, -1).transpose(3, 2, 0, 1).reshape(-1, 6272)
        else:
            kernel = kernel.T
        layer.load_state_dict({"weight": torch.from_numpy(kernel.copy()), "bias": torch.from_numpy(bias.copy())})


def _in_order(parts: list[str]) -> list[str]:
    """Layers from input to output: numbered ones sort themselves, the CNN's are called by name."""
    names = ["conv", "hidden", "output"]
    return sorted(parts, key=lambda part: next((i for i, name in enumerate(names) if name in part), part))


def final_losses(
    job: Job, make_net: Callable[[], nn.Sequential], optimizer: Optimizer, loss: Callable[..., Any]
) -> tuple[float, float]:
    """Mean loss of the first model on its own records after training: `fit_many`, PyTorch."""
    row = np.flatnonzero(job.membership[0])
    inputs, labels = torch_pool(job)
    net = make_net()
    copy_initial(job, 0, net)
    train_torch([net], optimizer, inputs, labels, lambda model: in_batch_order(job, model), loss)
    net.eval()
    with torch.no_grad():
        torch_loss = float(nn.functional.cross_entropy(net(inputs[row]), labels[row]))
    params = fit_many(job.keys, job.membership, job.inputs, job.labels, job.learner)
    log_probs = log_probs_many(job.learner, params, job.inputs[row])[0]
    return float(-log_probs[np.arange(len(row)), job.labels[row]].mean()), torch_loss


def compare(
    job: Job,
    whole: Job,
    torch_models: int,
    torch_epochs: int,
    make_net: Callable[[], nn.Sequential],
    optimizers: dict[str, Optimizer],
) -> tuple[Timings, str]:
    """Seconds for 1,000 model-steps of each side, and a line about the models a batch and agreement.

    PyTorch trains fewer models than `fit_many`, each as long as its epochs say: a model-step is a model-step.
    """
    forms = optimizers | {COMPILED: optimizers[FUSED]}
    losses = {COMPILED: torch.compile(loss_of, dynamic=True)}
    ours = theirs = 0.0
    for name, optimizer in forms.items():
        ours, theirs = final_losses(job.first(2, 2), make_net, optimizer, losses.get(name, loss_of))
        if abs(ours - theirs) > AGREE * theirs:
            raise SystemExit(f"{job.name}: final losses {ours:.4g} and {theirs:.4g}: the sides do not train alike")
    # Minibatches in the order of the pool have many sizes, and one program. Those that are timed have two, and two.
    torch.compiler.reset()
    losses = {COMPILED: torch.compile(loss_of, dynamic=False)}
    # The models a batch are chosen for the job as users have it, not for the few epochs and models that are timed.
    learner = replace(job.learner, epochs=WHOLE_EPOCHS)
    chosen = suitable_models_per_batch(whole.keys, whole.membership, job.inputs, job.labels, learner)
    inputs, labels = torch_pool(job)
    plain = job.first(torch_models, torch_epochs)
    apart = [make_net() for _ in range(torch_models)]
    nets = dict.fromkeys(optimizers, apart) | {COMPILED: [make_net()] * torch_models}
    reports: list[int] = []

    def drawn(model: int) -> Iterator[torch.Tensor]:
        return shuffled(plain, model)

    timings = interleave(
        job.name,
        {
            "jaxaudit": lambda: fit_many(
                job.keys,
                job.membership,
                job.inputs,
                job.labels,
                job.learner,
                execution=Execution(models_per_batch=chosen, progress=lambda done, total: reports.append(done)),
                summarize=lambda params, rows: jax.tree.leaves(params)[0].reshape(len(rows), -1)[:, :1],
            ),
            **{
                name: partial(train_torch, nets[name], optimizer, inputs, labels, drawn, losses.get(name, loss_of))
                for name, optimizer in forms.items()
            },
        },
        ROUNDS,
    )
    steps = dict.fromkeys(forms, plain.model_steps) | {"jaxaudit": job.model_steps}
    each = {name: [UNIT * took / steps[name] for took in seconds] for name, seconds in timings.seconds.items()}
    rates = {name: UNIT / float(np.median(seconds)) for name, seconds in each.items()}
    note = (
        f"{job.name}: {rates['jaxaudit']:,.0f} model-steps/s against {rates[PLAIN]:,.0f} of PyTorch as it is, "
        f"{rates[FUSED]:,.0f} fused and {rates[COMPILED]:,.0f} compiled; {len(job.keys)} models, {chosen} a batch; "
        f"final losses {ours:.4g} and {theirs:.4g}"
    )
    return Timings(job.name, each), note


def main() -> None:
    torch.set_num_threads(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    cases = [
        (1.3, compare(liu_cnn(2, 15), liu_cnn(), 2, 1, torch_cnn, adam(0.5))),
        (1.3, compare(mlp(), mlp(), 2, 2, torch_mlp, adam(0.9))),
        (20, compare(leaving_one_out(1, 64, 4), leaving_one_out(1, 1000), 4, 1, torch_tanh, gradient_descent())),
        (8, compare(leaving_one_out(10, 128, 10), leaving_one_out(10, 1000), 16, 1, torch_tanh, gradient_descent())),
        (6, compare(leaving_one_out(32, 128, 20), leaving_one_out(32, 1000), 32, 1, torch_tanh, gradient_descent())),
    ]
    claims = [
        Claim(f"{timings.case}: {fastest} / jaxaudit", timings.ratio(fastest, "jaxaudit"), bound)
        for bound, (timings, _) in cases
        for fastest in [min((PLAIN, FUSED, COMPILED), key=lambda name: Spread.of(timings.seconds[name]).median)]
    ]
    notes = [f"Times are for {UNIT:,} model-steps.", *(note for _, (_, note) in cases)]
    bench = Bench("fit_many", [timings for _, (timings, _) in cases], claims, notes)
    report(bench, ["jax", "jaxlib", "flax", "optax", "numpy", "torch"])


if __name__ == "__main__":
    main()
