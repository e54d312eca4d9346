"""The rates of adapters of other rank and length than models of known truth, and the part of the page about them."""

from collections.abc import Sequence
from typing import Any

from experiments.score_rates_adapters import ADAPTED, KNOWN, TARGETS, Recipe
from experiments.score_rates_adapters_judge import ALONE
from experiments.score_rates_judge import COUNTS
from experiments.score_rates_summary import (
    MEASURES,
    OF_LIMITS,
    WITHOUT_LIMIT,
    Answer,
    Rates,
    of,
    rate,
    worst,
)

GIVEN = {
    "holdout": "a holdout",
    "members": "a holdout and known members",
    **{
        f"{kind}, {way} {count}": f"{words}{count} of each kind: {kind}"
        for kind in KNOWN
        for way, words, counts in (("known", "a holdout, ", COUNTS), ("alone", "no holdout, ", ALONE))
        for count in counts
    },
}
"""What the table has beside the query set; models of known truth with their recipe."""
TABLED = ("false alarms", "wrong forgotten", "at stated", "covered", "forgotten", "found", "half found")
BY_RECIPE = ("false alarms", "wrong forgotten", "covered", "found")


def rates_given(answers: Sequence[Answer]) -> Rates:
    """Every measure of every way of giving data."""
    cells: Rates = {}
    for given in GIVEN:
        kind, _, way = given.rpartition(", ")
        some = [answer for answer in of(answers, kind=kind, way=way) if "again" not in answer]
        cells[given] = {
            name: rate([answer for answer in some if asked(answer)], holds)
            for name, (_, asked, holds) in MEASURES.items()
        }
    return cells


def summarise_adapters(answers: Sequence[Answer]) -> Rates:
    """Every rate that is reported. An answer has its world's name."""
    judged = [answer for answer in answers if "again" not in answer]
    again = [answer for answer in answers if "again" in answer]
    worlds = [name for name in ADAPTED if of(answers, world=name)]
    final = [name for name in worlds if ADAPTED[name].final]

    def of_recipe(recipe: Recipe) -> list[Answer]:
        return of(judged, rank=recipe.rank, length=recipe.length)

    def models(*more: str) -> int:
        return len({tuple(answer[name] for name in ("world", "rank", "length", "model", *more)) for answer in judged})

    return {
        "worlds": worlds,
        "final": final,
        "models": models(),
        "targets": models("deal"),
        "tables": len(of(judged, way="holdout")),
        "all worlds": rates_given(judged),
        "looked at once": rates_given([answer for answer in judged if answer["world"] in final]),
        "by world": {name: rates_given(of(judged, world=name)) for name in worlds},
        "by recipe": {str(recipe): rates_given(of_recipe(recipe)) for recipe in TARGETS},
        "again": {
            kind or "a holdout": {
                name: rate(of(again, kind=kind, **place), lambda answer: answer["again"] <= 0.05)
                for name, place in {
                    "all": {},
                    **{str(recipe): {"rank": recipe.rank, "length": recipe.length} for recipe in TARGETS},
                }.items()
            }
            for kind in ("", *KNOWN)
        },
    }


def has_rate(given: str, name: str) -> bool:
    return given not in WITHOUT_LIMIT or name not in OF_LIMITS


def table_given(cells: Rates, how: Any) -> list[str]:
    """A line a way of giving data, a column a measure."""
    return [
        f"| | {' | '.join(MEASURES[name][0] for name in TABLED)} |",
        "|---" * (1 + len(TABLED)) + "|",
        *(
            f"| {words} | "
            + " | ".join(how(cells[given][name]) if has_rate(given, name) else "-" for name in TABLED)
            + " |"
            for given, words in GIVEN.items()
        ),
    ]


def worst_given(by_recipe: Rates, how: Any) -> list[str]:
    """A line a way of giving data, with the worst recipe by each measure."""
    lines = [f"| | {' | '.join(MEASURES[name][0] for name in TABLED)} |", "|---" * (1 + len(TABLED)) + "|"]
    for given, words in GIVEN.items():
        cells = [worst(by_recipe, given, name) for name in TABLED]
        lines.append(f"| {words} | {' | '.join('-' if one is None else f'{one[0]}: {how(one[1])}' for one in cells)} |")
    return lines
