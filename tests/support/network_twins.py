"""Residual networks and a vision transformer from their definitions, in NumPy or PyTorch: `ops` says in which."""

from types import SimpleNamespace
from typing import Any

import numpy as np


def resnet(ops: Any, params: Any, inputs: Any) -> Any:
    """He et al. (2016) by its parameters; the second and third of three stages halve the image."""
    maps = ops.relu(ops.norm(ops.conv(inputs, params["stem"], 1), params["norm"]))
    blocks = [params["blocks"][number] for number in sorted(params["blocks"])]
    for number, block in enumerate(blocks):
        stride = 2 if number and number % (len(blocks) // 3) == 0 else 1
        new = ops.relu(ops.norm(ops.conv(maps, block["first"], stride), block["first_norm"]))
        new = ops.norm(ops.conv(new, block["second"], 1), block["second_norm"])
        if "shortcut" in block:
            maps = ops.norm(ops.conv(maps, block["shortcut"], stride), block["shortcut_norm"])
        maps = ops.relu(maps + new)
    return ops.dense(ops.mean(maps, (1, 2)), params["output"])


def wide_resnet(ops: Any, params: Any, inputs: Any) -> Any:
    """Zagoruyko & Komodakis (2016) by its parameters."""
    maps = ops.conv(inputs, params["stem"], 1)
    blocks = [params["blocks"][number] for number in sorted(params["blocks"])]
    for number, block in enumerate(blocks):
        stride = 2 if number and number % (len(blocks) // 3) == 0 else 1
        active = ops.relu(ops.norm(maps, block["first_norm"]))
        new = ops.relu(ops.norm(ops.conv(active, block["first"], stride), block["second_norm"]))
        new = ops.conv(new, block["second"], 1)
        maps = (ops.conv(active, block["shortcut"], stride) if "shortcut" in block else maps) + new
    return ops.dense(ops.mean(ops.relu(ops.norm(maps, params["norm"])), (1, 2)), params["output"])


def vit(ops: Any, params: Any, inputs: Any, patch: int, heads: int) -> Any:
    """Dosovitskiy et al. (2021) by its parameters; the image's sides are multiples of the patch's."""
    n, height, width, _ = inputs.shape
    patches = [
        inputs[:, top : top + patch, left : left + patch].reshape(n, -1)
        for top in range(0, height, patch)
        for left in range(0, width, patch)
    ]
    tokens = ops.dense(ops.stack(patches, 1), params["embed"]) + params["places"]
    for number in sorted(params["blocks"]):
        block = params["blocks"][number]
        tokens = tokens + ops.dense(
            ops.attend(ops.dense(ops.layer_norm(tokens, block["first_norm"]), block["attend"]), heads), block["merge"]
        )
        hidden = ops.gelu(ops.dense(ops.layer_norm(tokens, block["second_norm"]), block["hidden"]))
        tokens = tokens + ops.dense(hidden, block["output"])
    return ops.dense(ops.mean(ops.layer_norm(tokens, params["norm"]), (1,)), params["output"])


def convolve(maps: Any, layer: Any, stride: int, fill: int) -> Any:
    """Convolution with a square kernel written as a sum over its places."""
    kernel, size = layer["kernel"], layer["kernel"].shape[0]
    padded = np.pad(maps, ((0, 0), (fill, fill), (fill, fill), (0, 0)))
    rows, columns = ((side - size) // stride + 1 for side in padded.shape[1:3])
    total = np.zeros((len(maps), rows, columns, kernel.shape[3]))
    for i in range(size):
        for j in range(size):
            seen = padded[:, i : i + stride * rows : stride, j : j + stride * columns : stride]
            total += np.einsum("nhwc,cd->nhwd", seen[:, :rows, :columns], kernel[i, j])
    return total + layer.get("bias", 0)


def _norm(maps: Any, layer: Any) -> Any:
    n, h, w, c = maps.shape
    split = maps.reshape(n, h * w, np.gcd(c, 8), -1)
    mean, var = split.mean(axis=(1, 3), keepdims=True), split.var(axis=(1, 3), keepdims=True)
    return ((split - mean) / np.sqrt(var + 1e-5)).reshape(maps.shape) * layer["scale"] + layer["bias"]


def _layer_norm(tokens: Any, layer: Any) -> Any:
    mean, var = tokens.mean(axis=-1, keepdims=True), tokens.var(axis=-1, keepdims=True)
    return (tokens - mean) / np.sqrt(var + 1e-6) * layer["scale"] + layer["bias"]


def _attend(all_three: Any, heads: int) -> Any:
    n, places, size = all_three.shape
    width = size // 3
    out = np.zeros((n, places, width))
    for head in range(heads):
        q, k, v = (all_three[..., part * width :][..., head * width // heads :] for part in range(3))
        q, k, v = (each[..., : width // heads] for each in (q, k, v))
        scores = np.exp(q @ k.transpose(0, 2, 1) / np.sqrt(width // heads))
        mine = scores / scores.sum(axis=2, keepdims=True) @ v
        out[..., head * width // heads : (head + 1) * width // heads] = mine
    return out


def _gelu(values: Any) -> Any:
    from scipy.special import erf

    return values * (1 + erf(values / np.sqrt(2))) / 2


NUMPY = SimpleNamespace(
    conv=lambda maps, layer, stride: convolve(maps, layer, stride, layer["kernel"].shape[0] // 2),
    norm=_norm,
    layer_norm=_layer_norm,
    attend=_attend,
    gelu=_gelu,
    relu=lambda values: np.maximum(values, 0),
    dense=lambda values, layer: values @ layer["kernel"] + layer["bias"],
    mean=lambda values, axes: values.mean(axis=axes),
    stack=np.stack,
)


def torch_ops(torch: Any) -> SimpleNamespace:
    """The same of a residual network with batch normalisation in training, by PyTorch's own functions.

    Records and maps have their channels last outside of them.
    """
    functional = torch.nn.functional

    def conv(maps: Any, layer: Any, stride: int) -> Any:
        kernel = layer["kernel"].permute(3, 2, 0, 1)
        moved = functional.conv2d(maps.permute(0, 3, 1, 2), kernel, stride=stride, padding=kernel.shape[2] // 2)
        return moved.permute(0, 2, 3, 1)

    def normed(maps: Any, layer: Any) -> Any:
        weights = layer["scale"], layer["bias"]
        return functional.batch_norm(maps.permute(0, 3, 1, 2), None, None, *weights, training=True).permute(0, 2, 3, 1)

    return SimpleNamespace(
        conv=conv,
        norm=normed,
        relu=functional.relu,
        dense=lambda values, layer: values @ layer["kernel"] + layer["bias"],
        mean=lambda values, axes: values.mean(dim=axes),
    )
