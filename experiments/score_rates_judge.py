"""The tables of scores of `score_rates`, and the answers about each target by each way of giving data."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.score_rates_models import SCORES
from experiments.score_rates_worlds import DEALS, GROUPS, PART, PER_GROUP, SHARES, Corpus, Deal, Planned, World, planned
from experiments.scores_exact import p_of_inference, p_of_means
from jaxaudit.audits.ks.scores import ScoresTest, judge_scores
from jaxaudit.data.scores.table import score_table
from jaxaudit.metrics.tofu import forget_quality, mia_auc, privleak

SIZES = ((4, PER_GROUP), (8, 5), (8, PER_GROUP), (PART, PER_GROUP))
"""Groups of the query set, of which the holdout has as many, and records of a group."""
COUNTS, AFTER_UNLEARNING = (1, 3, 8), (3,)
"""Models of known truth of each kind."""
LARGE = ((8, PER_GROUP), (PART, PER_GROUP))
"""Sizes at which unlearned models are asked."""
COPIES = 3
"""Targets of a deal that used all, or none, of its query set."""
AGAIN, AGAIN_GROUPS = 8, 8
"""Further deals of a model that never used the query set, and their groups."""
NUMBERS = ("loss", "min_k", "min_k_plus_plus", "zlib")
TRUTH_RATIO, MIN_K = SCORES.index("truth_ratio"), SCORES.index("min_k")
Answer = dict[str, Any]


class Target(NamedTuple):
    """A model in question in one deal.

    Attributes:
        scores: `[records, SCORES]`.
        used: the share of the query set that it used; None after unlearning.
        method: of unlearning, with its strength; empty if there was none.
        own: the number of the model, or of that which was unlearned: no model of known truth.
    """

    scores: np.ndarray
    used: float | None
    method: str
    own: int


class Trained(NamedTuple):
    """What was trained in a world, with the number of tokens of each record."""

    plan: Sequence[Planned]
    scores: np.ndarray
    unlearned: Mapping[str, np.ndarray]
    starts: np.ndarray
    tokens: np.ndarray


def read_trained(path: Path, world: World, corpus: Corpus) -> Trained:
    with np.load(path, allow_pickle=False) as kept:
        unlearned = {name: kept[name].astype(np.float64) for name in kept if name not in ("scores", "starts")}
        scores, starts = kept["scores"].astype(np.float64), kept["starts"]
    tokens = (corpus.inputs >= 0).sum(axis=1).astype(np.float64)
    return Trained(planned(world), scores, unlearned, starts, tokens)


def targets_of(trained: Trained, place: int) -> list[Target]:
    """The targets of a deal."""
    shares = [model.used(DEALS[place]) for model in trained.plan]
    targets = [
        Target(trained.scores[number], share, "", number)
        for share in (0.0, *sorted(SHARES.values()), 1.0)
        for number in [number for number, used in enumerate(shares) if used == share][:COPIES]
    ]
    own = int(trained.starts[place])
    return targets + [Target(scores[place], None, name, own) for name, scores in trained.unlearned.items()]


def chosen_groups(generator: np.random.Generator, plan: Planned, deal: Deal, groups: int) -> list[np.ndarray]:
    """As many groups of query set and holdout, and the members; of the query set the model used the same share."""
    parts = [np.arange(GROUPS).reshape(-1, PART)[part] for part in (deal.query, deal.holdout, deal.members)]
    of_query = parts[0]
    if plan.deal == deal:
        used = round(plan.share * groups)
        sides = of_query[plan.groups[of_query]], of_query[~plan.groups[of_query]]
        query = np.concatenate(
            [
                generator.choice(side, count, replace=False)
                for side, count in zip(sides, (used, groups - used), strict=True)
            ]
        )
    else:
        query = generator.choice(of_query, groups, replace=False)
    return [query, generator.choice(parts[1], groups, replace=False), parts[2]]


def rows_of(groups: np.ndarray, records: int) -> np.ndarray:
    return (groups[:, None] * PER_GROUP + np.arange(records)).ravel()


def columns_of(
    trained: Trained, parts: Sequence[np.ndarray], names: Sequence[str]
) -> tuple[dict[str, Any], np.ndarray]:
    """The columns that no model made, and the rows of the records."""
    rows = np.concatenate(parts)
    sets = np.repeat(names, [len(part) for part in parts])
    return {"set": sets, "group": rows // PER_GROUP, "covariate.tokens": trained.tokens[rows]}, rows


def with_scores(columns: dict[str, Any], role: str, scores: np.ndarray) -> dict[str, Any]:
    return columns | {f"{role}.{name}": scores[:, SCORES.index(name)] for name in NUMBERS}


def judged_deal(name: str, trained: Trained, place: int) -> Iterator[Answer]:
    """The answers about all targets of one deal of a world, by size and way."""
    deal = DEALS[place]
    generator = np.random.default_rng([zlib.crc32(name.encode()), place])
    known = {
        role: [number for number, model in enumerate(trained.plan) if model.used(deal) == share]
        for role, share in (("unused", 0.0), ("used", 1.0))
    }
    for target in targets_of(trained, place):
        own = trained.plan[target.own]
        others = {
            role: generator.permutation([number for number in numbers if number != target.own])
            for role, numbers in known.items()
        }
        for groups, records in LARGE if target.method else SIZES:
            parts = [rows_of(part, records) for part in chosen_groups(generator, own, deal, groups)]
            facts = {
                "deal": place,
                "model": target.own,
                "used": target.used,
                "method": target.method,
                "groups": groups,
                "records": records,
            }
            for way, answer in _answers(generator, trained, target, others, parts):
                yield {**facts, "way": way, **answer}
        if target.used == 0:
            yield from _again(generator, trained, target, others["unused"][: max(COUNTS)], place)


def _answers(
    generator: np.random.Generator,
    trained: Trained,
    target: Target,
    others: Mapping[str, np.ndarray],
    parts: Sequence[np.ndarray],
) -> Iterator[tuple[str, Answer]]:
    key = jax.random.key(int(generator.integers(2**31)))
    both, rows = columns_of(trained, parts[:2], ["query", "holdout"])
    three, all_rows = columns_of(trained, parts, ["query", "holdout", "members"])
    tables = {
        "holdout": with_scores(both, "target", target.scores[rows]),
        "members": with_scores(three, "target", target.scores[all_rows]),
    }
    size = len(parts[0])
    for count in AFTER_UNLEARNING if target.method else COUNTS:
        if count > min(map(len, others.values())):
            continue
        table = tables["holdout"]
        for role, numbers in others.items():
            for number in numbers[:count]:
                table = with_scores(table, f"{role}.{number}", trained.scores[number][rows])
        tables[f"known {count}"] = table
    retrained = trained.scores[others["unused"][0]][rows]
    log = with_scores(tables["holdout"], "unused", retrained)
    if not target.method:
        tables["log, groups"] = log
    tables["log"] = {name: numbers for name, numbers in log.items() if name not in ("group", "covariate.tokens")}
    for way, table in tables.items():
        yield way, usage_of(key, table)
    yield "others", _field(generator, target.scores[rows], retrained, size)


def usage_of(key: Any, columns: dict[str, Any]) -> Answer:
    """What `jaxaudit ks --scores --same-recipe` says of a table."""
    target = judge_scores(key, score_table(columns), test=ScoresTest(same_recipe=True)).targets[0]
    usage = target.usage[0]
    values = {name: getattr(usage, name) for name in ("p_never", "fraction", "upper")}
    plain = {
        name: None if value is None or np.isnan(value) else round(float(value), 5) for name, value in values.items()
    }
    return {"verdict": target.verdict, **plain}


def _field(generator: np.random.Generator, scores: np.ndarray, retrained: np.ndarray, size: int) -> Answer:
    """The field's other numbers of the same records."""
    areas = [mia_auc(model[:size, MIN_K], model[size:, MIN_K]) for model in (scores, retrained)]
    numbers = scores[:, [SCORES.index(name) for name in NUMBERS]]
    found = {
        "forget_quality": forget_quality(scores[:size, TRUTH_RATIO], retrained[:size, TRUTH_RATIO]),
        "privleak": privleak(*areas),
        "t_test": p_of_means(numbers[:size, 0], numbers[size:, 0], equal_var=False),
        "dataset_inference": p_of_inference(generator, numbers, size),
    }
    return {name: round(value, 6) for name, value in found.items()}


def _again(
    generator: np.random.Generator, trained: Trained, target: Target, retrained: np.ndarray, place: int
) -> Iterator[Answer]:
    """The p-values of further deals of the groups that a model did not use, from both parts, also beside others."""
    deal = DEALS[place]
    free = np.arange(GROUPS).reshape(-1, PART)[[deal.query, deal.holdout]].ravel()
    for _ in range(AGAIN):
        groups = generator.permutation(free)[: 2 * AGAIN_GROUPS].reshape(2, -1)
        both, rows = columns_of(trained, [rows_of(part, PER_GROUP) for part in groups], ["query", "holdout"])
        table = with_scores(both, "target", target.scores[rows])
        key = jax.random.key(int(generator.integers(2**31)))
        facts = {"deal": place, "model": target.own}
        yield {**facts, "way": "holdout", "again": usage_of(key, table)["p_never"]}
        for number in retrained:
            table = with_scores(table, f"unused.{number}", trained.scores[number][rows])
        yield {**facts, "way": "retrained", "again": usage_of(key, table)["p_never"]}
