"""Long, Bindschaedler & Gunter (2017), Tables 1 and 2: membership attacks, and whether PDTP foresees them.

    JAXAUDIT_DATA=DATA python -m experiments.long2017_attacks               # reduced, for a CPU
    JAXAUDIT_DATA=DATA python -m experiments.long2017_attacks --size full   # the paper's 100 iterations

The paper: Table 1 is all three attacks on a network for Purchase; Table 2 is the distance-based attack on a network,
naive Bayes and logistic regression for Purchase and Adult (its numbers stand in `PAPER` below); figure 2 is the
largest per-target accuracy of three attacks, with a correlation to PDTP of 0.8936. Here Location (446 yes/no features,
30 classes, real) stands in for Purchase, which Kaggle does not let anyone pass on. Both: 2,000 candidates, halves of
1,000, 100 targets, 5 pairs of shadow models a target, 20 for the untargeted attack. Full: 100 iterations, PDTP of the
first 10. Reduced: see `SIZES`.

Learners as in the paper: one hidden layer of 64 tanh units, SGD with rate 0.01, 100 epochs (Adult) or 30 (Location);
naive Bayes with Laplace smoothing; multinomial logistic regression with a ridge penalty of 1 (the paper: Weka's
logistic model trees). The paper names no batch size: of 1, 10 and 32 those nearest to its accuracies on training and
test set are taken (train / test of two splits; `BATCH_SIZES`):

    Adult     1: 0.908 / 0.817   10: 0.859 / 0.831   32: 0.849 / 0.832     paper, Adult    0.856 / 0.857
    Location  1: 1.000 / 0.600   10: 0.922 / 0.580   32: 0.575 / 0.373     paper, Purchase 1.000 / 0.643

Writes `results/long2017_attacks-SIZE-DEVICE.json` and `.md`.
"""

import argparse
import json
import math
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.record import RESULTS, describe_run, device_slug
from jaxaudit import models, network
from jaxaudit.attacks import Distance
from jaxaudit.audits.attack.attack import attack
from jaxaudit.audits.attack.plan import ATTACKS
from jaxaudit.audits.attack.result import AttackAudit, AttackOutcome
from jaxaudit.audits.attack.train_splits import train_splits
from jaxaudit.data import Examples, Table, candidates, category_counts, load_table, one_hot, ordinal
from jaxaudit.ensemble import Execution
from jaxaudit.learners import Learner, naive_bayes
from jaxaudit.learners.logistic_regression import logistic_regression

COLUMNS = ("train_accuracy", "test_accuracy", "accuracy", "precision", "recall", "f1", "mean_pdtp", "correlation")
PAPER = {
    "NN-Purchase": (1.0000, 0.6434, 0.8533, 0.8470, 0.9087, 0.8768, 3.4019, 0.7653),
    "NB-Purchase": (0.8641, 0.7204, 0.5958, 0.6945, 0.4038, 0.5107, 0.9027, 0.9239),
    "LR-Purchase": (1.0000, 0.6241, 0.7888, 0.7314, 0.9187, 0.8144, 2.8917, 0.8138),
    "NN-Adult": (0.8555, 0.8566, 0.5340, 0.5311, 0.4402, 0.4356, 0.5847, 0.4588),
    "NB-Adult": (0.8453, 0.8410, 0.5128, 0.5876, 0.1027, 0.1748, 0.0299, 0.5166),
    "LR-Adult": (0.8711, 0.8536, 0.5134, 0.5130, 0.3818, 0.4378, 0.1460, -0.0008),
}
"""Table 2; of NN-Purchase, accuracy to F1 and the correlation are Table 1's distance-based attack."""
PAPER_TABLE_1 = {
    "untargeted": (0.6680, 0.6386, 0.8500, 0.7294, 0.4864),
    "frequency": (0.6257, 0.5933, 0.8253, 0.7174, 0.5052),
    "distance": (0.8533, 0.8470, 0.9087, 0.8768, 0.7653),
}
PAPER_STRONGEST = 0.8936
SIZES = {
    "reduced": {"iterations": 50, "targets": 100, "measured": 5},
    "full": {"iterations": 100, "targets": 100, "measured": 10},
}
SLOWEST = {"reduced": {"LR-Location": {"iterations": 20, "targets": 40, "measured": 3}}}
"""Where a model takes most of a second, on two CPU cores."""
DATA = {"Location": "location", "Adult": "adult@all"}
STANDS_FOR = {"Location": "Purchase", "Adult": "Adult"}
EPOCHS = {"Location": 30, "Adult": 100}
BATCH_SIZES = {"Location": 1, "Adult": 10}
CANDIDATES = 2000


class Case(NamedTuple):
    """A classifier of the tables: a learner on a set."""

    learner: str
    data: str

    @property
    def name(self) -> str:
        return f"{self.learner}-{self.data}"

    @property
    def paper_name(self) -> str:
        return f"{self.learner}-{STANDS_FOR[self.data]}"


CASES = [Case(learner, data) for data in DATA for learner in ("NN", "NB", "LR")]


def classifier(case: Case, table: Table) -> tuple[Examples, Learner]:
    """The candidate records and the learner of a row of Table 2."""
    classes = len(table.class_names)
    if case.learner == "NB":
        return ordinal(table), naive_bayes(category_counts(table), classes)
    examples = one_hot(table)
    inputs = examples.inputs.shape[1]
    if case.learner == "LR":
        return examples, logistic_regression(inputs, classes)
    factory = partial(models.MLP, hidden=(64,), activation=jnp.tanh)
    epochs, batch_size = EPOCHS[case.data], BATCH_SIZES[case.data]
    return examples, network(
        factory, (inputs,), classes, optimizer=optax.sgd(0.01), epochs=epochs, batch_size=batch_size
    )


def size_of(case: Case, size: str) -> dict[str, int]:
    """How much of the protocol is run."""
    return SLOWEST.get(size, {}).get(case.name, SIZES[size])


def run(case: Case, table: Table, seed: int, size: dict[str, Any]) -> dict[str, Any]:
    """The row of one classifier."""
    examples, learner = classifier(case, table)
    started = shown = time.time()

    def progress(done: int, total: int) -> None:
        nonlocal shown
        if time.time() - shown > 60:
            shown = time.time()
            print(f"{case.name}: {done / total:.0%} after {shown - started:.0f} s", file=sys.stderr, flush=True)

    everything = case == CASES[0]
    models = train_splits(
        jax.random.key(seed),
        examples,
        learner,
        execution=Execution(progress=progress),
        **size if everything else {**size, "pooled_shadows": 0},
    )
    audit = attack(models, attacks=ATTACKS if everything else (Distance(),))
    row = describe(case, audit) | {
        "protocol": size,
        "seconds": round(time.time() - started, 1),
        "content_hash": examples.content_hash,
    }
    print(json.dumps({name: row[name] for name in ("name", "seconds", *COLUMNS)}), file=sys.stderr, flush=True)
    return row


def describe(case: Case, audit: AttackAudit) -> dict[str, Any]:
    """A row of Table 2, and all attacks that were made."""
    attacks = {each.name: _numbers(each) for each in audit.result.attacks}
    splits = audit.result.splits
    assert splits is not None
    strongest = splits.strongest
    return {
        "name": case.name,
        "paper_name": case.paper_name,
        "paper": dict(zip(COLUMNS, PAPER[case.paper_name], strict=True)),
        "train_accuracy": splits.train_accuracy,
        "test_accuracy": splits.test_accuracy,
        **attacks["distance"],
        "mean_pdtp": splits.mean_pdtp,
        "max_pdtp": splits.max_pdtp,
        "attacks": attacks,
        "strongest_correlation": _number(strongest.correlation.coefficient),
        "share_above_0.8_of_pdtp_above_1": strongest.share_above["0.8"],
        "share_above_0.6_of_pdtp_above_1": strongest.share_above["0.6"],
        "pdtp_above_1": strongest.pdtp_above_1,
        "width": audit.models_per_batch,
        "caveats": list(audit.finding.caveats),
        "targets": [{"pdtp": record.pdtp, **record.accuracy} for record in splits.records],
    }


def _numbers(attack: AttackOutcome) -> dict[str, Any]:
    one, related = attack.metrics, attack.correlation
    assert one is not None
    assert related is not None
    return {
        "accuracy": one.accuracy.value,
        "accuracy_interval": [one.accuracy.low, one.accuracy.high],
        "precision": _number(one.precision.value),
        "recall": one.recall.value,
        "f1": one.f1.value,
        "auc": one.auc.value,
        "auc_interval": [one.auc.low, one.auc.high],
        "true_positive_rates": {f"{rate.limit:g}": rate.rate.value for rate in one.true_positive_rates},
        "correlation": _number(related.coefficient),
        "p_value": _number(related.p_value),
        "no_correlation": related.reason,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", choices=list(SIZES), default="reduced")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--cases", nargs="*", choices=[case.name for case in CASES], default=None)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()

    started = time.time()
    rows, names = [], arguments.cases or [case.name for case in CASES]
    tables = {
        data: candidates(np.random.default_rng(arguments.seed), load_table(name), CANDIDATES)
        for data, name in DATA.items()
    }
    for case in CASES:
        if case.name in names:
            rows.append(run(case, tables[case.data], arguments.seed, size_of(case, arguments.size)))
    record = {
        "experiment": "long2017_attacks",
        "size": arguments.size,
        "protocol": {"candidates": CANDIDATES, **SIZES[arguments.size]},
        "data": {name: {"name": DATA[name], "content_hash": table.content_hash} for name, table in tables.items()},
        **describe_run(vars(arguments), time.time() - started),
        "rows": rows,
    }
    record["sentences"] = sentences(rows)
    name = f"long2017_attacks-{arguments.size}-{device_slug()}"
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / f"{name}.json").write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
    (arguments.out / f"{name}.md").write_text(table_of(record))
    print(table_of(record))


def sentences(rows: list[dict[str, Any]]) -> list[str]:
    """What holds of each table, and what does not."""
    found = []
    first = next((row for row in rows if row["name"] == CASES[0].name), None)
    if first is not None:
        attacks = first["attacks"]
        best = max(attacks, key=lambda name: attacks[name]["accuracy"])
        found.append(
            f"Table 1: the {best} attack is the most accurate ({attacks[best]['accuracy']:.3f}; the paper's is the "
            f"distance-based one, 0.853), and the largest per-target accuracy correlates with PDTP at "
            f"{_text(first['strongest_correlation'])} (the paper: {PAPER_STRONGEST}). Location is not Purchase: only "
            "order and signs can be compared."
        )
    chance = [row["name"] for row in rows if row["accuracy_interval"][0] <= 0.5]
    found.append(
        "Table 2: the distance-based attack is above chance (95% interval) on "
        + ("every classifier" if not chance else f"all but {', '.join(chance)}")
        + "; as in the paper it is far stronger on the data with many classes, whose classifiers overfit, than on "
        "Adult."
    )
    ours = [row["correlation"] for row in rows if row["correlation"] is not None]
    theirs = [row["paper"]["correlation"] for row in rows if row["correlation"] is not None]
    if len(ours) > 2:
        agree = sum((a > 0.2) == (b > 0.2) for a, b in zip(ours, theirs, strict=True))
        found.append(
            f"The correlation with PDTP is on the paper's side of 0.2, the size that 100 targets reach by chance, for "
            f"{agree} of {len(ours)} classifiers{_but(rows)}."
        )
    order, paper_order = ([row["name"] for row in sorted(rows, key=key)] for key in (_mean_pdtp, _paper_mean_pdtp))
    found.append(
        f"By mean PDTP, smallest first: {', '.join(order)}"
        + (", as in the paper." if order == paper_order else f"; in the paper: {', '.join(paper_order)}.")
    )
    found.append(
        "A mean PDTP is not to be compared with the paper's where it is small: here A(T) and A(T without t) have one "
        "seed and take the same minibatches, which the paper does not say of its own, and another seed alone moves a "
        "network's outputs."
    )
    return found


def _but(rows: list[dict[str, Any]]) -> str:
    """Where it is not, with both numbers."""
    others = [row for row in rows if (_number_or_0(row) > 0.2) != (row["paper"]["correlation"] > 0.2)]
    names = [
        f"{row['name']} ({_text(row['correlation'])}, the paper {row['paper']['correlation']:.3f})" for row in others
    ]
    return f"; not for {', '.join(names)}" if names else ""


def _number_or_0(row: dict[str, Any]) -> float:
    return row["correlation"] or 0.0


def _mean_pdtp(row: dict[str, Any]) -> float:
    return row["mean_pdtp"]


def _paper_mean_pdtp(row: dict[str, Any]) -> float:
    return row["paper"]["mean_pdtp"]


def table_of(record: dict[str, Any]) -> str:
    """Both tables beside the paper's."""
    size = record["protocol"]
    lines = [
        f"# Long, Bindschaedler & Gunter (2017), Tables 1 and 2, {record['size']} size",
        "",
        f"{size['candidates']:,} candidates, {size['targets']} targets, {size['iterations']} iterations (the paper has "
        f"100), PDTP of the first {size['measured']} (10), on {record['device']}, {record['seconds'] / 60:.0f} "
        "minutes. "
        "Location stands in for Purchase. In each cell: here, then the paper's in parentheses.",
    ]
    for row in record["rows"]:
        if row["name"] != CASES[0].name:
            continue
        lines += ["", f"## Table 1: {row['name']} ({row['paper_name']})", ""]
        lines += ["| attack | accuracy | precision | recall | F1 | correlation with PDTP | AUC | TPR at 1% FPR |"]
        lines += ["|---|---|---|---|---|---|---|---|"]
        for name, paper in PAPER_TABLE_1.items():
            one = row["attacks"][name]
            keys = ("accuracy", "precision", "recall", "f1", "correlation")
            cells = [f"{_text(one[key])} ({number:.3f})" for key, number in zip(keys, paper, strict=True)]
            cells += [_text(one["auc"]), _text(one["true_positive_rates"]["0.01"])]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        shares = [row[f"share_above_{share}_of_pdtp_above_1"] for share in ("0.8", "0.6")]
        lines += [
            "",
            f"Largest of three: correlation {_text(row['strongest_correlation'])} ({PAPER_STRONGEST}). Of the "
            f"{row['pdtp_above_1']} targets with PDTP above 1, {_percent(shares[0])} have a largest accuracy above 0.8 "
            f"(84.6%) and {_percent(shares[1])} above 0.6 (100%).",
        ]
    lines += ["", "## Table 2: the distance-based attack", ""]
    lines += [
        "| classifier (the paper's) | train | test | accuracy | precision | recall | F1 | mean PDTP | correlation |"
    ]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for row in record["rows"]:
        cells = [f"{_text(row[key])} ({row['paper'][key]:.3f})" for key in COLUMNS]
        lines.append(f"| {row['name']} ({row['paper_name']}) | {' | '.join(cells)} |")
    for row in record["rows"]:
        own = row["protocol"]
        if own["targets"] != size["targets"]:
            lines += ["", f"{row['name']}: {own['targets']} targets, {own['iterations']} iterations."]
    lines += ["", *[f"- {sentence}" for sentence in record["sentences"]], "", "What the numbers do not tell:", ""]
    said: dict[str, list[str]] = {}
    for row in record["rows"]:
        for words in row["caveats"]:
            said.setdefault(words, []).append(row["name"])
    for words, names in said.items():
        whose = "" if len(names) == len(record["rows"]) else f"{', '.join(names)}: "
        lines.append(f"- {whose}{words}")
    return "\n".join(lines) + "\n"


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _text(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{share:.1%}"


if __name__ == "__main__":
    main()
