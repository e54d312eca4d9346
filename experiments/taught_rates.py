"""What the members test finds if the records of the test teach their difficulty, against neighbours alone.

    export JAXAUDIT_DATA=DATA
    python -m experiments.memory_targets --cache FOLDER       # trains the targets; call it again where it was stopped
    python -m experiments.taught_rates --cache FOLDER         # answers, a file a world, and the tables

Each target was trained on a random half of a pool of 4n records. For each used share f, its pool is dealt anew: a query
set of n records, of which it used the share f; all other records that it used are known members, and all that it did
not use are the holdout. So each deal has all records of the pool, and they teach once what any deal of them would. All
ways are asked about the same deals. A world whose records come in groups is dealt by groups.

- neighbours: class, and the classes of the nearest neighbours.
- taught: the same, and what small models say that learned from the other records.
- models, models and taught: each beside 40 shadow models of five designs, which are none of the targets'.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy import stats

from experiments.memory_rates import SHADOW, SHARES, Dealt, Pool, read_world
from experiments.memory_worlds import WORLDS
from experiments.record import describe_run
from jaxaudit.audits.ks.taught import taught_difficulty
from jaxaudit.data.examples import Examples
from jaxaudit.metrics.difficulty import difficulty, residual_scores, residual_scores_of_models
from jaxaudit.metrics.members import members_test
from jaxaudit.metrics.permutation import PERMUTATIONS
from jaxaudit.metrics.profile import profile
from jaxaudit.metrics.scores import cut
from jaxaudit.metrics.usage import STATED_FRACTION

KEY = jax.random.key(8)
WAYS = ("neighbours", "taught", "models", "models and taught")


def predictors_by_way(pool: Pool) -> dict[str, np.ndarray]:
    """The predictors of all records of a world, without models: no deal enters them."""
    classes = tuple(map(str, range(int(pool.labels.max()) + 1)))
    examples = Examples(pool.inputs, pool.labels.astype(np.int64), classes, pool.name)
    started = time.time()
    taught = taught_difficulty(KEY, examples, pool.groups)
    print(
        f"{pool.name}: {len(examples)} records teach in {time.time() - started:.0f} s {' '.join(taught.caveats)}",
        flush=True,
    )
    neighbours, teaching = (
        difficulty(KEY, pool.labels, pool.inputs, pool.groups, odds) for odds in (None, taught.odds)
    )
    return {"neighbours": neighbours, "taught": teaching, "models": neighbours, "models and taught": teaching}


def dealt_anew(generator: np.random.Generator, pool: Pool, row: np.ndarray, used: float) -> Dealt:
    """All records of the pool, dealt at random for a model with this row."""
    units = np.arange(len(row)) if pool.groups is None else pool.groups
    inside, outside = (generator.permutation(np.unique(units[side])) for side in (row, ~row))
    count = pool.size // (len(units) // len(np.unique(units)))
    part = round(used * count)
    sets = (np.concatenate([inside[:part], outside[: count - part]]), outside[count - part :], inside[part:])
    places = [np.flatnonzero(np.isin(units, each)) for each in sets]
    return Dealt(np.concatenate(places), (len(places[0]), len(places[1]), len(places[2])))


def answers(
    pool: Pool, folder: Path, ways: tuple[str, ...], models: int, deals: int, permutations: int
) -> Iterator[dict[str, Any]]:
    """The answers about the targets of a world, by each way about the same deals."""
    predictors, by_models = predictors_by_way(pool), profile(cut(pool.shadows), pool.rows)

    def scored(odds: np.ndarray, way: str) -> np.ndarray:
        if "models" in way:
            return residual_scores_of_models(odds[None], [by_models], predictors[way])[0]
        return residual_scores(odds, predictors[way])

    for path in sorted(folder.glob("*.npz")):
        if path.stem == "world" or path.stem.startswith(SHADOW):
            continue
        targets, seed = dict(np.load(path)), [len(path.stem), *path.stem.encode(), pool.size]
        for place in range(min(models, len(targets["odds"]))):
            odds, row = targets["odds"][place].astype(np.float64), targets["rows"][place]
            # A score uses no deal, so each target has one.
            scores = {way: scored(odds, way) for way in ways}
            for used in SHARES:
                for number in range(deals):
                    generator = np.random.default_rng([*seed, place, round(100 * used), number])
                    found = dealt_anew(generator, pool, row, used)
                    groups = None if pool.groups is None else pool.groups[found.places]
                    key = jax.random.fold_in(jax.random.key(place), round(1000 * used) + number)
                    for way in ways:
                        answer = members_test(
                            key, scores[way][found.places], found.sizes, groups=groups, permutations=permutations
                        )
                        usage = answer.usage
                        yield {
                            "recipe": path.stem,
                            "model": place,
                            "used": used,
                            "way": way,
                            "verdict": usage.verdict,
                            "p": usage.p_never,
                            "upper": round(usage.upper, 4),
                            "memory": round(answer.memory, 2),
                        }


def share(hits: np.ndarray) -> str:
    """A percentage, with its interval (Clopper & Pearson 1934, 95%)."""
    count, whole = int(hits.sum()), len(hits)
    if not whole:
        return "-"
    low, high = stats.binomtest(count, whole).proportion_ci(method="exact")
    return f"{100 * count / whole:.1f} ({100 * low:.1f}-{100 * high:.1f})"


COLUMNS = "deals|false at 5%|never: forgotten|25%: found|half: found|75%: found|all: found|covers 25|half|75|all"
COLUMNS += "|over the share, forgotten|inconclusive"


def line(rows: list[dict[str, Any]]) -> list[str]:
    """The rates of some answers: of p (not used), of verdicts, and of the one-sided limit."""

    def of(name: str, *used: float) -> np.ndarray:
        return np.array([row[name] for row in rows if row["used"] in used])

    none, some = SHARES[0], SHARES[1:]
    over = of("verdict", *(used for used in SHARES if used > STATED_FRACTION)) == "forgotten"
    return [
        str(len(rows)),
        share(of("p", none) <= 0.05),
        share(of("verdict", none) == "forgotten"),
        *(share(of("verdict", used) == "not forgotten") for used in some),
        *(share(of("upper", used) >= used - 1e-9) for used in some),
        share(over),
        share(of("verdict", *SHARES) == "inconclusive"),
    ]


def table(rows: list[dict[str, Any]], by: str, ways: tuple[str, ...]) -> list[str]:
    """Markdown: a line for each value of `by`, or one for all, and each way."""
    lines = [
        f"| {by or 'all'} | way | {' | '.join(COLUMNS.split('|'))} |",
        "|---" * (len(COLUMNS.split("|")) + 2) + "|",
    ]
    for value in sorted({row.get(by, "") for row in rows}):
        for way in ways:
            some = [row for row in rows if row.get(by, "") == value and row["way"] == way]
            lines.append(f"| {value} | {way} | {' | '.join(line(some))} |")
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--worlds", nargs="*", choices=list(WORLDS), default=list(WORLDS))
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS))
    parser.add_argument("--models", type=int, default=20, help="targets of each recipe")
    parser.add_argument("--deals", type=int, default=2, help="of each target and share")
    parser.add_argument("--permutations", type=int, default=PERMUTATIONS)
    arguments = parser.parse_args()
    ways, rows = tuple(arguments.ways), []
    for name in arguments.worlds:
        folder, path = arguments.cache / name, arguments.cache / f"taught-{name}.json"
        if not path.exists():
            if not (folder / f"{SHADOW}.npz").exists():
                continue
            numbers = arguments.models, arguments.deals, arguments.permutations
            found = list(answers(read_world(folder), folder, ways, *numbers))
            path.write_text(json.dumps(found))
        rows += [{**row, "world": name} for row in json.loads(path.read_text())]
    for by in ("", "recipe", "world"):
        print("\n".join(table(rows, by, ways)))
    print(json.dumps(describe_run({"deals": arguments.deals}, 0.0)))


if __name__ == "__main__":
    main()
