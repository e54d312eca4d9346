"""Fine-tunes of `score_rates` by adapters of other rank and length than those of the models of known truth.

A world's base model is trained on as many groups of another draw and then frozen. What is fine-tuned are adapters
beside all linear layers within its blocks (LoRA: Hu et al. 2022), or all weights; its own output layer and vectors of
tokens an adapter leaves as they are. Models of known truth are fine-tunes of all weights, and adapters of one rank and
length; targets are adapters of three ranks and three lengths. Groups, parts and deals are as in `score_rates_worlds`.
"""

import time
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.score_rates_models import BATCH, SIDE_BY_SIDE, asked, learner_of
from experiments.score_rates_worlds import (
    DEALS,
    GROUPS,
    PART,
    PER_GROUP,
    SHARES,
    USUAL,
    Corpus,
    Planned,
    World,
    drawn_records,
    tokens_of,
)
from jaxaudit import fit_many
from jaxaudit.ensemble import Execution
from jaxaudit.learners.language_model import LanguageModelLearner
from jaxaudit.models.module import PureModule, Shared

DRAWS, BASE_EPOCHS = 3, 6
"""Draws of groups, and epochs of the base model."""
ADAPTED_RATE, ADAPTED_EPOCHS = 1e-2, 4
"""Highest learning rate and usual length of adapters."""


class Recipe(NamedTuple):
    """How a base model is fine-tuned.

    Attributes:
        rank: of the adapters; 0: all weights are trained.
        length: of training, as a multiple of the usual one.
    """

    rank: int
    length: float = 1.0

    def __str__(self) -> str:
        return f"rank {self.rank}, {self.length:g} x as long" if self.rank else "all weights"


KNOWN = {"all weights": Recipe(0), "rank 4": Recipe(4)}
"""Recipes of models of known truth."""
TARGETS = tuple(Recipe(rank, length) for rank in (1, 4, 16) for length in (0.5, 1.0, 2.0))
ROLES = (*((recipe, "known") for recipe in KNOWN.values()), *((recipe, "target") for recipe in TARGETS))
ADAPTED = {
    "tofu": World("tofu", 0, USUAL, copies=8),
    "notes": World("notes", 0, USUAL, copies=8),
    "tofu, again": World("tofu", 2, USUAL, copies=8, final=True),
    "notes, again": World("notes", 2, USUAL, copies=8, final=True),
}
"""The worlds: with all models of known truth of eight further seeds."""
WHOLE = ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2))


class Base(NamedTuple):
    """A frozen base model and what is fine-tuned on it.

    Attributes:
        learner: trains all weights; its network has them as parameters. `params`: the weights of the base model.
        corpus: of the world.
    """

    learner: LanguageModelLearner
    params: Any
    corpus: Corpus


def corpora_of(world: World, data: Path | None) -> tuple[Corpus, Corpus]:
    """The records of a world, and those of its base model, in one vocabulary."""
    other = world._replace(draw=(world.draw + 1) % DRAWS)
    records = [drawn_records(each, data) for each in (world, other)]
    both, cut = tokens_of(world, [*records[0], *records[1]]), len(records[0])

    def part(rows: slice) -> Corpus:
        wrong = both.wrong.reshape(-1, len(both.inputs), both.inputs.shape[1])[:, rows]
        return both._replace(
            inputs=both.inputs[rows],
            paraphrased=both.paraphrased[rows],
            wrong=wrong.reshape(-1, wrong.shape[-1]),
            texts=both.texts[rows],
            packed=both.packed[rows],
        )

    return part(slice(cut)), part(slice(cut, None))


def base_of(world: World, data: Path | None) -> Base:
    """Trains the base model of a world."""
    corpus, others = corpora_of(world, data)
    learner, key = learner_of(world, corpus), jax.random.key(1_000 + world.draw)
    records = len(others.inputs)
    long = replace(learner, optimizer=_rule(world.rate, BASE_EPOCHS * records // BATCH), epochs=BASE_EPOCHS)
    labels, weights = jnp.zeros(records, jnp.int32), jnp.ones(records)
    params = jax.jit(long.fit)(key, jnp.asarray(others.inputs), labels, weights)
    return Base(learner, params, corpus)


def tuned(base: Base, recipe: Recipe) -> LanguageModelLearner:
    """The learner that fine-tunes the base model by a recipe."""
    if not recipe.rank:
        whole = base.learner.net._replace(init=lambda key: (base.params.params, base.params.state), seeded=False)
        return replace(base.learner, net=whole)
    epochs = round(ADAPTED_EPOCHS * recipe.length)
    rule = _rule(ADAPTED_RATE, epochs * (2 * PART * PER_GROUP // BATCH))
    return replace(base.learner, net=adapted(base, recipe.rank), optimizer=rule, epochs=epochs)


def _rule(rate: float, steps: int) -> Any:
    return optax.adamw(optax.warmup_cosine_decay_schedule(0.0, rate, steps // 10, steps), weight_decay=0.01)


def is_adapted(path: Any) -> bool:
    name = jax.tree_util.keystr(path)
    return "blocks" in name and "kernel" in name


def adapted(base: Base, rank: int) -> PureModule:
    """The network whose parameters are adapters beside the base model's linear layers: with B at 0, the base model.

    The parameters have, by a layer's name, A `[inputs, rank]` and B `[rank, outputs]`; alpha is twice the rank.
    """
    net, state = base.learner.net, base.params.state
    kernels = {
        jax.tree_util.keystr(path): leaf.shape
        for path, leaf in jax.tree_util.tree_leaves_with_path(base.params.params)
        if is_adapted(path)
    }

    def init(key: Any) -> tuple[Any, Any]:
        params = {}
        for place, (name, (inputs, outputs)) in enumerate(kernels.items()):
            most = inputs**-0.5
            a = jax.random.uniform(jax.random.fold_in(key, place), (inputs, rank), minval=-most, maxval=most)
            params[name] = a, jnp.zeros((rank, outputs))
        return params, state

    def apply(frozen: Any, params: Any, state: Any, tokens: Any, training: bool) -> tuple[Any, Any]:
        return net.apply(merged(frozen, params), state, tokens, training)

    module = PureModule(init, partial(apply, base.params.params), False, causal=net.causal)
    return module._replace(shared=Shared(base.params.params, apply))


def merged(weights: Any, adapters: Any) -> Any:
    """The weights of the whole model."""

    def one(path: Any, weight: Any) -> Any:
        a, b = adapters.get(jax.tree_util.keystr(path), (None, None))
        return weight if a is None else weight + 2.0 * a @ b

    return jax.tree_util.tree_map_with_path(one, weights)


def known_plan(world: World) -> list[Planned]:
    """What the models of known truth of one recipe are trained on."""
    return [_whole(parts) for parts in WHOLE for _ in range(world.copies)]


def target_plan(world: World, recipe: Recipe) -> list[Planned]:
    """What the targets of a recipe are trained on: one or two parts, or a part and a share of another one."""
    place, shares = TARGETS.index(recipe), [*SHARES.values()]
    generator, part_of = np.random.default_rng([world.draw, 29, place]), np.arange(GROUPS) // PART
    models = [_whole(parts) for parts in WHOLE]
    for number, deal in enumerate(DEALS):
        # Each recipe has each share in three deals.
        share = shares[(number + place) % len(shares)]
        chosen = generator.choice(np.flatnonzero(part_of == deal.query), round(share * PART), replace=False)
        groups = (part_of == deal.members) | np.isin(np.arange(GROUPS), chosen)
        models.append(Planned((deal.members,), deal, share, groups))
    return models


def _whole(parts: tuple[int, ...]) -> Planned:
    return Planned(parts, None, 0.0, np.isin(np.arange(GROUPS) // PART, parts))


def tune(name: str, world: World, base: Base, recipe: Recipe, plan: Sequence[Planned], folder: Path) -> np.ndarray:
    """The scores of fine-tunes by one recipe, `[models, records, SCORES]`; finished chunks are kept in `folder`."""
    path = folder / f"{name}.npy"
    if path.exists():
        return np.load(path)
    seed = zlib.crc32(name.encode())
    keys = jax.random.split(jax.random.key(seed), len(plan))
    rows = np.repeat(np.stack([model.groups for model in plan]), PER_GROUP, axis=1)
    execution = Execution(models_per_batch=SIDE_BY_SIDE, checkpoints=folder / name)

    def said(params: Any, _: Any) -> np.ndarray:
        if recipe.rank:
            params = params._replace(params=jax.vmap(partial(merged, base.params.params))(params.params))
        return asked(base.learner, params, base.corpus)

    inputs, learner = base.corpus.inputs, tuned(base, recipe)
    labels = np.zeros(len(inputs), np.int32)
    scores = fit_many(keys, rows, inputs, labels, learner, execution=execution, summarize=said)
    np.save(path, scores)
    return scores


def train_adapters(name: str, world: World, data: Path | None, folder: Path) -> None:
    """Trains the models of a world, where they are not in `folder` yet."""
    folder.mkdir(parents=True, exist_ok=True)
    base = base_of(world, data)
    for recipe, role in ROLES:
        started, plan = time.time(), plan_of(world, recipe, role)
        tune(file_name(name, recipe, role), world, base, recipe, plan, folder)
        print(f"{name}, {role}, {recipe}: {len(plan)} models, {time.time() - started:.0f} s", flush=True)


def plan_of(world: World, recipe: Recipe, role: str) -> list[Planned]:
    return known_plan(world) if role == "known" else target_plan(world, recipe)


def file_name(name: str, recipe: Recipe, role: str) -> str:
    return f"adapters-{name}-{role}-{recipe.rank}-{recipe.length:g}"
