"""How often each of three methods is wrong about targets of known truth.

    export JAXAUDIT_DATA=DATA
    python -m experiments.error_rates_targets --cache FOLDER    # trains; exit status 3: call it again
    python -m experiments.error_rates --cache FOLDER --judge    # answers; exit status 3: call it again
    python -m experiments.error_rates --cache FOLDER            # these tables

The targets need scikit-learn and PyTorch.

The holdout test, the shadow test with outputs on the calibration set, and the paper's rule on rho (Liu & Tsaftaris
2020), on digits, Adult and Location. Scores and thresholds were chosen on other worlds. Asked of the holdout test
beforehand: at most 5% false alarms in every cell, within its interval; at most 5% wrong "forgotten" over all cells;
where all of a query set of 1,000 or more was used, at least 95% found. A target that never used the query set is
indifferent to which of the provider's records are called query and which holdout; so they are dealt anew for each such
target, and its holdout test is a trial of its own. Writes `results/error_rates-DEVICE.json` and `.md`.
"""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
from scipy import special

from experiments.error_rates_recipes import RECIPES
from experiments.error_rates_targets import (
    COPIES,
    EPOCHS,
    FAMILY,
    FRACTIONS,
    GUESSED,
    KINDS,
    RESTS,
    SAME,
    SIZES,
    worlds,
)
from experiments.figures import write
from experiments.rates import Answer, Condition, Rate, interval, percent, rate, shown, table, total
from experiments.record import RESULTS, Row, describe_run
from jaxaudit.metrics.checks import calibration_like_target
from jaxaudit.metrics.holdout import holdout_test
from jaxaudit.metrics.ks import paper_rule, rho
from jaxaudit.metrics.shadow import accuracies_on_unused, shadow_test
from jaxaudit.metrics.usage import ALPHA, STATED_FRACTION, Usage

HALVES = 40
"""Shadow models of the holdout test, of five recipes."""
ALONE = {"none": 40, "half": 20, "full": 20}
"""Those of the shadow test."""
NO_BOOTSTRAP = 2
"""The paper's rule needs no interval."""


def judge_world(world: dict[str, np.ndarray], seed: list[int]) -> list[dict[str, Any]]:
    """All methods' answers on all targets of one world."""
    roles, group = world["roles"], int(world["group"])
    shadows, targets = np.split(world["log_odds"], [len(roles)])
    size = len(world["labels"]) // 2
    both, place = slice(0, 2 * size), np.arange(shadows.shape[1])
    without_holdout = (place < size) | (place >= 2 * size)
    guessed = (roles == "halves") & (world["recipes"] == SAME)
    halves = _mixed(world, "halves", HALVES)
    alone = np.concatenate([_mixed(world, role, count) for role, count in ALONE.items()])
    query, calibration = (special.expit(shadows[roles == role, :size]) for role in ("query_only", "calibration_only"))
    generator = np.random.default_rng([*seed, 2])
    rows = []
    for index, (target, truth) in enumerate(zip(targets, world["truth"], strict=True)):
        fraction, rest, recipe = str(truth).split("|")
        key = jax.random.fold_in(jax.random.key(seed[-1]), index)
        groups = np.arange(2 * size).reshape(-1, group)
        order = generator.permutation(groups).ravel() if float(fraction) == 0 else groups.ravel()

        def by_holdout(chosen: np.ndarray, key: Any = key, order: Any = order, target: Any = target) -> Usage:
            dealt = target[order]
            return holdout_test(
                key,
                dealt[:size],
                dealt[size:],
                shadows[chosen][:, order],
                world["membership"][chosen][:, order],
                groups=None if group == 1 else np.arange(2 * size) // group,
            )

        two_sets = (
            target[without_holdout],
            shadows[alone][:, without_holdout],
            world["membership"][alone][:, without_holdout],
            size,
        )
        by_two_sets = shadow_test(*two_sets)
        if not calibration_like_target(*accuracies_on_unused(*two_sets)).passed:
            by_two_sets = msgspec.structs.replace(by_two_sets, verdict="inconclusive")
        ratio = rho(key, query, calibration, special.expit(target[None, :size]), bootstrap=NO_BOOTSTRAP).median
        rows.append(
            {
                "fraction": float(fraction),
                "rest": rest,
                "recipe": recipe,
                "accuracy": round(float((target[both] > 0).mean()), 4),
                "holdout": plain(by_holdout(halves)),
                "guess": plain(by_holdout(np.flatnonzero(guessed))),
                "shadow": plain(by_two_sets),
                "rho": {"verdict": paper_rule(ratio), "value": None if np.isnan(ratio) else round(float(ratio), 4)},
            }
        )
    return rows


def _mixed(world: dict[str, np.ndarray], role: str, count: int) -> np.ndarray:
    """The places of this many models of a role, as many of each recipe."""
    of_role = world["roles"] == role
    each = count // len(FAMILY)
    return np.concatenate([np.flatnonzero(of_role & (world["recipes"] == recipe))[:each] for recipe in FAMILY])


def plain(usage: Usage) -> dict[str, Any]:
    """For JSON: NaN becomes nothing, numbers are rounded."""
    return {
        name: (None if np.isnan(value) else round(value, 6)) if isinstance(value, float) else value
        for name, value in msgspec.structs.asdict(usage).items()
        if name != "method"
    }


def judge(folder: Path, seconds: float) -> None:
    """Adds the answers about worlds that were trained, and not judged yet."""
    started = time.time()
    for kind, size, seed in worlds():
        path, trained = folder / f"answers-{kind}-{size}-{seed}.json", folder / f"{kind}-{size}-{seed}.npz"
        if path.exists() or not trained.exists():
            continue
        if time.time() - started > seconds:
            sys.exit(3)
        with np.load(trained) as arrays:
            rows = judge_world(dict(arrays), [KINDS.index(kind), size, seed])
        path.write_text(json.dumps({"kind": kind, "size": size, "seed": seed, "targets": rows}))
        print(f"{path.name}: after {time.time() - started:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--judge", action="store_true", help="answer, rather than draw up the tables")
    parser.add_argument("--seconds", type=float, default=500, help="start no world after this time; call again")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.judge:
        judge(arguments.cache, arguments.seconds)
        return
    found = summarise(read(arguments.cache))
    run = describe_run({"alpha": ALPHA, "stated": STATED_FRACTION})
    record = {"experiment": "error_rates", **run, "rates": found, "sentences": sentences(found)}
    print(write(arguments.out, "error_rates", record, lines(record)).read_text())


# The rates, and their page.

LARGE = 1000
MAKINGS = (SAME, "another", "other recipe")
ASKED_WRONG, ASKED_FOUND = 0.05, 0.95


METHODS = {
    "holdout": "holdout test",
    "shadow": "shadow test (with outputs on the calibration set)",
    "rho": "rho, the paper's rule",
}
COMPARED = {
    **{name: METHODS[name] for name in ("holdout", "shadow")},
    "guess": f"holdout test, {GUESSED['halves']} models of the guessed recipe",
}
NAMES = {"digits": "digits", "adult": "Adult", "location": "Location", "copies": f"digits by {COPIES} near-copies"}
REST_NAMES = {
    "calibration": "calibration domain, fresh records",
    "own": "the provider's other records",
    "both": "half of each",
    "other": "another domain",
}
PROTOCOL = (
    "Digits, with and without near-copies that are dealt together: the provider is MNIST, the calibration domain USPS, "
    "Semeion and MNIST-M, another domain CIFAR-10, all at 14x14. Adult: women, men, men with every column shuffled. "
    "Location: provider and calibration domain are one distribution split in two, so no target has the provider's "
    "other records.",
    "A target is trained on 2,000 other records (4,000 at n = 3,000 and more; Location 680) and on the stated fraction "
    "of the query set; never on the holdout, which has n records too. The guessed recipe: one hidden layer of 64, "
    f"Adam, {EPOCHS['digits']} / {EPOCHS['adult']} / {EPOCHS['location']} epochs. Targets have it, or another: 256 "
    f"wide, two layers, tanh, SGD with momentum, half or twice as long; or are {', '.join(RECIPES)}.",
    f"Shadow models of {len(FAMILY)} recipes ({', '.join(FAMILY)}): {HALVES} for the holdout test; {ALONE['none']}, "
    f"{ALONE['half']} and {ALONE['full']} with none, half and all of the query set for the shadow "
    f"test; {GUESSED['query_only']} query and {GUESSED['calibration_only']} calibration models for rho. "
    "The two tests say "
    f'"forgotten" only where the upper limit of the used fraction is {STATED_FRACTION:.0%} or less.',
    "Targets of one world share its query set and shadow models, so the intervals of all rates but the holdout test's "
    "false alarms are somewhat too narrow; for those, query and holdout were dealt anew for each target.",
)


def read(folder: Path) -> list[Answer]:
    """All targets with their answers, their world's kind, size and seed beside them."""
    found = []
    for path in sorted(folder.glob("answers-*.json")):
        world = json.loads(path.read_text())
        origin = {name: world[name] for name in ("kind", "size", "seed")}
        found += [{**target, **origin, "like": _like(target), "making": _making(target)} for target in world["targets"]]
    return found


def _like(target: Answer) -> bool:
    """Whether the target's making is what the shadow models assume."""
    return target["recipe"] == SAME and target["rest"] == "calibration"


def _making(target: Answer) -> str:
    return (
        target["recipe"] if target["recipe"] == SAME else "other recipe" if target["recipe"] in RECIPES else "another"
    )


def says(method: str, verdict: str) -> Condition:
    return lambda target: target[method]["verdict"] == verdict


def wrong_as_said(target: Answer) -> bool:
    """The holdout test said `forgotten`, of a target that used more than the upper limit that it gave."""
    answer = target["holdout"]
    return answer["verdict"] == "forgotten" and target["fraction"] > answer["upper"] + 1e-6


def covers(method: str) -> Condition:
    """The interval holds the used fraction. Answers are rounded to six decimals."""
    return lambda target: (
        target[method]["fraction_low"] - 1e-6 <= target["fraction"] <= target[method]["fraction_high"] + 1e-6
    )


def rejects_full_use(method: str) -> Condition:
    return lambda target: target[method]["p_fully"] <= ALPHA


def summarise(targets: list[Answer]) -> dict[str, Any]:
    """Every rate that is reported."""

    def those(**what: Any) -> list[Answer]:
        return [target for target in targets if all(target[name] == value for name, value in what.items())]

    never, full = those(fraction=0.0), those(fraction=1.0)
    used = [target for target in targets if target["fraction"] > 0]
    cells = [{"kind": kind, "size": size} for kind in KINDS for size in SIZES if those(kind=kind, size=size)]
    makings = list(dict.fromkeys((t["rest"], t["making"]) for t in targets))
    makings.sort(key=lambda each: (RESTS.index(each[0]), MAKINGS.index(each[1])))
    missed = [t for t in full if t["size"] >= LARGE and t["holdout"]["verdict"] != "not forgotten"]
    plenty = [t for t in targets if t["holdout"]["detectable"] is not None]
    plenty = [t for t in plenty if t["fraction"] >= t["holdout"]["detectable"]]

    def overall(method: str) -> dict[str, Rate]:
        found = says(method, "not forgotten")
        return {
            "false alarms": rate(never, found),
            "wrong forgotten": rate(used, says(method, "forgotten")),
            "wrong forgotten, all used": rate(full, says(method, "forgotten")),
            "found, all used, large": rate([t for t in full if t["size"] >= LARGE], found),
            "forgotten, never used": rate(never, says(method, "forgotten")),
            "inconclusive": rate(targets, says(method, "inconclusive")),
        }

    def by_making(method: str, rest: str, making: str) -> dict[str, Any]:
        def of(these: list[Answer]) -> list[Answer]:
            return [t for t in these if t["rest"] == rest and t["making"] == making]

        return {
            "rest": rest,
            "making": making,
            "false alarms": rate(of(never), says(method, "not forgotten")),
            "wrong forgotten": rate(of(used), says(method, "forgotten")),
            "found, all used": rate(of(full), says(method, "not forgotten")),
        }

    def power(method: str, cell: dict[str, Any], fraction: float) -> dict[str, Any]:
        return {**cell, "fraction": fraction, **rate(those(**cell, fraction=fraction), says(method, "not forgotten"))}

    def promised(these: list[Answer], condition: Condition) -> dict[str, Rate]:
        return {
            "like": rate([t for t in these if t["like"]], condition),
            "unlike": rate([t for t in these if not t["like"]], condition),
        }

    return {
        "targets": len(targets),
        "worlds": len({(t["kind"], t["size"], t["seed"]) for t in targets}),
        "cells": [{**cell, "detectable": _median(those(**cell))} for cell in cells],
        "overall": {method: overall(method) for method in METHODS},
        "by making": {m: [by_making(m, *each) for each in makings] for m in METHODS},
        "power": {m: [power(m, cell, fraction) for cell in cells for fraction in FRACTIONS] for m in METHODS},
        "missed, all used, large": dict(Counter(t["recipe"] for t in missed).most_common()),
        "wrong forgotten as said": rate(used, wrong_as_said),
        "found where detectable": promised(plenty, says("holdout", "not forgotten")),
        "interval covers": {m: promised(targets, covers(m)) for m in COMPARED},
        "full use rejected, all used": {m: promised(full, rejects_full_use(m)) for m in COMPARED},
    }


def _median(targets: list[Answer]) -> float | None:
    """The median detectable fraction of the holdout test, where None is larger than all."""
    values = [target["holdout"]["detectable"] for target in targets]
    middle = float(np.median([np.inf if value is None else value for value in values]))
    return None if np.isinf(middle) else round(middle, 3)


def sentences(found: dict[str, Any]) -> list[str]:
    """What was asked beforehand, and what came out."""
    alarms = [power for power in found["power"]["holdout"] if power["fraction"] == 0]
    above = [f"{NAMES[cell['kind']]} {cell['size']:,}" for cell in alarms if cell["low"] > ALPHA]
    holdout, said = found["overall"]["holdout"], found["wrong forgotten as said"]
    large, plenty = holdout["found, all used, large"], found["found where detectable"]
    covered, rejected = found["interval covers"], found["full use rejected, all used"]

    def alarms_of(method: str, *rests: str) -> str:
        return shown(total(cell["false alarms"] for cell in found["by making"][method] if cell["rest"] in rests))

    missed = ", ".join(f"{name} {count}" for name, count in found["missed, all used, large"].items())

    return [
        f"Holdout test, at most {ALPHA:.0%} false alarms in every cell, within its interval: "
        f"{'NOT met for ' + ', '.join(above) if above else 'met'}; over all cells {shown(holdout['false alarms'])}.",
        f'Holdout test, at most {ASKED_WRONG:.0%} wrong "forgotten" over all cells: '
        f"{'met' if said['share'] <= ASKED_WRONG else 'NOT met'}: {shown(said)} of targets that used some had used "
        f"more than its upper limit. Counting any use at all, down to 5%, {shown(holdout['wrong forgotten'])}.",
        f"Holdout test, at least {ASKED_FOUND:.0%} found where all of {LARGE:,} or more was used: "
        f"{'met' if large['share'] >= ASKED_FOUND else 'NOT met'}: {shown(large)} (missed: {missed}).",
        f"Where a target used at least the `detectable` fraction, {shown(plenty['like'])} were found of those of the "
        f"guessed recipe with data of the calibration domain, {shown(plenty['unlike'])} of the others.",
        f"The holdout test's 95% interval holds the used fraction for {shown(covered['holdout']['like'])} of targets "
        f"of the guessed recipe with data of the calibration domain, and for {shown(covered['holdout']['unlike'])} of "
        f"the others; with models of the guessed recipe alone for {shown(covered['guess']['like'])} and "
        f"{shown(covered['guess']['unlike'])}. Where all was used, it rejects that at 5% for "
        f"{shown(rejected['holdout']['like'])} and {shown(rejected['holdout']['unlike'])}; with the guessed recipe "
        f"alone for {shown(rejected['guess']['like'])} and {shown(rejected['guess']['unlike'])}.",
        'The shadow test with outputs on the calibration set called "not forgotten", of targets that never used the '
        "query set, "
        f"{alarms_of('shadow', 'calibration')} with other data of the calibration domain, of any recipe; "
        f"{alarms_of('shadow', 'other')} with data of another domain; and {alarms_of('shadow', 'own', 'both')} "
        "with other data of the query's provider, which no calibration set shows. Prefer a holdout.",
    ]


ROWS = {
    "false alarms": "never used, called `not forgotten`: wrong",
    "wrong forgotten": "5% to all of it used, called `forgotten`: wrong",
    "wrong forgotten, all used": "all of it used, called `forgotten`: wrong",
    "found, all used, large": "all of 1,000 or more used, called `not forgotten`: right",
    "forgotten, never used": "never used, called `forgotten`: right",
    "inconclusive": "all targets, called `inconclusive`",
}


def lines(record: dict[str, Any]) -> list[str]:
    """The page: all targets together; by data, size and recipe."""
    found = record["rates"]
    return [
        "# How often is it wrong?",
        "",
        f"{found['targets']:,} targets of known truth in {found['worlds']} worlds of digits, census records and "
        f"locations, on {record['device']}; with 95% intervals.",
        "",
        *(line for paragraph in PROTOCOL for line in (paragraph, "")),
        "## All together",
        "",
        "Here `forgotten` was concluded from shadow models of five recipes, as the word `--same-recipe` would have it, "
        "although many of these targets had other recipes. Without that word, `jaxaudit ks` calls none of them "
        "`forgotten`. The score of the holdout test did not yet take off how difficult each record is.",
        "",
        *table(
            ["", *METHODS.values()],
            (
                [words, *(interval(found["overall"][method][name]) for method in METHODS)]
                for name, words in ROWS.items()
            ),
        ),
        "",
        *(f"- {words}" for words in record["sentences"]),
        "",
        *(line for method in METHODS for line in power_table(found, method)),
        "## By the target's other training data, and its recipe",
        "",
        'Never used and called "not forgotten" / used, 5% to all, and called "forgotten" / all used and found.',
        "",
        *table(
            ["other data", "recipe", *METHODS.values()],
            (
                [REST_NAMES[cell["rest"]], cell["making"], *(_three(found["by making"][m][index]) for m in METHODS)]
                for index, cell in enumerate(found["by making"]["holdout"])
            ),
        ),
    ]


def power_table(found: dict[str, Any], method: str) -> list[str]:
    """How often a method says "not forgotten", by the fraction used."""
    last = ["median detectable"] if method == "holdout" else []
    rows = []
    for cell in found["cells"]:
        power = [one for one in found["power"][method] if (one["kind"], one["size"]) == (cell["kind"], cell["size"])]
        least = ["none" if cell["detectable"] is None else f"{cell['detectable']:.0%}"] if last else []
        rows.append([NAMES[cell["kind"]], f"{cell['size']:,}", *map(percent, power), *least])
    head = ["data", "n", *(f"{fraction:.0%}" for fraction in FRACTIONS), *last]
    return [f'## {METHODS[method]}: called "not forgotten", by the fraction used', "", *table(head, rows), ""]


def _three(cell: dict[str, Any]) -> str:
    return " / ".join(percent(cell[name]) for name in ("false alarms", "wrong forgotten", "found, all used"))


ASKED = {
    "false alarms": 'never used, called "not forgotten"',
    "wrong forgotten, all used": 'all used, called "forgotten"',
    "found, all used, large": "all of 1,000 or more used, found",
}


def summary(result: dict[str, Any]) -> list[Row]:
    """What `error_rates` says of itself in `experiments/README.md`."""
    rates = result["rates"]
    return [
        Row(
            "liu2020",
            "Error rates",
            f"{name}: holdout test, shadow test of two sets, rho",
            "none given",
            ", ".join(percent(rates["overall"][method][key]) for method in METHODS),
            f"Over {rates['targets']:,} targets of known truth in {rates['worlds']} worlds; intervals, and where each "
            "method fails, are on the page.",
            "--cache FOLDER",
        )
        for key, name in ASKED.items()
    ]


if __name__ == "__main__":
    main()
