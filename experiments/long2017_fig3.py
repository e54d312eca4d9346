"""Long, Bindschaedler & Gunter (2017), figure 3: how many PDTP measurements it takes.

    JAXAUDIT_DATA=DATA python -m experiments.long2017_fig3      # half a minute on two CPU cores

The paper: naive Bayes on Purchase, distance-based attack; the correlation of per-target attack accuracy with the mean
of the first k PDTP measurements of a target, k from 1 to 100. It "stabilizes after around 10 measurements".

Here: naive Bayes on Location in Purchase's place and on Adult, the paper's protocol in full: 2,000 candidates, 100
targets, 100 iterations, PDTP in each. Beside the order in which measurements came, 500 random orders say how much the
curve owes to it. Writes `results/long2017_fig3-DEVICE.json`, `.md` and `.png`.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.figures import COLORS, panels, write
from experiments.paper_tables import paper_table
from experiments.record import RESULTS, Row, describe_run
from jaxaudit.attacks import Distance
from jaxaudit.audits.attack.attack import attack, train_splits
from jaxaudit.data import candidate_indices, category_counts, ordinal
from jaxaudit.learners import naive_bayes

SETS = {"Location": "location", "Adult": "adult@all"}
CANDIDATES, ORDERS, PAPER_SETTLES = 2000, 500, 10


def correlations(measurements: np.ndarray, accuracy: np.ndarray) -> np.ndarray:
    """Pearson's correlation of `accuracy` with the mean of the first k measurements, for every k."""
    means = np.cumsum(measurements, axis=0) / np.arange(1, len(measurements) + 1)[:, None]
    return np.array([np.corrcoef(mean, accuracy)[0, 1] for mean in means])


def run(name: str, seed: int, iterations: int, targets: int) -> dict[str, Any]:
    """One panel."""
    random = np.random.default_rng(seed)
    table = paper_table(SETS[name])
    table = table.take(candidate_indices(random, len(table), CANDIDATES))
    learner = naive_bayes(category_counts(table), len(table.class_names))
    models = train_splits(
        jax.random.key(seed),
        ordinal(table),
        learner,
        pooled_shadows=0,
        iterations=iterations,
        measured=iterations,
        targets=targets,
    )
    audit = attack(models, attacks=(Distance(),))
    accuracy = ((audit.scores["distance"] > 0) == audit.truth).mean(axis=0)
    curve = correlations(models.measurements, accuracy)
    orders = np.stack([correlations(random.permutation(models.measurements), accuracy) for _ in range(ORDERS)])
    low, middle, high = np.quantile(orders, [0.05, 0.5, 0.95], axis=0)
    return {
        "data": name,
        "content_hash": table.content_hash,
        "attack_accuracy": float(accuracy.mean()),
        "correlation": curve.tolist(),
        "orders": {"low": low.tolist(), "median": middle.tolist(), "high": high.tolist()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--targets", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()

    started = time.time()
    sets = [run(name, arguments.seed, arguments.iterations, arguments.targets) for name in SETS]
    record = {
        "experiment": "long2017_fig3",
        "paper": {"settles_after": PAPER_SETTLES, "data": "Purchase"},
        **describe_run(vars(arguments), time.time() - started),
        "sets": sets,
        "sentences": [sentence(one) for one in sets],
    }
    path = write(arguments.out, "long2017_fig3", record, lines(record), drawing(sets))
    print(path.read_text())


def settles(one: dict[str, Any], share: float = 0.9) -> int:
    """After how many measurements the median order has made this share of its way from 1 measurement to all."""
    median = np.array(one["orders"]["median"])
    return int(np.argmax(median >= median[0] + share * (median[-1] - median[0]))) + 1


def sentence(one: dict[str, Any]) -> str:
    """Whether ten are enough."""
    median, low, count = one["orders"]["median"], one["orders"]["low"], len(one["correlation"])
    ten = min(PAPER_SETTLES, count) - 1
    return (
        f"{one['data']}: a single measurement correlates at {median[0]:.3f} (median over orders), the mean of "
        f"{ten + 1} at {median[ten]:.3f} (19 of 20 orders above {low[ten]:.3f}), of all {count} at {median[-1]:.3f}; "
        f"nine tenths of the gain are there after {settles(one)} measurements (the paper, by eye: "
        f"around {PAPER_SETTLES})."
    )


def summary(result: dict[str, Any]) -> list[Row]:
    """The row of `experiments/README.md`."""
    found = []
    for one in result["sets"]:
        first, ten, last = (one["orders"]["median"][k] for k in (0, PAPER_SETTLES - 1, -1))
        found.append(f"{one['data']} {first:.2f}, {ten:.2f}, {last:.2f}, after {settles(one)}")
    return [
        Row(
            "long2017",
            "Figure 3",
            "correlation of 1, 10 and all measurements, and when nine tenths of the gain are there",
            f"by eye, it settles after around {PAPER_SETTLES}",
            "; ".join(found),
            "Location stands in for Purchase; numbers are medians over random orders of the measurements.",
        )
    ]


def lines(record: dict[str, Any]) -> list[str]:
    """The page beside the figure."""
    shown = [k for k in (1, 2, 5, 10, 20, 50, 100) if k <= record["options"]["iterations"]]
    page = [
        "# Long, Bindschaedler & Gunter (2017), figure 3: how many PDTP measurements it takes",
        "",
        f"Naive Bayes, distance-based attack, {CANDIDATES:,} candidates, {record['options']['targets']} targets, "
        f"{record['options']['iterations']} iterations, as in the paper, which has Purchase; {record['device']}, "
        f"{record['seconds']:.0f} s. Pearson's correlation of per-target accuracy with the mean of k measurements: the "
        "order as it came, and in brackets 5% to 95% of random orders.",
        "",
        f"| data | attack accuracy | {' | '.join(f'k = {k}' for k in shown)} |",
        f"|---|---|{'---|' * len(shown)}",
    ]
    for one in record["sets"]:
        cells = [
            f"{one['correlation'][k - 1]:.3f} ({one['orders']['low'][k - 1]:.3f} to {one['orders']['high'][k - 1]:.3f})"
            for k in shown
        ]
        page.append(f"| {one['data']} | {one['attack_accuracy']:.3f} | {' | '.join(cells)} |")
    return [*page, "", *(f"- {words}" for words in record["sentences"])]


def drawing(sets: list[dict[str, Any]]) -> Any:
    """A panel a data set."""
    figure, axes = panels(1, len(sets), width=8, height=3)
    for axis, one in zip(axes, sets, strict=True):
        counts = np.arange(1, len(one["correlation"]) + 1)
        axis.fill_between(
            *(counts, one["orders"]["low"], one["orders"]["high"]), color=COLORS[0], alpha=0.18, linewidth=0
        )
        axis.plot(counts, one["orders"]["median"], color=COLORS[0], label="random orders: median, 5% to 95%")
        axis.plot(counts, one["correlation"], color=COLORS[1], linewidth=1, label="as they came")
        axis.axvline(PAPER_SETTLES, color="#999999", linestyle="--", linewidth=0.8)
        axis.annotate("the paper: settled", (PAPER_SETTLES, 0.06), (4, 0), ("data", "axes fraction"), "offset points")
        axis.set_xscale("log")
        axis.set_xticks([1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"])
        axis.minorticks_off()
        axis.set_title(f"naive Bayes on {one['data']}")
        axis.set_xlabel("PDTP measurements averaged")
    axes[0].set_ylabel("correlation with attack accuracy")
    axes[0].legend(loc="lower right", bbox_to_anchor=(1, 0.12), fontsize=8)
    return figure


if __name__ == "__main__":
    main()
