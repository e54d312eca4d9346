"""The exact trace of the Fisher information against one gradient and against PyTorch: `python -m bench.efficacy`.

Promised, on two CPU cores, for 1,000 examples, a 784-784-512-256-128-10 network (MLP) and Liu's (CNN): the trace of
the empirical Fisher information in no more than three quarters of the time of one ordinary gradient of the mean loss in
JAX; at least 1.6 (MLP) and 2 (CNN) times as fast as BackPACK's `BatchL2Grad` and Opacus's ghost norms
(`GradSampleModuleFastGradientClipping`), 10 times as fast as the squares of Opacus's per-sample gradients
(`GradSampleModule`), 50 times as fast as `torch.func`'s vmap of grad, and 30 times as fast as a PyTorch loop that takes
one backward pass an example.

Counting forbids more. Of the three products that a dense layer has in a gradient, the trace needs those forward and
back, and of the first layer only the first: 3.5 of 5.9 GFLOP for the MLP and 31 of 44 for the CNN, .60 and .70 of a
gradient at equal speed. BackPACK and Opacus make the gradient, too, so at equal speed they take 1.67 and 1.4 times as
long; what they take beyond that is their own.

All have the same weights and must first find the same trace. For Opacus, which refuses its buffers, batch normalisation
in evaluation is a module that scales and shifts. `squared_grad_norms` and the gradient are timed compiled, as a second
call is. Per-sample gradients and the loop, which take long and much memory, have rounds of their own. Gradients of all
examples are held at once for the MLP, as tutorials do, and those of 50 for the CNN, whose would take 26 GB; there they
and the loop are timed on a part of the examples and extrapolated, as the notes say. Peak memory is the
largest resident set of a fresh process that does this alone, once, Python, libraries and compilation included. The last
cases put the trace beside the gradient for other widths, depths (hidden layers) and numbers of examples of a
784-512-512-512-10 network. Five minutes.
"""

import multiprocessing
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bench.harness import Bench, Claim, Timings, interleave, peak_mebibytes, report
from jaxaudit.kernels.gradient_norms import squared_grad_norms
from jaxaudit.kernels.likelihoods import precise_log_softmax
from jaxaudit.models import MLP, LiuCNN, pure_module

EXAMPLES, CLASSES, ROUNDS, SLOW_ROUNDS, GROWTH_ROUNDS = 1000, 10, 9, 3, 3
HIDDEN = (784, 512, 256, 128)
AGREE = 1e-4
"""The largest relative difference of two traces: float32, and sums in another order."""

GRADIENT, BACKPACK, VMAP, LOOP = "gradient (jax)", "BackPACK", "torch.func vmap(grad)", "pytorch loop"
GHOST, SAMPLES = "Opacus, ghost norms", "Opacus, per-sample gradients"
QUICK, SLOW = (BACKPACK, GHOST), (SAMPLES, VMAP, LOOP)


class Subject(NamedTuple):
    """A network and its data, for JAX and (channels first) for PyTorch.

    Attributes:
        apply: parameters and inputs to logits.
        log_prob: the log-probability of each label.
        parts: of the examples, how many each extrapolated contender takes.
        at_once: how many examples' gradients `torch.func` and Opacus hold.
    """

    name: str
    apply: Callable[[Any, Any], Any]
    log_prob: Callable[[Any, Any, Any], Any]
    params: Any
    inputs: np.ndarray
    labels: np.ndarray
    parts: dict[str, int]
    at_once: int | None


def subject(name: str, factory: Any, shape: tuple[int, ...], examples: int, **options: Any) -> Subject:
    """Random weights and data: the time does not depend on them."""
    net = pure_module(factory, shape, CLASSES)
    params, state = net.init(jax.random.key(1))
    random = np.random.default_rng(1)
    inputs = random.random((examples, *shape), np.float32)
    labels = random.integers(0, CLASSES, examples).astype(np.int32)

    def apply(params: Any, inputs: Any) -> Any:
        return net.apply(params, state, inputs, False)[0]

    def log_prob(params: Any, inputs: Any, labels: Any) -> Any:
        return jnp.take_along_axis(precise_log_softmax(apply(params, inputs)), labels[:, None], axis=1)[:, 0]

    options = {"parts": {}, "at_once": None, **options}
    return Subject(name, apply, log_prob, params, inputs, labels, **options)


def mlp() -> Subject:
    return subject("MLP", partial(MLP, hidden=HIDDEN), (784,), EXAMPLES)


def cnn() -> Subject:
    return subject("CNN", LiuCNN, (28, 28, 1), EXAMPLES, parts={SAMPLES: 100, VMAP: 100, LOOP: 50}, at_once=50)


def in_jax(of: Subject) -> dict[str, Callable[[], Any]]:
    """The trace, and the gradient of the mean loss."""
    inputs, labels = jnp.asarray(of.inputs), jnp.asarray(of.labels)

    @jax.jit
    def gradient(params: Any) -> Any:
        def loss(params: Any) -> Any:
            return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(of.apply(params, inputs), labels))

        return jax.grad(loss)(params)

    return {
        "jaxaudit": lambda: jnp.mean(squared_grad_norms(of.log_prob, of.params, inputs, labels).total),
        GRADIENT: lambda: gradient(of.params),
    }


def in_torch(of: Subject) -> dict[str, Callable[[], float]]:
    """The trace as each library and a loop find it; of a part of the examples where `of.parts` says so."""
    import backpack
    import torch
    from backpack.extensions import BatchL2Grad
    from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
    from torch import nn

    inputs = torch.from_numpy(np.ascontiguousarray(np.moveaxis(of.inputs, -1, 1)))
    labels = torch.from_numpy(of.labels.astype(np.int64))
    net, extended = torch_net(of), backpack.extend(torch_net(of))
    summed = backpack.extend(nn.CrossEntropyLoss(reduction="sum"))
    # Opacus's hooks do nothing in evaluation mode. None of these modules does anything else in training.
    ghost: Any = GradSampleModuleFastGradientClipping(for_opacus(of), loss_reduction="sum", use_ghost_clipping=True)
    sampled: Any = GradSampleModule(for_opacus(of), loss_reduction="sum")

    def by_backpack() -> float:
        extended.zero_grad()
        with backpack.backpack(BatchL2Grad()):
            summed(extended(inputs), labels).backward()
        return sum(float(vars(p)["batch_l2"].sum()) for p in extended.parameters()) / len(labels)

    def by_ghost_norms() -> float:
        ghost.zero_grad()
        nn.functional.cross_entropy(ghost(inputs), labels, reduction="sum").backward()
        return float(ghost.get_norm_sample().square().mean())

    def by_samples() -> float:
        n, total = of.parts.get(SAMPLES, len(labels)), 0.0
        for part in torch.arange(n).split(of.at_once or n):
            sampled.zero_grad()
            nn.functional.cross_entropy(sampled(inputs[part]), labels[part], reduction="sum").backward()
            total += sum(float(p.grad_sample.square().sum()) for p in sampled.parameters())
        return total / n

    def by_vmap() -> float:
        n = of.parts.get(VMAP, len(labels))

        def loss(params: Any, x: Any, y: Any) -> Any:
            return nn.functional.cross_entropy(torch.func.functional_call(net, params, x[None]), y[None])

        each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
        params = {name: p.detach() for name, p in net.named_parameters()}
        total, size = 0.0, of.at_once or n
        for start in range(0, n, size):
            found = each(params, inputs[start : start + size], labels[start : start + size])
            total += sum(float(g.square().sum()) for g in found.values())
        return total / n

    def by_loop() -> float:
        n, total = of.parts.get(LOOP, len(labels)), 0.0
        for i in range(n):
            net.zero_grad()
            nn.functional.cross_entropy(net(inputs[i : i + 1]), labels[i : i + 1]).backward()
            total += sum(float(p.grad.square().sum()) for p in net.parameters() if p.grad is not None)
        return total / n

    return {BACKPACK: by_backpack, GHOST: by_ghost_norms, SAMPLES: by_samples, VMAP: by_vmap, LOOP: by_loop}


def for_opacus(of: Subject) -> Any:
    """The same network in training mode, without batch normalisation."""
    from torch import nn

    from bench.torch_networks import ScaleShift

    def known(layer: Any) -> Any:
        if not isinstance(layer, nn.BatchNorm2d):
            return layer
        ones = np.ones(layer.num_features, np.float32)
        return ScaleShift({"scale": ones, "shift": 0 * ones})

    return nn.Sequential(*map(known, torch_net(of))).train()


def torch_net(of: Subject) -> Any:
    """The same network in PyTorch, in evaluation mode, with the same weights."""
    import torch
    from torch import nn

    def layer(made: Any, path: str) -> Any:
        kernel, bias = (np.asarray(leaves[f"{path}['{name}'].value"]) for name in ("kernel", "bias"))
        if kernel.ndim == 4:
            kernel = kernel.transpose(3, 2, 0, 1)
        elif len(kernel) == 6272:  # flattened maps: channels last here, first in PyTorch
            kernel = kernel.reshape(14, 14, 32, -1).transpose(3, 2, 0, 1).reshape(-1, 6272)
        else:
            kernel = kernel.T
        made.load_state_dict({"weight": torch.from_numpy(kernel.copy()), "bias": torch.from_numpy(bias.copy())})
        return made

    leaves = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(of.params)}
    if of.name == "CNN":
        first, pool = layer(nn.Conv2d(1, 32, 7, padding=3), "['conv']"), nn.MaxPool2d(2)
        hidden, last = layer(nn.Linear(6272, 1024), "['hidden']"), layer(nn.Linear(1024, CLASSES), "['output']")
        parts = [first, nn.BatchNorm2d(32), nn.ReLU(), pool, nn.Flatten(), hidden, nn.ReLU(), last]
    else:
        widths = (784, *HIDDEN, CLASSES)
        parts = []
        for index, (rows, columns) in enumerate(pairwise(widths)):
            parts += [layer(nn.Linear(rows, columns), f"['layers'][{index}]"), nn.ReLU()]
        parts.pop()
    return nn.Sequential(*parts).eval()


def compare(of: Subject) -> tuple[Timings, Timings]:
    """Quick and slow contenders on one network, after they agreed.

    Extrapolated times are those of the part, times its share.
    """
    in_other = in_torch(of)
    norms = np.asarray(squared_grad_norms(of.log_prob, of.params, of.inputs, of.labels).total, np.float64)
    for name, contend in in_other.items():
        trace, theirs = norms[: of.parts.get(name)].mean(), contend()
        if abs(trace - theirs) > AGREE * trace:
            raise RuntimeError(f"{of.name}: the trace is {trace:.6g} here and {theirs:.6g} by {name}")
    ours, case = in_jax(of), f"{of.name}, {EXAMPLES:,} examples"
    quick = interleave(case, {**ours, **{name: in_other[name] for name in QUICK}}, ROUNDS)
    slow = {"jaxaudit": ours["jaxaudit"], **{name: in_other[name] for name in SLOW}}
    timings = interleave(f"{case}, slow ones", slow, SLOW_ROUNDS)
    share = {name: EXAMPLES / of.parts.get(name, EXAMPLES) for name in slow}
    return quick, Timings(
        timings.case, {name: [share[name] * s for s in took] for name, took in timings.seconds.items()}
    )


def growth() -> list[Timings]:
    """Trace and gradient for other widths, depths and numbers of examples."""
    cases = [(f"width {width}", (width,) * 3, EXAMPLES) for width in (128, 512, 2048)]
    cases += [(f"depth {depth}", (512,) * depth, EXAMPLES) for depth in (1, 9, 27)]
    cases += [(f"{examples:,} examples", (512,) * 3, examples) for examples in (100, 10_000)]
    found = []
    for name, hidden, examples in cases:
        of = subject(name, partial(MLP, hidden=hidden), (784,), examples)
        found.append(interleave(name, in_jax(of), GROWTH_ROUNDS))
    return found


def peak(of: str, contender: str | None) -> float:
    """MiB of a process at most, that does this once; with no contender, of one that has the data and libraries."""
    made = mlp() if of == "MLP" else cnn()
    contenders = in_torch(made) if contender in (*QUICK, *SLOW) else in_jax(made)
    if contender is not None:
        jax.block_until_ready(contenders[contender]())
    return peak_mebibytes()


def memory(of: str) -> str:
    """A note on the peak memory of each contender, each in a process of its own."""
    parts = []
    for contender in (None, "jaxaudit", GRADIENT, *QUICK, *SLOW):
        with multiprocessing.get_context("spawn").Pool(1) as fresh:
            parts.append(f"{contender or 'nothing but data and JAX'} {fresh.apply(peak, (of, contender)):,.0f}")
    return f"{of}: peak memory in MiB: {', '.join(parts)}"


def main() -> None:
    timings, claims, notes = [], [], []
    for of, over_quick in ((mlp(), 1.6), (cnn(), 2.0)):
        quick, slow = compare(of)
        timings += [quick, slow]
        claims += [
            Claim(f"{of.name}: jaxaudit / gradient", quick.ratio("jaxaudit", GRADIENT), 0.75, at_least=False),
            *(Claim(f"{of.name}: {name} / jaxaudit", quick.ratio(name, "jaxaudit"), over_quick) for name in QUICK),
            Claim(f"{of.name}: {SAMPLES} / jaxaudit", slow.ratio(SAMPLES, "jaxaudit"), 10),
            Claim(f"{of.name}: {VMAP} / jaxaudit", slow.ratio(VMAP, "jaxaudit"), 50),
            Claim(f"{of.name}: {LOOP} / jaxaudit", slow.ratio(LOOP, "jaxaudit"), 30),
        ]
        notes += [f"{of.name}: {name} was timed on {part} of {EXAMPLES:,} examples" for name, part in of.parts.items()]
        notes.append(memory(of.name))
    timings += growth()
    packages = ["jax", "jaxlib", "flax", "optax", "numpy", "torch", "backpack-for-pytorch", "opacus"]
    report(Bench("efficacy", timings, claims, notes), packages)


if __name__ == "__main__":
    main()
