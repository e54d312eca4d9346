"""How often verdicts on targets that remember little are wrong, by what the test can be given.

    export JAXAUDIT_DATA=DATA
    python -m experiments.memory_targets --cache FOLDER          # trains; call it again where it was stopped
    python -m experiments.memory_rates --cache FOLDER --judge    # answers, a file a world
    python -m experiments.memory_rates --cache FOLDER            # the tables
    python -m experiments.memory_rates --page                    # the page again, from the rates that were kept

A model that was trained on a random half of a pool of records is a target of any used share: its query set is dealt
from what it used and what it did not, its holdout from what it did not use, its known members from what it used. Each
target has a model and a deal of its own, so that no two share their luck; by its own recipe it may have another. The
ways:

- members: outputs on known members and a holdout; no shadow model.
- members, models: the same beside 40 shadow models of five designs, which are none of the target's.
- own recipe: a holdout and 19 shadow models of the target's own recipe, on the user's word.
- neither: a holdout and the 40 shadow models of other recipes: no limit is given, and none is called `forgotten`.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.figures import write, write_page
from experiments.memory_page import drawing, lines, summarise, summary
from experiments.memory_worlds import WORLDS, draw_world
from experiments.record import RESULTS, describe_run, device_slug
from jaxaudit.metrics.deal import dealt_alike
from jaxaudit.metrics.difficulty import difficulty, residual_scores, residual_scores_of_models
from jaxaudit.metrics.effect import ALPHA
from jaxaudit.metrics.holdout import holdout_test
from jaxaudit.metrics.members import members_test
from jaxaudit.metrics.permutation import permutation_test
from jaxaudit.metrics.profile import profile
from jaxaudit.metrics.resemblance import behaves_like
from jaxaudit.metrics.scores import cut
from jaxaudit.metrics.usage import STATED_FRACTION, UNKNOWN, Usage, conclude, without_fraction

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
SOME = (0.0, 0.5, 1.0)
"""Of the way by the own recipe; of the others all."""
SHADOW, SHORT = "shadow", ("shadow-1", "shadow-3")
LEAST = 10
"""Models that were dealt like a target by groups: with fewer, by records."""
__all__ = ["summary"]


class Pool(NamedTuple):
    """A world's records, and the shadow models of no target's recipe."""

    name: str
    size: int
    labels: np.ndarray
    groups: np.ndarray | None
    inputs: np.ndarray
    shadows: np.ndarray
    rows: np.ndarray


class Dealt(NamedTuple):
    """The places of the three sets in the pool, one after another."""

    places: np.ndarray
    sizes: tuple[int, int, int]


def read_world(folder: Path) -> Pool:
    """The pool of a world."""
    world, shadows = np.load(folder / "world.npz"), np.load(folder / f"{SHADOW}.npz")
    groups = world["groups"]
    inputs = draw_world(folder.name).pool.inputs
    whole = len(np.unique(groups)) < len(groups)
    return Pool(
        *(folder.name, int(world["size"]), world["labels"], groups if whole else None, inputs),
        shadows["odds"].astype(np.float64),
        shadows["rows"],
    )


def dealt(generator: np.random.Generator, pool: Pool, row: np.ndarray, used: float) -> Dealt:
    """Sets of `size` records each for a model with this row, of which it used a share of the first; whole groups."""
    units = np.arange(len(row)) if pool.groups is None else pool.groups
    inside, outside = (generator.permutation(np.unique(units[side])) for side in (row, ~row))
    count = pool.size // (len(units) // len(np.unique(units)))
    part = round(used * count)
    sets = (
        np.concatenate([inside[:part], outside[: count - part]]),
        outside[count : 2 * count],
        inside[count : 2 * count],
    )
    places = [np.flatnonzero(np.isin(units, each)) for each in sets]
    return Dealt(np.concatenate(places), (len(places[0]), len(places[1]), len(places[2])))


def judged(
    pool: Pool, recipe: str, models: Any, place: int, generator: np.random.Generator
) -> Iterator[dict[str, Any]]:
    """The answers about one model: at one share in turn, and by its own recipe at one of some."""
    odds, row = models["odds"][place].astype(np.float64), models["rows"][place]
    for used in sorted({SHARES[place % len(SHARES)], SOME[place % len(SOME)]}):
        key = jax.random.fold_in(jax.random.key(place), round(100 * used))
        found = dealt(generator, pool, row, used)
        facts = {"recipe": recipe, "model": place, "used": used}
        groups = None if pool.groups is None else pool.groups[found.places]
        if used == SHARES[place % len(SHARES)]:
            for way, shadows in (("members", None), ("members, models", pool.shadows[:, found.places])):
                told = difficulty(key, pool.labels[found.places], pool.inputs[found.places], groups)
                scores = residual_scores(odds[found.places], told)
                if shadows is not None:
                    by_models = profile(cut(shadows), pool.rows[:, found.places])
                    scores = residual_scores_of_models(odds[None, found.places], [by_models], told)[0]
                answer = members_test(key, scores, found.sizes, groups=groups)
                yield {**facts, "way": way, "memory": round(answer.memory, 3), **_plain(answer.usage)}
            yield {**facts, "way": "neither", **_plain(_by_others(pool, odds, found, key))}
        if used == SOME[place % len(SOME)]:
            yield {**facts, "way": "own recipe", **_plain(_by_own(pool, models, place, found, key))}


def _by_own(pool: Pool, models: Any, place: int, found: Dealt, key: Any) -> Usage:
    """By the other models of the same recipe, where the target behaves like them."""
    others = np.delete(np.arange(len(models["odds"])), place)
    usage, kept, rows = _by_holdout(
        pool, models["odds"][place], models["odds"][others], models["rows"][others], found, key
    )
    unseen = np.arange(sum(found.sizes[:2])) >= found.sizes[0]
    asked = found.places[: len(unseen)]
    apart = behaves_like(models["odds"][place].astype(np.float64)[asked], kept, rows, unseen)
    return without_fraction(usage, apart) if apart else usage


def _by_others(pool: Pool, odds: np.ndarray, found: Dealt, key: Any) -> Usage:
    """By shadow models of which nobody says that they have the target's recipe: the p-value alone."""
    size, held, _ = found.sizes
    asked = found.places[: size + held]
    groups = None if pool.groups is None else pool.groups[asked]
    told = difficulty(key, pool.labels[asked], pool.inputs[asked], groups)
    by_models = profile(cut(pool.shadows[:, asked]), pool.rows[:, asked])
    scores = residual_scores_of_models(odds[None, asked], [by_models], told)[0]
    p_never = permutation_test(key, scores[:size], scores[size:], groups=groups).p_larger
    usage = conclude("holdout", p_never, None, UNKNOWN)
    return without_fraction(usage, ("how much this model remembers of what it used is not known",))


def _by_holdout(
    pool: Pool, odds: np.ndarray, shadows: np.ndarray, rows: np.ndarray, found: Dealt, key: Any
) -> tuple[Usage, np.ndarray, np.ndarray]:
    """The holdout test by the shadow models that were dealt like the target, and these."""
    size, held, _ = found.sizes
    asked = found.places[: size + held]
    groups = None if pool.groups is None else np.unique(pool.groups[asked], return_inverse=True)[1]
    own = rows[:, asked]
    if groups is None:
        alike = [dealt_alike(int(row.sum()), size, size + held) for row in own]
    else:
        wanted = len(np.unique(groups[:size]))
        alike = [len(np.unique(groups[row])) == wanted for row in own]
        if sum(alike) < LEAST:
            # Rows were dealt from the whole pool: hardly any has just as many groups of these. Records then stand in.
            groups, alike = None, [dealt_alike(int(row.sum()), size, size + held) for row in own]
    kept = np.flatnonzero(np.array(alike, bool))
    told = difficulty(key, pool.labels[asked], pool.inputs[asked], groups)
    usage = holdout_test(
        *(key, odds[asked[:size]].astype(np.float64), odds[asked[size:]].astype(np.float64)),
        *(shadows[kept][:, asked], own[kept]),
        groups=groups,
        predictors=told,
    )
    return usage, shadows[kept][:, asked], own[kept]


def _plain(usage: Usage) -> dict[str, Any]:
    names = ("verdict", "p_never", "p_fully", "fraction", "fraction_low", "fraction_high", "upper")
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
        generator = np.random.default_rng([len(path.stem), *path.stem.encode(), pool.size])
        for place in range(min(most, len(models["odds"]))):
            rows += judged(pool, path.stem, models, place, generator)
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
