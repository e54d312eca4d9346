"""Fine-tunes of `score_rates` by adapters of other rank and length than those of the models of known truth.

A world's base model is trained on as many groups of another draw and then frozen. What is fine-tuned are adapters
beside all linear layers within its blocks (LoRA: Hu et al. 2022), or all weights; its own output layer and vectors of
tokens an adapter leaves as they are. Models of known truth are fine-tunes of all weights, and adapters of one rank and
length; targets are adapters of three ranks and three lengths. Groups, parts and deals are as in `score_rates_worlds`.
"""

import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.rates import Answer
from experiments.score_rates import (
    AGAIN,
    AGAIN_GROUPS,
    COUNTS,
    chosen_groups,
    columns_of,
    rows_of,
    tokens_in,
    usage_of,
    with_scores,
)
from experiments.score_rates_worlds import (
    BATCH,
    DEALS,
    GROUPS,
    PART,
    PER_GROUP,
    SHARES,
    SIDE_BY_SIDE,
    USUAL,
    Corpus,
    Deal,
    Planned,
    World,
    asked,
    drawn_records,
    learner_of,
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


# The answers, by each way of giving data, and by what models of known truth were.

ALONE = COUNTS[1:]
"""Models of known truth of each kind where there is no holdout."""
SIZES = ((8, PER_GROUP), (PART, PER_GROUP))
"""Groups of the query set, and records of a group."""


class Tuned(NamedTuple):
    """The scores of fine-tunes of a world, each `[models, records, SCORES]`, and the number of tokens of each record.

    Attributes:
        known: by the recipe's name, of models of known truth, in the order of `plan`.
        targets: by recipe, in the order of `target_plan`.
    """

    plan: Sequence[Planned]
    known: Mapping[str, np.ndarray]
    targets: Mapping[Recipe, np.ndarray]
    tokens: np.ndarray


def read_tuned(name: str, world: World, data: Path | None, folder: Path) -> Tuned:
    def read(recipe: Recipe, role: str) -> np.ndarray:
        return np.load(folder / f"{file_name(name, recipe, role)}.npy").astype(np.float64)

    known = {kind: read(recipe, "known") for kind, recipe in KNOWN.items()}
    targets = {recipe: read(recipe, "target") for recipe in TARGETS}
    return Tuned(known_plan(world), known, targets, tokens_in(corpora_of(world, data)[0]))


def judged_adapters(name: str, world: World, fine_tunes: Tuned, place: int) -> Iterator[Answer]:
    """The answers about all targets of one deal of a world, by size and way."""
    deal, generator = DEALS[place], np.random.default_rng([zlib.crc32(name.encode()), place, 41])
    for recipe, scores in fine_tunes.targets.items():
        for number, own in enumerate(target_plan(world, recipe)):
            if (used := own.used(deal)) is None:
                continue
            others = {kind: _known(generator, fine_tunes, deal) for kind in KNOWN}
            facts = {"deal": place, "rank": recipe.rank, "length": recipe.length, "model": number, "used": used}
            for groups, records in SIZES:
                parts = [rows_of(part, records) for part in chosen_groups(generator, own, deal, groups)]
                size = {"groups": groups, "records": records}
                for kind, way, answer in _answers(generator, fine_tunes, scores[number], others, parts):
                    yield {**facts, **size, "kind": kind, "way": way, **answer}
            if used == 0:
                for kind, p_never in _dealt_anew(generator, fine_tunes, scores[number], others, deal):
                    yield {**facts, "kind": kind, "way": "holdout", "again": p_never}


def _known(generator: np.random.Generator, fine_tunes: Tuned, deal: Deal) -> dict[str, np.ndarray]:
    """The models of known truth of a deal in a random order, by their role."""
    shares = [model.used(deal) for model in fine_tunes.plan]
    return {
        role: generator.permutation([number for number, share in enumerate(shares) if share == used])
        for role, used in (("unused", 0.0), ("used", 1.0))
    }


def _answers(
    generator: np.random.Generator,
    fine_tunes: Tuned,
    scores: np.ndarray,
    others: Mapping[str, Mapping[str, np.ndarray]],
    parts: Sequence[np.ndarray],
) -> Iterator[tuple[str, str, Answer]]:
    """The kind of models of known truth, empty if there are none, the way, and what is said of the target."""
    key = jax.random.key(int(generator.integers(2**31)))
    query, holdout, members = parts
    three = {"query": query, "holdout": holdout, "members": members}
    dealt, alone = {"query": query, "holdout": holdout}, {"query": query}
    for way, sets in (("holdout", dealt), ("members", three)):
        columns, rows = columns_of(fine_tunes.tokens, [*sets.values()], [*sets])
        yield "", way, usage_of(key, with_scores(columns, "target", scores[rows]))
    for kind, known in fine_tunes.known.items():
        for way, sets, counts in (("known", dealt, COUNTS), ("alone", alone, ALONE)):
            columns, rows = columns_of(fine_tunes.tokens, [*sets.values()], [*sets])
            table = with_scores(columns, "target", scores[rows])
            for count in counts:
                whole = table
                for role, numbers in others[kind].items():
                    for number in numbers[:count]:
                        whole = with_scores(whole, f"{role}.{number}", known[number][rows])
                yield kind, f"{way} {count}", usage_of(key, whole)


def _dealt_anew(
    generator: np.random.Generator,
    fine_tunes: Tuned,
    scores: np.ndarray,
    others: Mapping[str, Mapping[str, np.ndarray]],
    deal: Deal,
) -> Iterator[tuple[str, float]]:
    """The p-values of further deals of groups that a target did not use, also beside retrained models of each kind."""
    free = np.arange(GROUPS).reshape(-1, PART)[[deal.query, deal.holdout]].ravel()
    for _ in range(AGAIN):
        query, holdout = generator.permutation(free)[: 2 * AGAIN_GROUPS].reshape(2, -1)
        parts = [rows_of(groups, PER_GROUP) for groups in (query, holdout)]
        columns, rows = columns_of(fine_tunes.tokens, parts, ["query", "holdout"])
        table = with_scores(columns, "target", scores[rows])
        key = jax.random.key(int(generator.integers(2**31)))
        yield "", usage_of(key, table)["p_never"]
        for kind, known in fine_tunes.known.items():
            whole = table
            for number in others[kind]["unused"]:
                whole = with_scores(whole, f"unused.{number}", known[number][rows])
            yield kind, usage_of(key, whole)["p_never"]
