"""Gradient norms over sequence length: the counted choice beside either form alone: `python -m bench.sequence_length`.

The squared norm of a dense layer's gradient over T tokens is that of a product that is made, |A^T D|^2, or that of the
Gram form, sum_st (a_s . a_t)(d_s . d_t), which makes no gradient and takes T^2 products (ghost norms). Which one takes
less is counted from the sizes (`rules.is_made`). Promised: on two CPU cores the counted choice takes no more than 1.3
times the better of the two, at every length. A layer of 256 x 256 numbers over 4 to 512 tokens, the same in a loop of
steps, and an embedding of 2,000 words. All three must first find the same norms. Beside them, one ordinary gradient.
The norms of an LSTM (128 units, 64 records of 28 steps and 28 numbers) take no more than 1.25 of its gradients.

The two forms are had by setting the factor that the choice is made with, which is not public. One minute.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.harness import Bench, Claim, Spread, Timings, interleave, report
from jaxaudit.kernels.gradient_norms import rules, squared_grad_norms

BATCH, WIDTH, WORDS, CLASSES, ROUNDS = 8, 256, 2_000, 10, 7
LENGTHS = (4, 16, 64, 256, 512)
LSTM_LENGTHS = (4, 28, 112)
COUNTED, MADE, GRAM, GRADIENT = "counted choice", "gradients made", "Gram form", "one gradient"
AGREE = 1e-3
BOUND, LSTM_BOUND = 1.3, 1.25
UNITS, STEPS, RECORDS = 128, 28, 64


def of_label(logits: Any, labels: Any) -> Any:
    return jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)[:, 0]


def dense(params: Any, tokens: Any, labels: Any) -> Any:
    h = jnp.tanh(params["embedding"][tokens] @ params["dense"] + params["bias"])
    return of_label(h.mean(axis=1) @ params["output"], labels)


def recurrent(params: Any, tokens: Any, labels: Any) -> Any:
    def step(h: Any, token: Any) -> tuple[Any, None]:
        return jnp.tanh(params["embedding"][token] + h @ params["dense"] + params["bias"]), None

    h, _ = jax.lax.scan(step, jnp.zeros((len(tokens), WIDTH)), tokens.T)
    return of_label(h @ params["output"], labels)


def parameters() -> dict[str, Any]:
    random = np.random.default_rng(1)
    shapes = {"embedding": (WORDS, WIDTH), "dense": (WIDTH, WIDTH), "bias": (WIDTH,), "output": (WIDTH, CLASSES)}
    return {name: jnp.asarray(random.normal(size=shape) / 16, jnp.float32) for name, shape in shapes.items()}


def lstm(params: Any, inputs: Any, labels: Any) -> Any:
    def step(state: tuple[Any, Any], x: Any) -> tuple[tuple[Any, Any], None]:
        h, memory = state
        gates = x @ params["inward"] + h @ params["inner"] + params["bias"]
        enters, stays, new, shown = jnp.split(gates, 4, axis=-1)
        memory = jax.nn.sigmoid(stays) * memory + jax.nn.sigmoid(enters) * jnp.tanh(new)
        return (jax.nn.sigmoid(shown) * jnp.tanh(memory), memory), None

    zeros = jnp.zeros((len(inputs), UNITS))
    (h, _), _ = jax.lax.scan(step, (zeros, zeros), inputs.swapaxes(0, 1))
    return of_label(h @ params["output"], labels)


def of_lstm() -> dict[str, Callable[[], Any]]:
    """Norms and one gradient of an LSTM."""
    random = np.random.default_rng(1)
    shapes = {
        "inward": (STEPS, 4 * UNITS),
        "inner": (UNITS, 4 * UNITS),
        "bias": (4 * UNITS,),
        "output": (UNITS, CLASSES),
    }
    params = {name: jnp.asarray(random.normal(size=shape) / 12, jnp.float32) for name, shape in shapes.items()}
    inputs = jnp.asarray(random.normal(size=(RECORDS, STEPS, STEPS)), jnp.float32)
    labels = jnp.asarray(random.integers(0, CLASSES, RECORDS))
    gradient = jax.jit(jax.grad(lambda p: jnp.mean(lstm(p, inputs, labels))))
    return {
        COUNTED: lambda: squared_grad_norms(lstm, params, inputs, labels, chunk=RECORDS).total,
        GRADIENT: lambda: gradient(params),
    }


@contextmanager
def choosing(saves: float) -> Iterator[None]:
    """In this context the Gram form is chosen where it saves more than this factor."""
    before = rules.GRAM_SAVES
    rules.GRAM_SAVES = saves  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        rules.GRAM_SAVES = before


def contenders(network: Callable[..., Any], length: int) -> dict[str, Callable[[], Any]]:
    """All forms of one case; each is compiled within its own choice, and must find the same."""
    random, params = np.random.default_rng(length), parameters()
    tokens = random.integers(0, WORDS, (BATCH, length)).astype(np.int32)
    labels = random.integers(0, CLASSES, BATCH).astype(np.int32)
    found: dict[str, Callable[[], Any]] = {}
    for name, saves in ((COUNTED, rules.GRAM_SAVES), (MADE, float("inf")), (GRAM, 0.0)):

        def log_prob(params: Any, tokens: Any, labels: Any) -> Any:  # a function of its own, or it were compiled once
            return network(params, tokens, labels)

        def norms(log_prob: Callable[..., Any] = log_prob) -> Any:
            return squared_grad_norms(log_prob, params, tokens, labels, chunk=BATCH).total

        with choosing(saves):
            norms()
        found[name] = norms
    wanted = np.asarray(found[MADE]())
    for name, contend in found.items():
        if not np.allclose(contend(), wanted, rtol=AGREE):
            raise RuntimeError(f"{network.__name__}, {length} tokens: {name} finds other norms")
    gradient = jax.jit(jax.grad(lambda p: jnp.mean(network(p, tokens, labels))))
    return {**found, GRADIENT: lambda: gradient(params)}


def above_better(timings: Timings) -> Spread:
    """The counted choice over the form alone whose median is less."""
    better = min((MADE, GRAM), key=lambda name: Spread.of(timings.seconds[name]).median)
    return timings.ratio(COUNTED, better)


def main() -> None:
    timings, claims = [], []
    for network, lengths in ((dense, LENGTHS), (recurrent, LSTM_LENGTHS)):
        for length in lengths:
            case = f"{network.__name__}, {length} tokens"
            timings.append(interleave(case, contenders(network, length), ROUNDS, untimed_before=True))
            text = f"{case}: counted choice / the better form"
            claims.append(Claim(text, above_better(timings[-1]), BOUND, at_least=False))
    timings.append(interleave("LSTM", of_lstm(), 3 * ROUNDS, untimed_before=True))
    claims.append(Claim("LSTM: norms / gradient", timings[-1].ratio(COUNTED, GRADIENT), LSTM_BOUND, at_least=False))
    notes = [
        f"Batch {BATCH}, width {WIDTH}, {WORDS:,} words. The better form is that of each round: noise flatters it."
    ]
    report(Bench("sequence_length", timings, claims, notes), ["jax", "jaxlib", "numpy"])


if __name__ == "__main__":
    main()
