"""Gradient norms of networks of real size: time and memory of one step: `python -m bench.large_networks [NETWORK ...]`.

ResNet-18 and -50 (He et al. 2016; batch normalisation in evaluation, so a scale and a shift), ViT-S/16 and -B/16
(Dosovitskiy et al. 2021), all for 224 x 224 pixels and 1,000 classes, and classifiers of the sizes of BERT-base and
GPT-2-small over 128 tokens and two classes. Weights are random, as cost does not depend on them. Contenders are the
squared gradient norms of all records, one ordinary gradient of their mean loss, and `vmap` of `grad`, on the same batch
in one step. Promised are at most 1.25 ordinary gradients, and 1.2 times the memory of one. Norms must be those of
`vmap` of `grad` first.

Memory is what XLA says that a compiled step takes at once: parameters and records, results, and what is temporary; the
last also alone. Of a gradient, compiled in either order that a CPU's compiler knows, it is the lesser. Every network
has a process of its own. A quarter of an hour on two CPU cores.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bench.harness import Bench, Claim, Spread, Timings, interleave, report
from jaxaudit.kernels.gradient_norms import chunks, squared_grad_norms

BATCH, ROUNDS = 4, 3
PIXELS, PATCH, CLASSES = 224, 16, 1_000
TOKENS, TEXT_CLASSES = 128, 2
EPSILON = 1e-6
AGREE = 1e-3
BOUND, MEMORY_BOUND = 1.25, 1.2
OURS, GRADIENT, VMAP = "norms", "one gradient", "vmap of grad"
PACKAGES = ("jax", "jaxlib", "numpy")


class Network(NamedTuple):
    """Parameters, a function of these and of records to logits, and records."""

    params: Any
    logits: Callable[[Any, Any], Any]
    inputs: Any
    labels: Any


class Draw:
    """Random arrays, one after another, and so many records."""

    def __init__(self, batch: int) -> None:
        self.random, self.batch = np.random.default_rng(1), batch

    def __call__(self, *shape: int, inputs: int = 0) -> Any:
        """Normal numbers, by the root of the number of `inputs`."""
        return jnp.asarray(self.random.normal(size=shape) / np.sqrt(inputs or shape[0]), jnp.float32)

    def norm(self, width: int) -> dict[str, Any]:
        return {"scale": 1 + self(width, inputs=100), "shift": self(width, inputs=100)}

    def dense(self, inputs: int, outputs: int) -> dict[str, Any]:
        return {"kernel": self(inputs, outputs), "bias": self(outputs, inputs=100)}

    def conv(self, size: int, inputs: int, outputs: int) -> dict[str, Any]:
        return {"kernel": self(size, size, inputs, outputs, inputs=size * size * inputs), **self.norm(outputs)}

    def images(self) -> tuple[Any, Any]:
        labels = self.random.integers(0, CLASSES, self.batch).astype(np.int32)
        return self(self.batch, PIXELS, PIXELS, 3, inputs=1), jnp.asarray(labels)

    def texts(self, words: int) -> tuple[Any, Any]:
        tokens = self.random.integers(0, words, (self.batch, TOKENS)).astype(np.int32)
        return jnp.asarray(tokens), jnp.asarray(self.random.integers(0, TEXT_CLASSES, self.batch).astype(np.int32))


def _dense(p: Any, x: Any) -> Any:
    return x @ p["kernel"] + p["bias"]


def _conv(p: Any, x: Any, stride: int = 1) -> Any:
    axes = ("NHWC", "HWIO", "NHWC")
    found = jax.lax.conv_general_dilated(x, p["kernel"], (stride, stride), "SAME", dimension_numbers=axes)
    return found * p["scale"] + p["shift"]


def _layer_norm(p: Any, x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + EPSILON) * p["scale"] + p["shift"]


def resnet(batch: int, stages: tuple[int, ...], bottleneck: bool) -> Network:
    """A residual network with blocks of two convolutions, or of three with a bottleneck."""
    draw, blocks, width = Draw(batch), list[Any](), 64
    inputs, labels = draw.images()
    strides: list[int] = []
    for stage, count in enumerate(stages):
        inner = 64 * 2**stage
        outer = 4 * inner if bottleneck else inner
        for number in range(count):
            strides.append(2 if stage and not number else 1)
            sizes = [(1, width, inner), (3, inner, inner), (1, inner, outer)]
            sizes = sizes if bottleneck else [(3, width, inner), (3, inner, outer)]
            block = {"convs": [draw.conv(*each) for each in sizes]}
            if strides[-1] > 1 or width != outer:
                block["short"] = [draw.conv(1, width, outer)]
            blocks.append(block)
            width = outer
    params = {"stem": draw.conv(7, 3, 64), "blocks": blocks, "head": draw.dense(width, CLASSES)}
    at = 1 if bottleneck else 0

    def logits(p: Any, x: Any) -> Any:
        x = jax.nn.relu(_conv(p["stem"], x, 2))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        for block, stride in zip(p["blocks"], strides, strict=True):
            h = x
            for number, conv in enumerate(block["convs"]):
                h = _conv(conv, h, stride if number == at else 1)
                h = jax.nn.relu(h) if number < len(block["convs"]) - 1 else h
            x = jax.nn.relu(0.2 * h + (_conv(block["short"][0], x, stride) if "short" in block else x))
        return _dense(p["head"], x.mean((1, 2)))

    return Network(params, logits, inputs, labels)


def _blocks(draw: Draw, depth: int, width: int) -> list[Any]:
    return [
        {
            "first": draw.norm(width),
            **{name: draw.dense(width, width) for name in ("query", "key", "value", "output")},
            "second": draw.norm(width),
            "up": draw.dense(width, 4 * width),
            "down": draw.dense(4 * width, width),
        }
        for _ in range(depth)
    ]


def _attention(p: Any, x: Any, heads: int, causal: bool) -> Any:
    def apart(name: str) -> Any:
        return _dense(p[name], x).reshape(*x.shape[:2], heads, -1)

    scores = jnp.einsum("nqhd,nkhd->nhqk", apart("query"), apart("key")) / np.sqrt(x.shape[-1] // heads)
    if causal:
        scores = jnp.where(np.tri(x.shape[1], dtype=bool), scores, -1e9)
    mixed = jnp.einsum("nhqk,nkhd->nqhd", jax.nn.softmax(scores), apart("value"))
    return _dense(p["output"], mixed.reshape(x.shape))


def _mlp(p: Any, x: Any) -> Any:
    return _dense(p["down"], jax.nn.gelu(_dense(p["up"], x)))


def _normed_before(p: Any, x: Any, heads: int, causal: bool) -> Any:
    x = x + _attention(p, _layer_norm(p["first"], x), heads, causal)
    return x + _mlp(p, _layer_norm(p["second"], x))


def _normed_after(p: Any, x: Any, heads: int) -> Any:
    x = _layer_norm(p["first"], x + _attention(p, x, heads, False))
    return _layer_norm(p["second"], x + _mlp(p, x))


def vit(batch: int, width: int, heads: int, depth: int = 12) -> Network:
    draw, count = Draw(batch), (PIXELS // PATCH) ** 2
    inputs, labels = draw.images()
    params = {
        "patches": draw.dense(PATCH * PATCH * 3, width),
        "class": draw(1, 1, width),
        "places": draw(1, count + 1, width),
        "blocks": _blocks(draw, depth, width),
        "norm": draw.norm(width),
        "head": draw.dense(width, CLASSES),
    }

    def logits(p: Any, x: Any) -> Any:
        side = PIXELS // PATCH
        x = x.reshape(-1, side, PATCH, side, PATCH, 3).swapaxes(2, 3).reshape(-1, count, PATCH * PATCH * 3)
        first = jnp.broadcast_to(p["class"], (len(x), 1, width))
        x = jnp.concatenate([first, _dense(p["patches"], x)], 1) + p["places"]
        for block in p["blocks"]:
            x = _normed_before(block, x, heads, False)
        return _dense(p["head"], _layer_norm(p["norm"], x[:, 0]))

    return Network(params, logits, inputs, labels)


def text(
    batch: int, words: int, places: int, causal: bool, width: int = 768, heads: int = 12, depth: int = 12
) -> Network:
    """A classifier of BERT's kind, or, causal, of GPT-2's."""
    draw = Draw(batch)
    inputs, labels = draw.texts(words)
    params = {
        "words": draw(words, width, inputs=width),
        "places": draw(places, width, inputs=width),
        "blocks": _blocks(draw, depth, width),
        "norm": draw.norm(width),
        "head": draw.dense(width, TEXT_CLASSES),
    }

    def logits(p: Any, tokens: Any) -> Any:
        x = p["words"][tokens] + p["places"][: tokens.shape[1]]
        x = x if causal else _layer_norm(p["norm"], x)
        for block in p["blocks"]:
            x = _normed_before(block, x, heads, True) if causal else _normed_after(block, x, heads)
        return _dense(p["head"], _layer_norm(p["norm"], x[:, -1]) if causal else x[:, 0])

    return Network(params, logits, inputs, labels)


NETWORKS: dict[str, Callable[[int], Network]] = {
    "ResNet-18": lambda batch: resnet(batch, (2, 2, 2, 2), False),
    "ViT-S/16": lambda batch: vit(batch, 384, 6),
    "BERT-base": lambda batch: text(batch, 30_522, 512, False),
    "GPT-2-small": lambda batch: text(batch, 50_257, 1024, True),
    "ResNet-50": lambda batch: resnet(batch, (3, 4, 6, 3), True),
    "ViT-B/16": lambda batch: vit(batch, 768, 12),
}
"""By name: a number of records to the network and these."""


def measure(name: str) -> dict[str, Any]:
    """Seconds and bytes of one network's contenders."""
    params, logits, inputs, labels = NETWORKS[name](BATCH)

    def log_prob(params: Any, inputs: Any, labels: Any) -> Any:
        return jnp.take_along_axis(jax.nn.log_softmax(logits(params, inputs)), labels[:, None], 1)[:, 0]

    def squares(gradients: Any) -> Any:
        parts = (jnp.square(leaf).reshape(len(leaf), -1).sum(1) for leaf in jax.tree.leaves(gradients))
        return sum(parts, jnp.zeros(BATCH))

    single = jax.grad(lambda params, record, label: log_prob(params, record[None], label[None])[0])
    forms: dict[str, Callable[..., Any]] = {
        OURS: lambda *given: squared_grad_norms(log_prob, *given, chunk=BATCH).total,
        GRADIENT: jax.grad(lambda *given: -jnp.mean(log_prob(*given))),
        VMAP: lambda *given: squares(jax.vmap(single, (None, 0, 0))(*given)),
    }
    given = params, inputs, labels
    # As the library compiles its own chunks, and as `jax.jit` does by itself.
    orders = {form: [each.lower(*given).compile() for each in chunks.forms(forms[form]).values()] for form in forms}
    steps = {form: first if form == OURS else second for form, (first, second) in orders.items()}
    ours, wanted = (np.asarray(steps[form](*given)) for form in (OURS, VMAP))
    if not np.allclose(ours, wanted, rtol=AGREE):
        raise RuntimeError(f"{name}: the norms are {ours}, and not {wanted}")
    timings = interleave(name, {form: lambda step=step: step(*given) for form, step in steps.items()}, ROUNDS)
    paths = set(squared_paths(log_prob, given))
    return {
        "seconds": timings.seconds,
        "bytes": {form: min(map(_bytes, [steps[OURS]] if form == OURS else orders[form])) for form in forms},
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
        "contracted": paths == {"contracted"},
    }


def _bytes(step: Any) -> tuple[int, int]:
    """At once, and of these temporary."""
    found = step.memory_analysis()
    lasting = found.argument_size_in_bytes + found.output_size_in_bytes
    return lasting + found.temp_size_in_bytes, found.temp_size_in_bytes


def squared_paths(log_prob: Callable[..., Any], given: tuple[Any, ...]) -> tuple[str, ...]:
    """How the leaves are computed; nothing is."""
    return jax.eval_shape(lambda *each: squared_grad_norms(log_prob, *each, chunk=BATCH), *given).paths_of_leaves


def main(names: list[str]) -> None:
    if names[:1] == ["--one"]:
        Path(names[2]).write_text(json.dumps(measure(names[1])))
        return
    timings, claims, notes = [], [], []
    notes.append(f"Batch {BATCH}, float32. Memory is that of one compiled step, from XLA.")
    with tempfile.TemporaryDirectory() as folder:
        for name in names or list(NETWORKS):
            file = Path(folder) / "found.json"
            done = subprocess.run([sys.executable, "-m", "bench.large_networks", "--one", name, str(file)])
            if done.returncode:
                notes.append(f"{name} is not measured: its process ended with {done.returncode}.")
                continue
            found = json.loads(file.read_text())
            timings.append(Timings(name, found["seconds"]))
            ratio = timings[-1].ratio(OURS, GRADIENT)
            claims.append(Claim(f"{name}: norms / one gradient", ratio, BOUND, at_least=False))
            sizes = {form: [size / 2**20 for size in each] for form, each in found["bytes"].items()}
            at_once, temporary = (ours / other for ours, other in zip(sizes[OURS], sizes[GRADIENT], strict=True))
            memory = Spread.of([at_once])
            claims.append(Claim(f"{name}: memory of norms / one gradient", memory, MEMORY_BOUND, at_least=False))
            whole = "all leaves contracted" if found["contracted"] else "not all leaves contracted"
            notes.append(
                f"{name}, {found['parameters'] / 1e6:.1f} million parameters ({whole}); MiB, of these temporary: "
                + ", ".join(f"{form} {all_:,.0f}, {part:,.0f}" for form, (all_, part) in sizes.items())
                + f"; norms / one gradient {at_once:.2f}, temporary {temporary:.2f}."
            )
            report(Bench("large_networks", timings, claims, notes), PACKAGES)


if __name__ == "__main__":
    main(sys.argv[1:])
