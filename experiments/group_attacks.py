"""What a group is attacked by: its mean output, or the scores of its records.

    JAXAUDIT_DATA=DATA python -m experiments.group_attacks    # two minutes on two CPU cores

Models of one recipe are trained on digits and on Location. Each has whole groups of records, by a fair coin for each
group, and is attacked by the others. Groups are random or of one class, of one size or of several. Of the records'
scores either the mean is a group's score, or the sum by the root of their number, which is what `attack` takes. Writes
`results/group_attacks-DEVICE.json` and `.md`.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.attacks_few_models import SETS, World
from experiments.record import RESULTS, describe_run, device_slug
from experiments.summary import Row
from jaxaudit import fit_many
from jaxaudit.attacks.records import BASE, LiRA, RecordAttack, ShadowScores, Stacked
from jaxaudit.audits.attack.units import AttackUnits
from jaxaudit.data.group_values import number_groups
from jaxaudit.ensemble import log_probs_many
from jaxaudit.metrics.attack_rates import attack_rates
from jaxaudit.metrics.scores import log_odds

MODELS, RECORDS = 48, 1200
UNEVEN = (1, 2, 5, 10, 20, 50)
GROUPINGS = {
    "5": ((5,), False),
    "20": ((20,), False),
    "20 of one class": ((20,), True),
    "1 to 50": (UNEVEN, False),
    "1 to 50 of one class": (UNEVEN, True),
}
"""The sizes of groups, in turn; and whether each is of records of one class."""
WAYS = ("mean output", "mean score", "sum by root")


def group_records(labels: np.ndarray, sizes: tuple[int, ...], of_one_class: bool, seed: int) -> np.ndarray:
    """The group of each record, numbered as they first occur."""
    order = np.random.default_rng(seed).permutation(len(labels))
    if of_one_class:
        # Where one class ends, the next group begins with another.
        order = order[np.argsort(labels[order], kind="stable")]
    bounds, groups = np.cumsum(np.resize(sizes, len(labels))), np.zeros(len(labels), int)
    groups[order] = np.searchsorted(bounds, np.arange(len(labels)), side="right")
    if of_one_class:
        groups = np.unique(np.stack([groups, labels]), axis=1, return_inverse=True)[1].reshape(-1)
    return number_groups(groups)


def train(world: World, groups: np.ndarray, rows: np.ndarray, seed: int) -> ShadowScores:
    """Log-odds of models that were trained on whole groups."""
    coins = np.random.default_rng(seed).random((MODELS, int(groups.max()) + 1)) < 0.5
    membership, inputs, labels = coins[:, groups], world.inputs[rows], world.labels[rows]

    def say(params: Any, places: np.ndarray) -> np.ndarray:
        return log_odds(log_probs_many(world.learner, params, inputs).astype(np.float64), labels)

    keys = jax.random.split(jax.random.key(seed), MODELS)
    odds = fit_many(keys, membership, inputs, labels, world.learner, summarize=say)
    return ShadowScores(np.clip(odds, -103, 103)[:, None], membership)


def compare(shadowed: ShadowScores, units: AttackUnits) -> list[dict[str, Any]]:
    """A row for each attack and way."""
    truth = units.whole(shadowed.membership, "models")
    attacks: tuple[RecordAttack, ...] = (Stacked(), LiRA(), BASE())
    compared = []
    for attack in attacks:
        of_records = attack.scores(shadowed)
        scores_by_way = (
            attack.scores(ShadowScores(units.mean(shadowed.models), truth)),
            units.mean(of_records),
            units.scores(of_records),
        )
        for way, scores in zip(WAYS, scores_by_way, strict=True):
            rates = attack_rates(scores, truth, false_positive_rates=(0.01, 0.1))
            area, curve = rates.auc, [rate.on_curve for rate in rates.tpr_at_fpr]
            areas = {"auc": area.value, "auc_low": area.low, "auc_high": area.high}
            compared.append({"attack": attack.name, "way": way, **areas, "tpr_0.01": curve[0], "tpr_0.1": curve[1]})
    return compared


def page(record: dict[str, Any]) -> list[str]:
    """The page's lines."""
    by_way: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in record["rows"]:
        by_way.setdefault((row["set"], row["groups"], row["attack"]), {})[row["way"]] = (
            f"{row['auc']:.3f} ({row['auc_low']:.3f} to {row['auc_high']:.3f}); {row['tpr_0.01']:.0%}"
        )
    return [
        "# What a group is attacked by",
        "",
        f"{MODELS} models of each world; each has whole groups of {RECORDS:,} records, by a fair coin for each, and is "
        f"attacked by the others. {record['device']}, {record['seconds'] / 60:.1f} minutes. Area under the ROC curve "
        "over groups, with its 95% interval over models, and the true positive rate at 1% false positives, on the "
        "curve.",
        "",
        "- Mean output: each attack sees the mean log-odds of a group's records. Mean score: the mean of the records' "
        "own scores. Sum by root: their sum by the root of their number, which is what `attack` does; in groups of one "
        "size it is the order of the mean.",
        "",
        "| records | groups of | attack | mean output | mean score | sum by root |",
        "|---|---|---|---|---|---|",
        *(
            f"| {name} | {groups} | {attack} | {' | '.join(cells[way] for way in WAYS)} |"
            for (name, groups, attack), cells in by_way.items()
        ),
    ]


def summary(result: dict[str, Any]) -> list[Row]:
    """The rows of this result among those of all experiments."""
    areas = {
        row["way"]: row["auc"]
        for row in result["rows"]
        if (row["set"], row["groups"], row["attack"]) == ("digits", "20", "stacked")
    }
    return [
        Row(
            "none",
            "attacks on groups",
            "digits, groups of 20, stacked: area by the records' scores",
            f"{areas[WAYS[0]]:.3f} by the mean output",
            f"{areas[WAYS[2]]:.3f}",
            "Both rank groups; outputs that vary most between models hide the others in a mean of outputs.",
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    started, rows = time.time(), []
    for name in ("digits", "location"):
        world = SETS[name]()
        records = np.random.default_rng(arguments.seed).permutation(len(world.labels))[:RECORDS]
        for title, (sizes, of_one_class) in GROUPINGS.items():
            groups = group_records(world.labels[records], sizes, of_one_class, arguments.seed)
            units = AttackUnits(groups, np.unique(groups, return_index=True)[1], True)
            shadowed = train(world, groups, records, arguments.seed)
            rows += [{"set": name, "groups": title, **row} for row in compare(shadowed, units)]
            print(f"{name}, {title}: {time.time() - started:.0f} s", flush=True)
    run = describe_run(vars(arguments), time.time() - started)
    record = {"experiment": "group_attacks", "models": MODELS, "records": RECORDS, **run, "rows": rows}
    path = arguments.out / f"group_attacks-{device_slug()}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text("\n".join(page(record)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
