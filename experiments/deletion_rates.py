"""How often verdicts on a deletion are wrong, by outputs of the model before it and after it, and a holdout.

    export JAXAUDIT_DATA=DATA
    python -m experiments.deletion_rates --cache FOLDER --judge  # trains and judges; call it again where it was stopped
    python -m experiments.deletion_rates --cache FOLDER          # the tables

Needs PyTorch and scikit-learn. Every record was shared, and nothing kept: there are no known members. A deal of a world
of size n (`worlds`) has n query records, n later ones as a holdout, and 2n others. The model before the deletion
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

from experiments.figures import write
from experiments.rates import VERDICTS, Answer, of, percent, rate, says, shown, table
from experiments.record import RESULTS, Row, describe_run
from experiments.worlds import WORLDS, World, draw_world, rows_of
from jaxaudit.audits.ks.taught import taught_difficulty
from jaxaudit.data.examples import Examples
from jaxaudit.metrics.difficulty import difficulty, residual_scores
from jaxaudit.metrics.memory import HIDDEN, deletion_test
from jaxaudit.metrics.permutation import permutation_test
from jaxaudit.metrics.usage import STATED_FRACTION

KEY = jax.random.key(11)
AGAIN, DRAWS = 10, 499
"""Further deals of a model that used none, and their permutations."""
CHOSEN = ("mlp-10", "mlp-40", "mlp-dropout-decay", "forest", "logistic", "cnn-shift-5", "cnn-10")


def judged_deal(name: str, world: World, deal: int) -> Iterator[dict[str, Any]]:
    """The answers about all models of one deal of a world."""
    from experiments.memory_models import FOR_ALL, FOR_IMAGES, Manner, Recipe, mlp, of_network, outputs  # PyTorch

    # How the model before is trained, and how it is trained on, if it is.
    ways: dict[str, tuple[Recipe, Recipe | None]] = {
        **{name: (recipe, None) for name, recipe in {**FOR_ALL, **FOR_IMAGES}.items() if name in CHOSEN},
        "mlp-20": (of_network(mlp, Manner(20)), of_network(mlp, Manner(20), finetune=5)),
    }
    generator = np.random.default_rng([zlib.crc32(name.encode()), deal, 3])
    _, units = np.unique(world.groups, return_inverse=True)
    size = (units.max() + 1) // 4
    order = generator.permutation(units.max() + 1)
    query, holdout, others = (np.flatnonzero(np.isin(units, part)) for part in np.split(order, [size, 2 * size]))
    asked, groups = np.r_[query, holdout], None if world.groups[-1] + 1 == len(units) else units
    classes = tuple(map(str, range(world.classes)))
    owners = None if groups is None else np.unique(groups[asked], return_inverse=True)[1]
    labels = world.pool.labels[asked].astype(np.int64)
    records = Examples(world.pool.inputs[asked], labels, classes, name, groups=owners)
    lesson = taught_difficulty(KEY, records).odds
    predictors = difficulty(KEY, records.labels, records.inputs, owners, lesson)
    for recipe, (train, train_on) in ways.items():
        if recipe in FOR_IMAGES and world.pool.inputs.ndim < 4:
            continue

        def said(train: Recipe, rows: np.ndarray, seed: int) -> np.ndarray:
            chosen, rest = (rows_of(world.pool, places) for places in (rows, others))
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
    started = time.time()
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
    parser.add_argument("--worlds", nargs="*", choices=list(WORLDS), default=list(WORLDS))
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
    record = {"experiment": "deletion_rates", **describe_run({"stated": STATED_FRACTION}), "rates": found}
    print(write(arguments.out, "deletion_rates", record, lines(found)).read_text())


# The rates, their page and their picture.

SHARES = (0.0, 0.25, 0.5, 1.0)
TRAINED_ON = "trained on"
"""What a model after a deletion used of the query set."""


GROUPS = {
    "all": lambda setting: True,
    "looked at once": lambda setting: setting.final,
    "1,000 or more": lambda setting: setting.size >= 1000,
    "300": lambda setting: setting.size < 1000,
}
"""Of worlds; numbers are of query records."""


def summarise(answers: list[Answer]) -> dict[str, Any]:
    """Rates by share used, of all worlds and some, and by recipe."""
    recipes = sorted({answer["recipe"] for answer in answers})
    return {
        **{
            name: by_use([answer for answer in answers if holds(WORLDS[answer["world"]])])
            for name, holds in GROUPS.items()
        },
        "by recipe": {recipe: by_use(of(answers, recipe=recipe)) for recipe in recipes},
        "worlds": sorted({answer["world"] for answer in answers}),
        "targets": sum("used" in answer for answer in answers),
    }


def by_use(answers: list[Answer]) -> dict[str, Any]:
    """The rates of each verdict by what was used, how often the limit covers it, and the level over further deals."""
    found: dict[str, Any] = {}
    for used in (*SHARES, TRAINED_ON):
        some = [answer for answer in answers if answer.get("used") == used]
        if not some:
            continue
        found[str(used)] = {verdict: rate(some, says(verdict)) for verdict in VERDICTS}
        if used not in (0.0, TRAINED_ON):
            found[str(used)]["limit covers"] = rate(some, lambda answer: answer["upper"] >= answer["used"] - 1e-9)
    again = [answer for answer in answers if "again" in answer]
    found["level"] = rate(again, lambda answer: answer["again"] <= 0.05)
    return found


def lines(found: dict[str, Any]) -> list[str]:
    """The page: by size and recipe."""
    return [
        "# Verdicts on a deletion, by outputs before and after it",
        "",
        f"{found['targets']:,} targets in {len(found['worlds'])} worlds ({', '.join(found['worlds'])}): models after a "
        "deletion, each with the model before it. Nothing but the query set, a holdout of later records and the "
        "outputs of both models is given. Exact 95% intervals; targets of one deal share its chance, so the intervals "
        "are too narrow.",
        *_together(found["all"]),
        *_table("worlds", {name: found[name] for name in GROUPS}),
        *_table("recipe", found["by recipe"]),
    ]


AFTER = {
    "0.0": "none",
    "0.25": "a quarter",
    "0.5": "half",
    "1.0": "all",
    TRAINED_ON: "all, and was trained on without it",
}


def _together(cells: dict[str, Any]) -> list[str]:
    head = ["the model after the deletion used", *VERDICTS, "95% limit at or above it"]
    rows = (
        [
            name,
            *(shown(cells[used][verdict]) for verdict in VERDICTS),
            shown(cells[used]["limit covers"]) if "limit covers" in cells[used] else "-",
        ]
        for used, name in AFTER.items()
    )
    return ["", "## All together", "", *table(head, rows)]


def _table(name: str, cells: dict[str, Any]) -> list[str]:
    head = [name, "none used: cleared", "half used: caught", "all used: caught", "level"]
    rows = (
        [
            cell,
            *map(shown, (row["0.0"]["forgotten"], *(row[used]["not forgotten"] for used in ("0.5", "1.0")))),
            shown(row["level"]),
        ]
        for cell, row in cells.items()
    )
    return ["", f"## By {name}", "", *table(head, rows)]


def summary(result: dict[str, Any]) -> list[Row]:
    """What `deletion_rates` says of itself in `experiments/README.md`."""
    found = result["rates"]
    cells = found["all"]
    asked = {
        'none used, called "not forgotten"': cells["0.0"]["not forgotten"],
        'none used, called "forgotten"': cells["0.0"]["forgotten"],
        'half used, called "forgotten"': cells["0.5"]["forgotten"],
        'all used, called "not forgotten"': cells["1.0"]["not forgotten"],
        "none used, p <= 5% in further deals": found["all"]["level"],
    }
    sentence = f"Over {found['targets']:,} models after a deletion in {len(found['worlds'])} worlds."
    return [
        Row(
            "none",
            "Error rates by outputs before and after a deletion",
            ", ".join(asked),
            "none given",
            ", ".join(percent(cell, 1) for cell in asked.values()),
            sentence,
            "--cache FOLDER",
        )
    ]


if __name__ == "__main__":
    main()
