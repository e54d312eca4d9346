"""Slow, obvious twins of the kernels: definitions written out, to compare with."""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import jax
import numpy as np
import optax
from scipy import stats


def log_of(probabilities: Any) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(probabilities, np.float64))


def f32(values: Any) -> np.ndarray:
    return np.asarray(values, np.float32)


def assert_within_a_rounding(actual: Any, expected: Any) -> None:
    """Of numbers in float32."""
    np.testing.assert_allclose(actual, expected, rtol=2.0**-22, atol=0)


def ks_by_scipy(first: np.ndarray, second: np.ndarray) -> float:
    """The two-sample statistic of SciPy, which since 1.18 counts in the precision it is given."""
    with np.errstate(divide="ignore"):  # in its p-value of one value against one
        result: Any = stats.ks_2samp(np.float64(first), np.float64(second), method="asymp")
    return float(result.statistic)


def ks_by_definition(first: Sequence[float], second: Sequence[float]) -> Fraction:
    """The largest gap of the empirical distribution functions."""
    return max(
        abs(Fraction(sum(v <= x for v in first), len(first)) - Fraction(sum(v <= x for v in second), len(second)))
        for x in [*first, *second]
    )


def softmax(logits: np.ndarray) -> np.ndarray:
    if not len(logits):
        return logits
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def batches_by_loop(
    key: Any, member: np.ndarray, epochs: int, batch_size: int, batch_coupled: bool = False
) -> Iterator[list[int]]:
    """The members of every minibatch a model takes, written from the description of the two walks."""
    examples, members = len(member), np.flatnonzero(member)
    for epoch in range(epochs):
        words = np.asarray(jax.random.bits(jax.random.fold_in(jax.random.fold_in(key, 1), epoch), (examples,)))
        if len(members) >= 0.9 * examples and not batch_coupled:
            order = sorted(range(examples), key=lambda record: words[record])
        else:
            order = [members[place] for place in sorted(range(len(members)), key=lambda place: words[place])]
        for start in range(0, len(order), batch_size):
            yield [int(record) for record in order[start : start + batch_size] if member[record]]


@lru_cache
def _compiled_update(optimizer: optax.GradientTransformation) -> Any:
    return jax.jit(optimizer.update)


def softmax_regression_by_loop(
    batches: Iterable[list[int]],
    kernel: np.ndarray,
    bias: np.ndarray,
    inputs: np.ndarray,
    labels: np.ndarray,
    optimizer: optax.GradientTransformation,
    skip_empty: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Kernel and bias after a step along the mean gradient of every minibatch (that has records)."""
    params = {"kernel": np.asarray(kernel), "bias": np.asarray(bias)}
    state, update = optimizer.init(params), _compiled_update(optimizer)
    for batch in batches:
        if skip_empty and not batch:
            continue
        x = inputs[batch].astype(np.float64)
        error = softmax(x @ params["kernel"] + params["bias"])
        error[np.arange(len(batch)), labels[batch]] -= 1
        gradient = {"kernel": x.T @ error / max(len(batch), 1), "bias": error.sum(axis=0) / max(len(batch), 1)}
        updates, state = update({name: np.float32(g) for name, g in gradient.items()}, state, params)
        params = {name: params[name] + np.asarray(updates[name]) for name in params}
    return params["kernel"], params["bias"]
