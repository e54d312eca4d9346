"""The page and the picture of `score_rates`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.figures import COLORS, panels
from experiments.score_rates_summary import (
    FIELD,
    LESSONS,
    MEASURES,
    OF_LIMITS,
    SHOWN,
    WAYS,
    WITHOUT_LIMIT,
    Answer,
    Rates,
    of,
    worst,
)
from jaxaudit.metrics.usage import STATED_FRACTION

PROTOCOL = (
    "A world is 60 authors of TOFU, or 60 invented patients of 10 notes each, in three parts of 20, and 78 small "
    "language models of words (a weak recipe: 36), trained from nothing: of one part, of two, or of one and a half or "
    "a quarter of another.",
    "A deal takes a part as known members, one as the query set, one as the holdout. A target is a model in a deal, "
    "asked by 4, 8 or 20 groups of the query set and as many of the holdout, whole groups; it used none, a quarter, "
    "half or all of these query groups. Models of known truth are other models of the same deal.",
    "Scores are loss, Min-K%, Min-K%++ and zlib ratio, with the number of tokens as a covariate. All ways are asked "
    "about the same records of the same target.",
    "A world is one draw of groups, in three parts: targets of a model, and those of a part, share their chance, so "
    "the intervals are too narrow. What the level is, the further deals show.",
)


def shown(found: Rates) -> str:
    """A rate with its interval."""
    if found["share"] is None:
        return "-"
    return f"{found['share']:.1%} ({found['low']:.1%}-{found['high']:.1%}; {found['count']} of {found['of']})"


def brief(found: Rates) -> str:
    return "-" if found["share"] is None else f"{found['share']:.0%} ({found['count']}/{found['of']})"


def cell(cells: Rates, way: str, name: str) -> Rates | None:
    """The rate of a way; None where it is one of limits, and the way gives none."""
    return None if way in WITHOUT_LIMIT and name in OF_LIMITS else cells[way][name]


def table(cells: Rates, how: Any = shown) -> list[str]:
    """A line a measure, a column a way."""
    lines = [f"| | {' | '.join(WAYS.values())} |", "|---" * (1 + len(WAYS)) + "|"]
    for name, (words, _, _) in MEASURES.items():
        rates = [cell(cells, way, name) for way in WAYS]
        lines.append(f"| {words} | {' | '.join('-' if one is None else how(one) for one in rates)} |")
    return lines


def counted(found: Rates) -> str:
    return (
        f"{found['targets']:,} targets (deals of {found['models']:,} language models), asked by {found['tables']:,} "
        f"sets of records, in {len(found['worlds'])} worlds; and {found['unlearned']:,} models that were unlearned"
    )


def sentences(found: Rates) -> list[str]:
    """What the tables say, in bullet points."""
    cells, usual, field = found["all worlds"], found["usual recipe"], found["field"]
    never, quarter, half = (found["lessons"]["all"]["p at most 5%"][used] for used in ("0.0", "0.25", "0.5"))
    missed = {way: 1 - (cells[way]["covered"]["share"] or 0.0) for way in WAYS}
    return [
        "- **State the groups.** Where authors were dealt whole and the table does not say so, "
        f"{share(cells['log']['false alarms'])} of models that never used the query set are called `not forgotten`, "
        f"in place of {share(cells['log, groups']['false alarms'])}. The sets also look as if they were not dealt, so "
        f"of models that used all {share(cells['log']['found'])} are found, in place of "
        f"{share(cells['log, groups']['found'])}.",
        "- **Known members clear more than models of known truth**: with the usual recipe, of models that never used "
        f"the query set {share(usual['members']['forgotten'])} are called `forgotten` with members, "
        f"{share(usual['known 8']['forgotten'])} with 8 models of each kind. Most others are `inconclusive`.",
        f"- **Limits hold**: they are below the truth in {missed['members']:.1%} with members, and in "
        f"{missed['known 1']:.1%}, {missed['known 3']:.1%} and {missed['known 8']:.1%} with 1, 3 and 8 models of each "
        "kind; 5% is allowed.",
        f"- **Retrained models count by their mean**: of half used, {share(half['mean'])} are found with 8 of them, "
        f"{share(half['none'])} without any, and of a quarter {share(quarter['mean'])} and {share(quarter['none'])}; "
        f"as a covariate each, {share(half['apart'])} and {share(quarter['apart'])}.",
        "- **The words of a text**, by n-grams of the table's other groups, as `scores lm` adds them: of half used, "
        f"{share(half['words'])} are found with them, {share(half['none'])} without, of a quarter "
        f"{share(quarter['words'])} and {share(quarter['none'])}, and of none {share(never['words'])} and "
        f"{share(never['none'])}. What they bring is with TOFU's answers, and nothing with notes, which are all alike.",
        f"- **Others' numbers**: forget quality finds {share(field['1.0']['forget_quality'])} of what used all. "
        f"privleak and LLM dataset inference find nearly all, and accuse {share(field['0.0']['privleak'])} and "
        f"{share(field['0.0']['dataset_inference'])} of the models that never used the query set.",
    ]


def share(found: Rates) -> str:
    return "-" if found["share"] is None else f"{found['share']:.0%}"


def lines(found: Rates) -> list[str]:
    """The page, the worst cells first."""
    once = f"{len(found['final'])} worlds were looked at only once, at the end: {', '.join(found['final'])}."
    return [
        "# How often verdicts on language models are wrong, by tables of scores",
        "",
        f"{counted(found)}; with exact 95% intervals. {once if found['final'] else ''}",
        "",
        *(f"- {words}" for words in PROTOCOL),
        "",
        "## What it says",
        "",
        *sentences(found),
        "",
        "## The worst cells",
        "",
        f"Of {len(found['by cell'])} worlds and sizes (groups of a set x records of a group):",
        "",
        *worst_table(found["by cell"]),
        *(
            ["", "## The worlds that were looked at only once", "", *table(found["looked at once"])]
            if found["final"]
            else []
        ),
        "",
        "## All worlds",
        "",
        *table(found["all worlds"]),
        "",
        "The query set and the holdout of models that used none of either were dealt anew, 8 groups of 10 records "
        f"against 8: p was at most 5% in {shown(found['again']['holdout']['all'])}, and beside 8 retrained models (3 "
        f"of the weak recipe) in {shown(found['again']['retrained']['all'])}; by world "
        + ", ".join(
            f"{name} {brief(found['again']['holdout'][name])} and {brief(found['again']['retrained'][name])}"
            for name in found["worlds"]
        )
        + ".",
        "",
        "A log that does not state groups takes records for what was dealt: its level is not that of the deal.",
        "",
        *_group("The usual recipe", found["usual recipe"]),
        *_group("A recipe that hardly remembers", found["weak recipe"]),
        *(line for name, cells in found["by size"].items() for line in _group(f"{name} records a set", cells, brief)),
        *(line for name, cells in found["by world"].items() for line in _group(name, cells, brief)),
        "## Beside them: forget quality, privleak, a t-test, LLM dataset inference",
        "",
        "Called used or not forgotten, of the same records; forget quality and privleak beside one retrained model. "
        "None is a test of the deal: groups are unknown to all four.",
        "",
        *_field_table(found["field"]),
        "",
        *(
            line
            for size, fields in found["field by size"].items()
            for line in [f"{size} records a set:", "", *_field_table(fields), ""]
        ),
        "## After unlearning",
        "",
        "What is left in an unlearned model nobody knows: these are verdicts, not rates of error. By 20 and 8 groups; "
        "the number of a method is its learning rate.",
        "",
        *_unlearning_table(found["unlearning"]),
        "",
        "## What tells how difficult a text is, and what that finds",
        "",
        "N-grams of one to three words learned from a table's other groups, or small language models from a world's, "
        "of all sets, how difficult a text is (no set enters); or retrained models (8; of the weak recipe 3) say it. "
        "Of the same tables:",
        "",
        *lesson_table(found["lessons"]),
    ]


def _group(title: str, cells: Rates, how: Any = shown) -> list[str]:
    return [f"## {title}", "", *table(cells, how), ""]


def lesson_table(lessons: Rates, how: Any = shown) -> list[str]:
    """By world, a line a measure, a column a lesson."""
    lines = [f"| world | | {' | '.join(LESSONS.values())} |", "|---" * (2 + len(LESSONS)) + "|"]
    for name, cells in lessons.items():
        rows = {f"{words}: p at most 5%": cells["p at most 5%"][str(used)] for used, words in SHOWN.items()}
        rows |= {f"with known members: {MEASURES[measure][0]}": row for measure, row in cells["members"].items()}
        lines += [
            f"| {name} | {words} | {' | '.join(how(row[lesson]) for lesson in LESSONS)} |"
            for words, row in rows.items()
        ]
    return lines


def worst_table(by_cell: Rates) -> list[str]:
    """A line a measure, with the worst cell of each way."""
    lines = [f"| | {' | '.join(WAYS.values())} |", "|---" * (1 + len(WAYS)) + "|"]
    for name, (words, _, _) in MEASURES.items():
        cells = [worst(by_cell, way, name) for way in WAYS]
        lines.append(
            f"| {words} | {' | '.join('-' if one is None else f'{one[0]}: {brief(one[1])}' for one in cells)} |"
        )
    return lines


def _field_table(fields: Rates) -> list[str]:
    return [
        f"| | {' | '.join(words for words, _ in FIELD.values())} | median privleak |",
        "|---" * (2 + len(FIELD)) + "|",
        *(
            f"| {words} | {' | '.join(shown(fields[str(used)][name]) for name in FIELD)} | "
            f"{_percents(fields[str(used)]['median privleak'])} |"
            for used, words in SHOWN.items()
        ),
    ]


def _percents(number: float | None) -> str:
    return "-" if number is None else f"{number:.0f}%"


def _unlearning_table(unlearning: Rates) -> list[str]:
    ways = ("members", "known 3", "log")
    head = [f"{WAYS[way]}: `not forgotten`, `forgotten`, `inconclusive`" for way in ways]
    lines = [
        f"| method | {' | '.join(head)} | forget quality at most 5% | median privleak |",
        "|---" * (3 + len(ways)) + "|",
    ]
    for method, found in unlearning.items():
        cells = [", ".join(brief(one) for one in found["ways"][way].values()) for way in ways]
        cells += [brief(found["field"]["forget_quality"]), _percents(found["field"]["median privleak"])]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return lines


def drawing(answers: Sequence[Answer]) -> Any:
    """Each target's limit beside what it used, by way."""
    ways = [way for way in WAYS if way not in WITHOUT_LIMIT]
    return limits_drawn({WAYS[way]: of(answers, way=way, method="") for way in ways})


def limits_drawn(answers: Mapping[str, Sequence[Answer]], width: float = 10) -> Any:
    """A panel for each title: the limits of targets beside what these used; those below the truth stand out."""
    figure, axes = panels(1, len(answers), width=width, height=3, sharey=True)
    for axis, (title, some) in zip(axes, answers.items(), strict=True):
        generator = np.random.default_rng(1)
        used, upper = (np.array([answer[name] for answer in some], float) for name in ("used", "upper"))
        below = upper < used - 1e-5
        spread = used + generator.uniform(-0.08, 0.08, len(used))
        axis.scatter(spread[~below], upper[~below], s=3, color=COLORS[0], alpha=0.25, linewidths=0)
        axis.scatter(spread[below], upper[below], s=6, color=COLORS[1], linewidths=0)
        axis.axhline(STATED_FRACTION, color="#888888", linewidth=0.8)
        axis.set(title=title.replace(", ", ",\n"), xlabel="truly used", xlim=(-0.1, 1.1), ylim=(-0.03, 1.03))
    axes[0].set_ylabel("95% upper limit")
    return figure
