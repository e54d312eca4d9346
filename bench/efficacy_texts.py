"""Fisher information of a language model about records of text: `python -m bench.efficacy_texts`.

Milliseconds a record of the squared norm of the gradient of its log-likelihood: contracted (`squared_grad_norms`), by
`vmap` of `grad`, which holds the gradients of all records of a batch, and by a loop of compiled gradients, one record
after another. Models of the package on records of 64 tokens, whose output layer is its own or the embedding of tokens
(tied). All three must first find the same norms. Nothing is promised and nothing is written: the gain is small where a
model is, since the logits then take most of the time, and numbers of a busy machine say little. Two minutes.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.harness import Spread, interleave, machine, print_table
from jaxaudit.kernels import SequenceLikelihood, squared_grad_norms
from jaxaudit.models import GPT, pure_module

RECORDS, LENGTH, AT_ONCE, ROUNDS = 32, 64, 8, 5
CASES = {
    "2 layers of 64, 512 words": (2, 64, 512),
    "4 layers of 256, 4,096 words": (4, 256, 4096),
    "4 layers of 256, 16,384 words": (4, 256, 16384),
}
CONTRACTED, VMAP, LOOP = "contracted", f"vmap(grad), {AT_ONCE} at a time", "loop of gradients"
AGREE = 1e-4


def contenders(depth: int, width: int, words: int, tied: bool) -> dict[str, Callable[[], Any]]:
    """The norms of all records by each of the three ways."""
    net = pure_module(partial(GPT, depth=depth, width=width, tied=tied), (LENGTH,), words, of_tokens=True)
    params, state = net.init(jax.random.key(1))
    tokens = np.random.default_rng(1).integers(0, words, (RECORDS, LENGTH)).astype(np.int32)
    tokens[:, : LENGTH // 4] = ~tokens[:, : LENGTH // 4]
    labels = np.zeros(RECORDS, np.int32)

    def log_prob(params: Any, tokens: Any, labels: Any) -> Any:
        logits = net.apply(params, state, jnp.where(tokens < 0, ~tokens, tokens), False)[0]
        return SequenceLikelihood().log_prob(logits, tokens)

    def norm(params: Any, row: Any) -> Any:
        gradient = jax.grad(lambda params: log_prob(params, row[None], None)[0])(params)
        return sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(gradient))

    alone, together = jax.jit(norm), jax.jit(jax.vmap(norm, (None, 0)))
    batches = [jnp.asarray(tokens[start : start + AT_ONCE]) for start in range(0, RECORDS, AT_ONCE)]
    rows = list(map(jnp.asarray, tokens))
    return {
        CONTRACTED: lambda: squared_grad_norms(log_prob, params, tokens, labels).total,
        VMAP: lambda: jnp.concatenate([together(params, batch) for batch in batches]),
        LOOP: lambda: jnp.stack([alone(params, row) for row in rows]),
    }


def main() -> None:
    rows = []
    for name, (depth, width, words) in CASES.items():
        for tied in (False, True):
            ways = contenders(depth, width, words, tied)
            first = np.asarray(ways[CONTRACTED]())
            assert all(np.allclose(way(), first, rtol=AGREE) for way in ways.values()), name
            timings = interleave(name, ways, ROUNDS)
            for way, seconds in timings.seconds.items():
                each, ratio = Spread.of([1000 * whole / RECORDS for whole in seconds]), timings.ratio(way, CONTRACTED)
                spread = f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
                rows.append([f"{name}, {'tied' if tied else 'own output'}", way, f"{each.median:.2f}", spread])
    about = machine(["jax"])
    print(f"{about['cpu']}, {about['cores']} cores, load {about['load']}, jax {about['versions']['jax']}")
    print_table(["model", "way", "ms a record", f"this / {CONTRACTED}"], rows)


if __name__ == "__main__":
    main()
