"""Long, Bindschaedler & Gunter (2017), figures 7 and 8: how one record's prediction varies without anyone leaving.

    JAXAUDIT_DATA=DATA python -m experiments.long2017_fig7_8      # about five minutes on two CPU cores

The paper: 100 networks trained on the same 10,000 records of Adult, each with its own initialisation (figure 7), and
100 classifiers on 100 random samples (figure 8); histograms of what they say of one person of each salary class. No
numbers are given. The point: a DTP within this spread hides in what an adversary does not know anyway.

Here both, with the networks of `long2017_attacks`: Adult as in the paper (of its 48,842 records), and Location, where
1,000 of 2,000 candidates are trained on, for two people's own class. The two people are drawn at random and are in
every training set. In figure 7 a key also fixes the order of the records; in figure 8 all networks have one key, so
that they start alike and differ by their samples. The shift in the pictures is what leaving that person out of the
training set does, with nothing else changed. Writes `results/long2017_fig7-DEVICE.json`, `.md`, `.png` and the same of
figure 8.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.figures import COLORS, panels, write
from experiments.long2017_attacks import Case, classifier
from experiments.paper_tables import paper_table
from experiments.record import RESULTS, Row, describe_run
from jaxaudit.audits.left_out import leave_out
from jaxaudit.data import Examples, candidate_indices
from jaxaudit.ensemble import Execution, fit_many, log_probs_many
from jaxaudit.metrics.pdtp import BINS, pdtp, seed_floor

SETS: dict[str, dict[str, Any]] = {
    "Adult": {"name": "adult@all", "candidates": None, "trained": 10_000},
    "Location": {"name": "location", "candidates": 2_000, "trained": 1_000},
}


def two_people(random: np.random.Generator, examples: Examples) -> np.ndarray:
    """A record of each of two classes: both where there are no more, else two at random."""
    classes = np.sort(random.choice(len(examples.class_names), 2, replace=False))
    return np.array([random.choice(np.flatnonzero(examples.labels == one)) for one in classes])


def samples(random: np.random.Generator, people: np.ndarray, pool: int, size: int, count: int) -> np.ndarray:
    """Membership of `count` training sets of `size` records that all hold the two people."""
    others = np.setdiff1d(np.arange(pool), people)
    rows = np.zeros((count, pool), bool)
    rows[:, people] = True
    for row in rows:
        row[random.choice(others, size - len(people), replace=False)] = True
    return rows


def run(name: str, seed: int, count: int) -> dict[str, dict[str, Any]]:
    """Both figures of one data set."""
    what, random = SETS[name], np.random.default_rng(seed)
    table = paper_table(what["name"])
    if what["candidates"]:
        table = table.take(candidate_indices(random, len(table), what["candidates"]))
    examples, learner = classifier(Case("NN", name), table)
    people = two_people(random, examples)
    # For Adult the probability of the high salary, as in the paper; else of each one's own class.
    asked = np.array([1, 1]) if len(examples.class_names) == 2 else examples.labels[people]
    rows = samples(random, people, len(examples), what["trained"], count)
    key = jax.random.key(seed)

    # One training set for figure 7, with the two people first.
    members = np.concatenate([people, np.setdiff1d(np.flatnonzero(rows[0]), people)])
    trained = examples.take(members)
    left = leave_out(key, trained, learner, np.arange(2), execution=Execution(models_per_batch=2))
    of_people = {
        "pdtp": pdtp(left.with_record, left.without_record, bins=0).values.tolist(),
        "pdtp_in_bins": pdtp(left.with_record, left.without_record).values.tolist(),
        "with": np.exp(left.with_record[np.arange(2), asked]).tolist(),
        "without": np.exp(left.without_record[np.arange(2), asked]).tolist(),
    }
    common = {
        "data": name,
        "trained": what["trained"],
        "pool": len(examples),
        "content_hash": examples.content_hash,
        "asked": [examples.class_names[one] for one in asked],
        "own": [examples.class_names[one] for one in examples.labels[people]],
        **of_people,
    }
    whole = np.ones((count, len(trained)), bool)
    found = {}
    for figure, keys, membership, pool, places in (
        ("fig7", jax.random.split(jax.random.fold_in(key, 1), count), whole, trained, np.arange(2)),
        ("fig8", jnp.repeat(key[None], count), rows, examples, people),
    ):
        started = time.time()
        said = fit_many(
            *(keys, membership, pool.inputs, pool.labels, learner),
            summarize=lambda params, _, inputs=pool.inputs[places]: log_probs_many(learner, params, inputs),
        )
        chosen = said[:, np.arange(2), asked].astype(np.float64)
        floor = {bins: seed_floor(said, bins=bins) for bins in (0, BINS)}
        found[figure] = common | {
            "seconds": round(time.time() - started, 1),
            "probabilities": np.exp(chosen).T.tolist(),
            "log_probability_deviation": chosen.std(axis=0, ddof=1).tolist(),
            "pdtp_of_another": {part: getattr(floor[0], part).tolist() for part in ("mean", "largest")},
            "pdtp_of_another_in_bins": {part: getattr(floor[BINS], part).tolist() for part in ("mean", "largest")},
        }
        print(f"{name}, {figure}: {found[figure]['seconds']} s", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--sets", nargs="*", choices=list(SETS), default=list(SETS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()

    started = time.time()
    found = [run(name, arguments.seed, arguments.models) for name in arguments.sets]
    about = describe_run(vars(arguments), time.time() - started)
    for number, cause in ((7, "initialisations"), (8, "training samples")):
        sets = [one[f"fig{number}"] for one in found]
        record = {"experiment": f"long2017_fig{number}", "cause": cause, **about, "sets": sets}
        record["sentences"] = [sentence(one, cause) for one in sets]
        path = write(arguments.out, record["experiment"], record, lines(record, number), drawing(sets))
        print(path.read_text())


def sentence(one: dict[str, Any], cause: str) -> str:
    """Whether leaving the person out hides among models that differ otherwise."""
    words = []
    for place, who in enumerate(("first", "second")):
        value = one["pdtp_in_bins"][place]
        mean, largest = (one["pdtp_of_another_in_bins"][part][place] for part in ("mean", "largest"))
        verdict = "that hides" if value <= mean else "that stands out" if value > largest else "that does not stand out"
        words.append(
            f"without the {who} person outputs move by {value:.2f} nats; networks of different {cause} differ by "
            f"{mean:.2f} on average and {largest:.2f} at most: {verdict}"
        )
    return f"{one['data']}: {words[0]}; {words[1]}."


def summary(result: dict[str, Any]) -> list[Row]:
    """The row of `experiments/README.md`."""
    hides = ", ".join(
        f"{sum(a <= b for a, b in zip(one['pdtp_in_bins'], one['pdtp_of_another_in_bins']['mean'], strict=True))} of "
        f"{len(one['own'])} people of {one['data']}"
        for one in result["sets"]
    )
    spread = "; ".join(
        f"{one['data']} {', '.join(f'{value:.3f}' for value in one['log_probability_deviation'])}"
        for one in result["sets"]
    )
    return [
        Row(
            "long2017",
            result["experiment"].replace("long2017_fig", "Figure "),
            f"standard deviation over {result['cause']} of a person's log-probability, two people each",
            "histograms for Adult, no numbers",
            spread,
            f"Leaving a person out moves the outputs less than other {result['cause']} do for {hides}; the paper shows "
            "Adult only.",
        )
    ]


def lines(record: dict[str, Any], number: int) -> list[str]:
    """The page beside the figure."""
    cause = record["cause"]
    page = [
        f"# Long, Bindschaedler & Gunter (2017), figure {number}: one record's prediction over {cause}",
        "",
        f"{record['options']['models']} networks a data set, as in the paper, which shows Adult only and gives no "
        f"numbers; {record['device']}, {record['seconds'] / 60:.1f} minutes for figures 7 and 8 together.",
        "",
        "| data | trained on | person of class | probability of | 5% | median | 95% | standard deviation, nats "
        "| PDTP: person left out | another network, mean | largest |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in record["sets"]:
        for place in (0, 1):
            low, middle, high = np.quantile(one["probabilities"][place], [0.05, 0.5, 0.95])
            cells = [f"{one['pdtp_in_bins'][place]:.2f} ({one['pdtp'][place]:.2f})"]
            for part in ("mean", "largest"):
                exact, rounded = (one[f"pdtp_of_another{form}"][part][place] for form in ("", "_in_bins"))
                cells.append(f"{rounded:.2f} ({exact:.2f})")
            page.append(
                f"| {one['data']} | {one['trained']:,} of {one['pool']:,} | {one['own'][place]} | "
                f"{one['asked'][place]} | {low:.3f} | {middle:.3f} | {high:.3f} | "
                f"{one['log_probability_deviation'][place]:.3f} | {' | '.join(cells)} |"
            )
    page += ["", *(f"- {words}" for words in record["sentences"])]
    page.append(
        "- PDTP in 100 bins, of exact outputs in brackets. Of another network: what the person's PDTP would have been "
        "had A(T without t) been that network, averaged over the others or the largest. With 30 classes exact PDTP is "
        "the ratio of two tiny probabilities, which every other network moves as much; bins are the better measure."
    )
    return page


def drawing(sets: list[dict[str, Any]]) -> Any:
    """A row a data set, a panel a person."""
    figure, axes = panels(len(sets), 2, width=7.6, height=2.4 * len(sets))
    for row, one in enumerate(sets):
        for place in (0, 1):
            axis = axes[2 * row + place]
            values = np.array(one["probabilities"][place])
            shift = (one["with"][place], one["without"][place])
            low, high = min(values.min(), *shift), max(values.max(), *shift)
            margin = max(0.02, 0.08 * (high - low))
            axis.hist(values, bins=np.linspace(values.min(), values.max(), 21), color=COLORS[0], alpha=0.8)
            axis.set_xlim(max(0.0, low - margin), min(1.0, high + margin))
            top = axis.get_ylim()[1]
            axis.set_ylim(0, 1.28 * top)
            arrow = {"arrowstyle": "->", "color": COLORS[1], "linewidth": 1.6}
            axis.annotate("", (shift[1], 1.1 * top), (shift[0], 1.1 * top), arrowprops=arrow)
            words = f"this person left out: PDTP {one['pdtp_in_bins'][place]:.2f}"
            axis.text(0.5, 0.92, words, ha="center", color=COLORS[1], fontsize=8, transform=axis.transAxes)
            axis.set_title(f"{one['data']}: a person of class {one['own'][place]}")
            axis.set_xlabel(f"probability of {one['asked'][place]}")
            axis.set_ylabel("networks")
    return figure


if __name__ == "__main__":
    main()
