"""The answers about adapters of `score_rates`, by each way of giving data, and by what models of known truth were."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.score_rates_adapters_models import (
    KNOWN,
    TARGETS,
    Recipe,
    corpora_of,
    file_name,
    known_plan,
    target_plan,
)
from experiments.score_rates_judge import (
    AGAIN,
    AGAIN_GROUPS,
    COUNTS,
    LARGE,
    Answer,
    chosen_groups,
    rows_of,
    usage_of,
    with_scores,
)
from experiments.score_rates_worlds import DEALS, GROUPS, PART, PER_GROUP, Corpus, Deal, Planned, World

ALONE = COUNTS[1:]
"""Models of known truth of each kind where there is no holdout."""


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


def tokens_in(corpus: Corpus) -> np.ndarray:
    return (corpus.inputs >= 0).sum(axis=1).astype(np.float64)


def judged_adapters(name: str, world: World, fine_tunes: Tuned, place: int) -> Iterator[Answer]:
    """The answers about all targets of one deal of a world, by size and way."""
    deal, generator = DEALS[place], np.random.default_rng([zlib.crc32(name.encode()), place, 41])
    for recipe, scores in fine_tunes.targets.items():
        for number, own in enumerate(target_plan(world, recipe)):
            if (used := own.used(deal)) is None:
                continue
            others = {kind: _known(generator, fine_tunes, deal) for kind in KNOWN}
            facts = {"deal": place, "rank": recipe.rank, "length": recipe.length, "model": number, "used": used}
            for groups, records in LARGE:
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


def _table(fine_tunes: Tuned, sets: Mapping[str, np.ndarray], scores: np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
    """The table of a target, by the rows of each set, and the rows."""
    rows = np.concatenate([*sets.values()])
    names = np.repeat([*sets], [len(part) for part in sets.values()])
    columns = {"set": names, "group": rows // PER_GROUP, "covariate.tokens": fine_tunes.tokens[rows]}
    return with_scores(columns, "target", scores[rows]), rows


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
    yield "", "holdout", usage_of(key, _table(fine_tunes, dealt, scores)[0])
    yield "", "members", usage_of(key, _table(fine_tunes, three, scores)[0])
    for kind, known in fine_tunes.known.items():
        for way, sets, counts in (("known", dealt, COUNTS), ("alone", alone, ALONE)):
            table, rows = _table(fine_tunes, sets, scores)
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
        sets = {"query": rows_of(query, PER_GROUP), "holdout": rows_of(holdout, PER_GROUP)}
        table, rows = _table(fine_tunes, sets, scores)
        key = jax.random.key(int(generator.integers(2**31)))
        yield "", usage_of(key, table)["p_never"]
        for kind, known in fine_tunes.known.items():
            whole = table
            for number in others[kind]["unused"]:
                whole = with_scores(whole, f"unused.{number}", known[number][rows])
            yield kind, usage_of(key, whole)["p_never"]
