"""Squared gradient norms of single examples against PyTorch: a float64 loop of backward passes, and BackPACK.

    python -m experiments.crosscheck fisher_trace      # two minutes on two CPU cores; needs the `bench` extra

Random networks of every kind of layer (dense, also along a sequence or used twice; convolutions with stride, padding,
dilation and groups, transposed ones; embeddings; batch, group and layer normalisation), each built in PyTorch and,
from its layers, as a plain JAX function of the same weights. For every parameter of every network: the largest
relative difference over the examples of its squared gradient norm, in float64 and in float32 (relative to that norm,
or to 1e-8 of the example's over all parameters where that is more: a gradient of 0 is rounding). Promised: 1e-5;
float64 keeps it by far, float32 misses it in one network (1.6e-5). BackPACK judges the networks whose layers it has,
but for two: its embeddings know float32 only, and of convolutions in groups its norms are not those of PyTorch's own
backward passes (version 1.7.1).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import backpack
import jax
import jax.numpy as jnp
import numpy as np
import torch
from backpack.extensions import BatchL2Grad
from torch import nn

from experiments.crosscheck import Check
from jaxaudit.kernels.gradient_norms import squared_grad_norms
from jaxaudit.kernels.likelihoods import precise_log_softmax

NETWORKS, EXAMPLES, CLASSES, WORDS, PROMISED = 30, 6, 4, 9, 1e-5
LOOP, BACKPACK = "a PyTorch loop of backward passes, float64", "BackPACK's BatchL2Grad"
ROUNDING = 1e-8
"""A squared norm this much smaller than that of all parameters is compared with theirs."""


class Mean(nn.Module):
    """The mean over the positions of a sequence."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(dim=1)


NOT_FOR_BACKPACK = (nn.GroupNorm, nn.LayerNorm, nn.Embedding, Mean)


class Drawn(NamedTuple):
    """A random network with its examples; `known` says whether BackPACK has all its layers right."""

    net: nn.Sequential
    inputs: np.ndarray
    labels: np.ndarray
    known: bool


def draw(seed: int) -> Drawn:
    """A network of images, of vectors or of words."""
    random = np.random.default_rng(seed)
    torch.manual_seed(seed)
    kind = ("images", "vectors", "words")[seed % 3]
    layers: list[nn.Module] = []

    def bend() -> nn.Module:
        return (nn.ReLU(), nn.Tanh(), nn.Sigmoid())[random.integers(3)]

    if kind == "images":
        channels = int(random.integers(1, 4))
        shape: tuple[int, ...] = (channels, 11, 10)
        for _ in range(random.integers(1, 4)):
            out, groups = channels * int(random.integers(1, 4)), int(random.choice([1, 1, channels]))
            stride, padding, dilation = (int(random.integers(1, high)) for high in (3, 3, 3))
            layers.append(nn.Conv2d(channels, out, (3, 2), stride, padding, dilation, groups))
            channels = out
            norm = random.integers(4)
            layers += [nn.BatchNorm2d(channels)] if norm == 0 else [nn.GroupNorm(1, channels)] if norm == 1 else []
            layers.append(bend())
        layers += [nn.ConvTranspose2d(channels, 2, 3, stride=2, padding=1), bend()] if random.random() < 0.5 else []
        layers.append(nn.Flatten())
    elif kind == "vectors":
        width = int(random.integers(2, 9))
        shape = (width,)
        for _ in range(random.integers(0, 3)):
            wider = int(random.integers(2, 9))
            layers += [nn.Linear(width, wider, bias=bool(random.integers(2))), bend()]
            width = wider
        twice = nn.Linear(width, width)
        layers += ([nn.LayerNorm(width)], [twice, bend(), twice], [])[random.integers(3)]
    else:
        width, shape = int(random.integers(2, 6)), (int(random.integers(1, 6)),)
        layers += [nn.Embedding(WORDS, width), nn.Linear(width, 3), bend(), Mean()]
    whole = nn.Sequential(*layers)
    inputs = (
        random.integers(0, WORDS, (EXAMPLES, *shape)) if kind == "words" else random.normal(size=(EXAMPLES, *shape))
    )
    with torch.no_grad():
        features = whole.eval()(torch.from_numpy(inputs).to(torch.int64 if kind == "words" else torch.float32)).shape[1]
    net = nn.Sequential(*layers, nn.Linear(features, CLASSES)).eval()
    for module in net:
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean = torch.from_numpy(random.normal(size=module.num_features).astype(np.float32))
            module.running_var = torch.from_numpy(random.uniform(0.5, 2, module.num_features).astype(np.float32))
    with torch.no_grad():  # off the symmetric start of normalisation
        for parameter in net.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    known = len(set(net)) == len(net) and not any(isinstance(module, NOT_FOR_BACKPACK) for module in net)
    known &= all(module.groups == 1 for module in net if isinstance(module, nn.Conv2d))
    return Drawn(net, inputs, random.integers(0, CLASSES, EXAMPLES), known)


def in_jax(net: nn.Sequential) -> Callable[[dict[str, Any], Any, Any], Any]:
    """The same network, a function of PyTorch's parameters by their names."""
    names = {id(module): name for name, module in net.named_modules()}
    statistics = {name: buffer.numpy() for name, buffer in net.named_buffers()}

    def log_prob(params: dict[str, Any], x: Any, labels: Any) -> Any:
        for module in net:
            name = names[id(module)]
            own = {key: params.get(f"{name}.{key}") for key in ("weight", "bias")}
            buffers = {key: statistics.get(f"{name}.{key}") for key in ("running_mean", "running_var")}
            x = layer(module, own, buffers, x)
        return jnp.take_along_axis(precise_log_softmax(x), labels[:, None], axis=1)[:, 0]

    return log_prob


def layer(module: Any, own: dict[str, Any], buffers: dict[str, Any], x: Any) -> Any:
    """One layer of PyTorch, by its documented formula."""
    weight, bias = own["weight"], own["bias"]
    across = (slice(None), None, None)
    match module:
        case nn.ReLU():
            return jax.nn.relu(x)
        case nn.Tanh():
            return jnp.tanh(x)
        case nn.Sigmoid():
            return jax.nn.sigmoid(x)
        case nn.Flatten():
            return x.reshape(len(x), -1)
        case Mean():
            return x.mean(axis=1)
        case nn.Embedding():
            return weight[x]
        case nn.Linear():
            return x @ weight.T if bias is None else x @ weight.T + bias
        case nn.Conv2d() | nn.ConvTranspose2d():
            edges, dilated = [(int(p), int(p)) for p in module.padding], {}
            stride = module.stride
            if isinstance(module, nn.ConvTranspose2d):
                weight = weight[:, :, ::-1, ::-1].swapaxes(0, 1)
                edges = [(k - 1 - low, k - 1 - high) for k, (low, high) in zip(module.kernel_size, edges, strict=True)]
                stride, dilated = (1, 1), {"lhs_dilation": stride}
            options = {"rhs_dilation": module.dilation, "feature_group_count": module.groups, **dilated}
            return jax.lax.conv_general_dilated(x, weight, stride, edges, **options) + bias[across]
        case nn.BatchNorm2d():
            mean, variance = (buffers[key][across] for key in ("running_mean", "running_var"))
            return (x - mean) / jnp.sqrt(variance + module.eps) * weight[across] + bias[across]
        case nn.GroupNorm():  # of one group
            mean, variance = x.mean(axis=(1, 2, 3), keepdims=True), x.var(axis=(1, 2, 3), keepdims=True)
            return (x - mean) / jnp.sqrt(variance + module.eps) * weight[across] + bias[across]
        case nn.LayerNorm():
            mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
            return (x - mean) / jnp.sqrt(variance + module.eps) * weight + bias
    raise TypeError(f"no formula for {module}")


def by_loop(drawn: Drawn) -> dict[str, np.ndarray]:
    """Squared norms by one backward pass an example, float64."""
    net, inputs, labels = drawn.net.double(), *tensors(drawn)
    found: dict[str, list[float]] = {name: [] for name, _ in net.named_parameters()}
    for i in range(len(labels)):
        net.zero_grad()
        nn.functional.cross_entropy(net(inputs[i : i + 1]), labels[i : i + 1]).backward()
        for name, parameter in net.named_parameters():
            if parameter.grad is not None:
                found[name].append(float(parameter.grad.square().sum()))
    return {name: np.array(norms) for name, norms in found.items()}


def by_backpack(drawn: Drawn) -> dict[str, np.ndarray]:
    """Squared norms by BackPACK, float64; its hooks stay on the network."""
    net, inputs, labels = backpack.extend(drawn.net.double()), *tensors(drawn)
    summed = backpack.extend(nn.CrossEntropyLoss(reduction="sum"))
    net.zero_grad()
    with backpack.backpack(BatchL2Grad()):
        summed(net(inputs), labels).backward()
    return {name: vars(parameter)["batch_l2"].numpy() for name, parameter in net.named_parameters()}


def tensors(drawn: Drawn) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.from_numpy(drawn.inputs)
    return inputs if inputs.dtype == torch.int64 else inputs.double(), torch.from_numpy(drawn.labels)


def ours(drawn: Drawn, dtype: Any) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Squared norms by `squared_grad_norms`, and which path each took."""
    with jax.enable_x64(dtype == np.float64):
        params = {name: jnp.asarray(p.detach().numpy(), dtype) for name, p in drawn.net.named_parameters()}
        words = drawn.inputs.dtype == np.int64
        inputs, labels = drawn.inputs.astype(np.int32 if words else dtype), drawn.labels.astype(np.int32)
        found = squared_grad_norms(in_jax(drawn.net), params, inputs, labels, chunk=4)
        return {name: np.asarray(norms, np.float64) for name, norms in found.leaves.items()}, found.paths


def furthest(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """The largest difference over parameters and examples, relative to the norm or to ROUNDING of the example's."""
    floor = ROUNDING * sum(other.values(), np.zeros(EXAMPLES))
    return max(float(np.max(np.abs(one[name] - norms) / np.maximum(norms, floor))) for name, norms in other.items())


def gaps_of(seed: int) -> dict[tuple[str, str], float]:
    """The largest relative difference of one network, by precision and tool."""
    drawn = draw(seed)
    loop = by_loop(drawn)
    double, single = (ours(drawn, dtype)[0] for dtype in (np.float64, np.float32))
    gaps = {("float64", LOOP): furthest(double, loop), ("float32", LOOP): furthest(single, loop)}
    return gaps | ({("float64", BACKPACK): furthest(double, by_backpack(drawn))} if drawn.known else {})


def fisher_trace(full: bool = True) -> list[Check]:
    networks = [gaps_of(seed) for seed in range(NETWORKS if full else 3)]
    found = []
    for precision, tool in (("float64", LOOP), ("float64", BACKPACK), ("float32", LOOP)):
        gaps = [gap[precision, tool] for gap in networks if (precision, tool) in gap]
        what = f"squared gradient norms of single examples, {precision}, {len(gaps)} networks: relative"
        found.append(Check("kernels.gradient_norms.squared_grad_norms", tool, what, max(gaps), PROMISED, "promised"))
    return found
