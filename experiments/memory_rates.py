"""How often verdicts on targets that remember little are wrong, by what the test can be given.

    export JAXAUDIT_DATA=DATA
    python -m experiments.memory_models --cache FOLDER           # trains; call it again where it was stopped
    python -m experiments.memory_rates --cache FOLDER --judge    # answers, a file a world
    python -m experiments.memory_rates --cache FOLDER            # the tables

A model that was trained on a random half of a pool of 4n records is a target of any used share. For each share its pool
is dealt anew: n query records of which it used that share; all others that it used are known members; all that it did
not use are the holdout. So a deal has every record of the pool, and what the records teach of their difficulty is the
same for all deals of a world. All ways are asked about the same deals:

- members: outputs on known members and a holdout; no shadow model.
- members, models: the first beside 40 shadow models of five recipes, which are none of the target's.
- own recipe: n records of the holdout, and 19 shadow models of the target's own recipe, on the user's word. What
  records teach is left out here, since fewer records than the pool would teach it.
- neither: the holdout and the 40 shadow models of other recipes: no limit is given, and none is called `forgotten`.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.figures import write
from experiments.rates import (
    VERDICTS,
    Answer,
    Layout,
    Measure,
    Rate,
    covers,
    interval,
    of,
    percent,
    rate,
    rates,
    says,
    table,
    used,
)
from experiments.record import RESULTS, Row, describe_run
from experiments.worlds import WORLDS, draw_world
from jaxaudit.audits.ks.taught import taught_difficulty
from jaxaudit.data.examples import Examples
from jaxaudit.metrics.deal import dealt_alike
from jaxaudit.metrics.difficulty import difficulty, residual_scores, residual_scores_of_models
from jaxaudit.metrics.holdout import holdout_test
from jaxaudit.metrics.memory import members_test
from jaxaudit.metrics.permutation import permutation_test
from jaxaudit.metrics.scores import cut, profile
from jaxaudit.metrics.shadow import behaves_like
from jaxaudit.metrics.usage import ALPHA, STATED_FRACTION, UNKNOWN, Usage, conclude, without_fraction

KEY = jax.random.key(8)
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
SHADOW = "shadow"
LEAST = 10
"""Models that were dealt like a target by groups: with fewer, by records."""
DRAWS = 499
"""Permutations of the members test, where tens of thousands are made."""


class Pool(NamedTuple):
    """A world's records, shadow models of no target's recipe, and predictors of difficulty."""

    name: str
    size: int
    labels: np.ndarray
    groups: np.ndarray | None
    inputs: np.ndarray
    shadows: np.ndarray
    rows: np.ndarray
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
    records = Examples(inputs, labels.astype(np.int64), classes, folder.name, groups=whole)
    lesson = taught_difficulty(KEY, records)
    taught = difficulty(KEY, labels, inputs, whole, lesson.odds)
    odds = shadows["odds"].astype(np.float64)
    return Pool(folder.name, int(world["size"]), labels, whole, inputs, odds, shadows["rows"], taught)


def dealt(generator: np.random.Generator, pool: Pool, row: np.ndarray, share: float) -> Dealt:
    """All records of the pool, dealt for a model with this row, of which it used a share of the query set."""
    units = np.arange(len(row)) if pool.groups is None else pool.groups
    inside, outside = (generator.permutation(np.unique(units[side])) for side in (row, ~row))
    count = pool.size // (len(units) // len(np.unique(units)))
    part = round(share * count)
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
        "members, models": residual_scores_of_models(odds[None], by_models, pool.taught)[0],
    }
    for share in SHARES:
        key = jax.random.fold_in(jax.random.key(place), round(100 * share))
        generator = np.random.default_rng([len(recipe), *recipe.encode(), pool.size, place, round(100 * share)])
        deal = dealt(generator, pool, row, share)
        facts = {"recipe": recipe, "model": place, "used": share}
        groups = None if pool.groups is None else pool.groups[deal.places]
        for way, of_way in scores.items():
            answer = members_test(key, of_way[deal.places], deal.sizes, groups=groups, permutations=DRAWS)
            yield {**facts, "way": way, "memory": round(answer.memory, 3), **_plain(answer.usage)}
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


def judge(folder: Path) -> list[dict[str, Any]]:
    """The answers of one world."""
    pool, rows = read_world(folder), []
    for path in sorted(folder.glob("*.npz")):
        if path.stem in ("world", SHADOW):
            continue
        models = dict(np.load(path))
        for place in range(len(models["odds"])):
            rows += judged(pool, path.stem, models, place)
        print(f"{folder.name} {path.stem}: {len(rows)} answers", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--judge", action="store_true", help="answer, rather than draw up the tables")
    parser.add_argument("--worlds", nargs="*", choices=list(WORLDS), default=list(WORLDS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    for name in arguments.worlds if arguments.judge else ():
        path = arguments.cache / f"answers-{name}.json"
        if not path.exists() and (arguments.cache / name / f"{SHADOW}.npz").exists():
            path.write_text(json.dumps(judge(arguments.cache / name)))
    if arguments.judge:
        return
    answers = [
        {**answer, "world": path.stem.removeprefix("answers-")}
        for path in sorted(arguments.cache.glob("answers-*.json"))
        for answer in json.loads(path.read_text())
    ]
    found = summarise(answers)
    record = {"experiment": "memory_rates", **describe_run({"alpha": ALPHA, "stated": STATED_FRACTION}), "rates": found}
    print(write(arguments.out, "memory_rates", record, lines(found)).read_text())


# The rates, their page and their picture.

WAYS = {
    "members": "known members and a holdout",
    "members, models": "the same, and 40 shadow models",
    "own recipe": "a holdout, shadow models of the own recipe",
    "neither": "a holdout, and shadow models of other recipes",
}
MEASURES = {
    "false alarms": Measure("never used, called `not forgotten`: wrong", used(0.0), says("not forgotten")),
    "wrong forgotten": Measure(
        f"more than {STATED_FRACTION:.0%} used, called `forgotten`: wrong",
        lambda answer: answer["used"] > STATED_FRACTION,
        says("forgotten"),
    ),
    "at stated": Measure(
        f"exactly {STATED_FRACTION:.0%} used, called `forgotten`", used(STATED_FRACTION), says("forgotten")
    ),
    "covered": Measure("the one-sided 95% limit is at or above the truth", lambda answer: True, covers),
    "limited": Measure("the same, of those with a limit below 100%", lambda answer: answer["upper"] < 1, covers),
    "forgotten": Measure("never used, called `forgotten`: right", used(0.0), says("forgotten")),
    "found": Measure("all used, called `not forgotten`: right", used(1.0), says("not forgotten")),
    "half found": Measure("half used, called `not forgotten`: right", used(0.5), says("not forgotten")),
    "inconclusive": Measure("all targets, called `inconclusive`", lambda answer: True, says("inconclusive")),
}
LAYOUT = Layout(WAYS, MEASURES, ("neither",), ("covered", "limited"))
SIZES = {"1,000 or more": lambda size: size >= 1000, "300": lambda size: size < 1000}
"""Query records of a world."""
USED = {1.0: "all used", 0.75: "three quarters used", 0.5: "half used", 0.25: "a quarter used", 0.0: "never used"}


def by_way(answers: Sequence[Answer]) -> dict[str, dict[str, Rate]]:
    return {way: rates(of(answers, way=way), MEASURES) for way in WAYS}


def of_size(answers: Sequence[Answer], size: str) -> list[Answer]:
    return [answer for answer in answers if SIZES[size](WORLDS[answer["world"]].size)]


def summarise(answers: Sequence[Answer]) -> dict[str, Any]:
    """Every rate that is reported."""
    recipes = sorted({answer["recipe"] for answer in answers})
    worlds = [name for name in WORLDS if of(answers, world=name)]
    large = of_size(answers, "1,000 or more")
    return {
        "targets": len({(answer["world"], answer["recipe"], answer["model"], answer["used"]) for answer in answers}),
        "worlds": worlds,
        "final": [name for name in worlds if WORLDS[name].final],
        "models": len({(answer["world"], answer["recipe"], answer["model"]) for answer in answers}),
        "overall": by_way(answers),
        "final worlds": by_way([answer for answer in answers if WORLDS[answer["world"]].final]),
        "by recipe": {recipe: by_way(of(large, recipe=recipe)) for recipe in recipes},
        "by world": {name: by_way(of(answers, world=name)) for name in worlds},
        "verdicts": {size: _verdicts(of_size(answers, size)) for size in SIZES},
    }


def _verdicts(answers: Sequence[Answer]) -> dict[str, Any]:
    """How often each verdict was given, by way and used share."""
    return {
        way: {
            str(share): {verdict: rate(of(answers, way=way, used=share), says(verdict)) for verdict in VERDICTS}
            for share in USED
        }
        for way in WAYS
    }


def deals(found: dict[str, Any]) -> str:
    """How many targets there are, and of how many models."""
    return f"{found['targets']:,} targets (deals of {found['models']:,} models)"


def lines(found: dict[str, Any]) -> list[str]:
    """The page: all worlds, the worst, each verdict by what was used; by recipe and by world."""
    sets = {"by cell": found["by recipe"], "looked at once": found["final worlds"], "all worlds": found["overall"]}
    counted = f"{deals(found)} in {len(found['worlds'])} worlds"
    words = "recipes, partly by chance, with 1,000 query records or more"
    return [
        "# How often verdicts on targets that remember little are wrong",
        "",
        f"{deals(found)} of known truth in {len(found['worlds'])} worlds, by what the test is given. "
        f"{len(found['final'])} worlds were looked at only once, at the end: {', '.join(found['final'])}.",
        "",
        "\n\n".join((__doc__ or "").split("\n\n")[2:]).strip(),
        "",
        *LAYOUT.overview(counted, {**sets, "final": found["final"]}, "by cell", words),
        "## Each verdict, by what was used",
        "",
        "With 1,000 query records or more; in brackets 300, of other worlds: they do not show what fewer records do.",
        "",
        *table(
            ["given", "used", *(f"`{verdict}`" for verdict in VERDICTS)],
            (
                [given, USED[float(share)], *(_both(found["verdicts"], way, share, verdict) for verdict in VERDICTS)]
                for way, given in WAYS.items()
                for share in found["verdicts"]["300"][way]
            ),
        ),
        *LAYOUT.breakdown("recipe, n = 1,000 or more", found["by recipe"]),
        *LAYOUT.breakdown("world", found["by world"]),
    ]


def _both(verdicts: dict[str, Any], way: str, share: str, verdict: str) -> str:
    """A rate among targets of many query records, with its interval, and in brackets among those of few."""
    large, small = (verdicts[size][way][share][verdict] for size in SIZES)
    return f"{interval(large)} [{percent(small, 1)}]"


def summary(result: dict[str, Any]) -> list[Row]:
    """What `memory_rates` says of itself in `experiments/README.md`."""
    found = result["rates"]
    asked = {
        "false alarms": 'never used, called "not forgotten"',
        "wrong forgotten": f'more than {STATED_FRACTION:.0%} used, called "forgotten"',
        "covered": "the 95% limit is at or above the truth",
    }
    return [
        Row(
            "none",
            "Error rates of targets that remember little",
            f"{title}: {', '.join(WAYS.values())}",
            "none given",
            ", ".join(LAYOUT.cell(found["overall"], way, name, lambda one: percent(one, 1)) for way in WAYS),
            f"Over {deals(found)} of known truth in {len(found['worlds'])} worlds, most of which remember less than "
            "the shadow models.",
            "--cache FOLDER",
        )
        for name, title in asked.items()
    ]


if __name__ == "__main__":
    main()
