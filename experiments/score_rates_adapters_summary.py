"""The rates of `score_rates_adapters`, from its answers."""

from collections.abc import Sequence
from typing import Any

from experiments.score_rates_adapters_judge import ALONE
from experiments.score_rates_adapters_models import ADAPTED, KNOWN, TARGETS, Recipe
from experiments.score_rates_judge import COUNTS
from experiments.score_rates_summary import (
    MEASURES,
    OF_LIMITS,
    WITHOUT_LIMIT,
    Answer,
    Rates,
    of,
    rate,
)
from experiments.summary import Row

KINDS = {"all weights": "fine-tunes of all weights", "rank 4": "adapters of rank 4"}
NOTHING = "a holdout"
GIVEN = {
    "holdout": NOTHING,
    "members": "a holdout and known members",
    **{
        f"{kind}, {way} {count}": f"{words}, {count} of each kind: {KINDS[kind]}"
        for kind in KNOWN
        for way, words, counts in (("known", "a holdout", COUNTS), ("alone", "no holdout", ALONE))
        for count in counts
    },
}
"""What the table has beside the query set; models of known truth with their recipe."""


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
            KINDS.get(kind, NOTHING): {
                name: rate(of(again, kind=kind, **place), lambda answer: answer["again"] <= 0.05)
                for name, place in {
                    "all": {},
                    **{world: {"world": world} for world in worlds},
                    **{str(recipe): {"rank": recipe.rank, "length": recipe.length} for recipe in TARGETS},
                }.items()
            }
            for kind in ("", *KNOWN)
        },
    }


def summary(result: dict[str, Any]) -> list[Row]:
    """What `score_rates_adapters` says of itself in `experiments/README.md`."""
    found = result["rates"]
    given = [each for each in GIVEN if not each.endswith(("1", "3"))]

    def cell(each: str, name: str) -> str:
        share = found["all worlds"][each][name]["share"]
        return "-" if share is None or (each in WITHOUT_LIMIT and name in OF_LIMITS) else f"{share:.1%}"

    return [
        Row(
            "tofu2024",
            "Adapters of other rank and length than the models of known truth",
            f"{MEASURES[name][0]}: {'; '.join(GIVEN[each] for each in given)}",
            "none given",
            ", ".join(cell(each, name) for each in given),
            f"Over {found['targets']:,} targets (deals of {found['models']:,} adapters of nine recipes) in "
            f"{len(found['worlds'])} worlds, on base models of two layers: no claim about large ones.",
            "--cache FOLDER --data FOLDER",
        )
        for name in ("false alarms", "wrong forgotten", "at stated", "covered", "found", "half found")
    ]
