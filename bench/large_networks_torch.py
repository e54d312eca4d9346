"""Gradient norms of networks of real size beside PyTorch's libraries: `python -m bench.large_networks_torch [NETWORK]`.

The networks, weights and records of `bench.large_networks`, batch 4. Contenders are our squared gradient norms of all
records, called plainly; one ordinary gradient of their mean loss, in JAX (compiled) and in PyTorch; and the same norms
from Opacus (`GradSampleModuleFastGradientClipping`, its ghost norms), BackPACK (`BatchL2Grad`) and vmap of grad in
`torch.func`. Promised is to be no slower than any of these three. First, all must find our norms to one part in a
thousand, and both frameworks the same gradient. Opacus and BackPACK make the summed gradient, too: their hooks ride on
its backward pass. PyTorch runs as it is, not compiled.

Each library gets every network as modules that it knows and that are the same function. Batch normalisation in
evaluation is `BatchNorm2d`; for Opacus, which refuses its buffers, a module that scales and shifts, of which Opacus
takes vmap of grad. Layer normalisation is `LayerNorm`; for BackPACK, which does not know it, one without parameters and
then `BatchNorm1d` in evaluation. Bare parameters, which neither knows, are embeddings.

Peak memory is the largest resident set of a fresh process that does this alone, once, Python, libraries, weights and
compilation included. What it had right before is given, too: PyTorch's libraries take hundreds of MiB, and JAX is
loaded beside them, as the weights come from there. Every network has a process of its own. A quarter of an hour on two
cores.
"""

import multiprocessing
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.harness import Bench, Claim, Timings, interleave, peak_mebibytes, report, resident_mebibytes
from bench.large_networks import AGREE, BATCH, NETWORKS, ROUNDS, Network
from jaxaudit.kernels.gradient_norms import squared_grad_norms

OURS, OPACUS, BACKPACK, VMAP = "jaxaudit", "Opacus", "BackPACK", "torch.func vmap(grad)"
JAX_GRADIENT, TORCH_GRADIENT = "gradient (jax)", "gradient (pytorch)"
RIVALS = (OPACUS, BACKPACK, VMAP)
CONTENDERS = (OURS, JAX_GRADIENT, TORCH_GRADIENT, *RIVALS)
PACKAGES = ("jax", "jaxlib", "numpy", "torch", "opacus", "backpack-for-pytorch", "opt-einsum")


def contender(name: str, which: str, network: Network) -> Callable[[], Any]:
    """A function that finds the squared norms of all records, or the gradient's leaves, of one network."""
    if which in (OURS, JAX_GRADIENT):
        return _in_jax(which, network)
    return _in_torch(name, which, network)


def _in_jax(which: str, network: Network) -> Callable[[], Any]:
    params, logits, inputs, labels = network

    def log_prob(params: Any, inputs: Any, labels: Any) -> Any:
        return jnp.take_along_axis(jax.nn.log_softmax(logits(params, inputs)), labels[:, None], 1)[:, 0]

    gradient = jax.jit(jax.grad(lambda *given: -jnp.mean(log_prob(*given))))
    forms: dict[str, Callable[[], Any]] = {
        OURS: lambda: squared_grad_norms(log_prob, params, inputs, labels, chunk=len(labels)).total,
        JAX_GRADIENT: lambda: jax.tree.leaves(gradient(params, inputs, labels)),
    }
    return forms[which]


def _in_torch(name: str, which: str, network: Network) -> Callable[[], Any]:
    import torch
    from torch.nn.functional import cross_entropy

    from bench import torch_networks as nets

    # Of the first layer's inputs no gradient is asked for, and the libraries' hooks need none.
    warnings.filterwarnings("ignore", "Full backward hook is firing")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    labels = torch.from_numpy(np.array(network.labels, np.int64)).to(device)
    inputs = np.array(network.inputs)
    inputs = np.moveaxis(inputs, -1, 1) if "stem" in network.params else inputs
    kind = torch.float32 if inputs.ndim == 4 else torch.int64
    inputs = torch.from_numpy(np.ascontiguousarray(inputs)).to(device, kind)
    spelling = {OPACUS: nets.FOR_OPACUS, BACKPACK: nets.FOR_BACKPACK}.get(which, nets.USUAL)
    net = nets.torch_network(name, network.params, spelling).to(device)

    def by_gradient() -> list[Any]:
        net.zero_grad()
        cross_entropy(net(inputs), labels).backward()
        return [p.grad.cpu().numpy() for p in net.parameters() if p.grad is not None]

    def by_vmap() -> np.ndarray:
        def loss(params: Any, x: Any, y: Any) -> Any:
            return cross_entropy(torch.func.functional_call(net, params, x[None]), y[None])

        each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
        found = each({name: p.detach() for name, p in net.named_parameters()}, inputs, labels)
        return torch.stack([gradient.flatten(1).square().sum(1) for gradient in found.values()]).sum(0).cpu().numpy()

    if which == OPACUS:
        return _by_opacus(net, inputs, labels)
    if which == BACKPACK:
        return _by_backpack(net, inputs, labels)
    return by_vmap if which == VMAP else by_gradient


def _by_opacus(net: Any, inputs: Any, labels: Any) -> Callable[[], np.ndarray]:
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from torch.nn.functional import cross_entropy

    # Its hooks do nothing in evaluation mode. None of this network's modules does anything else in training.
    ghost = GradSampleModuleFastGradientClipping(net.train(), loss_reduction="sum", use_ghost_clipping=True)

    def norms() -> np.ndarray:
        ghost.zero_grad()
        cross_entropy(ghost(inputs), labels, reduction="sum").backward()
        return ghost.get_norm_sample().square().cpu().numpy()

    return norms


def _by_backpack(net: Any, inputs: Any, labels: Any) -> Callable[[], np.ndarray]:
    import backpack
    import torch
    from backpack.extensions import BatchL2Grad
    from torch.nn.functional import cross_entropy

    for module in net.modules():
        if list(module.parameters(recurse=False)):
            backpack.extend(module)

    def norms() -> np.ndarray:
        net.zero_grad()
        with backpack.backpack(BatchL2Grad()):
            cross_entropy(net(inputs), labels, reduction="sum").backward()
        return torch.stack([vars(p)["batch_l2"] for p in net.parameters()]).sum(0).cpu().numpy()

    return norms


def measure(name: str) -> dict[str, list[float]]:
    """Seconds of one network's contenders, after they agreed."""
    network = NETWORKS[name](BATCH)
    contenders = {which: contender(name, which, network) for which in CONTENDERS}
    ours = np.asarray(contenders[OURS]())
    for rival in RIVALS:
        theirs = contenders[rival]()
        if not np.allclose(theirs, ours, rtol=AGREE):
            raise RuntimeError(f"{name}: the norms are {ours}, and {theirs} by {rival}")
    here, there = (
        sum(float(np.square(leaf).sum()) for leaf in contenders[each]()) for each in (JAX_GRADIENT, TORCH_GRADIENT)
    )
    if abs(here - there) > AGREE * here:
        raise RuntimeError(f"{name}: the squared norm of the gradient is {here} in JAX and {there} in PyTorch")
    return interleave(name, contenders, ROUNDS).seconds


def peak(name: str, which: str) -> tuple[float, float]:
    """MiB of this process at most, once it has done this, and what it had right before, weights included."""
    contend = contender(name, which, NETWORKS[name](BATCH))
    before = resident_mebibytes()
    jax.block_until_ready(contend())
    return peak_mebibytes(), before


def apart(function: Callable[..., Any], *given: Any) -> Any:
    """What the function returns in a fresh process; raises where that process dies."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
        return fresh.submit(function, *given).result()


def own_ratios(timings: Timings) -> str:
    """Norms over the same framework's gradient."""
    parts = []
    for which in (OURS, *RIVALS):
        ratio = timings.ratio(which, JAX_GRADIENT if which == OURS else TORCH_GRADIENT)
        parts.append(f"{which} {ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})")
    return f"{timings.case}: norms / own framework's gradient: {', '.join(parts)}."


def memory(name: str) -> str:
    """A note on the peak memory of every contender."""
    parts = []
    for which in CONTENDERS:
        most, before = apart(peak, name, which)
        parts.append(f"{which} {most:,.0f} ({before:,.0f} before)")
    return f"{name}: peak memory in MiB: {', '.join(parts)}."


def main(names: list[str]) -> None:
    timings, claims, notes = [], [], [f"Batch {BATCH}, float32."]
    for name in names or list(NETWORKS):
        found = Timings(name, apart(measure, name))
        timings.append(found)
        claims += [Claim(f"{name}: {rival} / {OURS}", found.ratio(rival, OURS), 1) for rival in RIVALS]
        notes += [own_ratios(found), memory(name)]
        report(Bench("large_networks_torch", timings, claims, notes), PACKAGES)


if __name__ == "__main__":
    main(sys.argv[1:])
