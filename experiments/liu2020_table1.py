"""Liu & Tsaftaris (2020), Table 1: rho for targets of known training data.

    python -m experiments.liu2020_table1                 # reduced, on the real data in $JAXAUDIT_DATA
    python -m experiments.liu2020_table1 --size full     # the paper's sets, from TensorFlow Datasets

The paper: query MNIST (60,000), calibration SVHN (600,000+), out of domain CIFAR-10; rho 0.082 for a target trained on
MNIST, 1.122 / 1.094 / 1.000 on 50 / 75 / 100% of SVHN, 0.094 / 0.065 / 0.049 on SVHN and 10 / 50 / 100% of MNIST,
1.606 on CIFAR-10. Reduced: query the first 10,000 MNIST training images, calibration USPS + Semeion + MNIST-M test
(19,892 digits), and 20,000 CIFAR-10 images. Both: the paper's network, Adam (0.5, 0.999), 15 epochs; learning rate
1e-3 and batch size 64, which the paper does not give. Writes `results/liu2020_table1-SIZE-DEVICE.json` and `.md`.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
import optax

from experiments.figures import write
from experiments.rates import table
from experiments.record import RESULTS, Row, describe_run, progress_of
from jaxaudit import Part, RhoTest, SimulatedTarget, judge, load, models, network, prepare_images, train_shadows
from jaxaudit.data import Examples, concatenate
from jaxaudit.ensemble import Execution

PAPER = {
    "MNIST": (0.049, 0.082),
    "50% SVHN": (0.669, 1.122),
    "75% SVHN": (0.652, 1.094),
    "100% SVHN": (0.596, 1.000),
    "SVHN + 10% MNIST": (0.056, 0.094),
    "SVHN + 50% MNIST": (0.039, 0.065),
    "SVHN + 100% MNIST": (0.029, 0.049),
    "CIFAR-10": (0.957, 1.606),
}
REDUCED = {
    "query": ("mnist@train[:10000]",),
    "calibration": ("usps/usps16.npz@all", "semeion/semeion16.npz", "mnist_m/mnist_m_gray28_test.npz@test"),
    "other": ("cifar10/cifar10_gray28_jpeg.npz@train",),
}
FULL = {"query": ("mnist@train",), "calibration": ("svhn_cropped@train+extra",), "other": ("cifar10@train",)}
OTHER_RECORDS = {"reduced": 20_000, "full": 50_000}


def read(names: tuple[str, ...], name: str) -> Examples:
    """The paper's preprocessing of one or several sets: gray, 28x28, [0, 1]."""
    return concatenate([prepare_images(load(one)) for one in names], name)


def targets(query: Examples, calibration: Examples, other: Examples, records: int) -> list[SimulatedTarget]:
    """The eight columns, in the paper's order, named after the data that stand in for its sets."""
    q, c, whole = query.name, calibration.name, Part(calibration, 1.0)
    share = min(1.0, records / len(other))
    # Of another domain: its class k is taken for class k of the query set.
    other = replace(other, class_names=query.class_names)
    return [
        SimulatedTarget(q, (Part(query, 1.0),)),
        SimulatedTarget(f"50% {c}", (Part(calibration, 0.5),)),
        SimulatedTarget(f"75% {c}", (Part(calibration, 0.75),)),
        SimulatedTarget(f"100% {c}", (whole,)),
        SimulatedTarget(f"{c} + 10% {q}", (whole, Part(query, 0.1))),
        SimulatedTarget(f"{c} + 50% {q}", (whole, Part(query, 0.5))),
        SimulatedTarget(f"{c} + 100% {q}", (whole, Part(query, 1.0))),
        SimulatedTarget(other.name, (Part(other, share),)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", choices=["reduced", "full"], default="reduced")
    parser.add_argument("--replicates", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()

    sets = REDUCED if arguments.size == "reduced" else FULL
    titles = ("MNIST", "other digits" if arguments.size == "reduced" else "SVHN", "CIFAR-10")
    query, calibration, other = (read(names, title) for names, title in zip(sets.values(), titles, strict=True))
    learner = network(
        models.LiuCNN,
        query.inputs.shape[1:],
        len(query.class_names),
        optimizer=optax.adam(1e-3, b1=0.5, b2=0.999),
        epochs=arguments.epochs,
        batch_size=64,
    )
    started = time.time()

    columns = targets(query, calibration, other, OTHER_RECORDS[arguments.size])
    key, tests = jax.random.key(arguments.seed), (RhoTest(replicates=arguments.replicates, subsample=1.0),)
    execution = Execution(progress=progress_of("table 1"))
    shadows = train_shadows(key, query, calibration, learner, columns, tests=tests, execution=execution)
    audit = judge(key, shadows, columns, tests=tests)
    floor, first = audit.result.noise_floor, audit.targets[0]
    assert floor is not None
    assert first.ratio is not None
    record = {
        "experiment": "liu2020_table1",
        "size": arguments.size,
        "sets": {role: {"names": names} for role, names in sets.items()},
        "hashes": {role: one.content_hash for role, one in zip(sets, (query, calibration, other), strict=True)},
        "records": {role: len(one) for role, one in zip(sets, (query, calibration, other), strict=True)},
        **describe_run(vars(arguments), time.time() - started),
        "columns": [
            {
                "name": target.name,
                "paper_name": paper_name,
                "paper_ks": PAPER[paper_name][0],
                "paper_rho": PAPER[paper_name][1],
                "expected": target.truth.expected if target.truth else None,
                "training_records": target.truth.training_records if target.truth else None,
                "ks": float(np.median(np.array(target.ratio.rho.distances, float))),
                "rho": target.ratio.rho.median,
                "low": target.ratio.rho.low,
                "high": target.ratio.rho.high,
                "values": target.ratio.rho.values,
                "verdict": target.verdict,
                "because": target.because,
                "paper_rule": target.ratio.rule,
            }
            for paper_name, target in zip(PAPER, audit.targets, strict=True)
            if target.ratio is not None
        ],
        "noise_floor": floor.values,
        "calibration_distances": first.ratio.rho.calibration_distances,
        "checks": msgspec.to_builtins(first.checks),
    }
    record["sentence"] = sentence(record["columns"])
    print(write(arguments.out, f"liu2020_table1-{arguments.size}", record, lines(record)).read_text())


def sentence(columns: list[dict]) -> str:
    """How often each rule was right, and where the paper's was not."""
    verdicts = [column["verdict"] for column in columns]
    right = sum(verdict == column["expected"] for verdict, column in zip(verdicts, columns, strict=True))
    undecided = verdicts.count("inconclusive")
    wrong = [column for column in columns if column["paper_rule"] != column["expected"]]
    where = ", ".join(f"{column['name']} (rho {column['rho']:.2f})" for column in wrong)
    return (
        f"Table 1 again: the paper's rule is right for {len(columns) - len(wrong)} of {len(columns)} targets"
        + (f" and wrong for {where}" if wrong else "")
        + f"; the verdict is right for {right}, inconclusive for {undecided} and wrong for "
        + f"{len(columns) - right - undecided}."
    )


def summary(result: dict[str, Any]) -> list[Row]:
    """The row of `experiments/README.md`."""
    reduced = result["size"] == "reduced"
    instead = (
        f"Other digits stand in for SVHN, the query set has {result['records']['query']:,} records: " if reduced else ""
    )
    return [
        Row(
            "liu2020",
            "Table 1",
            f"rho of a target trained on {', '.join(column['paper_name'] for column in result['columns'])}",
            ", ".join(f"{column['paper_rho']:.2f}" for column in result["columns"]),
            ", ".join(f"{column['rho']:.2f}" for column in result["columns"]),
            instead + result["sentence"].removeprefix("Table 1 again: "),
            "" if reduced else f"--size {result['size']}",
        )
    ]


def lines(record: dict[str, Any]) -> list[str]:
    """The columns beside the paper's, and how often each rule was right."""
    head = "target trained on, in the paper, truth, paper KS, KS, paper rho, rho, 95% interval, paper's rule, verdict"
    rows = []
    for column in record["columns"]:
        between = "none" if column["low"] is None else f"{column['low']:.2f} to {column['high']:.2f}"
        numbers = [f"{column[name]:.3f}" for name in ("paper_ks", "ks", "paper_rho", "rho")]
        words = (column[name] for name in ("name", "paper_name", "expected"))
        rows.append([*words, *numbers, between, column["paper_rule"], column["verdict"]])
    return [
        f"# Liu & Tsaftaris (2020), Table 1, {record['size']} size",
        "",
        f"Query {', '.join(record['sets']['query']['names'])} ({record['records']['query']:,} records); calibration "
        f"{', '.join(record['sets']['calibration']['names'])} ({record['records']['calibration']:,}); other domain "
        f"{', '.join(record['sets']['other']['names'])}. "
        f"{record['options']['replicates']} replicates, {record['options']['epochs']} epochs, on {record['device']}, "
        f"{record['seconds'] / 60:.0f} minutes.",
        "",
        *table(head.split(", "), rows),
        "",
        "Checks:",
        "",
        *(
            f"- {'passed' if check['passed'] else 'FAILED'}: {check['name']}: {check['message']}"
            for check in record["checks"]
        ),
        "",
        record["sentence"],
    ]


if __name__ == "__main__":
    main()
