"""How much of a set was used: DUCI's estimator, a general quantifier's and ours, on the same outputs.

    python -m experiments.used_share_duci                                   # digits (CPU: minutes)
    JAXAUDIT_DATA=DATA python -m experiments.used_share_duci --set location

Needs QuaPy (`pip install quapy`). In each of a few worlds a pool is dealt at random into a query set, a holdout, a
calibration set and a population, and 42 shadow models are trained on random halves of query set and holdout and two
thirds of the calibration set (`plan_bank`). A target used a share of the query set, 0 to 1 in steps of a tenth, and its
own two thirds of the calibration set. The used records are random; or those of one class after the other; or the
easiest, by the confidence of a model of the calibration set. Each target is trained once by the shadow models' recipe
and once by another. All methods see the same first 1, 2, 4, 8 or 42 shadow models.

Printed by Tong et al. (2025) for CIFAR-100: DUCI's largest error is .087 with 1 reference model and .034 with 42; where
the used records are no random sample, .062 becomes .109. Writes `results/used_share_duci-SET-DEVICE.json` and `.md`.
"""

import argparse
import sys
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from experiments.figures import write
from experiments.paper_tables import paper_table
from experiments.rates import table
from experiments.record import RESULTS, Row, describe_run, progress_of
from experiments.used_share_methods import METHODS, Answers, ModelOutputs
from jaxaudit import fit_many, load, models, network, plan_bank
from jaxaudit.data import one_hot
from jaxaudit.ensemble import Execution, log_probs_many
from jaxaudit.learners import Learner
from jaxaudit.metrics.scores import log_odds

COUNTS = (1, 2, 4, 8, 42)
"""Numbers of shadow models."""
SHARES = tuple(tenth / 10 for tenth in range(11))
CHOICES = ("random", "classes", "easiest")
RECIPES = ("same", "other")
OURS, BESIDE, DUCI = "ours, holdout", "ours, no holdout", "DUCI"
RIVALS = (DUCI, "EMQ", "DyS")
PRINTED = (
    "Printed by Tong et al. (2025) for CIFAR-100: DUCI's largest error is .087 with 1 reference model and .034 with "
    "42; where the used records are no random sample, .062 becomes .109."
)
Cells = list[dict[str, Any]]


MODELS = max(COUNTS)
OF_CALIBRATION = 2 / 3
LARGEST = 103.0
"""Log-odds are cut here: float64 probabilities further out are 0."""


Found = dict[tuple[str, int], Answers | None]
"""By method and number of shadow models."""


class Sizes(NamedTuple):
    """Numbers of records of the parts of a pool; what is left is the population."""

    query: int
    holdout: int
    calibration: int


class Pool(NamedTuple):
    """Records, the sizes of their parts, and recipes.

    Attributes:
        recipe: of the shadow models, and of the targets of the same recipe.
        other: of the targets of another recipe.
        words: about the two recipes.
    """

    inputs: np.ndarray
    labels: np.ndarray
    sizes: Sizes
    recipe: Learner
    other: Learner
    words: tuple[str, str]


class World(NamedTuple):
    """A deal of a pool.

    Attributes:
        order: places in the pool of the query set, the holdout, the calibration set and the population, in turn.
        shadows, targets: rows over the pool; targets by choice and share, as `CHOICES` and `SHARES` have them.
    """

    order: np.ndarray
    shadows: np.ndarray
    targets: np.ndarray


def digits() -> Pool:
    examples = load("digits")
    flat = examples.inputs.reshape(len(examples), -1) / np.float32(255)
    return _pool(flat, examples.labels, Sizes(400, 400, 750), 10, epochs=40)


def location() -> Pool:
    examples = one_hot(paper_table("location"))
    some = np.random.default_rng(1).permutation(len(examples))[:2500]
    return _pool(examples.inputs[some], examples.labels[some], Sizes(500, 500, 1000), 30, epochs=20)


SETS = {"digits": digits, "location": location}


def _pool(inputs: np.ndarray, labels: np.ndarray, sizes: Sizes, classes: int, epochs: int) -> Pool:

    def learner(width: int = 64, length: int = 1) -> Learner:
        factory, times = partial(models.MLP, hidden=(width,)), length * epochs
        return network(factory, inputs.shape[1:], classes, optimizer=optax.adam(1e-3), epochs=times, batch_size=32)

    words = (f"MLP 64, Adam, {epochs} epochs", f"MLP 128, Adam, {2 * epochs} epochs")
    return Pool(inputs, labels, sizes, learner(), learner(128, 2), words)


def train(pool: Pool, learner: Learner, key: jax.Array, rows: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Log-odds of models with these rows on the whole pool, and their accuracy on their own records and on others."""

    def say(params: Any, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        said = log_probs_many(learner, params, pool.inputs)
        return log_odds(said.astype(np.float64), pool.labels), said.argmax(axis=2) == pool.labels

    execution = Execution(progress=progress_of("training"))
    keys = jax.random.split(key, len(rows))
    odds, hits = fit_many(keys, rows, pool.inputs, pool.labels, learner, execution=execution, summarize=say)
    return np.clip(odds, -LARGEST, LARGEST), float(hits[rows].mean()), float(hits[~rows].mean())


def deal_worlds(pool: Pool, key: jax.Array, seed: int, worlds: int) -> list[World]:
    """Parts of the pool, shadow models and targets; the plain models that say what is easy are trained first."""
    random, records = np.random.default_rng(seed), len(pool.labels)
    orders = [random.permutation(records) for _ in range(worlds)]
    plain = np.zeros((worlds, records), bool)
    for row, order in zip(plain, orders, strict=True):
        row[random.choice(_calibration(pool, order), _own(pool), replace=False)] = True
    ease = train(pool, pool.recipe, jax.random.fold_in(key, 0), plain)[0]
    return [_world(pool, each, random, jax.random.fold_in(key, 1 + w), ease[w]) for w, each in enumerate(orders)]


def _world(pool: Pool, order: np.ndarray, random: np.random.Generator, key: jax.Array, ease: np.ndarray) -> World:
    query, sizes = order[: pool.sizes.query], pool.sizes
    plan = plan_bank(key, MODELS, sizes.query, holdout=sizes.holdout, calibration=sizes.calibration)
    shadows = np.zeros((MODELS, len(order)), bool)
    shadows[:, order[: sum(sizes)]] = plan.membership
    classes = random.permutation(int(pool.labels.max()) + 1)
    targets = np.zeros((len(CHOICES), len(SHARES), len(order)), bool)
    for choice, rows in zip(CHOICES, targets, strict=True):
        for share, row in zip(SHARES, rows, strict=True):
            mixed = random.permutation(query)
            rank = {"random": np.zeros(len(order)), "classes": classes[pool.labels], "easiest": -ease}[choice][mixed]
            row[mixed[np.argsort(rank, kind="stable")][: round(share * len(query))]] = True
            row[random.choice(_calibration(pool, order), _own(pool), replace=False)] = True
    return World(order, shadows, targets.reshape(-1, len(order)))


def _calibration(pool: Pool, order: np.ndarray) -> np.ndarray:
    query, held, calibration = pool.sizes
    return order[query + held : query + held + calibration]


def _own(pool: Pool) -> int:
    return round(OF_CALIBRATION * pool.sizes.calibration)


def estimate(pool: Pool, world: World, shadows: np.ndarray, targets: np.ndarray) -> Found:
    """What each method says of all targets of a world, by each number of shadow models."""
    query, held, calibration = pool.sizes
    # Nobody was trained on the population: RMIA's records z.
    shown = np.r_[world.order[: query + held], world.order[query + held + calibration :]]
    asked = ModelOutputs(targets[:, shown], query, query + held)
    found: Found = {}
    for count in COUNTS:
        bank = ModelOutputs(shadows[:count][:, shown], query, query + held)
        rows = world.shadows[:count][:, world.order[: query + held]]
        for name, method in METHODS.items():
            found[name, count] = method(bank, rows, asked)
        _say(f"{count} shadow models done")
    return found


def compare(found: dict[str, list[Found]]) -> list[dict[str, Any]]:
    """A row a recipe of the targets, choice, number of shadow models and method; errors of shares cut to [0, 1].

    Args:
        found: by recipe, what was said in each world.
    """
    rows, truth, each = [], np.array(SHARES), len(SHARES)
    for recipe, worlds in found.items():
        for place, choice in enumerate(CHOICES):
            for count in COUNTS:
                for name in METHODS:
                    kept = [said for world in worlds if (said := world[name, count]) is not None]
                    head = {"recipe": recipe, "choice": choice, "shadows": count, "method": name}
                    numbers = [said[place * each : (place + 1) * each] for said in kept]
                    rows.append({**head, "worlds": len(kept), **(_errors(np.array(numbers), truth) if kept else {})})
    return rows


def _errors(answers: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """Of answers [worlds, shares, (share, low, high)]."""
    said, low, high = np.moveaxis(answers, 2, 0)
    known = ~np.isnan(said)
    error = np.abs(np.clip(said, 0, 1) - truth)[known]
    numbers: dict[str, Any] = {
        "unknown": int((~known).sum()),
        "mean": float(error.mean()),
        "largest": float(error.max()),
    }
    if np.isnan(low).any():
        return numbers
    holds = (low - 1e-6 <= truth) & (truth <= high + 1e-6)
    return numbers | {"covers": int(holds.sum()), "intervals": holds.size, "width": float((high - low).mean())}


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--set", choices=list(SETS), default="digits")
    parser.add_argument("--worlds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    started, pool, key = time.time(), SETS[arguments.set](), jax.random.key(arguments.seed)
    worlds = deal_worlds(pool, key, arguments.seed, arguments.worlds)
    everyone = np.concatenate([np.concatenate([each.shadows, each.targets]) for each in worlds])
    odds, own, other = train(pool, pool.recipe, jax.random.fold_in(key, 101), everyone)
    targets = np.concatenate([each.targets for each in worlds])
    others, own_others, other_others = train(pool, pool.other, jax.random.fold_in(key, 102), targets)
    shadows = np.stack([each[:MODELS] for each in np.split(odds, len(worlds))])
    _say(f"{time.time() - started:.0f} s of training")
    same = np.stack([each[MODELS:] for each in np.split(odds, len(worlds))])
    found: dict[str, list[Found]] = {}
    for recipe, asked in zip(RECIPES, (same, others.reshape(same.shape)), strict=True):
        found[recipe] = [estimate(pool, *each) for each in zip(worlds, shadows, asked, strict=True)]
    rows, described = compare(found), describe_run(vars(arguments), time.time() - started)
    described["versions"]["quapy"] = version("quapy")
    record = {
        "experiment": "used_share_duci",
        "set": arguments.set,
        "recipes": list(pool.words),
        "sizes": pool.sizes._asdict(),
        "worlds": len(worlds),
        "train_accuracy": [own, own_others],
        "test_accuracy": [other, other_others],
        **described,
        "rows": rows,
        "sentences": sentences(rows),
    }
    write(arguments.out, f"used_share_duci-{arguments.set}", record, lines(record))


# The sentences, the page, the picture and the row in `experiments/README.md`.


def cell(rows: Cells, recipe: str, choice: str, shadows: int, method: str) -> dict[str, Any]:
    """The one row of these."""
    wanted = {"recipe": recipe, "choice": choice, "shadows": shadows, "method": method}
    return next(row for row in rows if wanted.items() <= row.items())


def cells() -> list[tuple[str, str, int]]:
    """Recipe, choice and number of shadow models, in the order of the page."""
    return [(recipe, choice, count) for recipe in RECIPES for choice in CHOICES for count in COUNTS]


def compared(rows: Cells, recipe: str) -> tuple[list[str], int]:
    """Where ours with a holdout has a larger mean error than the best of the others, and in how many cells it is."""
    worse, asked = [], 0
    for kind in cells():
        ours = cell(rows, *kind, OURS)
        if kind[0] != recipe or not ours["worlds"]:
            continue
        others = [cell(rows, *kind, name) for name in RIVALS]
        best = min((row for row in others if row["worlds"]), key=lambda row: row["mean"])
        asked += 1
        if ours["mean"] > best["mean"]:
            worse.append(f"{kind[1]}, {kind[2]} ({ours['mean']:.3f}; {best['method']} {best['mean']:.3f})")
    return worse, asked


def sentences(rows: Cells) -> list[str]:
    """Ours beside the best other method, by recipe, with the cells where it is worse; and its coverage."""
    found = []
    for recipe in RECIPES:
        worse, asked = compared(rows, recipe)
        kept = [cell(rows, *kind, OURS) for kind in cells() if kind[0] == recipe]
        covers, intervals = (sum(row.get(name, 0) for row in kept) for name in ("covers", "intervals"))
        found.append(
            f"Targets of the {recipe} recipe: ours with a holdout has a larger mean error than the best of "
            f"{', '.join(RIVALS)} in {len(worse)} of {asked} cells{': ' * bool(worse)}{'; '.join(worse)}. Its 95% "
            f"interval covers {covers / intervals:.0%} of {intervals}."
        )
    return found


def _entry(row: dict[str, Any]) -> str:
    if not row["worlds"]:
        return "-"
    unknown = f" ({row['unknown']} unknown)" if row["unknown"] else ""
    return f"{row['mean']:.3f} / {row['largest']:.3f}{unknown}"


def lines(record: dict[str, Any]) -> list[str]:
    """The page below the picture."""
    rows, sizes = record["rows"], record["sizes"]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    targets = record["worlds"] * len(SHARES)
    return [
        f"# How much of a set was used: {record['set']}",
        "",
        f"{sizes['query']} query records, {sizes['holdout']} held out, {sizes['calibration']} of calibration, "
        f"{record['worlds']} deals of them. Shadow models: {record['recipes'][0]}, accuracy "
        f"{record['train_accuracy'][0]:.1%} on their own records, {record['test_accuracy'][0]:.1%} on others. Targets: "
        f"the same recipe, and {record['recipes'][1]}. {record['device']}, {record['seconds'] / 60:.1f} minutes; QuaPy "
        f"{record['versions']['quapy']}.",
        "",
        *(f"- {sentence}" for sentence in record["sentences"]),
        f"- {PRINTED} These are other data and networks.",
        "",
        f"Mean / largest absolute error over shares 0, .1, ..., 1: {targets} targets a cell, the same for all methods. "
        "All estimates are cut to [0, 1]. With 1 shadow model none is left to score it, so RMIA cannot be made: DUCI, "
        "EMQ and DyS (QuaPy's) then see the log-odds, else RMIA. Ours needs 4 shadow models (2 without a "
        "holdout); `-`: cannot be made; unknown: targets without an estimate. *Ours, no holdout*: the linear estimate "
        "of the shadow test, without what it takes off.",
        "",
        *table(
            ["targets' recipe", "used records", "shadow models", *methods],
            ([*map(str, kind), *(_entry(cell(rows, *kind, name)) for name in methods)] for kind in cells()),
        ),
    ]


def summary(result: dict[str, Any]) -> list[Row]:
    """The row of `experiments/README.md`."""
    rows = result["rows"]

    def words(recipe: str) -> str:
        kept = [cell(rows, recipe, "random", max(COUNTS), name) for name in (*RIVALS, OURS)]
        return ", ".join(f"{row['method']} {_entry(row)}" for row in kept)

    same, other = (compared(rows, recipe) for recipe in RECIPES)
    return [
        Row(
            "tong2025",
            f"Share of a set that was used, {result['set']}",
            "mean / largest error over shares 0 to 1, random records, 42 shadow models",
            "CIFAR-100, largest: .087 with 1 reference model, .034 with 42",
            f"same recipe: {words('same')}; another recipe: {words('other')}",
            "Other data and networks. Ours with a holdout has a larger mean error than the best of the others in "
            f"{len(same[0])} of {same[1]} cells of the same recipe and {len(other[0])} of {other[1]} of another.",
            f"--set {result['set']} --worlds {result['worlds']}",
        )
    ]


if __name__ == "__main__":
    main()
