"""How much of a set was used: DUCI's estimator, a general quantifier's and ours, on the same outputs.

    python -m experiments.used_share_duci                                   # digits (CPU: minutes)
    JAXAUDIT_DATA=DATA python -m experiments.used_share_duci --set location

Needs QuaPy (`pip install quapy`). In each of a few worlds a pool is dealt at random into a query set, a holdout, a
calibration set and a population, and 42 shadow models are trained on random halves of query set and holdout and two
thirds of the calibration set (`plan_bank`). A target used a share of the query set, 0 to 1 in steps of a tenth, and its
own two thirds of the calibration set. The used records are random; or those of one class after the other; or the
easiest, by the confidence of a model of the calibration set. Each target is trained once by the shadow models' recipe
and once by another. All methods see the same first 1, 2, 4, 8 or 42 shadow models: of one design, and of five in turns
as those of `ks` are.

Printed by Tong et al. (2025) for CIFAR-100: DUCI's largest error is .087 with 1 reference model and .034 with 42; where
the used records are no random sample, .062 becomes .109. Writes `results/used_share_duci-SET-DEVICE.json`, `.md` and
`.png`.
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
from experiments.record import RESULTS, describe_run
from experiments.used_share_duci_summary import CHOICES, COUNTS, RECIPES, SHARES, drawing, lines, sentences
from experiments.used_share_methods import METHODS, Answers, ModelOutputs
from jaxaudit import fit_many, load, models, network, plan_bank
from jaxaudit.data import load_table, one_hot
from jaxaudit.ensemble import Execution, log_probs_many
from jaxaudit.learners import Learner
from jaxaudit.metrics.scores import log_odds

MODELS = max(COUNTS["one"])
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
        designs: of the shadow models; the first is that of the targets of the same recipe.
        other: of the targets of another recipe.
        words: about the first design, and the other recipe.
    """

    inputs: np.ndarray
    labels: np.ndarray
    sizes: Sizes
    designs: tuple[Learner, ...]
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
    examples = one_hot(load_table("location"))
    some = np.random.default_rng(1).permutation(len(examples))[:2500]
    return _pool(examples.inputs[some], examples.labels[some], Sizes(500, 500, 1000), 30, epochs=20)


SETS = {"digits": digits, "location": location}


def _pool(inputs: np.ndarray, labels: np.ndarray, sizes: Sizes, classes: int, epochs: int) -> Pool:

    def learner(width: int = 64, length: float = 1, optimizer: Any = None) -> Learner:
        factory, times = partial(models.MLP, hidden=(width,)), round(length * epochs)
        return network(
            factory, inputs.shape[1:], classes, optimizer=optimizer or optax.adam(1e-3), epochs=times, batch_size=32
        )

    momentum = optax.sgd(0.03, momentum=0.9)
    designs = (learner(), learner(length=0.5), learner(length=2), learner(optimizer=momentum), learner(128))
    words = (f"MLP 64, Adam, {epochs} epochs", f"MLP 128, Adam, {2 * epochs} epochs")
    return Pool(inputs, labels, sizes, designs, learner(128, 2), words)


def train(pool: Pool, learner: Learner, key: jax.Array, rows: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Log-odds of models with these rows on the whole pool, and their accuracy on their own records and on others."""

    def say(params: Any, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        said = log_probs_many(learner, params, pool.inputs)
        return log_odds(said.astype(np.float64), pool.labels), said.argmax(axis=2) == pool.labels

    execution = Execution(progress=lambda done, of: _say(f"{done / of:.0%}"))
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
    ease = train(pool, pool.designs[0], jax.random.fold_in(key, 0), plain)[0]
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


def estimate(pool: Pool, world: World, shadows: np.ndarray, targets: np.ndarray, counts: tuple[int, ...]) -> Found:
    """What each method says of all targets of a world, by these numbers of shadow models."""
    query, held, calibration = pool.sizes
    # Nobody was trained on the population: RMIA's records z.
    shown = np.r_[world.order[: query + held], world.order[query + held + calibration :]]
    asked = ModelOutputs(targets[:, shown], query, query + held)
    found: Found = {}
    for count in counts:
        bank = ModelOutputs(shadows[:count][:, shown], query, query + held)
        rows = world.shadows[:count][:, world.order[: query + held]]
        for name, method in METHODS.items():
            found[name, count] = method(bank, rows, asked)
        _say(f"{count} shadow models done")
    return found


def compare(found: dict[tuple[str, str], list[Found]]) -> list[dict[str, Any]]:
    """A row a bank, recipe of the targets, choice, number of shadow models and method; errors of shares cut to [0, 1].

    Args:
        found: by bank and recipe, what was said in each world.
    """
    rows, truth, each = [], np.array(SHARES), len(SHARES)
    for (bank, recipe), worlds in found.items():
        for place, choice in enumerate(CHOICES):
            for count in COUNTS[bank]:
                for name in METHODS:
                    kept = [said for world in worlds if (said := world[name, count]) is not None]
                    head = {"bank": bank, "recipe": recipe, "choice": choice, "shadows": count, "method": name}
                    numbers = [said[place * each : (place + 1) * each] for said in kept]
                    rows.append({**head, "worlds": len(kept), **(_errors(np.array(numbers), truth) if kept else {})})
    return rows


def _errors(answers: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """Of answers [worlds, shares, (share, low, high)]."""
    said, low, high = np.moveaxis(answers, 2, 0)
    known = ~np.isnan(said)
    error, uncut = np.abs(np.clip(said, 0, 1) - truth)[known], np.abs(said - truth)[known]
    numbers: dict[str, Any] = {
        "unknown": int((~known).sum()),
        "mean": float(error.mean()),
        "largest": float(error.max()),
        "mean_uncut": float(uncut.mean()),
        "largest_uncut": float(uncut.max()),
        "said": [[None if np.isnan(one) else round(float(one), 4) for one in row] for row in said],
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
    odds, own, other = train(pool, pool.designs[0], jax.random.fold_in(key, 101), everyone)
    targets = np.concatenate([each.targets for each in worlds])
    others, own_others, other_others = train(pool, pool.other, jax.random.fold_in(key, 102), targets)
    one = np.stack([each[:MODELS] for each in np.split(odds, len(worlds))])
    five = one.copy()
    for place, learner in enumerate(pool.designs[1:], 1):
        turn = slice(place, None, len(pool.designs))
        rows = np.concatenate([each.shadows[turn] for each in worlds])
        said = train(pool, learner, jax.random.fold_in(key, 102 + place), rows)[0]
        five[:, turn] = said.reshape(len(worlds), -1, said.shape[1])
    _say(f"{time.time() - started:.0f} s of training")
    same = np.stack([each[MODELS:] for each in np.split(odds, len(worlds))])
    found: dict[tuple[str, str], list[Found]] = {}
    for bank, shadows in (("one", one), ("five", five)):
        for recipe, asked in zip(RECIPES, (same, others.reshape(same.shape)), strict=True):
            found[bank, recipe] = [
                estimate(pool, *each, COUNTS[bank]) for each in zip(worlds, shadows, asked, strict=True)
            ]
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
    write(arguments.out, f"used_share_duci-{arguments.set}", record, lines(record), drawing(record))


if __name__ == "__main__":
    main()
