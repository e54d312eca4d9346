"""How often do models of known truth accuse innocent groups, and do limits by few of them cover? In made-up worlds.

    python -m experiments.group_rates    # a minute; --tables 30 for a look

Scores of records are made up as the sum of a record's difficulty, a group's difficulty, a shift of the model, a drift
of the model in the group, and noise of the model in the record; use adds `MEMORY` times the mean drift. Of
`QUERY` groups of the query set the target used none, a quarter or half. Worlds differ in what breaks assumptions:
drifts of other sizes, a target that shifts its other groups after use (`spill`), and one innocent group with another
number of records than all others. Groups are judged as `jaxaudit ks --scores --by group` does by models
(`metrics/group_drift.py`, and over the groups of a holdout `metrics/group_tests.py`, of which the larger p-value
counts). The second table has the limits of the share by 2, 3 and 8 models of each kind
(`metrics/score_permutation.py: share_left`). Writes `results/group_rates-DEVICE.json` and `.md`.
"""

import argparse
import json
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.record import RESULTS, describe_run, device_slug
from experiments.summary import Row
from jaxaudit.metrics.group_drift import drift_test
from jaxaudit.metrics.group_tests import beyond_groups
from jaxaudit.metrics.over_models import clopper_pearson
from jaxaudit.metrics.score_permutation import share_left
from jaxaudit.metrics.usage import benjamini_hochberg, holm

ALPHA = 0.05
QUERY, RECORDS = 20, 10
"""Groups of the query set, and records of a group."""
MEMORY = 4.0
"""What use adds to a group's mean, in mean drifts."""
HOLDOUTS, MODELS, USED = (0, 3, 12), (3, 8), (0, 5, 10)
KINDS, SHARES = (2, 3, 8), (0.0, 0.25, 1.0)


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


def placed(random: np.random.Generator, models: int, holdout: bool, share: float) -> Any:
    """The limits of one target by as many models of each kind, as `share_left` has them.

    Groups of the query set were dealt whole. A target uses this share of the query set's groups;
    what use adds to a record is a standard deviation of its noise, and a seed moves a group's mean by a third of it.
    """
    groups = np.repeat(np.arange(QUERY * (1 + holdout)), RECORDS)
    count, size = QUERY * (1 + holdout), QUERY * RECORDS
    hard = random.normal(size=len(groups)) + random.normal(size=count)[groups]
    effect = np.where(np.arange(len(groups)) < size, 1 + 0.3 * random.normal(size=len(groups)), 0.0)
    chosen = np.zeros(count, bool)
    chosen[random.permutation(QUERY)[: round(share * QUERY)]] = True

    def model(used: np.ndarray) -> np.ndarray:
        drift = random.normal(size=count)[groups] / 3 + random.normal() / 3
        return hard + effect * used + drift + random.normal(size=len(groups))

    none, every = np.zeros(len(groups)), np.ones(len(groups))
    unused, used = (np.stack([model(row) for _ in range(models)]) for row in (none, every))
    return share_left(model(chosen[groups].astype(float)), unused, used, size, groups=groups).limits


def coverage(limits: Sequence[Any], share: float) -> dict[str, int]:
    """How many tables have a limit, an upper limit below the share, and an interval without it."""
    return {
        "tables": len(limits),
        "given": sum(each.upper < 1 for each in limits),
        "below": sum(each.upper < share for each in limits),
        "beside": sum(not each.low <= share <= each.high for each in limits),
    }


def with_interval(count: int, of: int) -> str:
    """A share with its 95% interval (Clopper & Pearson 1934).

    >>> with_interval(5, 100)
    '5.0% (1.6%-11.3%)'
    """
    between = clopper_pearson(count, of, 0.95)
    return f"{count / of:.1%} ({between.low:.1%}-{between.high:.1%})"


def page(result: dict[str, Any]) -> str:
    """The page of a result."""
    lines = [
        "# Groups and limits by models of known truth, in made-up worlds",
        "",
        f"{result['tables']:,} tables a row; {QUERY} groups of the query set; with 95% intervals. At most 5% is "
        "promised by Holm's method for any innocent group, and on average of the suspects (Benjamini-Hochberg).",
        "",
        "| world | holdout groups | models | used | any innocent by Holm | any innocent suspected | of suspects, "
        "innocent | the last group suspected | used ones found |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result["groups"]:
        tables, found = row["tables"], row["found"]
        cells = [with_interval(row[name], tables) for name in ("any accused", "any suspected", "last")]
        cells.insert(2, f"{row['false share']:.1%}")
        lines.append(
            f"| {row['world']} | {row['holdout']} | {row['models']} | {row['used']} of {QUERY} | {' | '.join(cells)} | "
            f"{'-' if found is None else f'{found:.0%}'} |"
        )
    lines += [
        "",
        "The last group is innocent; in the worlds that name one, it is the other one.",
        "",
        "| models of each kind | holdout | share used | a limit below 100% | the limit is below the share | the "
        "interval is without it |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["limits"]:
        cells = [with_interval(row[name], row["tables"]) for name in ("given", "below", "beside")]
        holdout = "yes" if row["holdout"] else "no"
        lines.append(f"| {row['models']} | {holdout} | {row['share']:.0%} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"Made by {result['device']}, in {result['seconds']:.0f} s.", ""])


def summary(result: dict[str, Any]) -> list[Row]:
    """The rows of `experiments/README.md`."""

    def worst(rows: Sequence[dict[str, Any]], name: str) -> str:
        row = max(rows, key=lambda one: one[name] / one["tables"])
        return with_interval(row[name], row["tables"])

    groups, limits = result["groups"], result["limits"]
    sides = [[row for row in groups if bool(row["holdout"]) == is_any] for is_any in (False, True)]
    accused = " / ".join(worst(rows, "any accused") for rows in sides)
    shares = " / ".join(f"{max(row['false share'] for row in rows):.1%}" for rows in sides)
    missed = ", ".join(f"{kind}: {worst([row for row in limits if row['models'] == kind], 'below')}" for kind in KINDS)
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
        Row(
            "none",
            "limits by models",
            "by 2, 3 and 8 models of each kind, in the worst world: the 95% limit is below the share",
            "5% promised",
            missed,
            "Made-up worlds whose models and target have one recipe.",
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tables", type=int, default=300)
    tables, started = parser.parse_args().tables, time.monotonic()
    groups, limits = [], []
    for place, (name, world) in enumerate(WORLDS.items()):
        for holdout in HOLDOUTS:
            for models in MODELS:
                for used in USED:
                    random = np.random.default_rng([place, holdout, models, used])
                    found = [errors(p_values(made(random, world, models, holdout, used)), used) for _ in range(tables)]
                    row = {"world": name, "holdout": holdout, "models": models, "used": used}
                    groups.append({**row, **rates(found)})
    for models in KINDS:
        for has_holdout in (False, True):
            for share in SHARES:
                random = np.random.default_rng([models, has_holdout, round(100 * share)])
                found_limits = [placed(random, models, has_holdout, share) for _ in range(tables)]
                row = {"models": models, "holdout": has_holdout, "share": share}
                limits.append({**row, **coverage(found_limits, share)})
    run = describe_run({"tables": tables}, time.monotonic() - started)
    result = {"experiment": "group_rates", "tables": tables, "groups": groups, "limits": limits, **run}
    path = RESULTS / f"group_rates-{device_slug()}.json"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(page(result), encoding="utf-8")


if __name__ == "__main__":
    main()
