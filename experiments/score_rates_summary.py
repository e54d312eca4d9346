"""The rates of `score_rates`, from its answers."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from experiments.error_rates import share_of
from experiments.score_rates_worlds import USUAL, WORLDS
from experiments.summary import Row
from jaxaudit.metrics.usage import STATED_FRACTION

Answer = dict[str, Any]
Rates = dict[str, Any]
WAYS = {
    "holdout": "a holdout",
    "members": "a holdout and known members",
    "known 1": "a holdout, 1 model of known truth of each kind",
    "known 3": "3 of each kind",
    "known 8": "8 of each kind",
    "log, groups": "a log of open-unlearning and a retrained model's, groups stated",
    "log": "the same log, groups not stated",
}
WITHOUT_LIMIT = ("holdout", "log, groups", "log")
"""Ways that give no limit: nothing shows how much use would change."""
MEASURES: dict[str, tuple[str, Callable[[Answer], bool], Callable[[Answer], bool]]] = {
    "false alarms": (
        "never used, called `not forgotten`: wrong",
        lambda answer: answer["used"] == 0,
        lambda answer: answer["verdict"] == "not forgotten",
    ),
    "wrong forgotten": (
        f"more than {STATED_FRACTION:.0%} used, called `forgotten`: wrong",
        lambda answer: answer["used"] > STATED_FRACTION,
        lambda answer: answer["verdict"] == "forgotten",
    ),
    "at stated": (
        f"exactly {STATED_FRACTION:.0%} used, called `forgotten`: allowed up to 5%",
        lambda answer: answer["used"] == STATED_FRACTION,
        lambda answer: answer["verdict"] == "forgotten",
    ),
    "covered": (
        "the 95% limit, 100% if none is given, is at or above the truth",
        lambda answer: answer["used"] > 0,
        lambda answer: answer["upper"] >= answer["used"] - 1e-5,
    ),
    "given covered": (
        "of the limits below 100% alone: at or above the truth",
        lambda answer: answer["used"] > 0 and answer["upper"] < 1,
        lambda answer: answer["upper"] >= answer["used"] - 1e-5,
    ),
    "forgotten": (
        "never used, called `forgotten`: right",
        lambda answer: answer["used"] == 0,
        lambda answer: answer["verdict"] == "forgotten",
    ),
    "found": (
        "all used, called `not forgotten`: right",
        lambda answer: answer["used"] == 1,
        lambda answer: answer["verdict"] == "not forgotten",
    ),
    "half found": (
        "half used, called `not forgotten`: right",
        lambda answer: answer["used"] == 0.5,
        lambda answer: answer["verdict"] == "not forgotten",
    ),
    "quarter found": (
        "a quarter used, called `not forgotten`: right",
        lambda answer: answer["used"] == 0.25,
        lambda answer: answer["verdict"] == "not forgotten",
    ),
}
"""By name: its words, the targets that it is of, and what is counted."""
OF_LIMITS = ("wrong forgotten", "at stated", "covered", "given covered", "forgotten")
HIGH_IS_WORSE = ("false alarms", "wrong forgotten", "at stated")
SHOWN = {0.0: "never used", 0.25: "a quarter used", 0.5: "half used", 1.0: "all used"}
FIELD: dict[str, tuple[str, Callable[[Answer], bool]]] = {
    "forget_quality": ("forget quality at most 5%", lambda answer: answer["forget_quality"] <= 0.05),
    "privleak": ("privleak below -5%", lambda answer: answer["privleak"] < -5),
    "t_test": ("t-test of the losses, 5%", lambda answer: answer["t_test"] <= 0.05),
    "dataset_inference": ("LLM dataset inference, 5%", lambda answer: answer["dataset_inference"] <= 0.05),
}
"""How the field's numbers are read as "not forgotten"; MUSE takes a privleak within 5% for none."""
LESSONS = {
    "none": "nothing",
    "words": "n-grams of words, as `scores lm` adds them",
    "taught": "small language models of these texts",
    "apart": "8 retrained models, a covariate each",
    "mean": "their mean",
}
"""What tells how difficult a text is."""
OF_LESSONS = ("false alarms", "wrong forgotten", "forgotten")
"""Measures of each lesson, with known members."""


def rate(answers: Sequence[Answer], holds: Callable[[Answer], bool]) -> Rates:
    found = share_of(sum(map(holds, answers)), len(answers))
    return {name: round(number, 5) if isinstance(number, float) else number for name, number in found.items()}


def of(answers: Sequence[Answer], **fields: Any) -> list[Answer]:
    return [answer for answer in answers if all(answer.get(name) == value for name, value in fields.items())]


def rates(answers: Sequence[Answer]) -> Rates:
    """Every measure of every way."""
    cells: Rates = {}
    for way in WAYS:
        of_way = of(answers, way=way)
        cells[way] = {
            name: rate([answer for answer in of_way if asked(answer)], holds)
            for name, (_, asked, holds) in MEASURES.items()
        }
    return cells


def summarise(answers: Sequence[Answer], lessons: Sequence[Answer]) -> Rates:
    """Every rate that is reported. An answer has its world's name."""
    trained = [answer for answer in answers if answer.get("method") == ""]
    judged = [answer for answer in trained if answer["way"] in WAYS]
    after = [answer for answer in answers if answer.get("method")]
    worlds = [name for name in WORLDS if any(answer["world"] == name for answer in judged)]
    final = [name for name in worlds if WORLDS[name].final]
    sizes = sorted({(answer["groups"], answer["records"]) for answer in judged})
    return {
        "worlds": worlds,
        "final": final,
        "models": len({(answer["world"], answer["model"]) for answer in trained}),
        "targets": len({(answer["world"], answer["deal"], answer["model"]) for answer in trained}),
        "unlearned": len({(answer["world"], answer["deal"], answer["method"]) for answer in after}),
        "tables": len(of(judged, way="holdout")),
        "looked at once": rates([answer for answer in judged if answer["world"] in final]),
        "all worlds": rates(judged),
        "usual recipe": rates([answer for answer in judged if WORLDS[answer["world"]].rate == USUAL]),
        "weak recipe": rates([answer for answer in judged if WORLDS[answer["world"]].rate != USUAL]),
        "by world": {name: rates(of(judged, world=name)) for name in worlds},
        "by size": {
            f"{groups} x {records}": rates(of(judged, groups=groups, records=records)) for groups, records in sizes
        },
        "by cell": {
            f"{name}, {groups} x {records}": rates(of(judged, world=name, groups=groups, records=records))
            for name in worlds
            for groups, records in sizes
        },
        "again": {
            way: {
                name: rate(
                    [answer for answer in of(answers, way=way, **place) if "again" in answer],
                    lambda answer: answer["again"] <= 0.05,
                )
                for name, place in {"all": {}, **{world: {"world": world} for world in worlds}}.items()
            }
            for way in ("holdout", "retrained")
        },
        "field": {str(used): _field(of(trained, way="others", used=used)) for used in SHOWN},
        "field by size": {
            f"{groups} x {records}": {
                str(used): _field(of(trained, way="others", used=used, groups=groups, records=records))
                for used in SHOWN
            }
            for groups, records in sizes
        },
        "unlearning": {
            method: _unlearned(of(after, method=method)) for method in sorted({answer["method"] for answer in after})
        },
        "lessons": {
            name: _lessons(lessons if name == "all" else of(lessons, world=name))
            for name in ("all", *(world for world in worlds if of(lessons, world=world)))
        },
    }


def _field(answers: Sequence[Answer]) -> Rates:
    return {name: rate(answers, holds) for name, (_, holds) in FIELD.items()} | {
        "median privleak": float(np.median([answer["privleak"] for answer in answers])) if answers else None
    }


def _unlearned(answers: Sequence[Answer]) -> Rates:
    """The verdicts on models that were unlearned by one method and strength; nobody knows the truth."""
    ways = {
        way: {
            verdict: rate(of(answers, way=way), lambda answer, verdict=verdict: answer["verdict"] == verdict)
            for verdict in ("not forgotten", "forgotten", "inconclusive")
        }
        for way in ("holdout", "members", "known 3", "log")
    }
    return {"ways": ways, "field": _field(of(answers, way="others"))}


def _lessons(answers: Sequence[Answer]) -> Rates:
    """What each lesson changes, of the same tables: p at most 5% by what was used, and verdicts with known members."""
    by_lesson = {lesson: of(answers, lesson=lesson) for lesson in LESSONS}
    found = {
        str(used): {
            lesson: rate(of(cell, way="holdout", used=used), lambda answer: answer["p_never"] <= 0.05)
            for lesson, cell in by_lesson.items()
        }
        for used in SHOWN
    }
    with_members = {
        name: {
            lesson: rate([answer for answer in of(cell, way="members") if asked(answer)], holds)
            for lesson, cell in by_lesson.items()
        }
        for name, (_, asked, holds) in MEASURES.items()
        if name in OF_LESSONS
    }
    return {"p at most 5%": found, "members": with_members}


def worst(cells: Rates, way: str, name: str) -> tuple[str, Rates] | None:
    """The cell whose rate is the worst, and the rate; None where no cell has one."""
    if way in WITHOUT_LIMIT and name in OF_LIMITS:
        return None
    known = [(cell, ways[way][name]) for cell, ways in cells.items() if ways[way][name]["share"] is not None]
    if known and len({found["share"] for _, found in known}) == 1:
        return "every cell", share_of(*(sum(found[part] for _, found in known) for part in ("count", "of")))
    sign = 1 if name in HIGH_IS_WORSE else -1
    return max(known, key=lambda cell: sign * cell[1]["share"], default=None)


def summary(result: dict[str, Any]) -> list[Row]:
    """What `score_rates` says of itself in `experiments/README.md`."""
    found = result["rates"]
    cells = found["all worlds"]
    names = ("false alarms", "wrong forgotten", "covered", "found", "half found")

    def cell(way: str, name: str) -> str:
        share = cells[way][name]["share"]
        return "-" if share is None or (way in WITHOUT_LIMIT and name in OF_LIMITS) else f"{share:.1%}"

    return [
        Row(
            "tofu2024",
            "Error rates of tables of scores of language models",
            f"{MEASURES[name][0]}: {'; '.join(WAYS.values())}",
            "none given",
            ", ".join(cell(way, name) for way in WAYS),
            f"Over {found['targets']:,} targets (deals of {found['models']:,} language models) in "
            f"{len(found['worlds'])} worlds of small models of words trained from nothing: no claim about large ones.",
            "--cache FOLDER --data FOLDER",
        )
        for name in names
    ]
