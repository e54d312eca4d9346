"""The shadow models of the membership attacks: trained on known sets, evaluated on the targets."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jaxaudit.attacks import PairedShadows
from jaxaudit.data.examples import Examples
from jaxaudit.ensemble import Execution, fit_many, log_probs_many
from jaxaudit.learners import Learner
from jaxaudit.learners.batch_order import POOL_ORDER_SHARE
from jaxaudit.membership import WithAndWithout, with_and_without
from jaxaudit.randomness import generator_of, joined, several, stream

MOST_TOGETHER = 20
"""Targets whose shadow sets come from one permutation: 22 models for 40 sets. More would save little and make the
shadow models of different targets less independent."""


def groups_of(targets: Int[np.ndarray, " targets"], size: int) -> list[Int[np.ndarray, " group"]]:
    """The targets in groups of equal length, whose shadow sets of `size` records are drawn together.

    The last group is padded with its last target. Groups are small enough for the pool order: see
    `learners.batch_order`.
    """
    most = max(1, min(MOST_TOGETHER, int((size - 1) / POOL_ORDER_SHARE) - size))
    count = -(-len(targets) // most)
    length = -(-len(targets) // count)
    filled = np.concatenate([targets, np.repeat(targets[-1:], count * length - len(targets))])
    return list(filled.reshape(count, length))


def shadow_models(targets: Int[np.ndarray, " targets"], size: int, shadows: int) -> int:
    """The number of models that `pair_outputs` trains."""
    return shadows * sum(2 + len(group) for group in groups_of(targets, size))


def draw_pairs(
    key: Key[Array, ""], targets: Int[np.ndarray, " targets"], size: int, examples: int, shadows: int
) -> Iterator[WithAndWithout]:
    """The shadow sets of every group of targets, `shadows` draws of each group, group by group."""
    for index, group in enumerate(groups_of(targets, size)):
        generator = generator_of(stream(key, "draw", index))
        for _ in range(shadows):
            yield with_and_without(generator, group, size, examples)


def pair_outputs(
    key: Key[Array, ""],
    examples: Examples,
    learner: Learner,
    targets: Int[np.ndarray, " targets"],
    size: int,
    shadows: int,
    execution: Execution,
) -> PairedShadows:
    """Outputs on each target of `shadows` pairs of models of `size` records that differ only by the target.

    The models of a pair have the same key and the same minibatches except for the target (common random numbers), so
    that their difference comes from the target, not from the seed.
    """
    groups = groups_of(targets, size)
    keys = joined(several(stream(key, "train", index), shadows) for index in range(len(groups)))
    pairs = draw_pairs(key, targets, size, len(examples), shadows)
    with_target, without_target = [], []
    parts = execution.split(*[1.0] * len(keys))
    for index, (one, part, drawn) in enumerate(zip(keys, parts, pairs, strict=True)):
        asked = examples.inputs[groups[index // shadows]]
        rows = drawn.membership[:, drawn.pool]
        pool = examples.inputs[drawn.pool], examples.labels[drawn.pool]
        same, say = jnp.repeat(one[None], len(rows)), partial(_say, learner, asked)
        outputs = fit_many(same, rows, *pool, learner, execution=part, summarize=say)
        columns = np.arange(len(asked))
        with_target.append(outputs[drawn.with_target, columns])
        without_target.append(outputs[drawn.without_target, columns])

    def in_order(parts: list[np.ndarray]) -> np.ndarray:
        by_group = np.stack(parts).reshape(len(groups), shadows, *parts[0].shape)
        by_shadow = by_group.swapaxes(0, 1)
        return by_shadow.reshape(shadows, -1, parts[0].shape[-1])[:, : len(targets)]

    return PairedShadows(in_order(with_target), in_order(without_target))


def outputs_on(
    keys: Key[Array, " models"],
    membership: Bool[np.ndarray, "models examples"],
    examples: Examples,
    learner: Learner,
    execution: Execution,
) -> Float[np.ndarray, "models examples classes"]:
    """Log-probabilities (nats) of models trained on these sets, on all examples."""
    say = partial(_say, learner, examples.inputs)
    return fit_many(keys, membership, examples.inputs, examples.labels, learner, execution=execution, summarize=say)


def _say(learner: Learner, asked: np.ndarray, params: Any, models: np.ndarray) -> np.ndarray:
    return log_probs_many(learner, params, asked)
