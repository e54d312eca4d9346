"""How often each of five methods is wrong about targets of known truth.

    export JAXAUDIT_DATA=DATA
    python -m experiments.error_rates_targets --split report --cache FOLDER    # trains; exit status 3: call it again
    python -m experiments.error_rates_judge --split report --cache FOLDER      # answers; exit status 3: call it again
    python -m experiments.error_rates_power --split report --cache FOLDER      # promises; exit status 3: call it again
    python -m experiments.error_rates --cache FOLDER                           # these tables

The targets need scikit-learn and PyTorch.

The holdout, the reference and the shadow test, the paper's rule on rho (Liu & Tsaftaris 2020) and EMA (Huang et al.
2021), on digits, Adult and Location. Scores and thresholds were chosen on other worlds (the split `development`). Asked
of the holdout test beforehand: at most 5% false alarms in every cell, within its interval; at most 5% wrong "forgotten"
over all cells; where all of a query set of 1,000 or more was used, at least 95% found. Writes
`results/error_rates-DEVICE.json`, `.md` and `.png`.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from experiments.error_rates_page import COMPARED, METHODS, NAMES, SHOWN, TESTS, VERDICTS, drawing, lines, shown
from experiments.error_rates_recipes import RECIPES
from experiments.error_rates_targets import FRACTIONS, RESTS, SAME, SIZES
from experiments.error_rates_worlds import KINDS
from experiments.figures import write
from experiments.record import RESULTS, describe_run
from jaxaudit.metrics.effect import ALPHA
from jaxaudit.metrics.usage import STATED_FRACTION

Target = dict[str, Any]
Rate = dict[str, Any]
Condition = Callable[[Target], bool]
LARGE = 1000
MAKINGS = (SAME, "another", "other recipe")
PROVIDERS = ("own", "both")
"""Kinds of other training data that hold records of the query set's provider."""
ASKED_WRONG, ASKED_FOUND = 0.05, 0.95


def read(folder: Path) -> list[Target]:
    """All targets with their answers, their world's kind, size and seed beside them."""
    found = []
    for path in sorted(folder.glob("answers-*.json")):
        world = json.loads(path.read_text())
        origin = {name: world[name] for name in ("kind", "size", "seed")}
        promise = json.loads(path.with_name(path.name.replace("answers", "power")).read_text())
        origin["promised"] = dict(zip(FRACTIONS, promise["chances"], strict=True))
        found += [{**target, **origin, "like": _like(target), "making": _making(target)} for target in world["targets"]]
    return found


def _like(target: Target) -> bool:
    """Whether the target's making is what the shadow models assume."""
    return target["design"] == SAME and target["rest"] == "calibration"


def _making(target: Target) -> str:
    return (
        target["design"] if target["design"] == SAME else "other recipe" if target["design"] in RECIPES else "another"
    )


def rate(targets: Sequence[Target], condition: Condition) -> Rate:
    """How many of them."""
    return share_of(sum(condition(target) for target in targets), len(targets))


def share_of(count: int, total: int) -> Rate:
    """A share, with Clopper & Pearson's 95% interval."""
    if not total:
        return {"count": 0, "of": 0, "share": None, "low": 0.0, "high": 1.0}
    interval = stats.binomtest(count, total).proportion_ci(0.95, "exact")
    return {"count": count, "of": total, "share": count / total, "low": interval.low, "high": interval.high}


def says(method: str, verdict: str) -> Condition:
    return lambda target: target[method]["verdict"] == verdict


def wrong_as_said(target: Target) -> bool:
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


def summarise(targets: list[Target]) -> dict[str, Any]:
    """Every rate that is reported."""

    def those(**what: Any) -> list[Target]:
        return [target for target in targets if all(target[name] == value for name, value in what.items())]

    never, full = those(fraction=0.0), those(fraction=1.0)
    used = [target for target in targets if target["fraction"] > 0]
    cells = [{"kind": kind, "size": size} for kind in KINDS for size in SIZES if those(kind=kind, size=size)]
    makings = list(dict.fromkeys((t["rest"], t["making"]) for t in targets))
    makings.sort(key=lambda each: (RESTS.index(each[0]), MAKINGS.index(each[1])))
    found_by = says("holdout", "not forgotten")
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

    def by_making(method: str, rest: str, design: str) -> dict[str, Any]:
        def of(these: list[Target]) -> list[Target]:
            return [t for t in these if t["rest"] == rest and t["making"] == design]

        return {
            "rest": rest,
            "design": design,
            "false alarms": rate(of(never), says(method, "not forgotten")),
            "wrong forgotten": rate(of(used), says(method, "forgotten")),
            "found, all used": rate(of(full), says(method, "not forgotten")),
        }

    def power(method: str, cell: dict[str, Any], fraction: float) -> dict[str, Any]:
        return {**cell, "fraction": fraction, **rate(those(**cell, fraction=fraction), says(method, "not forgotten"))}

    def promised(these: list[Target], condition: Condition) -> dict[str, Rate]:
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
        "missed, all used, large": _count(t["design"] for t in full if t["size"] >= LARGE and not found_by(t)),
        "verdicts": {method: _verdicts(targets, method) for method in TESTS},
        "promised power": _promised(targets),
        "wrong forgotten as said": rate(used, wrong_as_said),
        "found where detectable": promised(plenty, says("holdout", "not forgotten")),
        "interval covers": {m: promised(targets, covers(m)) for m in COMPARED},
        "full use rejected, all used": {m: promised(full, rejects_full_use(m)) for m in COMPARED},
    }


def _count(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())


def _verdicts(targets: list[Target], method: str) -> list[Rate]:
    """How many targets of each used fraction got each verdict, by whether they have other records of the provider."""
    found = []
    for own in (False, True):
        for fraction in SHOWN:
            these = [t for t in targets if (t["rest"] in PROVIDERS) == own and t["fraction"] == fraction]
            counts = {verdict: sum(t[method]["verdict"] == verdict for t in these) for verdict in VERDICTS}
            found.append({"own": own, "fraction": fraction, "of": len(these), **counts})
    return found


def _promised(targets: list[Target]) -> list[Rate]:
    """What `power` promised on average, and how often the holdout test found use, of networks trained as usual."""
    networks = [t for t in targets if t["making"] != "other recipe"]
    found = []
    for own in (False, True):
        for large in (False, True):
            for fraction in FRACTIONS[1:]:
                these = [t for t in networks if (t["rest"] in PROVIDERS) == own and t["fraction"] == fraction]
                these = [t for t in these if (t["size"] >= LARGE) == large]
                if these:
                    mean = float(np.mean([t["promised"][fraction] for t in these]))
                    rates = rate(these, says("holdout", "not forgotten"))
                    found.append({"own": own, "large": large, "fraction": fraction, "promised": mean, **rates})
    return found


def _median(targets: list[Target]) -> float | None:
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
        cells = [each for each in found["by making"][method] if each["rest"] in rests]
        count, total = (sum(each["false alarms"][name] for each in cells) for name in ("count", "of"))
        return shown(share_of(count, total))

    return [
        f"Holdout test, at most {ALPHA:.0%} false alarms in every cell, within its interval: "
        f"{'NOT met for ' + ', '.join(above) if above else 'met'}; over all cells {shown(holdout['false alarms'])}.",
        f'Holdout test, at most {ASKED_WRONG:.0%} wrong "forgotten" over all cells: '
        f"{'met' if said['share'] <= ASKED_WRONG else 'NOT met'}: {shown(said)} of targets that used some had used "
        f"more than its upper limit. Counting any use at all, down to 5%, {shown(holdout['wrong forgotten'])}.",
        f"Holdout test, at least {ASKED_FOUND:.0%} found where all of {LARGE:,} or more was used: "
        f"{_met(large['share'], ASKED_FOUND)}: {shown(large)}{_missed(found['missed, all used, large'])}.",
        f"`jaxaudit power` promised, before there was a target, to find {_kept(found['promised power'], False)} of "
        "networks without other records of the query's provider, and "
        f"{_kept(found['promised power'], True)} of those that had such.",
        f"Where a target used at least the `detectable` fraction, {shown(plenty['like'])} were found of those of the "
        f"guessed design with data of the calibration domain, {shown(plenty['unlike'])} of the others.",
        f"The holdout test's 95% interval holds the used fraction for {shown(covered['holdout']['like'])} of targets "
        f"of the guessed design with data of the calibration domain, and for {shown(covered['holdout']['unlike'])} of "
        f"the others; with models of the guessed design alone for {shown(covered['guess']['like'])} and "
        f"{shown(covered['guess']['unlike'])}. Where all was used, it rejects that at 5% for "
        f"{shown(rejected['holdout']['like'])} and {shown(rejected['holdout']['unlike'])}; with the guessed design "
        f"alone for {shown(rejected['guess']['like'])} and {shown(rejected['guess']['unlike'])}.",
        'The reference test called "not forgotten", of targets that never used the query set, '
        f"{alarms_of('reference', 'calibration')} with other data of the calibration domain, of any design; "
        f"{alarms_of('reference', 'other')} with data of another domain; and {alarms_of('reference', 'own', 'both')} "
        "with other data of the query's provider, which no reference shows.",
        f"The shadow test: {alarms_of('shadow', 'calibration')}, {alarms_of('shadow', 'other')} and "
        f"{alarms_of('shadow', 'own', 'both')} of the same targets. Prefer a holdout, or a reference.",
    ]


def _missed(makings: dict[str, int]) -> str:
    """Which targets were not found."""
    return f" (missed: {', '.join(f'{name} {count}' for name, count in makings.items())})" if makings else ""


def _kept(cells: list[Rate], own: bool) -> str:
    """What was promised, over all used fractions, and what was found."""
    these = [cell for cell in cells if cell["own"] == own]
    total = sum(cell["of"] for cell in these)
    promised = sum(cell["promised"] * cell["of"] for cell in these) / max(total, 1)
    return f"{promised:.0%} (found: {shown(share_of(sum(cell['count'] for cell in these), total))})"


def _met(share: float | None, asked: float) -> str:
    return "not asked" if share is None else "met" if share >= asked else "NOT met"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    found = summarise(read(arguments.cache))
    run = describe_run({"alpha": ALPHA, "stated": STATED_FRACTION}, 0.0)
    del run["seconds"]
    record = {"experiment": "error_rates", **run, "rates": found, "sentences": sentences(found)}
    print(write(arguments.out, "error_rates", record, lines(record), drawing(found)).read_text())


if __name__ == "__main__":
    main()
