"""How often the holdout test without any model is wrong, and how often it finds use.

    export JAXAUDIT_DATA=DATA
    python -m experiments.holdout_rates --cache FOLDER --judge    # trains and answers; call it again where it stopped
    python -m experiments.holdout_rates --cache FOLDER            # the tables

Needs PyTorch and scikit-learn to judge. All that is known of a target is its outputs on n query records and n of a
holdout. In each world of `memory_rates` with 1,000 query records or more, the pool of 4n records is dealt four times
into these two sets, and 2n other records of the same provider. For each deal, recipe of `memory_models` and share, two
targets are trained on 2n records: that share of the query set, drawn anew, and of the others the rest. So the records
of a deal teach their difficulty once for all of its targets. In `memory_rates` the holdout is larger (n and as many
records as were used of the query set), and known members teach difficulty, too: less is found here.
"""

import argparse
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.figures import write
from experiments.rates import VERDICTS, Answer, Layout, Measure, interval, of, percent, rate, rates, says, table, used
from experiments.record import RESULTS, Row, describe_run
from experiments.worlds import WORLDS, World, draw_world
from jaxaudit.audits.ks.taught import taught_difficulty
from jaxaudit.data.examples import Examples
from jaxaudit.metrics.difficulty import difficulty, residual_scores
from jaxaudit.metrics.permutation import permutation_test
from jaxaudit.metrics.usage import ALPHA

KEY = jax.random.key(63)
SHARES = {1.0: "all used", 0.5: "half used", 0.25: "a quarter used", 0.0: "never used"}
DEALS, TARGETS = 4, 2
DRAWS = 499
NAMES = tuple(name for name, world in WORLDS.items() if world.size >= 1000)
WAY = "holdout"
GIVEN = "a holdout alone"
MEASURES = {
    "false alarms": Measure("never used, called `not forgotten`: wrong", used(0.0), says("not forgotten")),
    "found": Measure("all used, called `not forgotten`: right", used(1.0), says("not forgotten")),
    "half found": Measure("half used, called `not forgotten`: right", used(0.5), says("not forgotten")),
    "quarter found": Measure("a quarter used, called `not forgotten`: right", used(0.25), says("not forgotten")),
}
LAYOUT = Layout({WAY: GIVEN}, MEASURES, (), ())


class Deal(NamedTuple):
    """The places in the pool of the query set and the holdout, one after another, and of all others.

    Attributes:
        predictors: how difficult each record of the first two is.
        groups: of the first two; None where each record is its own.
    """

    query: np.ndarray
    holdout: np.ndarray
    others: np.ndarray
    predictors: np.ndarray
    groups: np.ndarray | None


def deal(world: World, name: str, index: int) -> Deal:
    """A random deal of the pool by groups, with what its query set and holdout teach."""
    generator = np.random.default_rng([zlib.crc32(name.encode()), index, 63])
    count = int(world.groups[-1]) + 1
    sides = np.split(generator.permutation(count), [count // 4, count // 2])
    query, holdout, others = (generator.permutation(np.flatnonzero(np.isin(world.groups, side))) for side in sides)
    places = np.concatenate([query, holdout])
    groups = world.groups[places] if count < len(world.groups) else None
    inputs, labels = world.pool.inputs[places], world.pool.labels[places].astype(np.int64)
    records = Examples(inputs, labels, tuple(map(str, range(world.classes))), name, groups=groups)
    lesson = taught_difficulty(jax.random.fold_in(KEY, index), records)
    order = lesson.order
    predictors = difficulty(
        jax.random.fold_in(KEY, index),
        labels[order],
        inputs[order],
        None if groups is None else groups[order],
        None if lesson.odds is None else lesson.odds[:, order],
    )
    return Deal(query, holdout, others, predictors[np.argsort(order)], groups)


def trained_on(generator: np.random.Generator, world: World, dealt: Deal, share: float) -> np.ndarray:
    """The places of 2n records: a share of the query set, in whole groups, and of the others the rest."""
    asked, beside = (np.unique(world.groups[places]) for places in (dealt.query, dealt.others))
    part = round(share * len(asked))
    chosen = [generator.permutation(asked)[:part], generator.permutation(beside)[: len(beside) - part]]
    return np.flatnonzero(np.isin(world.groups, np.concatenate(chosen)))


def judged(world: World, name: str, recipe: str, deals: list[Deal]) -> Iterator[Answer]:
    """The answers about the targets of one recipe."""
    from experiments.memory_models import outputs, recipes

    train = recipes(name, world.pool.inputs.ndim == 4)[recipe]
    inputs, labels = world.pool
    for index, dealt in enumerate(deals):
        places, size = np.concatenate([dealt.query, dealt.holdout]), len(dealt.query)
        for share in SHARES:
            for target in range(TARGETS):
                words = [zlib.crc32(f"{name}/{recipe}".encode()), index, round(100 * share), target]
                generator = np.random.default_rng(words)
                rows = trained_on(generator, world, dealt, share)
                records = world.pool._replace(inputs=inputs[rows], labels=labels[rows])
                log_probs = train(int(generator.integers(2**31)), records, world.classes, world.others)(inputs[places])
                odds, _ = outputs(log_probs, labels[places])
                scores = residual_scores(odds.astype(np.float64), dealt.predictors)
                key = jax.random.fold_in(jax.random.fold_in(KEY, words[0]), (index * 101 + words[2]) * 2 + target)
                p_never = permutation_test(
                    key, scores[:size], scores[size:], groups=dealt.groups, permutations=DRAWS
                ).p_larger
                verdict = "not forgotten" if p_never <= ALPHA else "inconclusive"
                yield {
                    "world": name,
                    "recipe": recipe,
                    "deal": index,
                    "used": share,
                    "p_never": p_never,
                    "verdict": verdict,
                }


def judge(folder: Path, name: str) -> None:
    """Trains and asks about the targets of one world: a file a recipe, which is whole if it is there."""
    from experiments.memory_models import recipes

    world = draw_world(name)
    left = [recipe for recipe in recipes(name, world.pool.inputs.ndim == 4) if not _file(folder, name, recipe).exists()]
    deals = [deal(world, name, index) for index in range(DEALS)] if left else []
    for recipe in left:
        answers = list(judged(world, name, recipe, deals))
        path = _file(folder, name, recipe)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        unfinished.write_text(json.dumps(answers))
        unfinished.replace(path)
        print(f"{name} {recipe}: {len(answers)} answers", flush=True)


def _file(folder: Path, name: str, recipe: str) -> Path:
    return folder / f"holdout-{name}" / f"{recipe}.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--judge", action="store_true", help="train and answer, rather than draw up the tables")
    parser.add_argument("--worlds", nargs="*", choices=NAMES, default=NAMES)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.judge:
        for name in arguments.worlds:
            judge(arguments.cache, name)
        return
    files = sorted(arguments.cache.glob("holdout-*/*.json"))
    found = summarise([answer for path in files for answer in json.loads(path.read_text())])
    record = {"experiment": "holdout_rates", **describe_run({"alpha": ALPHA}), "rates": found}
    print(write(arguments.out, "holdout_rates", record, lines(found)).read_text())


def summarise(answers: list[Answer]) -> dict[str, Any]:
    """Every rate that is reported."""
    worlds = [name for name in NAMES if of(answers, world=name)]

    def cells(some: list[Answer]) -> dict[str, Any]:
        return {WAY: rates(some, MEASURES)}

    return {
        "targets": len(answers),
        "worlds": worlds,
        "overall": cells(answers),
        "by recipe": {name: cells(of(answers, recipe=name)) for name in sorted({one["recipe"] for one in answers})},
        "by world": {name: cells(of(answers, world=name)) for name in worlds},
        "by deal": {
            f"{name}, deal {index + 1}": cells(of(answers, world=name, deal=index))
            for name in worlds
            for index in range(DEALS)
        },
        "verdicts": {
            str(share): {verdict: rate(of(answers, used=share), says(verdict)) for verdict in VERDICTS}
            for share in SHARES
        },
    }


def lines(found: dict[str, Any]) -> list[str]:
    """The page: all worlds; by recipe, world and deal."""
    return [
        "# How often a holdout alone is wrong, and what it finds",
        "",
        f"{found['targets']:,} targets of known truth in {len(found['worlds'])} worlds. The test has no model beside "
        "the target: it calls a target `not forgotten` or `inconclusive`, and none `forgotten`.",
        "",
        "\n\n".join((__doc__ or "").split("\n\n")[2:]).strip(),
        "",
        "## All together",
        "",
        *table(
            ["used", "called `not forgotten`, with the 95% interval"],
            ([words, interval(found["verdicts"][str(share)]["not forgotten"])] for share, words in SHARES.items()),
        ),
        "",
        "Targets of one deal share its records, so these intervals are somewhat too narrow.",
        *LAYOUT.breakdown("recipe", found["by recipe"]),
        *LAYOUT.breakdown("world", found["by world"]),
        *LAYOUT.breakdown("deal", found["by deal"]),
    ]


def summary(result: dict[str, Any]) -> list[Row]:
    """What `holdout_rates` says of itself in `experiments/README.md`."""
    found = result["rates"]
    shares = {float(share): cells["not forgotten"] for share, cells in found["verdicts"].items()}
    return [
        Row(
            "none",
            "Error rates of a holdout alone",
            f'called "not forgotten", of targets that used {", ".join(f"{share:.0%}" for share in shares)}',
            "none given",
            ", ".join(percent(one, 1) for one in shares.values()),
            f"Over {found['targets']:,} targets of known truth in {len(found['worlds'])} worlds, without a model "
            "beside the target.",
            "--cache FOLDER",
        )
    ]


if __name__ == "__main__":
    main()
