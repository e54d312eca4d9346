"""How often verdicts on a deletion are wrong, by outputs of the model before it and after it, and a holdout.

    export JAXAUDIT_DATA=DATA
    python -m experiments.deletion_rates --cache FOLDER --judge  # trains and judges; call it again where it was stopped
    python -m experiments.deletion_rates --cache FOLDER          # the tables

Needs PyTorch and scikit-learn. Every record was shared, and nothing kept: there are no known members. A deal of a world
of size n (`memory_worlds`) has n query records, n later ones as a holdout, and 2n others. The model before the deletion
is trained on query records and others. The model after it is trained anew on the others and on none, a quarter, half or
all of the query set; or it is the model before, trained on with the others alone (`trained on`), of which nobody knows
how much memory is left. FOLDER/WORLD.json has the answers.

A model that used none of the query set or of the holdout is asked again after further deals of the two, for the level.
"""

import argparse
import json
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.deletion_rates_summary import SHARES, TRAINED_ON, drawing, lines, summarise
from experiments.error_rates_worlds import Records
from experiments.figures import write
from experiments.memory_recipes import FOR_ALL, FOR_IMAGES, Manner, Recipe, mlp, of_network
from experiments.memory_targets import outputs
from experiments.memory_worlds import WORLDS, World, draw_world
from experiments.record import RESULTS, describe_run
from jaxaudit.audits.ks.taught import taught_difficulty
from jaxaudit.data.examples import Examples
from jaxaudit.metrics.deletion import HIDDEN, deletion_test
from jaxaudit.metrics.difficulty import difficulty, residual_scores
from jaxaudit.metrics.permutation import permutation_test
from jaxaudit.metrics.usage import STATED_FRACTION

KEY = jax.random.key(11)
AGAIN, DRAWS = 10, 499
"""Further deals of a model that used none, and their permutations."""
CHOSEN = ("mlp-10", "mlp-40", "mlp-dropout-decay", "forest", "logistic", "cnn-shift-5", "cnn-10")
WAYS: dict[str, tuple[Recipe, Recipe | None]] = {
    **{name: (recipe, None) for name, recipe in {**FOR_ALL, **FOR_IMAGES}.items() if name in CHOSEN},
    "mlp-20": (of_network(mlp, Manner(20)), of_network(mlp, Manner(20), finetune=5)),
}
"""How the model before is trained, and how it is trained on, if it is."""


def judged_deal(name: str, world: World, deal: int) -> Iterator[dict[str, Any]]:
    """The answers about all models of one deal of a world."""
    generator = np.random.default_rng([zlib.crc32(name.encode()), deal, 3])
    _, units = np.unique(world.groups, return_inverse=True)
    size = (units.max() + 1) // 4
    order = generator.permutation(units.max() + 1)
    query, holdout, others = (np.flatnonzero(np.isin(units, part)) for part in np.split(order, [size, 2 * size]))
    asked, groups = np.r_[query, holdout], None if world.groups[-1] + 1 == len(units) else units
    classes = tuple(map(str, range(world.classes)))
    records = Examples(world.pool.inputs[asked], world.pool.labels[asked].astype(np.int64), classes, name)
    owners = None if groups is None else np.unique(groups[asked], return_inverse=True)[1]
    lesson = taught_difficulty(KEY, records, owners).odds
    predictors = difficulty(KEY, records.labels, records.inputs, owners, lesson)
    for recipe, (train, train_on) in WAYS.items():
        if recipe in FOR_IMAGES and world.pool.inputs.ndim < 4:
            continue

        def said(train: Recipe, rows: np.ndarray, seed: int) -> np.ndarray:
            chosen, rest = (Records(*(each[places] for each in world.pool)) for places in (rows, others))
            odds, _ = outputs(train(seed, chosen, world.classes, rest)(records.inputs), records.labels)
            return odds.astype(np.float64)

        seed = int(generator.integers(2**31))
        before = said(train, np.r_[query, others], seed)
        for used in SHARES:
            part = generator.permutation(query)[: round(used * len(query))]
            if owners is not None:
                part = np.flatnonzero(
                    np.isin(units, generator.permutation(np.unique(units[query]))[: round(used * size)])
                )
            after = said(train, np.r_[part, others], seed + 1 + round(100 * used))
            yield {
                **_answer(deal, after, before, len(query), predictors, owners),
                "recipe": recipe,
                "deal": deal,
                "used": used,
            }
            scores = residual_scores(after, predictors)
            for place in range(AGAIN if used == 0 else 0):
                yield {"recipe": recipe, "deal": deal, "again": _again(generator, scores, len(query), owners, place)}
        if train_on is not None:
            after = said(train_on, np.r_[query, others], seed)
            yield {
                **_answer(deal, after, before, len(query), predictors, owners),
                "recipe": recipe,
                "deal": deal,
                "used": TRAINED_ON,
            }


def _answer(
    deal: int, after: np.ndarray, before: np.ndarray, size: int, predictors: np.ndarray, owners: np.ndarray | None
) -> dict[str, Any]:
    answer = deletion_test(jax.random.key(deal), after, before, size, predictors, groups=owners)
    usage = answer.usage
    limits = {name: getattr(usage, name) for name in ("fraction", "upper", "p_never")}
    return {
        "verdict": usage.verdict,
        "hidden": HIDDEN in usage.reasons or HIDDEN in usage.doubts,
        "memory": round(answer.memory, 3),
        **{name: None if np.isnan(value) else round(float(value), 5) for name, value in limits.items()},
    }


def _again(
    generator: np.random.Generator, after: np.ndarray, size: int, owners: np.ndarray | None, place: int
) -> float:
    """The p-value of another deal of query set and holdout, whole groups where there are any."""
    units = np.arange(len(after)) if owners is None else owners
    chosen = np.isin(units, generator.permutation(units.max() + 1)[: (units.max() + 1) * size // len(after)])
    order = np.r_[np.flatnonzero(chosen), np.flatnonzero(~chosen)]
    groups = None if owners is None else owners[order]
    first, second = np.split(after[order], [int(chosen.sum())])
    return permutation_test(jax.random.key(place), first, second, groups=groups, permutations=DRAWS).p_larger


def judge(folder: Path, names: list[str], deals: int, seconds: float) -> None:
    """Adds the answers of further deals to what is there, world after world."""
    started, folder = time.time(), folder
    folder.mkdir(parents=True, exist_ok=True)
    for deal in range(deals):
        for name in names:
            path = folder / f"{name}.json"
            kept = json.loads(path.read_text()) if path.exists() else []
            if any(answer["deal"] == deal for answer in kept) or time.time() - started > seconds:
                continue
            kept += list(judged_deal(name, draw_world(name), deal))
            path.write_text(json.dumps(kept))
            print(f"{name}, deal {deal}: {time.time() - started:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--judge", action="store_true", help="train and answer, rather than draw up the tables")
    parser.add_argument(
        "--worlds", nargs="*", choices=list(WORLDS), default=[name for name in WORLDS if "3000" not in name]
    )
    parser.add_argument("--deals", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=36000, help="start no deal after this time; call again")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.judge:
        judge(arguments.cache, arguments.worlds, arguments.deals, arguments.seconds)
        return
    answers = [
        {**answer, "world": path.stem}
        for path in sorted(arguments.cache.glob("*.json"))
        for answer in json.loads(path.read_text())
    ]
    found = summarise(answers)
    run = describe_run({"stated": STATED_FRACTION}, 0.0)
    del run["seconds"]
    record = {"experiment": "deletion_rates", **run, "rates": found}
    print(write(arguments.out, "deletion_rates", record, lines(found), drawing(answers)).read_text())


if __name__ == "__main__":
    main()
