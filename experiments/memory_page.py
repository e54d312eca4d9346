"""The rates, the page and the picture of `memory_rates`."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from experiments.error_rates import share_of
from experiments.figures import COLORS, panels
from experiments.memory_worlds import WORLDS
from experiments.summary import Row
from jaxaudit.metrics.usage import STATED_FRACTION

Answer = dict[str, Any]
WAYS = {
    "members": "known members and a holdout",
    "members, models": "the same, and 40 shadow models",
    "own recipe": "a holdout, shadow models of the own recipe",
    "neither": "a holdout alone",
}
AFTERWARDS = "finetuned"
"""Trained on after the use: the truth is what is left, not what was used."""
STRONG = 4.0
"""Standard errors of the members' own difference from which on `forgotten` is asked for."""
ROWS: dict[str, str] = {
    "false alarms": "never used, called `not forgotten`: wrong",
    "wrong forgotten": f"more than {STATED_FRACTION:.0%} used, called `forgotten`: wrong",
    "covered": "the one-sided 95% limit is at or above the truth",
    "forgotten": "never used, called `forgotten`: right",
    "forgotten, strong": f"the same, where the members' own difference is {STRONG:g} standard errors or more",
    "found": "all of 1,000 or more used, called `not forgotten`: right",
    "inconclusive": "all targets, called `inconclusive`",
}
PROTOCOL = (
    "A world is 4n records of one provider. Of each recipe several models are trained, each on a random half of them. "
    "A target is one such model with a deal of its own: n query records of which it used a share, n holdout records "
    "that it did not use, n known members that it did use. Shares are 0, 25, 50, 75 and 100% in turn; by the own "
    "recipe 0, 50 and 100%.",
    "The 40 shadow models are dense networks of five designs, trained by jaxaudit; targets are PyTorch's and "
    "scikit-learn's. The own recipe is 19 other models of the target's recipe; the target must behave like them on "
    "records that it did not use.",
    "A target that was trained on after the use (5 epochs on as many other records) has another truth: what is left. "
    "Such targets are in no rate but that of their own row.",
)


def summarise(answers: Sequence[Answer]) -> dict[str, Any]:
    """Every rate that is reported."""
    kept = [each for each in answers if each["recipe"] != AFTERWARDS]
    later = [each for each in answers if each["recipe"] == AFTERWARDS]
    recipes = sorted({each["recipe"] for each in kept})
    worlds = [name for name in WORLDS if any(each["world"] == name for each in kept)]
    final = [each for each in kept if WORLDS[each["world"]].final]
    return {
        "targets": len({(each["world"], each["recipe"], each["model"], each["used"]) for each in answers}),
        "worlds": worlds,
        "final": [name for name in worlds if WORLDS[name].final],
        "overall": {way: rates(of_way(kept, way)) for way in WAYS},
        "final worlds": {way: rates(of_way(final, way)) for way in WAYS},
        "by recipe": {r: {way: rates(of(of_way(kept, way), "recipe", r)) for way in WAYS} for r in recipes},
        "by world": {w: {way: rates(of(of_way(kept, way), "world", w)) for way in WAYS} for w in worlds},
        "trained on after": {way: rates(of_way(later, way)) for way in WAYS},
        "estimates": {way: [_estimate(of_way(kept, way), used) for used in (1.0, 0.5, 0.25)] for way in WAYS},
    }


def of(answers: Sequence[Answer], name: str, value: Any) -> list[Answer]:
    return [each for each in answers if each[name] == value]


def of_way(answers: Sequence[Answer], way: str) -> list[Answer]:
    return of(answers, "way", way)


def rates(answers: Sequence[Answer]) -> dict[str, Any]:
    """The rates of one cell."""
    never = of(answers, "used", 0.0)
    above = [each for each in answers if each["used"] > STATED_FRACTION]
    strong = [each for each in never if each.get("memory", 0.0) >= STRONG]
    large = [each for each in of(answers, "used", 1.0) if WORLDS[each["world"]].size >= 1000]

    def rate(these: Sequence[Answer], holds: Callable[[Answer], bool]) -> dict[str, Any]:
        return share_of(sum(map(holds, these)), len(these))

    def says(verdict: str) -> Callable[[Answer], bool]:
        return lambda each: each["verdict"] == verdict

    return {
        "false alarms": rate(never, says("not forgotten")),
        "wrong forgotten": rate(above, says("forgotten")),
        "covered": rate(answers, lambda each: each["upper"] >= each["used"] - 1e-5),
        "forgotten": rate(never, says("forgotten")),
        "forgotten, strong": rate(strong, says("forgotten")),
        "found": rate(large, says("not forgotten")),
        "inconclusive": rate(answers, says("inconclusive")),
    }


def _estimate(answers: Sequence[Answer], used: float) -> dict[str, Any]:
    """The median of the estimated fraction among those that have one, where members show a memory."""
    found = [each["fraction"] for each in of(answers, "used", used) if each["fraction"] is not None]
    return {"used": used, "of": len(found), "median": round(float(np.median(found)), 3) if found else None}


def shown(found: dict[str, Any]) -> str:
    """A rate with its interval."""
    if found["share"] is None:
        return "-"
    return f"{found['share']:.1%} ({found['low']:.1%}-{found['high']:.1%}; {found['count']} of {found['of']})"


def brief(found: dict[str, Any]) -> str:
    return "-" if found["share"] is None else f"{found['count']}/{found['of']}"


def lines(found: dict[str, Any]) -> list[str]:
    """The page."""
    return [
        "# How often verdicts on targets that remember little are wrong",
        "",
        f"{found['targets']:,} targets of known truth in {len(found['worlds'])} worlds, by what the test is given; "
        f"with 95% intervals. {len(found['final'])} worlds were looked at only once, at the end: "
        f"{', '.join(found['final'])}.",
        "",
        *(f"- {each}" for each in PROTOCOL),
        "",
        *_table(found["overall"]),
        "",
        "Each point of the picture is a target; red: its limit is below the truth. The line is the stated share.",
        "",
        "Median estimate of the used fraction, where one is given:",
        "",
        "| given | " + " | ".join(f"{each:.0%} used" for each in (1.0, 0.5, 0.25)) + " |",
        "|---|---|---|---|",
        *(
            f"| {WAYS[way]} | "
            + " | ".join("-" if each["median"] is None else f"{each['median']:.2f}" for each in cells)
            + " |"
            for way, cells in found["estimates"].items()
        ),
        "",
        "## The worlds that were looked at only once",
        "",
        *_table(found["final worlds"]),
        "",
        "## Trained on after the use",
        "",
        "`Truth` here is what was used; what is left is less.",
        "",
        *_table(found["trained on after"]),
        *_cells("recipe", found["by recipe"]),
        *_cells("world", found["by world"]),
    ]


def _table(cells: dict[str, Any]) -> list[str]:
    return [
        f"| | {' | '.join(WAYS.values())} |",
        "|---" * (1 + len(WAYS)) + "|",
        *(f"| {title} | {' | '.join(shown(cells[way][name]) for way in WAYS)} |" for name, title in ROWS.items()),
    ]


def _cells(of_what: str, cells: dict[str, Any]) -> list[str]:
    """Counts of the two errors and of the limits that cover, by recipe or world, and way."""
    names = {"false alarms": "false `not forgotten`", "wrong forgotten": "false `forgotten`", "covered": "limit covers"}
    said = []
    for name, title in names.items():
        said += ["", f"## By {of_what}: {title}", "", f"| {of_what} | {' | '.join(WAYS.values())} |"]
        said += ["|---" * (1 + len(WAYS)) + "|"]
        said += [f"| {each} | {' | '.join(brief(ways[way][name]) for way in WAYS)} |" for each, ways in cells.items()]
    return said


def drawing(answers: Sequence[Answer]) -> Any:
    """Each target's limit beside what it used, by way."""
    figure, axes = panels(1, len(WAYS), width=11, height=3, sharey=True)
    for axis, (way, title) in zip(axes, WAYS.items(), strict=True):
        these = [each for each in of_way(answers, way) if each["recipe"] != AFTERWARDS]
        generator = np.random.default_rng(1)
        used = np.array([each["used"] for each in these])
        upper = np.array([each["upper"] for each in these])
        below = upper < used - 1e-5
        spread = used + generator.uniform(-0.04, 0.04, len(used))
        axis.scatter(spread[~below], upper[~below], s=4, color=COLORS[0], alpha=0.35, linewidths=0)
        axis.scatter(spread[below], upper[below], s=8, color=COLORS[1], linewidths=0)
        axis.axhline(STATED_FRACTION, color="#888888", linewidth=0.8)
        axis.set(title=title.replace(", ", ",\n"), xlabel="truly used", xlim=(-0.1, 1.1), ylim=(-0.03, 1.03))
    axes[0].set_ylabel("95% upper limit")
    return figure


def summary(result: dict[str, Any]) -> list[Row]:
    """What `memory_rates` says of itself in `experiments/README.md`."""
    found = result["rates"]

    def each(name: str) -> str:
        return ", ".join(
            "-" if (rate := found["overall"][way][name])["share"] is None else f"{rate['share']:.1%}" for way in WAYS
        )

    sentence = (
        f"Over {found['targets']:,} targets of known truth in {len(found['worlds'])} worlds, most of which remember "
        "less than the shadow models."
    )
    asked = {
        "false alarms": 'never used, called "not forgotten"',
        "wrong forgotten": f'more than {STATED_FRACTION:.0%} used, called "forgotten"',
        "covered": "the 95% limit is at or above the truth",
    }
    return [
        Row(
            "none",
            "Error rates of targets that remember little",
            f"{title}: {', '.join(WAYS.values())}",
            "none given",
            each(name),
            sentence,
            "--cache FOLDER",
        )
        for name, title in asked.items()
    ]
