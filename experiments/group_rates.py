"""How often do models of known truth accuse innocent groups? In made-up worlds.

    python -m experiments.group_rates    # a minute; --tables 30 for a look

Scores of records are made up as the sum of a record's difficulty, a group's difficulty, a shift of the model, a drift
of the model in the group, and noise of the model in the record; use adds `MEMORY` times the mean drift. Of
`QUERY` groups of the query set the target used none, a quarter or half. Worlds differ in what breaks assumptions:
drifts of other sizes, a target that shifts its other groups after use (`spill`), and one innocent group with another
number of records than all others. Groups are judged as `jaxaudit ks --scores --by group` does by models
(`metrics/score_tests.py`; over the groups of a holdout, too, of which the larger p-value counts). Writes
`results/group_rates-DEVICE.json` and `.md`.
"""

import argparse
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.figures import write
from experiments.rates import table
from experiments.record import RESULTS, Row, describe_run
from jaxaudit.metrics.over_models import clopper_pearson
from jaxaudit.metrics.score_tests import beyond_groups, drift_test
from jaxaudit.metrics.usage import benjamini_hochberg, holm

ALPHA = 0.05
QUERY, RECORDS = 20, 10
"""Groups of the query set, and records of a group."""
MEMORY = 4.0
"""What use adds to a group's mean, in mean drifts."""
HOLDOUTS, MODELS, USED = (0, 3, 12), (3, 8), (0, 5, 10)


class World(NamedTuple):
    """What is not even in a made-up world.

    Attributes:
        drifts: the relative drift of each group of the query set: `even`; `log-normal`; `one`, of which one group, that
            the target did not use, has 8 times the drift of others.
        spill: how far use moves groups that were not used, in mean drifts.
        records: of the last group of the query set, which the target did not use.
    """

    drifts: str = "even"
    spill: float = 0.0
    records: int = RECORDS


WORLDS = {
    "even drifts": World(),
    "log-normal drifts": World("log-normal"),
    "one group drifts 8 times as far": World("one"),
    "use shifts other groups, too": World(spill=2.0),
    "an innocent group of 2 records": World(records=2),
    "an innocent group of 100 records": World(records=100),
}


class Scores(NamedTuple):
    """The scores of records: of the target, and of models without the query set.

    Attributes:
        groups: of each record; those of the query set are first, and then those of the holdout.
        size: the number of query records.
    """

    target: np.ndarray
    unused: np.ndarray
    groups: np.ndarray
    size: int


def made(random: np.random.Generator, world: World, models: int, holdout: int, used: int) -> Scores:
    """A table of a world: a target that used the first `used` groups, beside this number of models."""
    count = QUERY + holdout
    sizes = np.full(count, RECORDS)
    sizes[QUERY - 1] = world.records
    groups = np.repeat(np.arange(count), sizes)
    drift = np.ones(count)
    if world.drifts == "log-normal":
        drift = np.exp(0.7 * random.normal(size=count))
    if world.drifts == "one":
        drift[QUERY - 1] = 8.0
    hard = random.normal(size=len(groups)) + 2 * random.normal(size=count)[groups]
    moved = drift * random.normal(size=(1 + models, count)) + 2 * random.normal(size=(1 + models, 1))
    moved[0, :used] += MEMORY
    if used:
        moved[0, used:] += world.spill
    scores = hard + moved[:, groups] + random.normal(size=(1 + models, len(groups)))
    return Scores(scores[0], scores[1:], groups, int((groups < QUERY).sum()))


def p_values(scores: Scores) -> np.ndarray:
    """The p-value of each group of the query set, as `audits/ks/by_group.py` has it by models."""
    per_group = np.bincount(scores.groups)
    target, *unused = (np.bincount(scores.groups, row) / per_group for row in (scores.target, *scores.unused))
    in_holdout = np.arange(len(per_group)) >= QUERY
    found = drift_test(target, np.stack(unused), in_holdout)[1][~in_holdout]
    if not in_holdout.any():
        return found
    apart = scores.target - scores.unused.mean(axis=0)
    return np.maximum(found, beyond_groups(apart, scores.groups, scores.size))


class Errors(NamedTuple):
    """Of one table: which groups are accused (Holm) and suspected (Benjamini & Hochberg), and which were used."""

    accused: np.ndarray
    suspected: np.ndarray
    used: np.ndarray


def errors(found: np.ndarray, used: int) -> Errors:
    """The groups that these p-values accuse or suspect at 5%, if the first `used` were used."""
    accused, suspected = (np.array(adjust(found.tolist())) <= ALPHA for adjust in (holm, benjamini_hochberg))
    return Errors(accused, suspected, np.arange(len(found)) < used)


def rates(tables: Sequence[Errors]) -> dict[str, Any]:
    """Numbers of tables with an error, the mean share of suspects that are innocent, and the share of used ones found.

    `last` counts tables whose last group, which is the other one where one is, is suspected.
    """
    wrong = [table.suspected & ~table.used for table in tables]
    used = sum(int(table.used.sum()) for table in tables)
    found = sum(int((table.suspected & table.used).sum()) for table in tables)
    return {
        "tables": len(tables),
        "any accused": sum(bool((table.accused & ~table.used).any()) for table in tables),
        "any suspected": sum(bool(row.any()) for row in wrong),
        "last": sum(bool(table.suspected[-1]) for table in tables),
        "false share": float(
            np.mean([row.sum() / max(int(table.suspected.sum()), 1) for row, table in zip(wrong, tables, strict=True)])
        ),
        "found": found / used if used else None,
    }


def with_interval(count: int, of: int) -> str:
    """A share with its 95% interval (Clopper & Pearson 1934).

    >>> with_interval(5, 100)
    '5.0% (1.6%-11.3%)'
    """
    between = clopper_pearson(count, of, 0.95)
    return f"{count / of:.1%} ({between.low:.1%}-{between.high:.1%})"


def page(result: dict[str, Any]) -> list[str]:
    """The page of a result."""
    rows = []
    for row in result["groups"]:
        accused, suspected, last = (
            with_interval(row[n], row["tables"]) for n in ("any accused", "any suspected", "last")
        )
        found = "-" if row["found"] is None else f"{row['found']:.0%}"
        settings = (row["world"], row["holdout"], row["models"], f"{row['used']} of {QUERY}")
        rows.append([*map(str, settings), accused, suspected, f"{row['false share']:.1%}", last, found])
    head = (
        "world; holdout groups; models; used; any innocent by Holm; any innocent suspected; of suspects, innocent; "
        "the last group suspected; used ones found"
    )
    return [
        "# Groups by models of known truth, in made-up worlds",
        "",
        f"{result['tables']:,} tables a row; {QUERY} groups of the query set; with 95% intervals. At most 5% is "
        "promised by Holm's method for any innocent group, and on average of the suspects (Benjamini-Hochberg). The "
        "last group is innocent; in the worlds that name one, it is the other one.",
        "",
        *table(head.split("; "), rows),
    ]


def summary(result: dict[str, Any]) -> list[Row]:
    """The row of `experiments/README.md`."""

    def worst(rows: Sequence[dict[str, Any]], name: str) -> str:
        row = max(rows, key=lambda one: one[name] / one["tables"])
        return with_interval(row[name], row["tables"])

    groups = result["groups"]
    sides = [[row for row in groups if bool(row["holdout"]) == is_any] for is_any in (False, True)]
    accused = " / ".join(worst(rows, "any accused") for rows in sides)
    shares = " / ".join(f"{max(row['false share'] for row in rows):.1%}" for rows in sides)
    return [
        Row(
            "none",
            "groups by models",
            "without / with a holdout, in the worst world: tables in which any innocent group is accused (Holm); "
            "innocent ones of the suspects (Benjamini-Hochberg)",
            "5% promised",
            f"{accused}; {shares}",
            "Made-up worlds; those that break an assumption are told apart on the page.",
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tables", type=int, default=300)
    tables, started = parser.parse_args().tables, time.monotonic()
    groups = []
    for place, (name, world) in enumerate(WORLDS.items()):
        for holdout in HOLDOUTS:
            for models in MODELS:
                for used in USED:
                    random = np.random.default_rng([place, holdout, models, used])
                    found = [errors(p_values(made(random, world, models, holdout, used)), used) for _ in range(tables)]
                    row = {"world": name, "holdout": holdout, "models": models, "used": used}
                    groups.append({**row, **rates(found)})
    run = describe_run({"tables": tables}, time.monotonic() - started)
    result = {"experiment": "group_rates", "tables": tables, "groups": groups, **run}
    write(RESULTS, "group_rates", result, page(result))


if __name__ == "__main__":
    main()
