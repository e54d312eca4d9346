"""The page and the picture of `memory_rates`."""

from collections.abc import Sequence
from typing import Any

from experiments.memory_summary import (
    AFTERWARDS,
    LIMITS,
    STRONG,
    UNTAUGHT,
    USED,
    WAYS,
    WITHOUT_LIMIT,
    Answer,
    of_way,
    total,
)
from experiments.score_rates_page import limits_drawn, shown
from experiments.summary import Row
from jaxaudit.metrics.usage import STATED_FRACTION

ROWS: dict[str, str] = {
    "level": "never used, p at most 5%",
    "false alarms": "never used, called `not forgotten`: wrong",
    "wrong forgotten": f"more than {STATED_FRACTION:.0%} used, called `forgotten`: wrong",
    "at stated": f"exactly {STATED_FRACTION:.0%} used, called `forgotten`",
    "covered": "the one-sided 95% limit is at or above the truth",
    "limited": "the same, of those with a limit below 100%",
    "forgotten": "never used, called `forgotten`: right",
    "forgotten, strong": f"the same, where the members' own difference is {STRONG:g} standard errors or more",
    "forgotten, weak": "the same, where it is less",
    "found": "all used, called `not forgotten`: right",
    "half found": "half used, called `not forgotten`: right",
    "inconclusive": "all targets, called `inconclusive`",
}
HIGH_IS_WORSE = ("level", "false alarms", "wrong forgotten", "at stated", "inconclusive")
PROTOCOL = (
    "A world is 4n records of one provider. Of each recipe several models are trained, each on a random half of them.",
    "A target is a model with a deal of its own for each share of 0, 25, 50, 75 and 100%: n query records of which it "
    "used that share; all others that it used are known members, all that it did not use are the holdout. All ways are "
    "asked about the same targets.",
    "The 40 shadow models are dense networks of five designs, trained by jaxaudit. Targets are PyTorch's and "
    "scikit-learn's. The own recipe is 19 other models of the target's recipe, and n records of the holdout; the "
    "target must behave like them on records that it did not use.",
    "A target that was trained on after the use (5 epochs on as many other records) has another truth: what is left. "
    "Such targets are in no rate but that of their own row.",
)


def brief(found: dict[str, Any]) -> str:
    return "-" if found["share"] is None else f"{found['count']}/{found['of']}"


def deals(found: dict[str, Any]) -> str:
    """How many targets there are, and of how many models."""
    return f"{found['targets']:,} targets (deals of {found['models']:,} models)"


def worst(by_recipe: dict[str, Any], way: str, name: str) -> tuple[str, dict[str, Any]] | None:
    """The recipe whose rate is the worst, and the rate; None where no recipe has one."""
    if without_limit(way, name):
        return None
    cells = [(recipe, ways[way][name]) for recipe, ways in by_recipe.items() if ways[way][name]["share"] is not None]
    sign = 1 if name in HIGH_IS_WORSE else -1
    if len({each["share"] for _, each in cells}) == 1:
        return "every recipe", total(each for _, each in cells)
    return max(cells, key=lambda each: sign * each[1]["share"], default=None)


def without_limit(way: str, name: str) -> bool:
    """Whether this is a rate of limits where none is given: 100% of nothing."""
    return way == WITHOUT_LIMIT and name in ("covered", "limited")


def lines(found: dict[str, Any]) -> list[str]:
    """The page."""
    later = found["trained on after"]
    return [
        "# How often verdicts on targets that remember little are wrong",
        "",
        f"{deals(found)} of known truth in {len(found['worlds'])} worlds, by what the test is given; with 95% "
        f"intervals. {len(found['final'])} worlds were looked at only once, at the end: {', '.join(found['final'])}.",
        "",
        *(f"- {each}" for each in PROTOCOL),
        "",
        "## The worlds that were looked at only once",
        "",
        *_table(found["final worlds"]),
        "",
        "## All worlds",
        "",
        *_table(found["overall"]),
        "",
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
        "## What the records teach",
        "",
        "Known members and a holdout: a record's difficulty by what small models say that learned the records' "
        "classes, less what they learned from the record itself; and by the classes of its nearest neighbours alone.",
        "",
        "| | taught | neighbours alone |",
        "|---|---|---|",
        *(
            f"| {title} | {shown(found['overall']['members'][name])} | {shown(found['overall'][UNTAUGHT][name])} |"
            for name, title in ROWS.items()
        ),
        "",
        "## Three kinds of limits",
        "",
        "By known members and a holdout, from the same means and variances. A target is *blind* where not even use of "
        "all would be detected with 95% probability.",
        "",
        *_limit_table(found["limits"]),
        *(
            ["", "## Trained on after the use", "", "`Truth` here is what was used; what is left is less.", ""]
            if later
            else []
        ),
        *(_table(later) if later else []),
        *_worst(found["by recipe"]),
        *_cells("recipe", found["by recipe"]),
        *_cells("world", found["by world"]),
    ]


def _limit_table(limits: dict[str, Any]) -> list[str]:
    rows = {f"{USED[used]}: the limit is at or above it": ("covered", str(used)) for used in USED if used}
    rows |= {"never used: `forgotten`": ("forgotten",), "the same, of blind targets": ("forgotten, blind",)}
    rows |= {ROWS["wrong forgotten"]: ("wrong forgotten",), ROWS["at stated"]: ("at stated",)}

    def cell(limit: str, path: tuple[str, ...]) -> str:
        value = limits[limit]
        for name in path:
            value = value[name]
        return shown(value)

    return [
        f"| | {' | '.join(LIMITS.values())} |",
        "|---" * (1 + len(LIMITS)) + "|",
        *(f"| {title} | {' | '.join(cell(limit, path) for limit in LIMITS)} |" for title, path in rows.items()),
    ]


def _table(cells: dict[str, Any]) -> list[str]:
    return [
        f"| | {' | '.join(WAYS.values())} |",
        "|---" * (1 + len(WAYS)) + "|",
        *(
            f"| {title} | {' | '.join(_in_table(cells[way], way, name) for way in WAYS)} |"
            for name, title in ROWS.items()
        ),
    ]


def _in_table(cells: dict[str, Any], way: str, name: str) -> str:
    return "-" if without_limit(way, name) else shown(cells[name])


def _worst(by_recipe: dict[str, Any]) -> list[str]:
    """The worst recipe of each rate and way."""
    said = ["", "## The worst recipe", "", f"Of {len(by_recipe)} recipes, n = 1,000 or more:", ""]
    said += [f"| | {' | '.join(WAYS.values())} |", "|---" * (1 + len(WAYS)) + "|"]
    for name in ("false alarms", "wrong forgotten", "at stated", "covered", "forgotten", "found", "inconclusive"):
        cells = [worst(by_recipe, way, name) for way in WAYS]
        told = ["-" if each is None else f"{each[0]}, {each[1]['share']:.0%} ({brief(each[1])})" for each in cells]
        said.append(f"| {ROWS[name]} | {' | '.join(told)} |")
    return said


def _cells(of_what: str, cells: dict[str, Any]) -> list[str]:
    """Counts by recipe or world, and way."""
    names = {"false alarms": "false `not forgotten`", "wrong forgotten": "false `forgotten`", "covered": "limit covers"}
    names |= {"forgotten": "never used, `forgotten`", "half found": "half used, found", "found": "all used, found"}
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
    some = {
        title: [each for each in of_way(answers, way) if each["recipe"] != AFTERWARDS] for way, title in WAYS.items()
    }
    return limits_drawn(some, width=11)


def summary(result: dict[str, Any]) -> list[Row]:
    """What `memory_rates` says of itself in `experiments/README.md`."""
    found = result["rates"]

    def each(name: str) -> str:
        return ", ".join(
            "-"
            if (one := found["overall"][way][name])["share"] is None or without_limit(way, name)
            else f"{one['share']:.1%}"
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
