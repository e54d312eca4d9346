"""The networks of `bench.large_networks` in PyTorch, with the weights that they have in JAX.

What a library cannot read is written as something that it can, and that is the same function: the scale and the shift
of a channel, and those of a layer normalisation (`Spelling`), and ViT's places and class, which are embeddings here.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from bench.large_networks import EPSILON, PATCH, PIXELS

HEAD_WIDTH = 64
"""Of every attention head of these networks."""


class Spelling(NamedTuple):
    """The modules that stand for a scale and a shift of channels, and for a layer normalisation, of such parameters."""

    channels: Callable[[Any], nn.Module]
    layer: Callable[[Any], nn.Module]


class ScaleShift(nn.Module):
    """Of the channels of images; batch normalisation in evaluation, without the buffers that Opacus refuses."""

    def __init__(self, p: Any) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(_tensor(p["scale"])), nn.Parameter(_tensor(p["shift"]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight[:, None, None] + self.bias[:, None, None]


class NormThenBatchNorm(nn.Module):
    """Layer normalisation for BackPACK, which knows the scale and the shift of batch normalisation only."""

    def __init__(self, p: Any) -> None:
        super().__init__()
        self.scale = _with(nn.BatchNorm1d(len(p["scale"]), eps=0), p["scale"], p["shift"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.layer_norm(x, x.shape[-1:], eps=EPSILON)
        return self.scale(x.movedim(-1, 1)).movedim(1, -1)


def _batch_norm(p: Any) -> nn.Module:
    return _with(nn.BatchNorm2d(len(p["scale"]), eps=0), p["scale"], p["shift"])


def _layer_norm(p: Any) -> nn.Module:
    return _with(nn.LayerNorm(len(p["scale"]), eps=EPSILON), p["scale"], p["shift"])


USUAL = Spelling(_batch_norm, _layer_norm)
FOR_OPACUS = Spelling(ScaleShift, _layer_norm)
FOR_BACKPACK = Spelling(_batch_norm, NormThenBatchNorm)


def torch_network(name: str, params: Any, spelling: Spelling) -> nn.Module:
    """One of `bench.large_networks.NETWORKS` with these parameters, in evaluation mode."""
    if "stem" in params:
        return ResNet(params, spelling).eval()
    if "patches" in params:
        return ViT(params, spelling).eval()
    return Text(params, spelling, causal=name.startswith("GPT")).eval()


class ResNet(nn.Module):
    """Images, channels first, to logits."""

    def __init__(self, params: Any, spelling: Spelling) -> None:
        super().__init__()
        self.stem = _conv(params["stem"], spelling, 2)
        self.pool = nn.MaxPool2d(3, 2, ceil_mode=True)  # pads behind only, as "SAME" does
        inner = [block["convs"][0]["kernel"].shape[-1] for block in params["blocks"]]
        strides = [2 if after > before else 1 for before, after in zip(inner[:1] + inner, inner, strict=False)]
        self.blocks = nn.Sequential(
            *(_Residual(block, spelling, stride) for block, stride in zip(params["blocks"], strides, strict=True))
        )
        self.head = _linear(params["head"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.pool(self.stem(x).relu())).mean((2, 3)))


class _Residual(nn.Module):
    def __init__(self, p: Any, spelling: Spelling, stride: int) -> None:
        super().__init__()
        at = len(p["convs"]) - 2
        convs = [_conv(conv, spelling, stride if number == at else 1) for number, conv in enumerate(p["convs"])]
        self.convs = nn.ModuleList(convs)
        self.short = _conv(p["short"][0], spelling, stride) if "short" in p else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x
        for number, conv in enumerate(self.convs):
            h = conv(h.relu() if number else h)
        return (0.2 * h + self.short(x)).relu()


class _Block(nn.Module):
    """Attention and two dense layers, normalised before or after."""

    def __init__(self, p: Any, spelling: Spelling, before: bool, causal: bool) -> None:
        super().__init__()
        self.first, self.second = spelling.layer(p["first"]), spelling.layer(p["second"])
        self.query, self.key, self.value, self.output, self.up, self.down = (
            _linear(p[part]) for part in ("query", "key", "value", "output", "up", "down")
        )
        self.before, self.causal = before, causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.before:
            x = x + self.attention(self.first(x))
            return x + self.mlp(self.second(x))
        x = self.first(x + self.attention(x))
        return self.second(x + self.mlp(x))

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            each(x).unflatten(-1, (-1, HEAD_WIDTH)).transpose(1, 2) for each in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(2, 3) / HEAD_WIDTH**0.5
        if self.causal:
            scores = scores.masked_fill(torch.ones(scores.shape[2:], dtype=torch.bool).triu(1), -1e9)
        return self.output((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))

    def mlp(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(functional.gelu(self.up(x), approximate="tanh"))


class ViT(nn.Module):
    """Images, channels last as in JAX, to logits."""

    def __init__(self, params: Any, spelling: Spelling) -> None:
        super().__init__()
        self.patches = _linear(params["patches"])
        self.first, self.places = _embedding(params["class"][0]), _embedding(params["places"][0])
        self.blocks = nn.Sequential(*(_Block(block, spelling, True, False) for block in params["blocks"]))
        self.norm, self.head = spelling.layer(params["norm"]), _linear(params["head"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        side = PIXELS // PATCH
        x = x.reshape(-1, side, PATCH, side, PATCH, 3).transpose(2, 3).reshape(len(x), side * side, -1)
        x = torch.cat([self.first(_counted(x, 1)), self.patches(x)], 1)
        x = self.blocks(x + self.places(_counted(x, x.shape[1])))
        return self.head(self.norm(x[:, 0]))


class Text(nn.Module):
    """Tokens to logits, of BERT's kind or, causal, of GPT-2's."""

    def __init__(self, params: Any, spelling: Spelling, causal: bool) -> None:
        super().__init__()
        self.words, self.places = _embedding(params["words"]), _embedding(params["places"])
        self.blocks = nn.Sequential(*(_Block(block, spelling, causal, causal) for block in params["blocks"]))
        self.norm, self.head = spelling.layer(params["norm"]), _linear(params["head"])
        self.causal = causal

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places(_counted(tokens, tokens.shape[1]))
        if self.causal:
            return self.head(self.norm(self.blocks(x)[:, -1]))
        return self.head(self.blocks(self.norm(x))[:, 0])


def _counted(records: torch.Tensor, places: int) -> torch.Tensor:
    """0, 1, ... for every record: both libraries take an example's gradient from an index of its own."""
    return torch.arange(places, device=records.device).repeat(len(records), 1)


def _conv(p: Any, spelling: Spelling, stride: int) -> nn.Module:
    """A convolution, padded as "SAME" pads sizes that the stride divides, then a scale and a shift."""
    size, _, inputs, outputs = p["kernel"].shape
    padding = max(size - stride, 0)
    low, high = padding // 2, padding - padding // 2
    conv = nn.Conv2d(inputs, outputs, size, stride, padding=low if low == high else 0, bias=False)
    conv = _with(conv, np.asarray(p["kernel"]).transpose(3, 2, 0, 1))
    pads = [] if low == high else [nn.ZeroPad2d((low, high, low, high))]
    return nn.Sequential(*pads, conv, spelling.channels(p))


def _linear(p: Any) -> nn.Module:
    return _with(nn.Linear(*p["kernel"].shape), np.asarray(p["kernel"]).T, p["bias"])


def _embedding(table: Any) -> nn.Module:
    return _with(nn.Embedding(*table.shape), table)


def _with(module: nn.Module, weight: Any, bias: Any = None) -> nn.Module:
    given = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    module.load_state_dict({name: _tensor(array) for name, array in given.items()}, strict=False)
    return module


def _tensor(array: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(array, order="C"))
