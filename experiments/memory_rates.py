"""How often verdicts on targets that remember little are wrong, by what the test can be given.

    export JAXAUDIT_DATA=DATA
    python -m experiments.memory_targets --cache FOLDER          # trains; call it again where it was stopped
    python -m experiments.memory_rates --cache FOLDER --judge    # answers, a file a world
    python -m experiments.memory_rates --cache FOLDER            # the tables
    python -m experiments.memory_rates --page                    # the page again, from the rates that were kept

A model that was trained on a random half of a pool of 4n records is a target of any used share. For each share its pool
is dealt anew: n query records of which it used that share; all others that it used are known members; all that it did
not use are the holdout. So a deal has every record of the pool, and what the records teach of their difficulty is the
same for all deals of a world. All ways are asked about the same deals:

- members: outputs on known members and a holdout; no shadow model.
- members, neighbours: the same, where no record teaches: the classes of its neighbours tell a record's difficulty.
- members, models: the first beside 40 shadow models of five designs, which are none of the target's.
- own recipe: n records of the holdout, and 19 shadow models of the target's own recipe, on the user's word. What
  records teach is left out here, since fewer records than the pool would teach it.
- neither: the holdout and the 40 shadow models of other recipes: no limit is given, and none is called `forgotten`.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import special

from experiments.figures import write, write_page
from experiments.memory_page import drawing, lines, summary
from experiments.memory_summary import summarise
from experiments.memory_worlds import WORLDS, draw_world
from experiments.record import RESULTS, describe_run, device_slug
from jaxaudit.audits.ks.taught import taught_difficulty
from jaxaudit.data.examples import Examples
from jaxaudit.metrics.deal import dealt_alike
from jaxaudit.metrics.difficulty import difficulty, residual_scores, residual_scores_of_models
from jaxaudit.metrics.effect import ALPHA, UNKNOWN
from jaxaudit.metrics.holdout import holdout_test
from jaxaudit.metrics.members import Sides, limits_by_members, members_test, set_means
from jaxaudit.metrics.permutation import permutation_test
from jaxaudit.metrics.profile import profile
from jaxaudit.metrics.resemblance import behaves_like
from jaxaudit.metrics.scores import cut
from jaxaudit.metrics.usage import STATED_FRACTION, Usage, conclude, without_fraction

KEY = jax.random.key(8)
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
SHADOW, SHORT = "shadow", ("shadow-1", "shadow-3")
LEAST = 10
"""Models that were dealt like a target by groups: with fewer, by records."""
DRAWS = 499
"""Permutations of the members test, where tens of thousands are made."""
BACKGROUND = 1.0
"""A power-constrained limit is at least what it would be of a holdout that looks used by so many standard errors."""
__all__ = ["summary"]


class Pool(NamedTuple):
    """A world's records, shadow models of no target's recipe, and predictors of difficulty, taught or not."""

    name: str
    size: int
    labels: np.ndarray
    groups: np.ndarray | None
    inputs: np.ndarray
    shadows: np.ndarray
    rows: np.ndarray
    neighbours: np.ndarray
    taught: np.ndarray


class Dealt(NamedTuple):
    """The places of the three sets in the pool, one after another."""

    places: np.ndarray
    sizes: tuple[int, int, int]

    @property
    def dealt(self) -> slice:
        """The columns of query set and holdout."""
        return slice(0, self.sizes[0] + self.sizes[1])


def read_world(folder: Path) -> Pool:
    """The pool of a world."""
    world, shadows = np.load(folder / "world.npz"), np.load(folder / f"{SHADOW}.npz")
    labels, groups = world["labels"], world["groups"]
    inputs = draw_world(folder.name).pool.inputs
    whole = groups if len(np.unique(groups)) < len(groups) else None
    classes = tuple(map(str, range(int(labels.max()) + 1)))
    lesson = taught_difficulty(KEY, Examples(inputs, labels.astype(np.int64), classes, folder.name), whole)
    neighbours, taught = (difficulty(KEY, labels, inputs, whole, odds) for odds in (None, lesson.odds))
    odds = shadows["odds"].astype(np.float64)
    return Pool(folder.name, int(world["size"]), labels, whole, inputs, odds, shadows["rows"], neighbours, taught)


def dealt(generator: np.random.Generator, pool: Pool, row: np.ndarray, used: float) -> Dealt:
    """All records of the pool, dealt for a model with this row, of which it used a share of the query set."""
    units = np.arange(len(row)) if pool.groups is None else pool.groups
    inside, outside = (generator.permutation(np.unique(units[side])) for side in (row, ~row))
    count = pool.size // (len(units) // len(np.unique(units)))
    part = round(used * count)
    sets = (np.concatenate([inside[:part], outside[: count - part]]), outside[count - part :], inside[part:])
    places = [generator.permutation(np.flatnonzero(np.isin(units, each))) for each in sets]
    return Dealt(np.concatenate(places), (len(places[0]), len(places[1]), len(places[2])))


def judged(pool: Pool, recipe: str, models: Any, place: int) -> Iterator[dict[str, Any]]:
    """The answers about one model, at each share, by each way."""
    odds, row = models["odds"][place].astype(np.float64), models["rows"][place]
    by_models = [profile(cut(pool.shadows), pool.rows)]
    # A score uses no deal, so each target has one.
    scores = {
        "members": residual_scores(odds, pool.taught),
        "members, neighbours": residual_scores(odds, pool.neighbours),
        "members, models": residual_scores_of_models(odds[None], by_models, pool.taught)[0],
    }
    for used in SHARES:
        key = jax.random.fold_in(jax.random.key(place), round(100 * used))
        generator = np.random.default_rng([len(recipe), *recipe.encode(), pool.size, place, round(100 * used)])
        deal = dealt(generator, pool, row, used)
        facts = {"recipe": recipe, "model": place, "used": used}
        groups = None if pool.groups is None else pool.groups[deal.places]
        for way, of_way in scores.items():
            of_deal = of_way[deal.places]
            answer = members_test(key, of_deal, deal.sizes, groups=groups, permutations=DRAWS)
            others = other_limits(of_deal, deal.sizes, groups) if way == "members" else {}
            limited = answer.p_memory <= ALPHA
            others = {name: round(limit if limited else 1.0, 4) for name, limit in others.items()}
            yield {**facts, "way": way, "memory": round(answer.memory, 3), **others, **_plain(answer.usage)}
        held = deal.dealt
        p_never = permutation_test(
            key,
            scores["members, models"][deal.places[: deal.sizes[0]]],
            scores["members, models"][deal.places[deal.sizes[0] : held.stop]],
            groups=None if groups is None else groups[held],
            permutations=DRAWS,
        ).p_larger
        unknown = ("how much this model remembers of what it used is not known",)
        neither = without_fraction(conclude("holdout", p_never, None, UNKNOWN), unknown)
        yield {**facts, "way": "neither", **_plain(neither)}
        yield {**facts, "way": "own recipe", **_plain(_by_own(pool, models, place, deal, key))}


def other_limits(scores: np.ndarray, sizes: tuple[int, int, int], groups: np.ndarray | None) -> dict[str, float]:
    """Two limits that are no smaller than the test's own: power-constrained (Cowan et al. 2011), and CLs (Read 2002).

    Of a, the query set's mean score minus the holdout's, b, the members' minus the holdout's, and the standard error of
    a - f b. The first takes a as at least -`BACKGROUND` standard errors of a. The second is the share f at which
    P(a or less | f) / P(a or less | 0) is alpha.
    """
    parts = np.split(scores, np.cumsum(sizes)[:2])
    of_sets = (None,) * 3 if groups is None else tuple(np.split(groups, np.cumsum(sizes)[:2]))
    sides = set_means(parts[0], parts[1], parts[2], of_sets)
    apart, memory = sides.query - sides.holdout, sides.members - sides.holdout
    error = float(np.sqrt(sides.query_variance + sides.holdout_variance))
    raised = sides._replace(query=sides.holdout + max(apart, -BACKGROUND * error))
    constrained = limits_by_members(raised).upper

    def ratio(fraction: float) -> float:
        return _tail(sides, fraction) / max(_tail(sides, 0.0), 1e-300)

    low, high = 0.0, 1.0
    if not memory > 0 or ratio(1.0) > ALPHA:
        return {"constrained": constrained, "cls": 1.0}
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if ratio(middle) <= ALPHA else (middle, high)
    return {"constrained": constrained, "cls": high}


def _tail(sides: Sides, fraction: float) -> float:
    """How probable a difference as small as the target's is, if it used this fraction."""
    left = sides.query - fraction * sides.members - (1 - fraction) * sides.holdout
    variance = sides.query_variance + fraction**2 * sides.members_variance
    variance += (1 - fraction) ** 2 * sides.holdout_variance
    return float(special.stdtr(sides.freedom, left / np.sqrt(variance)))


def _by_own(pool: Pool, models: Any, place: int, deal: Dealt, key: Any) -> Usage:
    """By the other models of the same recipe, where the target behaves like them; as many holdout as query records."""
    others = np.delete(np.arange(len(models["odds"])), place)
    size = deal.sizes[0]
    asked = deal.places[: 2 * size]
    odds, shadows, own = (
        models["odds"][place].astype(np.float64)[asked],
        models["odds"][others][:, asked],
        models["rows"][others][:, asked],
    )
    groups = None if pool.groups is None else np.unique(pool.groups[asked], return_inverse=True)[1]
    if groups is None:
        alike = [dealt_alike(int(row.sum()), size, 2 * size) for row in own]
    else:
        wanted = len(np.unique(groups[:size]))
        alike = [len(np.unique(groups[row])) == wanted for row in own]
        if sum(alike) < LEAST:
            # Rows were dealt from the whole pool: hardly any has just as many groups of these. Records then stand in.
            groups, alike = None, [dealt_alike(int(row.sum()), size, 2 * size) for row in own]
    kept = np.flatnonzero(np.array(alike, bool))
    predictors = difficulty(key, pool.labels[asked], pool.inputs[asked], groups)
    shadows, own = shadows[kept], own[kept]
    usage = holdout_test(
        key, odds[:size], odds[size:], shadows, own, groups=groups, predictors=predictors, own_recipe=True
    )
    apart = behaves_like(odds, shadows, own, np.arange(2 * size) >= size)
    return without_fraction(usage, apart) if apart else usage


def _plain(usage: Usage) -> dict[str, Any]:
    names = ("verdict", "p_never", "p_fully", "fraction", "fraction_low", "fraction_high", "upper", "detectable")
    values = {name: getattr(usage, name) for name in names}
    return {
        name: (None if np.isnan(value) else round(value, 5)) if isinstance(value, float) else value
        for name, value in values.items()
    }


def judge(folder: Path, most: int) -> list[dict[str, Any]]:
    """The answers of one world, about so many models of each recipe."""
    pool, rows = read_world(folder), []
    for path in sorted(folder.glob("*.npz")):
        if path.stem in ("world", SHADOW, *SHORT):
            continue
        models = dict(np.load(path))
        for place in range(min(most, len(models["odds"]))):
            rows += judged(pool, path.stem, models, place)
        print(f"{folder.name} {path.stem}: {len(rows)} answers", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--cache", type=Path)
    what.add_argument("--page", action="store_true", help="write the page again, from the rates that were kept")
    parser.add_argument("--judge", action="store_true", help="answer, rather than draw up the tables")
    parser.add_argument("--models", type=int, default=20, help="of each recipe, that are judged")
    parser.add_argument("--worlds", nargs="*", choices=list(WORLDS), default=list(WORLDS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.page:
        stem = f"memory_rates-{device_slug()}"
        record = json.loads((arguments.out / f"{stem}.json").read_text())
        print(write_page(arguments.out, stem, lines(record["rates"])).read_text())
        return
    for name in arguments.worlds if arguments.judge else ():
        path = arguments.cache / f"answers-{name}.json"
        if not path.exists() and (arguments.cache / name / f"{SHADOW}.npz").exists():
            path.write_text(json.dumps(judge(arguments.cache / name, arguments.models)))
    if arguments.judge:
        return
    answers = [
        {**answer, "world": path.stem.removeprefix("answers-")}
        for path in sorted(arguments.cache.glob("answers-*.json"))
        for answer in json.loads(path.read_text())
    ]
    run = describe_run({"alpha": ALPHA, "stated": STATED_FRACTION}, 0.0)
    del run["seconds"]
    found = summarise(answers)
    record = {"experiment": "memory_rates", **run, "rates": found}
    print(write(arguments.out, "memory_rates", record, lines(found), drawing(answers)).read_text())


if __name__ == "__main__":
    main()
