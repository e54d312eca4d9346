"""Every unlearning method here, by the score of the NeurIPS 2023 challenge and by U-LiRA.

    JAXAUDIT_DATA=DATA python -m experiments.unlearning_methods                  # MNIST: half an hour
    JAXAUDIT_DATA=DATA python -m experiments.unlearning_methods --data cifar10   # gray, 28x28: another recipe

1,000 images (the first 100 of each class), an MLP N-128-64-10, plain gradient descent; 50 images are forgotten, half of
one class or as many of all classes, drawn at random. Of 128 seeds the models of 64 that each method unlearned are
compared with 64 retrained models of the other seeds (Triantafillou et al. 2024: 512 and 512 on faces; Hayes et al.
2024: 64 and more on CIFAR-10). Methods are tried at two strengths: their authors' defaults were made for other data. No
number of the two papers is comparable, as data and networks differ; the rows of the original and of models retrained
once more say what nothing and what everything forgotten scores. Half an hour is that of two CPU cores which other work
shared; with `--checkpoints DIR` a run that was stopped goes on. Writes `results/unlearning_methods_DATA-DEVICE.json`
and `.md`.
"""

import argparse
import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
import optax

from experiments.becker2022 import Clock
from experiments.becker2022_data import FORGET, read
from experiments.record import RESULTS, describe_run, device_slug
from experiments.summary import Row
from jaxaudit import models, network
from jaxaudit.audits.unlearn.audit import compare_unlearning
from jaxaudit.audits.unlearn.result import MethodResult
from jaxaudit.ensemble import Execution
from jaxaudit.randomness import generator_of, stream
from jaxaudit.unlearning import (
    Unlearn,
    fine_tune,
    forget_by_noise,
    golatkar,
    gradient_ascent,
    negative_gradient,
    scrub,
    selective_dampening,
)

SEEDS, FORGOTTEN, TESTED, BATCH_SIZE = 128, 50, 2000, 32
EPOCHS = {"mnist": 30, "cifar10": 100}
SETS = ("half of a class", "of all classes")
ASCENT = {"mnist": (0.003, 0.006), "cifar10": (0.003, 0.001)}
"""On CIFAR-10, where models fit their records less well, 0.006 ends in NaN."""
STRENGTHS: dict[str, tuple[Any, str, tuple[float, ...]]] = {
    "Fisher forgetting, alpha": (partial(forget_by_noise, noise=golatkar), "alpha", (3e-6, 3e-7)),
    "fine-tuning, rate": (partial(fine_tune, batch_size=BATCH_SIZE), "learning_rate", (0.01, 0.1)),
    "NegGrad+, rate": (partial(negative_gradient, batch_size=BATCH_SIZE), "learning_rate", (0.01, 0.03)),
    "SCRUB, rate": (partial(scrub, batch_size=BATCH_SIZE), "learning_rate", (5e-4, 3e-3)),
    "SSD, alpha": (selective_dampening, "selection", (10.0, 3.0)),
}
"""By the name of a row: the method, the argument that is varied, and its values, the usual one first."""


def methods_for(data: str) -> dict[str, Unlearn]:
    """Every method at every strength, by the name of its row."""
    ascent = {"gradient ascent, rate": (partial(gradient_ascent, batch_size=BATCH_SIZE), "learning_rate", ASCENT[data])}
    return {
        f"{name} {value:g}": partial(method, **{argument: value})
        for name, (method, argument, values) in (STRENGTHS | ascent).items()
        for value in values
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", choices=list(EPOCHS), default="mnist")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--checkpoints", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    train, test = read(arguments.data)
    test = test.take(np.sort(np.random.default_rng(arguments.seed).choice(len(test), TESTED, replace=False)))
    key = jax.random.key(arguments.seed)
    forget = np.zeros((2, len(train)), bool)
    forget[0, np.flatnonzero(train.labels == FORGET[arguments.data])[:FORGOTTEN]] = True
    forget[1, generator_of(stream(key, "forgotten")).choice(len(train), FORGOTTEN, replace=False)] = True
    mlp = partial(models.MLP, hidden=(128, 64))
    recipe: Any = {"optimizer": optax.sgd(0.1), "epochs": EPOCHS[arguments.data], "batch_size": BATCH_SIZE}
    learner = network(mlp, train.inputs.shape[1:], len(train.class_names), **recipe)
    checkpoints = arguments.checkpoints or Path(tempfile.mkdtemp())
    clock = Clock(checkpoints)
    audit = compare_unlearning(
        *(key, train, test, learner, forget),
        methods=methods_for(arguments.data),
        seeds=arguments.seeds,
        nonmembers=0,
        execution=Execution(progress=clock.progress, checkpoints=checkpoints),
    )
    record = {
        "experiment": "unlearning_methods",
        "data": arguments.data,
        **describe_run(vars(arguments), clock.seconds()),
        "content_hash": {"train": train.content_hash, "test": test.content_hash},
        "methods": {
            name: [row(result[name]) for result in audit.results]
            for name in audit.models
            if audit.result[name].challenge
        },
    }
    stem = arguments.out / f"unlearning_methods_{arguments.data}-{device_slug()}"
    Path(f"{stem}.json").write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
    Path(f"{stem}.md").write_text("\n".join(lines(record)) + "\n")
    print("\n".join(lines(record)))


def row(method: MethodResult) -> dict[str, Any]:
    """One method's numbers for one set to forget, of seeds enough to compare models."""
    found: Any = method.challenge
    return {
        "quality": three(found.quality),
        "remaining_ratio": rounded(found.remaining_ratio),
        "test_ratio": rounded(found.test_ratio),
        "score": three(found.score),
        "u_lira": three(method.u_lira),
        **{field: rounded(getattr(method.scores, field).mean) for field in ACCURACIES},
    }


def three(found: Any) -> list[float]:
    return [rounded(each) for each in msgspec.structs.astuple(found)]


ACCURACIES = ("remaining_accuracy", "forgotten_accuracy", "test_accuracy")


def rounded(number: float) -> float:
    return round(float(number), 4)


def lines(record: dict[str, Any]) -> list[str]:
    """The page."""
    half = record["options"]["seeds"] // 2
    found = [
        f"# Unlearning methods by the 2023 challenge's score and by U-LiRA: {TITLES[record['data']]}",
        "",
        f"{half} models a method against {half} retrained models of other seeds; {FORGOTTEN} of 1,000 images "
        f"forgotten; {record['device']}, {record['seconds']:.0f} s. Intervals at 95%, over models. F and the score are "
        "larger for better forgetting, and `retraining` is as good as can be; U-LiRA is the accuracy of an attack, 0.5 "
        "is a guess. The first strength of a method is its usual one. Accuracies are means over all seeds.",
    ]
    for index, name in enumerate(SETS):
        found += [
            "",
            f"## {FORGOTTEN} images: {name}",
            "",
            "| models | F | RA | TA | score | U-LiRA | accuracy: remaining | forgotten | test |",
            "|---|---|---|---|---|---|---|---|---|",
            *(_line(method, rows[index]) for method, rows in record["methods"].items()),
        ]
    return [*found, "", *_sentences(record)]


TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10, gray"}


def _line(name: str, found: dict[str, Any]) -> str:
    cells = [ranged(found["quality"], 3), *(f"{found[each]:.2f}" for each in ("remaining_ratio", "test_ratio"))]
    cells += [ranged(found["score"], 3), ranged(found["u_lira"], 2), *(f"{found[each]:.2f}" for each in ACCURACIES)]
    return f"| {name} | {' | '.join(cells)} |"


def ranged(found: list[float], digits: int) -> str:
    value, low, high = (f"{each:.{digits}f}" for each in found)
    return f"{value} ({low} to {high})"


def _best(record: dict[str, Any], index: int) -> str:
    """The method with the largest score, references left out."""
    judged = [name for name in record["methods"] if name not in ("original", "retraining")]
    return max(judged, key=lambda name: record["methods"][name][index]["score"][0])


def _sentences(record: dict[str, Any]) -> list[str]:
    found = []
    for index, name in enumerate(SETS):
        best, methods = _best(record, index), record["methods"]
        same = [
            each
            for each, rows in methods.items()
            if each not in ("original", "retraining") and rows[index]["u_lira"][1] <= 0.5
        ]
        told = (
            f"U-LiRA does not distinguish from retraining: {', '.join(same)}."
            if same
            else "U-LiRA distinguishes every method from retraining."
        )
        found.append(
            f"- {name}: the best score is that of {best}, {ranged(methods[best][index]['score'], 3)}; retraining "
            f"{ranged(methods['retraining'][index]['score'], 3)}, the original "
            f"{ranged(methods['original'][index]['score'], 3)}. {told}"
        )
    return found


def summary(result: dict[str, Any]) -> list[Row]:
    """What this experiment says of itself in `experiments/README.md`."""
    found, methods, seeds = [], result["methods"], result["options"]["seeds"]
    for index, name in enumerate(SETS):
        best = _best(result, index)
        shown = ("retraining", best, "original")
        numbers = "; ".join(
            f"{methods[each][index]['score'][0]:.3f}, {methods[each][index]['u_lira'][0]:.2f}" for each in shown
        )
        found.append(
            Row(
                "becker2022",
                "Unlearning methods",
                f"score of the 2023 challenge, and accuracy of U-LiRA, {TITLES[result['data']]}, {FORGOTTEN} images "
                f"{name}: retraining; {best} (best of {len(methods) - 2}); original",
                "none given: data and networks of Triantafillou et al. (2024) and Hayes et al. (2024) differ",
                numbers,
                f"{seeds // 2} models a side; all methods with intervals are on the page.",
                f"--data {result['data']}" + (f" --seeds {seeds}" if seeds != SEEDS else ""),
            )
        )
    return found


if __name__ == "__main__":
    main()
