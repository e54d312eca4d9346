"""The rates of `memory_rates`, from its answers."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from experiments.error_rates import share_of
from experiments.memory_worlds import WORLDS
from jaxaudit.metrics.usage import STATED_FRACTION

Answer = dict[str, Any]
WAYS = {
    "members": "known members and a holdout",
    "members, models": "the same, and 40 shadow models",
    "own recipe": "a holdout, shadow models of the own recipe",
    "neither": "a holdout, and shadow models of other recipes",
}
UNTAUGHT = "members, neighbours"
WITHOUT_LIMIT = "neither"
"""The way that gives no limit."""
AFTERWARDS = "finetuned"
"""Trained on after the use: the truth is what is left, not what was used."""
SIZES = {"1,000 or more": lambda size: size >= 1000, "300": lambda size: size < 1000}
"""Query records of a world."""
USED = {1.0: "all used", 0.75: "three quarters used", 0.5: "half used", 0.25: "a quarter used", 0.0: "never used"}
VERDICTS = ("not forgotten", "forgotten", "inconclusive")
STRONG = 4.0
"""Standard errors of the members' own difference from which on `forgotten` is asked for."""
LIMITS = {
    "upper": "the test's own: Fieller's",
    "constrained": "power-constrained (Cowan et al. 2011), at one standard error",
    "cls": "CLs (Read 2002)",
}


def summarise(answers: Sequence[Answer]) -> dict[str, Any]:
    """Every rate that is reported."""
    kept = [each for each in answers if each["recipe"] != AFTERWARDS]
    later = [each for each in answers if each["recipe"] == AFTERWARDS]
    recipes = sorted({each["recipe"] for each in kept})
    worlds = [name for name in WORLDS if any(each["world"] == name for each in kept)]
    final = [each for each in kept if WORLDS[each["world"]].final]
    large = [each for each in kept if SIZES["1,000 or more"](WORLDS[each["world"]].size)]
    return {
        "targets": len({(each["world"], each["recipe"], each["model"], each["used"]) for each in answers}),
        "worlds": worlds,
        "final": [name for name in worlds if WORLDS[name].final],
        "models": len({(each["world"], each["recipe"], each["model"]) for each in answers}),
        "overall": {way: rates(of_way(kept, way)) for way in (*WAYS, UNTAUGHT)},
        "large worlds": {way: rates(of_way(large, way)) for way in (*WAYS, UNTAUGHT)},
        "final worlds": {way: rates(of_way(final, way)) for way in (*WAYS, UNTAUGHT)},
        "by recipe": {r: {way: rates(of_way(of(large, "recipe", r), way)) for way in WAYS} for r in recipes},
        "by world": {w: {way: rates(of_way(of(kept, "world", w), way)) for way in WAYS} for w in worlds},
        "trained on after": {way: rates(of_way(later, way)) for way in WAYS} if later else {},
        "verdicts": {size: _verdicts(of_size(kept, size)) for size in SIZES},
        "limits": {name: _limits(of_way(kept, "members"), name) for name in LIMITS},
        "estimates": {way: [_estimate(of_way(kept, way), used) for used in (1.0, 0.5, 0.25)] for way in WAYS},
    }


def of(answers: Sequence[Answer], name: str, value: Any) -> list[Answer]:
    return [each for each in answers if each[name] == value]


def of_way(answers: Sequence[Answer], way: str) -> list[Answer]:
    return of(answers, "way", way)


def of_size(answers: Sequence[Answer], size: str) -> list[Answer]:
    return [each for each in answers if SIZES[size](WORLDS[each["world"]].size)]


def rate(answers: Sequence[Answer], holds: Callable[[Answer], bool]) -> dict[str, Any]:
    return share_of(sum(map(holds, answers)), len(answers))


def covers(answer: Answer, limit: str = "upper") -> bool:
    return answer[limit] >= answer["used"] - 1e-5


def says(verdict: str) -> Callable[[Answer], bool]:
    return lambda each: each["verdict"] == verdict


def rates(answers: Sequence[Answer]) -> dict[str, Any]:
    """The rates of one cell."""
    never = of(answers, "used", 0.0)
    above = [each for each in answers if each["used"] > STATED_FRACTION]
    strong = [each for each in never if each.get("memory", 0.0) >= STRONG]
    weak = [each for each in never if each.get("memory", STRONG) < STRONG]
    return {
        "level": rate(never, lambda each: each["p_never"] <= 0.05),
        "false alarms": rate(never, says("not forgotten")),
        "wrong forgotten": rate(above, says("forgotten")),
        "at stated": rate(of(answers, "used", STATED_FRACTION), says("forgotten")),
        "covered": rate(answers, covers),
        "limited": rate([each for each in answers if each["upper"] < 1], covers),
        "forgotten": rate(never, says("forgotten")),
        "forgotten, strong": rate(strong, says("forgotten")),
        "forgotten, weak": rate(weak, says("forgotten")),
        "found": rate(of(answers, "used", 1.0), says("not forgotten")),
        "half found": rate(of(answers, "used", 0.5), says("not forgotten")),
        "inconclusive": rate(answers, says("inconclusive")),
    }


def _verdicts(answers: Sequence[Answer]) -> dict[str, Any]:
    """How often each verdict was given, by way and used share."""
    return {
        way: {
            str(used): {verdict: rate(of(of_way(answers, way), "used", used), says(verdict)) for verdict in VERDICTS}
            for used in USED
        }
        for way in WAYS
    }


def _limits(answers: Sequence[Answer], limit: str) -> dict[str, Any]:
    """What one kind of limit does: covered shares, and `forgotten` if it decided."""

    def settled(answer: Answer) -> bool:
        return answer[limit] <= STATED_FRACTION and answer["p_never"] > 0.05

    never = of(answers, "used", 0.0)
    blind = [each for each in never if each["detectable"] is None]
    return {
        "covered": {
            str(used): rate(of(answers, "used", used), lambda each: covers(each, limit)) for used in USED if used
        },
        "forgotten": rate(never, settled),
        "forgotten, blind": rate(blind, settled),
        "wrong forgotten": rate([each for each in answers if each["used"] > STATED_FRACTION], settled),
        "at stated": rate(of(answers, "used", STATED_FRACTION), settled),
    }


def _estimate(answers: Sequence[Answer], used: float) -> dict[str, Any]:
    """The median of the estimated fraction among those that have one, where members show a memory."""
    found = [each["fraction"] for each in of(answers, "used", used) if each["fraction"] is not None]
    return {"used": used, "of": len(found), "median": round(float(np.median(found)), 3) if found else None}


def total(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The rate of several cells together."""
    counts = [(each["count"], each["of"]) for each in parts]
    return share_of(sum(count for count, _ in counts), sum(of for _, of in counts))
