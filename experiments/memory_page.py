"""The rates, the page and the picture of `memory_rates`."""

from collections.abc import Callable, Iterable, Sequence
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
    "neither": "a holdout, and shadow models of other recipes",
}
WITHOUT_LIMIT = "neither"
"""The way that gives no limit."""
AFTERWARDS = "finetuned"
"""Trained on after the use: the truth is what is left, not what was used."""
LARGE = 1000
"""Records of a set, of larger worlds."""
STRONG = 4.0
"""Standard errors of the members' own difference from which on `forgotten` is asked for."""
ROWS: dict[str, str] = {
    "false alarms": "never used, called `not forgotten`: wrong",
    "wrong forgotten": f"more than {STATED_FRACTION:.0%} used, called `forgotten`: wrong",
    "covered": "the one-sided 95% limit is at or above the truth",
    "limited": "the same, of those with a limit below 100%",
    "forgotten": "never used, called `forgotten`: right",
    "forgotten, strong": f"the same, where the members' own difference is {STRONG:g} standard errors or more",
    "forgotten, weak": "the same, where it is less",
    "forgotten, strong, large": f"the same, n = {LARGE:,} alone, {STRONG:g} standard errors or more",
    "forgotten, weak, large": f"the same, n = {LARGE:,} alone, less",
    "found": "all of 1,000 or more used, called `not forgotten`: right",
    "inconclusive": "all targets, called `inconclusive`",
}
HIGH_IS_WORSE = ("false alarms", "wrong forgotten", "inconclusive")
ABSENT = (
    "*: the numbers that were kept do not have this. They have the rates over all targets, and a target without a "
    "limit counts as one whose limit, 100%, is at or above the truth. So of targets with a limit the share is lower "
    "than the row above says."
)
PROTOCOL = (
    "A world is 4n records of one provider. Of each recipe several models are trained, each on a random half of them. "
    "A target is a model with one of its deals, of which it has one or two: n query records of which it used a share, "
    "n holdout records that it did not use, n known members that it did use. Shares are 0, 25, 50, 75 and 100% in "
    "turn; by the own recipe 0, 50 and 100%.",
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
        "models": len({(each["world"], each["recipe"], each["model"]) for each in answers}),
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
    large = [each for each in of(answers, "used", 1.0) if WORLDS[each["world"]].size >= LARGE]

    def rate(these: Sequence[Answer], holds: Callable[[Answer], bool]) -> dict[str, Any]:
        return share_of(sum(map(holds, these)), len(these))

    def covers(each: Answer) -> bool:
        return each["upper"] >= each["used"] - 1e-5

    def says(verdict: str) -> Callable[[Answer], bool]:
        return lambda each: each["verdict"] == verdict

    return {
        "false alarms": rate(never, says("not forgotten")),
        "wrong forgotten": rate(above, says("forgotten")),
        "covered": rate(answers, covers),
        "limited": rate([each for each in answers if each["upper"] < 1], covers),
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


def deals(found: dict[str, Any]) -> str:
    """How many targets there are, and of how many models."""
    # Each model has one answer by its members; older numbers do not count models.
    by_members = sum(found[part]["members"]["covered"]["of"] for part in ("overall", "trained on after"))
    return f"{found['targets']:,} deals of {found.get('models', by_members):,} models"


def completed(cells: dict[str, Any], worlds: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """The rates of each way, with those that follow from others and from those of its large worlds."""
    found = {way: dict(cells[way]) for way in WAYS}
    for way, rates_of_way in found.items():
        both, strong = rates_of_way["forgotten"], rates_of_way["forgotten, strong"]
        rates_of_way["forgotten, weak"] = _others(both, strong)
        if worlds:
            both, strong = (_total(each[way][name] for each in worlds) for name in ("forgotten", "forgotten, strong"))
            rates_of_way |= {"forgotten, strong, large": strong, "forgotten, weak, large": _others(both, strong)}
    return found


def _total(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The rate of several cells together."""
    counts = [(each["count"], each["of"]) for each in parts]
    return share_of(sum(count for count, _ in counts), sum(of for _, of in counts))


def _others(both: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """The rate of those that are not in the part; none where nobody knows who is in it."""
    known = part["of"] > 0
    return share_of(known * (both["count"] - part["count"]), known * (both["of"] - part["of"]))


def worst(by_recipe: dict[str, Any], way: str, name: str) -> tuple[str, dict[str, Any]] | None:
    """The recipe whose rate is the worst, and the rate; None where no recipe has one."""
    if without_limit(way, name):
        return None
    cells = [(recipe, ways[way][name]) for recipe, ways in by_recipe.items() if ways[way][name]["share"] is not None]
    sign = 1 if name in HIGH_IS_WORSE else -1
    if len({each["share"] for _, each in cells}) == 1:
        return "every recipe", _total(each for _, each in cells)
    return max(cells, key=lambda each: sign * each[1]["share"], default=None)


def without_limit(way: str, name: str) -> bool:
    """Whether this is a rate of limits where none is given: 100% of nothing."""
    return way == WITHOUT_LIMIT and name in ("covered", "limited")


def lines(found: dict[str, Any]) -> list[str]:
    """The page."""
    large = {name: cells for name, cells in found["by world"].items() if WORLDS[name].size >= LARGE}
    return [
        "# How often verdicts on targets that remember little are wrong",
        "",
        f"{deals(found)} of known truth in {len(found['worlds'])} worlds, by what the test is given; "
        f"with 95% intervals. {len(found['final'])} worlds were looked at only once, at the end: "
        f"{', '.join(found['final'])}.",
        "",
        *(f"- {each}" for each in PROTOCOL),
        "",
        *_table(completed(found["overall"], list(large.values()))),
        "",
        *([] if "limited" in found["overall"]["members"] else [ABSENT, ""]),
        "Each point of the picture is a target; red: its limit is below the truth. The line is the stated share. A "
        "point at 100% has no limit. None of the last panel has one; its shadow models are of other recipes.",
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
        *_table(completed(found["final worlds"], [large[name] for name in found["final"] if name in large])),
        "",
        "## Trained on after the use",
        "",
        "`Truth` here is what was used; what is left is less.",
        "",
        *_table(completed(found["trained on after"])),
        *_worst(found["by recipe"]),
        *_cells("recipe", found["by recipe"]),
        *_cells("world", found["by world"]),
    ]


def _table(cells: dict[str, Any]) -> list[str]:
    return [
        f"| | {' | '.join(WAYS.values())} |",
        "|---" * (1 + len(WAYS)) + "|",
        *(
            f"| {title} | {' | '.join(_in_table(cells[way], way, name) for way in WAYS)} |"
            for name, title in ROWS.items()
            if name == "limited" or any(name in cells[way] for way in WAYS)
        ),
    ]


def _in_table(cells: dict[str, Any], way: str, name: str) -> str:
    return "-" if without_limit(way, name) else shown(cells[name]) if name in cells else "*"


def _worst(by_recipe: dict[str, Any]) -> list[str]:
    """The worst recipe of each rate and way."""
    said = ["", "## The worst recipe", "", f"Of {len(by_recipe)} recipes, some of which have few targets:", ""]
    said += [f"| | {' | '.join(WAYS.values())} |", "|---" * (1 + len(WAYS)) + "|"]
    for name in ("false alarms", "wrong forgotten", "covered", "forgotten", "found", "inconclusive"):
        cells = [worst(by_recipe, way, name) for way in WAYS]
        told = ["-" if each is None else f"{each[0]}, {each[1]['share']:.0%} ({brief(each[1])})" for each in cells]
        said.append(f"| {ROWS[name]} | {' | '.join(told)} |")
    return said


def _cells(of_what: str, cells: dict[str, Any]) -> list[str]:
    """Counts of the two errors and of the limits that cover, by recipe or world, and way."""
    names = {"false alarms": "false `not forgotten`", "wrong forgotten": "false `forgotten`", "covered": "limit covers"}
    said = []
    for name, title in names.items():
        said += ["", f"## By {of_what}: {title}", "", f"| {of_what} | {' | '.join(WAYS.values())} |"]
        said += ["|---" * (1 + len(WAYS)) + "|"]
        for each, ways in cells.items():
            told = ("-" if without_limit(way, name) else brief(ways[way][name]) for way in WAYS)
            said.append(f"| {each} | {' | '.join(told)} |")
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
            "-"
            if (rate := found["overall"][way][name])["share"] is None or without_limit(way, name)
            else f"{rate['share']:.1%}"
            for way in WAYS
        )

    sentence = (
        f"Over {deals(found)} of known truth in {len(found['worlds'])} worlds, most of which remember "
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
