"""The page and the picture of `score_rates_adapters`."""

from collections.abc import Sequence
from typing import Any

from experiments.score_rates_adapters_summary import GIVEN, KINDS, NOTHING
from experiments.score_rates_page import brief, limits_drawn, share, shown
from experiments.score_rates_summary import MEASURES, OF_LIMITS, WITHOUT_LIMIT, Answer, Rates, of, worst

TABLED = (
    "false alarms",
    "wrong forgotten",
    "at stated",
    "covered",
    "given covered",
    "forgotten",
    "found",
    "half found",
)
BY_RECIPE = ("false alarms", "wrong forgotten", "at stated", "covered", "given covered", "found", "half found")
DRAWN = ("members", "all weights, known 3", "all weights, alone 3", "rank 4, known 3", "rank 4, alone 3")
PROTOCOL = (
    "A world is 60 authors of TOFU, or 60 invented patients of 10 notes each, in three parts of 20; its base model, of "
    "two layers, was trained on 60 others and is then frozen.",
    "Targets are adapters (LoRA) of rank 1, 4 and 16 beside all linear layers of the blocks, trained half as long, as "
    "long and twice as long as usual. A deal takes a part as known members, one as the query set, one as the holdout; "
    "a target used its members, and none, a quarter, half or all of the query set.",
    "Models of known truth are fine-tunes of the same base model by all weights, or by adapters of rank 4 of the usual "
    "length. So the latter have the recipe of one kind of target, and the former of none.",
    "A target is asked by 8 and by 20 groups of 10 records. Without a holdout the query set alone is in the table, and "
    "p (not used) rests on the models that never used it.",
    "The recipe is said to be the same (`--same-recipe`), which is true of one in nine targets beside adapters. With a "
    "holdout and three models or more the target is compared with them all the same; elsewhere the word alone decides, "
    "and without it no verdict would rest on these models.",
    "A world is one draw of groups, in three parts: targets of a part share their chance, so the intervals are too "
    "narrow. What the level is, the further deals show.",
)
WITH_MEMBERS, OF_ALL, OF_ADAPTERS = "members", "all weights, known 8", "rank 4, known 8"
OF_ONE, OF_THREE = "all weights, known 1", "all weights, known 3"
OWN = "rank 4, 1 x as long"
"""The recipe of targets that some models of known truth have, too."""


def counted_adapters(found: Rates) -> str:
    return (
        f"{found['targets']:,} targets (deals of {found['models']:,} adapters), asked by {found['tables']:,} sets of "
        f"records, in {len(found['worlds'])} worlds"
    )


def adapter_sentences(found: Rates) -> list[str]:
    """What the tables say, in bullet points, the worst first."""
    cells, by_recipe, again = found["all worlds"], found["by recipe"], found["again"]

    def worst_of(given: str, name: str) -> str:
        cell = worst(by_recipe, given, name)
        return "-" if cell is None else share(cell[1])

    def of_all(given: str, name: str) -> str:
        return share(cells[given][name])

    return [
        "- **The user's word is not enough**: with one fine-tune of all weights of each kind nothing is compared, and "
        f"{of_all(OF_ONE, 'covered')} of limits are at or above what an adapter used; {of_all(OF_ONE, 'at stated')} of "
        f"adapters that used a quarter are called `forgotten` ({worst_of(OF_ONE, 'at stated')} of the worst recipe), "
        f"and {of_all(OF_ONE, 'wrong forgotten')} of those that used half or all ({worst_of(OF_ONE, 'wrong forgotten')}"
        ").",
        "- **With a holdout and 8 of each kind, most models of another recipe are noticed**, and no limit is given: "
        f"beside fine-tunes of all weights {of_all(OF_ALL, 'at stated')} of those that used a quarter and "
        f"{of_all(OF_ALL, 'wrong forgotten')} of half or all are called `forgotten`, and of those that used "
        f"nothing {of_all(OF_ALL, 'forgotten')}. With 3 of each kind some are missed "
        f"({worst_of(OF_THREE, 'wrong forgotten')} of half or all used in the worst recipe).",
        "- **A limit that is given all the same is no safer**: of the limits below 100%, "
        f"{of_all(OF_THREE, 'given covered')} hold beside 3 fine-tunes of all weights of each kind, "
        f"{of_all(OF_ALL, 'given covered')} beside 8, and {of_all(OF_ADAPTERS, 'given covered')} beside 8 adapters of "
        f"rank 4 ({share(by_recipe[OWN][OF_ADAPTERS]['given covered'])} of their own recipe), since weaker adapters "
        f"are often not noticed; a quarter used is called `forgotten` in {of_all(OF_ADAPTERS, 'at stated')}, half or "
        f"all in {of_all(OF_ADAPTERS, 'wrong forgotten')}. With known members {of_all(WITH_MEMBERS, 'given covered')} "
        "hold: they show what the target itself remembers.",
        "- **Without a holdout the innocent are accused**: beside 8 fine-tunes of all weights "
        f"{of_all('all weights, alone 8', 'false alarms')} of adapters that never used the query set are called `not "
        f"forgotten` ({worst_of('all weights, alone 8', 'false alarms')} of the worst recipe), beside 8 adapters of "
        f"rank 4 {of_all('rank 4, alone 8', 'false alarms')} ({worst_of('rank 4, alone 8', 'false alarms')}; of their "
        f"own recipe {share(by_recipe[OWN]['rank 4, alone 8']['false alarms'])}).",
        "- **With a holdout the level holds, whatever the models of known truth are**: when query set and holdout of "
        f"targets that used neither were dealt anew, p was at most 5% in {shown(again[NOTHING]['all'])}; beside 8 "
        f"retrained models of all weights in {shown(again[KINDS['all weights']]['all'])}, beside 8 adapters of rank 4 "
        f"in {shown(again[KINDS['rank 4']]['all'])}.",
        "- **Retrained models of another recipe still help to find use**: of half used, "
        f"{of_all('holdout', 'half found')} are found with a holdout alone, {of_all(OF_ALL, 'half found')} beside 8 "
        f"fine-tunes of all weights, {of_all(OF_ADAPTERS, 'half found')} beside 8 adapters of rank 4.",
    ]


def adapter_lines(found: Rates) -> list[str]:
    """The page, the worst cells first."""
    once = f"{len(found['final'])} worlds were looked at only once, at the end: {'; '.join(found['final'])}."
    return [
        "# Adapters of other rank and length than the models of known truth",
        "",
        f"{counted_adapters(found)}; with exact 95% intervals. {once if found['final'] else ''}".rstrip(),
        "",
        *(f"- {words}" for words in PROTOCOL),
        "",
        "## What it says",
        "",
        *adapter_sentences(found),
        "",
        "## The worst recipes of targets",
        "",
        *worst_given(found["by recipe"]),
        *(
            ["", "## The worlds that were looked at only once", "", *table_given(found["looked at once"])]
            if found["final"]
            else []
        ),
        "",
        "## All worlds",
        "",
        *table_given(found["all worlds"]),
        "",
        "## Dealt anew",
        "",
        "The query set and the holdout of targets that used none of either were dealt anew, 8 groups of 10 records "
        "against 8; p was at most 5%, beside nothing else, and beside 8 retrained models of a kind:",
        "",
        *_table(
            ["", *found["again"]],
            ([name, *(shown(rates[name]) for rates in found["again"].values())] for name in found["again"][NOTHING]),
        ),
        "",
        "## By recipe of the target",
        "",
        *recipe_tables(found["by recipe"]),
        *(line for name, cells in found["by world"].items() for line in [f"## {name}", "", *table_given(cells), ""]),
    ]


def has_rate(given: str, name: str) -> bool:
    return given not in WITHOUT_LIMIT or name not in OF_LIMITS


def table_given(cells: Rates, how: Any = shown) -> list[str]:
    """A line a way of giving data, a column a measure."""
    rows = (
        [words, *(how(cells[given][name]) if has_rate(given, name) else "-" for name in TABLED)]
        for given, words in GIVEN.items()
    )
    return _table(["", *(MEASURES[name][0] for name in TABLED)], rows)


def worst_given(by_recipe: Rates) -> list[str]:
    """A line a way of giving data, with the worst recipe by each measure."""
    rows = (
        [words, *("-" if one is None else f"{one[0]}: {brief(one[1])}" for one in cells)]
        for given, words in GIVEN.items()
        for cells in [[worst(by_recipe, given, name) for name in TABLED]]
    )
    return _table(["", *(MEASURES[name][0] for name in TABLED)], rows)


def recipe_tables(by_recipe: Rates) -> list[str]:
    """A table a measure: a line a recipe of targets, a column a way of giving data."""
    lines: list[str] = []
    for name in BY_RECIPE:
        given = [each for each in GIVEN if has_rate(each, name)]
        rows = ([recipe, *(brief(cells[each][name]) for each in given)] for recipe, cells in by_recipe.items())
        lines += [f"{MEASURES[name][0]}:", "", *_table(["", *(GIVEN[each] for each in given)], rows), ""]
    return lines


def _table(head: Sequence[str], rows: Any) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def adapter_drawing(answers: Sequence[Answer]) -> Any:
    """Each target's limit beside what it used, by way of giving data."""
    judged = [answer for answer in answers if "again" not in answer]
    some = {}
    for given in DRAWN:
        kind, _, way = given.rpartition(", ")
        some[GIVEN[given].replace(": ", ":\n")] = of(judged, kind=kind, way=way)
    return limits_drawn(some)
