"""Attacks on records by few and many shadow models: which one wins, on which data?

    JAXAUDIT_DATA=DATA python -m experiments.attacks_few_models                 # digits, Location, MNIST (CPU: minutes)
    JAXAUDIT_DATA=DATA python -m experiments.attacks_few_models --sets cifar10  # a convolutional network (CPU: an hour)

Models of one recipe are trained on random halves of one pool. For each number k of shadow models they are cut into
groups of k + 1, and each model of a group is attacked by the others. So nearly all models are targets at every k, all
attacks see the same outputs, and thresholds come from other models. A record of which an attack says nothing has its
median score. Network and pool of each set: see `SETS`. Writes `results/attacks_few_models-SET-DEVICE.json`, `.md` and
`.png`.
"""

import argparse
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from experiments.figures import panels, write
from experiments.record import RESULTS, describe_run
from experiments.summary import Row
from jaxaudit import fit_many, load, models, network
from jaxaudit.attacks.records import RECORD_ATTACKS, ShadowScores
from jaxaudit.data import load_table, one_hot
from jaxaudit.ensemble import Execution, log_probs_many
from jaxaudit.errors import InputError
from jaxaudit.learners import Learner
from jaxaudit.metrics.attack_rates import AttackRates, attack_rates
from jaxaudit.metrics.scores import log_odds

SHADOWS = (2, 4, 8, 16, 32, 64)
MODELS = 66
RATES = (0.01, 0.001)
MOST_UNJUDGED = 0.5
DRAWN = ("stacked", "bavaria-t", "lira", "lira-fixed", "rmia", "base")


class World(NamedTuple):
    """A pool of records, and the recipe of the models."""

    inputs: np.ndarray
    labels: np.ndarray
    learner: Learner
    words: str


def digits() -> World:
    examples = load("digits")
    learner = _mlp((128, 64), examples.inputs[0].size, 10, epochs=40)
    flat = _scaled(examples.inputs).reshape(len(examples), -1)
    return World(flat, examples.labels, learner, "MLP 128-64, Adam, 40 epochs")


def location() -> World:
    examples = one_hot(load_table("location"))
    learner = _mlp((128,), examples.inputs.shape[1], 30, epochs=40)
    return World(examples.inputs, examples.labels, learner, "MLP 128, Adam, 40 epochs")


def mnist() -> World:
    examples = load("mnist")
    some = np.random.default_rng(1).permutation(len(examples))[:4000]
    flat = _scaled(examples.inputs[some]).reshape(len(some), -1)
    learner = _mlp((256, 128), flat.shape[1], 10, epochs=20)
    return World(flat, examples.labels[some], learner, "MLP 256-128, Adam, 20 epochs")


def cifar10() -> World:
    examples = load("cifar10/cifar10_gray28_jpeg.npz@train")
    some = np.random.default_rng(1).permutation(len(examples))[:2000]
    inputs = _scaled(examples.inputs[some])[..., None]
    learner = network(models.ResNet, inputs.shape[1:], 10, optimizer=optax.adam(1e-3), epochs=15, batch_size=64)
    return World(inputs, examples.labels[some], learner, "residual network, Adam, 15 epochs; gray images of 28 x 28")


SETS = {"digits": digits, "location": location, "mnist": mnist, "cifar10": cifar10}


def _scaled(images: np.ndarray) -> np.ndarray:
    return images / np.float32(255)


def _mlp(hidden: tuple[int, ...], inputs: int, classes: int, epochs: int) -> Learner:
    factory = partial(models.MLP, hidden=hidden)
    return network(factory, (inputs,), classes, optimizer=optax.adam(1e-3), epochs=epochs, batch_size=32)


def train(world: World, seed: int, checkpoints: Path | None) -> tuple[ShadowScores, float, float]:
    """Log-odds of the models on all records, and their accuracy on their own half and on the other."""
    random, n = np.random.default_rng(seed), len(world.labels)
    membership = np.zeros((MODELS, n), bool)
    for row in membership:
        row[random.permutation(n)[: n // 2]] = True

    def say(params: Any, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        said = log_probs_many(world.learner, params, world.inputs)
        return log_odds(said.astype(np.float64), world.labels), said.argmax(axis=2) == world.labels

    keys = jax.random.split(jax.random.key(seed), MODELS)
    execution = Execution(checkpoints=checkpoints, progress=lambda done, of: _say(f"{done / of:.0%}"))
    odds, hits = fit_many(
        keys, membership, world.inputs, world.labels, world.learner, execution=execution, summarize=say
    )
    own, other = hits[membership].mean(), hits[~membership].mean()
    return ShadowScores(np.clip(odds, -103, 103)[:, None], membership), float(own), float(other)


def compare(shadowed: ShadowScores) -> list[dict[str, Any]]:
    """A row an attack and number of shadow models."""
    found = []
    for shadows in SHADOWS:
        groups = [range(start, start + shadows + 1) for start in range(0, MODELS - shadows, shadows + 1)]
        rows = np.concatenate([np.array(group) for group in groups])
        for attack in RECORD_ATTACKS:
            started = time.perf_counter()
            try:
                parts = [
                    attack.scores(ShadowScores(shadowed.models[group], shadowed.membership[group])) for group in groups
                ]
            except InputError:
                continue
            seconds = time.perf_counter() - started
            scores, truth = np.concatenate(parts), shadowed.membership[rows]
            unjudged = float(np.isnan(scores).mean())
            if unjudged > MOST_UNJUDGED:
                continue
            known = np.where(np.isfinite(scores).any(axis=1, keepdims=True), scores, 0.0)
            scores = np.where(np.isnan(known), np.nanmedian(known, axis=1, keepdims=True), known)
            rates = attack_rates(scores, truth, false_positive_rates=RATES)
            found.append(
                {
                    "shadows": shadows,
                    "attack": attack.name,
                    "targets": len(rows),
                    "unjudged": unjudged,
                    "nanoseconds": seconds / (truth.size * shadows) * 1e9,
                    **_numbers(rates),
                }
            )
        _say(f"{shadows} shadow models done")
    return found


def _numbers(rates: AttackRates) -> dict[str, Any]:
    area = rates.auc
    numbers: dict[str, Any] = {"auc": area.value, "auc_low": area.low, "auc_high": area.high}
    for rate, real in rates.rates:
        at = f"{rate.fpr:g}"
        numbers |= {
            f"tpr_{at}": rate.value,
            f"tpr_{at}_low": rate.low,
            f"tpr_{at}_high": rate.high,
            f"fpr_{at}": real.value,
            f"curve_{at}": rate.on_curve,
        }
    return numbers


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sets", nargs="*", choices=list(SETS), default=["digits", "location", "mnist"])
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--checkpoints", type=Path, help="a folder for finished models, to go on after a stop")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    for name in arguments.sets:
        started = time.time()
        world = SETS[name]()
        shadowed, own, other = train(world, arguments.seed, arguments.checkpoints and arguments.checkpoints / name)
        rows = compare(shadowed)
        record = {
            "experiment": "attacks_few_models",
            "set": name,
            "recipe": world.words,
            "records": len(world.labels),
            "models": MODELS,
            "train_accuracy": own,
            "test_accuracy": other,
            **describe_run(vars(arguments), time.time() - started),
            "rows": rows,
            "sentences": sentences(rows),
        }
        write(arguments.out, f"attacks_few_models-{name}", record, lines(record), drawing(record))


def of(rows: list[dict[str, Any]], shadows: int, key: str = "auc") -> list[dict[str, Any]]:
    """The attacks by this many shadow models, the best first."""
    return sorted((row for row in rows if row["shadows"] == shadows), key=lambda row: -row[key])


def sentences(rows: list[dict[str, Any]]) -> list[str]:
    """Which attack is best at each number of shadow models, and where ours stands; rates on the ROC curve."""
    found = []
    for shadows in SHADOWS:
        for key, words in (("auc", "area"), ("curve_0.01", "true positive rate at 1%"), ("curve_0.001", "at 0.1%")):
            kept = [row for row in of(rows, shadows, key) if not row["attack"].endswith("-code")]
            if not kept:
                continue
            best, ours = kept[0], next((row for row in kept if row["attack"] == "stacked"), None)
            beside = f"; stacked {ours[key]:.3f}" if ours is not None and ours is not best else ""
            found.append(f"{shadows} shadow models, {words}: {best['attack']} {best[key]:.3f}{beside}.")
    return found


def lines(record: dict[str, Any]) -> list[str]:
    """The page below the picture."""
    page = [
        f"# Attacks on records by few and many shadow models: {record['set']}",
        "",
        f"{record['records']:,} records, {record['models']} models of random halves; {record['recipe']}; accuracy "
        f"{record['train_accuracy']:.1%} on their own half, {record['test_accuracy']:.1%} on the other. "
        f"{record['device']}, {record['seconds'] / 60:.1f} minutes.",
        "",
        *(f"- {sentence}" for sentence in record["sentences"]),
        "",
        "TPR: thresholds from other models, realised false positive rate in brackets. ns: a record, target and shadow "
        "model. Names that end in `-code` are LiRA as its authors' code computes it. An attack is missing where it "
        "says nothing of more than half of the records.",
        "",
        "| shadow models | attack | AUC (95%) | TPR at 1% | TPR at 0.1% | says nothing of | ns |",
        "|---|---|---|---|---|---|---|",
    ]
    for shadows in SHADOWS:
        for row in of(record["rows"], shadows):
            page.append(
                f"| {shadows} | {row['attack']} | {row['auc']:.4f} ({row['auc_low']:.4f} to {row['auc_high']:.4f}) "
                f"| {row['tpr_0.01']:.2%} ({row['fpr_0.01']:.2%}) | {row['tpr_0.001']:.2%} ({row['fpr_0.001']:.2%}) "
                f"| {row['unjudged']:.0%} | {row['nanoseconds']:.0f} |"
            )
    return page


def drawing(record: dict[str, Any]) -> Any:
    """Area and true positive rate by number of shadow models."""
    figure, axes = panels(1, 2, width=8.4, height=3.2)
    titles = {"auc": "area under the ROC curve", "curve_0.01": "true positive rate at 1% false positives"}
    for axis, (key, title) in zip(axes, titles.items(), strict=True):
        for number, name in enumerate(DRAWN):
            rows = [row for row in record["rows"] if row["attack"] == name]
            across, up = [row["shadows"] for row in rows], [row[key] for row in rows]
            axis.plot(across, up, "o^sDvX"[number] + "-", label=name, markersize=4, linewidth=1.4)
            if key == "auc":
                low, high = ([row[f"auc_{end}"] for row in rows] for end in ("low", "high"))
                axis.fill_between(across, low, high, alpha=0.15)
        axis.set_xscale("log", base=2)
        axis.set_xticks(SHADOWS, [str(each) for each in SHADOWS])
        axis.set_xlabel("shadow models")
        axis.set_title(title)
    axes[0].legend(fontsize=7.5)
    return figure


def summary(result: dict[str, Any]) -> list[Row]:
    """The row of `experiments/README.md`."""
    rows = result["rows"]
    best = [of([row for row in rows if not row["attack"].endswith("-code")], shadows)[0] for shadows in SHADOWS]
    winners = ", ".join(f"{row['shadows']}: {row['attack']} {row['auc']:.3f}" for row in best)
    return [
        Row(
            "carlini2022",
            f"Attacks by few shadow models, {result['set']}",
            "largest area under the ROC curve, by number of shadow models",
            "none is printed for all of them",
            winners,
            f"{result['recipe']}; {result['records']:,} records.",
            f"--sets {result['set']}",
        )
    ]


if __name__ == "__main__":
    main()
