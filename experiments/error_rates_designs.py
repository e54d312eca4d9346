"""What shadow models of several designs cost, and which of them keep the holdout test's promises.

    JAXAUDIT_DATA=DATA python -m experiments.error_rates_designs --cache FOLDER

On the targets of `error_rates_targets`, the holdout test with the same number of shadow models each time, of one design
and of several. Time is that of training as many models of each design, in turns, for `ROUNDS` rounds. Writes
`results/error_rates_designs-DEVICE.json` and `.md`.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.error_rates import share_of
from experiments.error_rates_page import short, table
from experiments.error_rates_recipes import RECIPES
from experiments.error_rates_targets import FAMILY, MODELS_PER_BATCH, SAME, designs
from experiments.error_rates_worlds import KINDS, draw_world, origins
from experiments.record import RESULTS, describe_run, device_slug
from experiments.summary import Row
from jaxaudit.ensemble import Execution, fit_many, log_probs_many
from jaxaudit.metrics.effect import ALPHA
from jaxaudit.metrics.holdout import holdout_test
from jaxaudit.metrics.usage import Usage

MODELS, ROUNDS = 30, 3
SETS = (
    FAMILY[:1],
    (SAME, "momentum"),
    (SAME, "twice as long"),
    (SAME, "half as long", "twice as long"),
    (SAME, "twice as long", "momentum"),
    FAMILY,
)
LARGE = 1000
ASKED_LIKE, ASKED_OTHER = 0.95, 0.9
"""Of the 95% interval, beforehand: how often it holds the used fraction."""
Answer = dict[str, Any]


def answers(path: Path) -> list[Answer]:
    """What the holdout test says of every target of a world, with each set of designs."""
    kind, size_text, seed = path.stem.rsplit("-", 2)
    with np.load(path) as arrays:
        world = dict(arrays)
    roles, size = world["roles"], int(size_text)
    shadows, targets = np.split(world["log_odds"][:, : 2 * size], [len(roles)])
    group = int(world["group"])
    groups = None if group == 1 else np.arange(2 * size) // group
    found = []
    for place, names in enumerate(SETS):
        of_each = [np.flatnonzero((roles == "halves") & (world["designs"] == name)) for name in names]
        chosen = np.concatenate([each[: MODELS // len(names)] for each in of_each])
        for index, (target, truth) in enumerate(zip(targets, world["truth"], strict=True)):
            fraction, rest, design = str(truth).split("|")
            usage = holdout_test(
                jax.random.fold_in(jax.random.key(KINDS.index(kind)), 1000 * int(seed) + index),
                target[:size],
                target[size:],
                shadows[chosen],
                world["membership"][chosen][:, : 2 * size],
                groups=groups,
            )
            found.append({"set": place, "size": size, "fraction": float(fraction), **_answer(usage, rest, design)})
    return found


def _answer(usage: Usage, rest: str, design: str) -> Answer:
    kind = "like" if design == SAME and rest == "calibration" else "recipe" if design in RECIPES else "network"
    return {
        "kind": kind,
        "verdict": usage.verdict,
        "low": usage.fraction_low - 1e-6,
        "high": usage.fraction_high + 1e-6,
        "upper": usage.upper + 1e-6,
        "p_fully": usage.p_fully,
    }


def rates(found: list[Answer]) -> list[dict[str, Any]]:
    """For each set of designs, what the interval and the verdicts kept."""
    lines = []
    for place, names in enumerate(SETS):
        mine = [each for each in found if each["set"] == place]
        full = [each for each in mine if each["fraction"] == 1]
        never = [each for each in mine if each["fraction"] == 0]

        def covers(these: list[Answer]) -> dict[str, Any]:
            return share_of(sum(each["low"] <= each["fraction"] <= each["high"] for each in these), len(these))

        def said(these: list[Answer], verdict: str) -> dict[str, Any]:
            return share_of(sum(each["verdict"] == verdict for each in these), len(these))

        used = [each for each in mine if each["fraction"] > 0]
        lines.append(
            {
                "designs": list(names),
                **{f"covers, {kind}": covers([a for a in mine if a["kind"] == kind]) for kind in KINDS_OF_TARGET},
                "full use rejected": share_of(sum(each["p_fully"] <= ALPHA for each in full), len(full)),
                "found, large": said([each for each in full if each["size"] >= LARGE], "not forgotten"),
                "forgotten, large": said([each for each in never if each["size"] >= LARGE], "forgotten"),
                "forgotten beyond the limit": share_of(
                    sum(each["verdict"] == "forgotten" and each["fraction"] > each["upper"] for each in used), len(used)
                ),
            }
        )
    return lines


KINDS_OF_TARGET = ("like", "network", "recipe")


def seconds(kind: str = "digits", size: int = 1000) -> dict[str, float]:
    """The median time to train `MODELS_PER_BATCH` models of each design, compiled beforehand, on one world."""
    world = draw_world(kind, size, 0)
    rows = np.zeros((MODELS_PER_BATCH, len(world.pool.labels)), bool)
    rows[:, np.concatenate([world.query, world.calibration[: 2 * len(world.calibration) // 3]])] = True
    classes = int(origins(kind).calibration.labels.max()) + 1
    makers = designs(kind)
    learners = {name: makers[name](world.pool.inputs.shape[1:], classes) for name in FAMILY}
    took: dict[str, list[float]] = {name: [] for name in FAMILY}
    keys = jax.random.split(jax.random.key(1), MODELS_PER_BATCH)
    for _ in range(ROUNDS + 1):
        for name, learner in learners.items():
            before = time.perf_counter()
            fit_many(
                *(keys, rows, world.pool.inputs, world.pool.labels, learner),
                execution=Execution(models_per_batch=MODELS_PER_BATCH),
                summarize=lambda params, _, learner=learner: log_probs_many(learner, params, world.pool.inputs[:10]),
            )
            took[name].append(time.perf_counter() - before)
    return {name: float(np.median(times[1:])) for name, times in took.items()}


def sentence(record: dict[str, Any]) -> str:
    """What it comes to."""
    took, run = record["seconds_of"], record["options"]
    ratio = np.mean([took[name] for name in FAMILY]) / took[SAME]
    kept = [
        ", ".join(each["designs"])
        for each in record["rates"]
        if each["covers, like"]["share"] >= ASKED_LIKE and each["covers, network"]["share"] >= ASKED_OTHER
    ]
    return (
        f"{run['models']} shadow models each time, {run['targets']:,} targets in {run['worlds']} worlds. Time is for "
        f"as many models, in that of the guessed design: the five designs take {ratio:.2f} times as long. Sets whose "
        f"95% interval covers at least {ASKED_LIKE:.0%} of targets like the guess and {ASKED_OTHER:.0%} of other "
        f"networks: {'; '.join(kept) or 'none'}."
    )


def lines(record: dict[str, Any]) -> list[str]:
    """The page."""
    took = record["seconds_of"]
    head = [
        "designs",
        "time",
        "interval covers: like",
        "other networks",
        "other recipes",
        "full use rejected, all used",
    ]
    head += ["all of 1,000 used: found", "1,000 never used: `forgotten`", "`forgotten` beyond its limit"]
    rows = []
    for each in record["rates"]:
        cost = np.mean([took[name] for name in each["designs"]]) / took[SAME]
        numbers = [short(value) for value in list(each.values())[1:]]
        rows.append([", ".join(each["designs"]), f"{cost:.2f}", *numbers])
    return [
        "# What several designs cost, and what they keep",
        "",
        record["sentence"],
        "",
        *table(head, rows),
    ]


def summary(result: dict[str, Any]) -> list[Row]:
    return [
        Row(
            "liu2020",
            "Designs of shadow models",
            "holdout test: the interval covers other recipes; guessed design alone, all five",
            "none given",
            ", ".join(f"{result['rates'][place]['covers, recipe']['share']:.0%}" for place in (0, -1)),
            result["sentence"],
            "--cache FOLDER",
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--worlds", nargs="*", default=[f"{k}-{n}-0" for k in KINDS for n in (300, 1000)])
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    started = time.time()
    worlds = [arguments.cache / f"{name}.npz" for name in arguments.worlds]
    found = [each for path in worlds for each in answers(path)]
    took = seconds()
    record = {
        "experiment": "error_rates_designs",
        **describe_run({"models": MODELS, "worlds": len(worlds), "targets": len(found) // len(SETS)}, 0.0),
        "seconds_of": took,
        "rates": rates(found),
    }
    record["sentence"] = sentence(record)
    record["seconds"] = round(time.time() - started, 1)
    stem = f"error_rates_designs-{device_slug()}"
    (arguments.out / f"{stem}.json").write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
    (arguments.out / f"{stem}.md").write_text("\n".join(lines(record)) + "\n")
    print("\n".join(lines(record)))


if __name__ == "__main__":
    main()
