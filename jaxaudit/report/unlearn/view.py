"""The `unlearn` answer as a part of a page."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from jaxaudit.audits.unlearn.result import REFERENCES
from jaxaudit.errors import visible
from jaxaudit.plots import unlearn as plot
from jaxaudit.plots.style import canvas, row_height
from jaxaudit.report.numbers import nats, number, precise
from jaxaudit.report.page import Answer, Cells, Checked, Confidence, Part, Picture, Tone
from jaxaudit.report.repeat import repeat
from jaxaudit.report.run import Run, named

SCORES = {
    "efficacy": "efficacy",
    "bound": "bound",
    "remaining_accuracy": "accuracy on remaining records",
    "forgotten_accuracy": "accuracy on forgotten records",
    "test_accuracy": "accuracy on test records",
    "attack": "attack probability",
}
TONES: dict[str, Tone] = {"differs": "bad", "not told apart": "good", "inconclusive": "open"}


def unlearn_part(run: Run) -> Part:
    """What a page says of a run of `unlearn`."""
    result, protocol = run.result, run.result["protocol"]
    judged = [method for method in result["methods"] if method["name"] not in REFERENCES]
    drawn = drawn_methods(result)
    guess = protocol["members_share"]
    attacked = any(method.attack is not None for method in drawn)
    return Part(
        named(run),
        run.kind,
        "Did unlearning work?",
        f"{protocol['seeds']} models were trained on {protocol['training_records']:,} records and made to forget "
        f"{protocol['forgotten_records']:,} of them ({visible(result['forgotten'])}). What forgetting should look like "
        "is shown by models retrained without those records: a method that lies outside their band forgot too little, "
        "or too much.",
        tuple(_answer(result, method) for method in judged),
        _checks(result),
        (
            efficacies_picture("efficacy", drawn, _band(result)),
            _bounds(drawn),
            *([_attacks(drawn, guess)] if attacked else []),
        ),
        (_accuracies(result), _places(result)),
        tuple(visible(caveat) for caveat in result["caveats"]),
        repeat(result["provenance"]),
        (
            *("efficacy", "bound of the efficacy", "Fisher information", "retraining", "amnesiac unlearning"),
            *("Fisher forgetting", "membership attack", "not told apart"),
        ),
    )


def drawn_methods(result: Mapping[str, Any]) -> list[plot.Method]:
    """Every method that was measured, to be drawn."""

    def values(method: Mapping[str, Any], name: str) -> np.ndarray | None:
        spread = method["scores"][name]
        return None if spread is None else np.array([nats(value) for value in spread["values"]])

    found = []
    for method in result["methods"]:
        efficacy, bound = values(method, "efficacy"), values(method, "bound")
        if efficacy is not None and bound is not None:
            found.append(plot.Method(visible(method["name"]), efficacy, bound, values(method, "attack")))
    return found


def _answer(result: Mapping[str, Any], method: Mapping[str, Any]) -> Answer:
    verdict: str = method["conclusion"]
    apart = [
        f"{SCORES[name]} {place['verdict']}"
        for name, place in method["places"].items()
        if place["verdict"] in ("above", "below")
    ]
    words = {
        "differs": f"It differs from retraining: {'; '.join(apart)}.",
        "not told apart": "It is not told apart from retraining by any of these scores.",
        "inconclusive": "Not even the original, which forgot nothing, is told apart from retraining."
        if result["protocol"]["enough_seeds"]
        else "Too few seeds to tell it from retraining.",
    }
    level = result["protocol"]["level"]
    confidence = {
        "differs": Confidence("strong", f"Ranks among retrained models, at {100 * level:g}% over all scores together."),
        "not told apart": Confidence("fair", "Not told apart is no proof of forgetting: another score may tell."),
        "inconclusive": Confidence(
            "none",
            "These scores cannot show forgetting here."
            if result["protocol"]["enough_seeds"]
            else f"{result['protocol']['seeds']} seeds cannot show a difference (--seeds).",
        ),
    }
    spread = method["scores"]["efficacy"]
    between = "" if spread is None else f"{precise(spread['low'])} to {precise(spread['high'])} (all seeds)"
    place = method["places"].get("efficacy")
    facts = []
    if place is not None:
        band = f"{precise(place['retrained_low'])} to {precise(place['retrained_high'])}"
        facts.append(("Efficacy of retrained models", band))
    attack = method["scores"]["attack"]
    if attack is not None:
        facts.append(("Attack probability", number(attack["median"], 2)))
    return Answer(
        visible(method["name"]),
        {"differs": "differs from retraining"}.get(verdict, verdict),
        TONES[verdict],
        words[verdict],
        "efficacy (median)",
        "none" if spread is None else precise(spread["median"]),
        between,
        confidence[verdict],
        tuple(facts),
    )


def _checks(result: Mapping[str, Any]) -> tuple[Checked, ...]:
    protocol = result["protocol"]
    enough = protocol["enough_seeds"]
    endless = [
        visible(method["name"])
        for method in result["methods"]
        if method["scores"]["efficacy"] is not None and "infinity" in method["scores"]["efficacy"]["values"]
    ]
    attacked = protocol["members_share"] is not None
    found = (
        Checked(
            "enough seeds",
            "passed" if enough else "failed",
            f"{protocol['seeds']} seeds" + ("" if enough else " are too few to show any difference; use --seeds 20"),
        ),
        Checked(
            "finite efficacies",
            "warning" if endless else "passed",
            f"some models of {', '.join(endless)} fit the records perfectly, which looks like knowing nothing of them"
            if endless
            else "no model fits the records so perfectly that nothing could be measured",
        ),
        Checked(
            "attack beside it",
            "passed" if attacked else "warning",
            "a learned membership attack was made on every model"
            if attacked
            else "no membership attack was made, and efficacy alone can mislead (--nonmembers)",
        ),
    )
    return tuple(sorted(found, key=lambda each: ("failed", "warning", "passed").index(each.state)))


def _band(result: Mapping[str, Any]) -> tuple[float, float] | None:
    spread = next(
        (method["scores"]["efficacy"] for method in result["methods"] if method["name"] == "retraining"), None
    )
    return None if spread is None else (nats(spread["low"]), nats(spread["high"]))


def _values(drawn: list[plot.Method], title: str, names: tuple[str, ...]) -> Cells:
    rows = []
    for method in drawn:
        for seed in range(len(method.efficacy)):
            shown = (getattr(method, name) for name in names)
            cells = ("-" if values is None or seed >= len(values) else precise(float(values[seed])) for values in shown)
            rows.append((method.name, str(seed), *cells))
    return Cells(title, ("models", "seed", *names), tuple(rows), ("seed", *names), folded=True)


def efficacies_picture(name: str, drawn: list[plot.Method], band: tuple[float, float] | None) -> Picture:
    """Efficacy of every model of these methods, beside the band of retrained ones, if there is one."""
    shaded = " The shaded band is where retrained models lie: neither less nor more is what forgetting should leave."

    def draw() -> Figure:
        figure, axes = canvas(row_height(len(drawn)) + 0.2)
        plot.draw_efficacies(axes, drawn, band)
        return figure

    return Picture(
        name,
        "Efficacy" + (" beside retrained models" if band else ""),
        "; ".join(f"{method.name}: median {precise(float(np.median(method.efficacy)))}" for method in drawn),
        "A mark is a model, a bar the median, a triangle an infinite value." + (shaded if band else ""),
        draw,
        _values(drawn, "Efficacy of every model", ("efficacy",)),
    )


def _bounds(drawn: list[plot.Method]) -> Picture:
    def draw() -> Figure:
        figure, axes = canvas()
        plot.draw_bounds(axes, drawn)
        return figure

    return Picture(
        "bound",
        "Efficacy against its bound",
        "Every mark lies on or above the line where the two are equal.",
        "The bound is never below the efficacy: marks near the dotted line are where it is good.",
        draw,
        _values(drawn, "Efficacy and bound of every model", ("efficacy", "bound")),
    )


def _attacks(drawn: list[plot.Method], guess: float | None) -> Picture:
    def draw() -> Figure:
        figure, axes = canvas()
        plot.draw_attacks(axes, drawn, guess)
        return figure

    said = [f"{m.name}: median {number(float(np.median(m.attack)), 2)}" for m in drawn if m.attack is not None]
    return Picture(
        "attack",
        "Attack probability against efficacy",
        "; ".join(said),
        "How sure a learned attack is that the forgotten records were trained on."
        + ("" if guess is None else f" The dotted line, {number(guess, 2)}, is what one who knows nothing says."),
        draw,
        _values(drawn, "Efficacy and attack probability of every model", ("efficacy", "attack")),
    )


def _accuracies(result: Mapping[str, Any]) -> Cells:
    names = [name for name in SCORES if name not in ("efficacy", "bound")]

    def shown(spread: Mapping[str, Any] | None) -> str:
        if spread is None:
            return "-"
        return f"{number(spread['median'], 2)} ({number(spread['low'], 2)} to {number(spread['high'], 2)})"

    columns = tuple(SCORES[name] for name in names)
    return Cells(
        "Accuracy, median and range over seeds",
        ("models", *columns),
        tuple(
            (visible(method["name"]), *(shown(method["scores"][name]) for name in names))
            for method in result["methods"]
        ),
        columns,
    )


def _places(result: Mapping[str, Any]) -> Cells:
    return Cells(
        "Places among the retrained models",
        ("models", "score", "verdict", "p", "retrained from", "to", "share below", "share above"),
        tuple(
            (
                visible(method["name"]),
                SCORES.get(name, visible(name)),
                place["verdict"],
                precise(place["p_value"]),
                precise(place["retrained_low"]),
                precise(place["retrained_high"]),
                number(place["share_below"], 2),
                number(place["share_above"], 2),
            )
            for method in result["methods"]
            for name, place in method["places"].items()
        ),
        ("p", "retrained from", "to", "share below", "share above"),
        folded=True,
    )
