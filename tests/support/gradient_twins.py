"""Per-example gradients the slow way, and networks to take them of."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

CLASSES = 3


@lru_cache
def _gradient(log_prob: Callable[..., Any]) -> Callable[..., Any]:
    return jax.jit(jax.grad(lambda p, x, y: log_prob(p, x, y)[0]))


def gradients_by_loop(log_prob: Callable[..., Any], params: Any, inputs: Any, labels: Any) -> list[Any]:
    """One gradient after another, each of a batch of one, in the precision of the parameters."""
    gradient = _gradient(log_prob)
    return [
        jax.tree.map(np.asarray, gradient(params, inputs[i : i + 1], labels[i : i + 1])) for i in range(len(labels))
    ]


def norms_by_loop(gradients: list[Any]) -> list[np.ndarray]:
    """Of every leaf, the squared norm of each gradient."""
    leaves = [jax.tree.leaves(gradient) for gradient in gradients]
    return [
        np.array([np.sum(np.square(leaf, dtype=np.float64)) for leaf in column]) for column in zip(*leaves, strict=True)
    ]


def fisher_by_loop(gradients: list[Any], weights: np.ndarray) -> list[np.ndarray]:
    """Of every leaf, the weighted mean of squared gradients."""
    leaves = [jax.tree.leaves(gradient) for gradient in gradients]
    return [
        sum(w * np.square(leaf, dtype=np.float64) for w, leaf in zip(weights, column, strict=True)) / weights.sum()
        for column in zip(*leaves, strict=True)
    ]


def of_label(logits: Any, labels: Any, log_softmax: Callable[..., Any] = jax.nn.log_softmax) -> Any:
    """The log-probability of each label."""
    return jnp.take_along_axis(log_softmax(logits), labels[:, None], axis=1)[:, 0]


def nnx_log_prob(
    module: nnx.Module, log_softmax: Callable[..., Any] = jax.nn.log_softmax
) -> tuple[Callable[..., Any], Any]:
    """The log-probability of a module in evaluation mode, and parameters: no scale is 1, no bias 0.

    Of the module's own numbers none is used: `nnx.eval_shape` makes one without.
    """
    module.eval()
    graph, params, rest = nnx.split(module, nnx.Param, ...)
    random = np.random.default_rng(11)
    params = jax.tree.map(
        lambda leaf: (random.normal(size=leaf.shape) / np.prod(leaf.shape[:-1]) ** 0.5).astype(leaf.dtype), params
    )
    rest = jax.tree.map(lambda leaf: jnp.asarray(random.uniform(0.5, 1.5, leaf.shape).astype(leaf.dtype)), rest)

    def log_prob(params: Any, inputs: Any, labels: Any) -> Any:
        net: Any = nnx.merge(graph, params, rest, copy=True)
        return of_label(net(inputs), labels, log_softmax)

    return log_prob, params


def wide(tree: Any) -> Any:
    """Floats in float64 (inside `jax.enable_x64`)."""
    return jax.tree.map(lambda a: jnp.asarray(a, jnp.float64) if jnp.issubdtype(a.dtype, jnp.floating) else a, tree)


def examples(n: int, *shape: int, words: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random inputs (word numbers where `words`), and labels."""
    random = np.random.default_rng(n + sum(shape))
    inputs = random.integers(0, words, (n, *shape)).astype(np.int32) if words else random.normal(size=(n, *shape))
    return inputs if words else inputs.astype(np.float32), random.integers(0, CLASSES, n).astype(np.int32)


class Images(nnx.Module):
    """Convolutions plain, strided, dilated, grouped, depthwise and transposed; every normalisation; a residual."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Conv(2, 4, (3, 3), padding="SAME", rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.grouped = nnx.Conv(4, 4, (2, 3), strides=(2, 1), feature_group_count=2, kernel_dilation=(1, 2), rngs=rngs)
        self.groups = nnx.GroupNorm(4, num_groups=2, rngs=rngs)
        self.depthwise = nnx.Conv(4, 4, (3, 3), padding="CIRCULAR", feature_group_count=4, rngs=rngs)
        self.layer = nnx.LayerNorm(4, rngs=rngs)
        self.root = nnx.RMSNorm(4, rngs=rngs)
        self.up = nnx.ConvTranspose(4, 2, (3, 3), strides=(2, 2), padding="VALID", rngs=rngs)
        self.output = nnx.Linear(2, CLASSES, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = nnx.relu(self.norm(self.first(x)))
        x = nnx.max_pool(x, (2, 2), strides=(1, 1))
        x = self.groups(self.grouped(x))
        x = x + nnx.gelu(self.layer(self.depthwise(x)))
        return self.output(nnx.silu(self.up(self.root(x))).mean(axis=(1, 2)))


class Words(nnx.Module):
    """Embedding, a learned position, attention, the same dense layer twice, a scale, and the embedding as output."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.embedding = nnx.Embed(7, 4, rngs=rngs)
        self.place = nnx.Param(jnp.zeros((5, 4)))
        self.token = nnx.Param(jnp.zeros((1, 1, 4)))
        self.attention = nnx.MultiHeadAttention(2, 4, decode=False, rngs=rngs)
        self.twice = nnx.Linear(4, 4, rngs=rngs)
        self.scale = nnx.Param(jnp.ones(()))
        self.gated = nnx.Einsum("btd,dhe->bthe", (4, 2, 3), (2, 3), rngs=rngs)
        self.join = nnx.LinearGeneral((2, 3), 4, axis=(-2, -1), rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = self.embedding(x) + self.place[...]
        x = jnp.concatenate([jnp.broadcast_to(self.token[...], (len(x), 1, 4)), x], axis=1)
        x = x + self.attention(x)
        x = nnx.tanh(self.twice(nnx.tanh(self.twice(x)))) * self.scale[...]
        x = self.join(nnx.sigmoid(self.gated(x)))
        return self.embedding.attend(x[:, 0])[:, :CLASSES]


class Recurrent(nnx.Module):
    """A recurrent cell in a scan of the device, and a low-rank change of a dense layer."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.cell = nnx.Param(nnx.initializers.normal()(rngs.params(), (3, 3)))
        self.input = nnx.Linear(2, 3, rngs=rngs)
        self.adapted = nnx.LoRALinear(3, CLASSES, lora_rank=1, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        steps = jnp.moveaxis(self.input(x), 1, 0)
        cell = self.cell[...]
        last, _ = jax.lax.scan(lambda h, step: (jnp.tanh(h @ cell + step), None), jnp.zeros_like(steps[0]), steps)
        return self.adapted(last)


def largest(jaxpr: Any) -> int:
    """Entries of the largest array that a program makes, in any part of it."""
    sizes = [variable.aval.size for eqn in jaxpr.eqns for variable in eqn.outvars]
    bodies = [value for eqn in jaxpr.eqns for value in eqn.params.values() if hasattr(value, "jaxpr")]
    return max([0, *sizes, *(largest(body.jaxpr) for body in bodies)])
