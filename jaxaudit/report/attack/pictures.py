"""The charts of an `attack` run."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from jaxaudit.errors import visible
from jaxaudit.plots import attack as plot
from jaxaudit.plots.style import canvas, row_height
from jaxaudit.report.numbers import level_of, nats, number, precise
from jaxaudit.report.page import Cells, Picture
from jaxaudit.report.run import Run

SAMPLED = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, *(share / 10 for share in range(1, 11)))


def estimate_row(name: str, estimate: Mapping[str, Any]) -> plot.Row:
    """A number with its interval, to be drawn."""
    return plot.Row(name, *(nats(estimate[each]) for each in ("value", "low", "high")))


def estimates_picture(name: str, rows: list[plot.Row], level: str) -> Picture:
    """Accuracies with their intervals against 0.5."""

    def draw() -> Figure:
        figure, axes = canvas(row_height(len(rows)))
        plot.draw_estimates(axes, rows, "share of guesses that were right", 0.5)
        return figure

    return Picture(
        name,
        "Accuracy of each attack",
        "; ".join(f"{row.name}: {number(row.value)}" for row in rows) + ". A line marks 0.5.",
        f"The diamond is the accuracy, the bar its {level} interval. The dotted line is a coin.",
        draw,
        Cells(
            "Accuracy",
            ("attack", "accuracy", "low", "high"),
            tuple((row.name, *(number(value) for value in row[1:])) for row in rows),
            ("accuracy", "low", "high"),
            folded=True,
        ),
    )


def accuracies_picture(result: Mapping[str, Any]) -> Picture:
    rows = [estimate_row(attack["name"], attack["accuracy"]) for attack in result["attacks"]]
    return estimates_picture("accuracy", rows, level_of(result["provenance"]))


def curve_pictures(run: Run) -> list[Picture]:
    curves = [
        (attack["name"], plot.operating_curve(run.arrays[f"scores_{attack['name']}"], run.arrays["truth"]))
        for attack in run.result["attacks"]
    ]

    def at(curve: plot.Curve, limit: float) -> str:
        place = np.searchsorted(curve.false_positive, limit, side="right") - 1
        return f"{curve.true_positive[place]:.4f}"

    names = tuple(name for name, _ in curves)
    numbers = Cells(
        "True positive rate at no more than this false positive rate",
        ("false positive rate", *names),
        tuple((f"{limit:g}", *(at(curve, limit) for _, curve in curves)) for limit in SAMPLED),
        ("false positive rate", *names),
        folded=True,
    )
    seen = "At 10% false positives: " + "; ".join(f"{name} finds {at(curve, 0.1)} of members" for name, curve in curves)

    def draw(logarithmic: bool) -> Figure:
        figure, axes = canvas()
        plot.draw_curves(axes, curves, logarithmic=logarithmic)
        return figure

    captions = (
        "The share of members found at each share of others accused. The higher above the dotted line, the better the "
        "attack.",
        "The same on logarithmic axes: the left end shows whom an attacker can be sure of. A curve that stands above "
        "the dotted line there finds somebody without accusing others.",
    )
    return [
        Picture(
            "roc-log" if logarithmic else "roc",
            "Operating characteristic" + (", logarithmic" if logarithmic else ""),
            seen,
            captions[logarithmic],
            lambda logarithmic=logarithmic: draw(logarithmic),
            numbers,
        )
        for logarithmic in (False, True)
    ]


def against_pdtp_picture(result: Mapping[str, Any]) -> Picture:
    names = tuple(attack["name"] for attack in result["attacks"])
    values = np.array([nats(target["pdtp"]) for target in result["targets"]])
    accuracies = [(name, np.array([target["accuracy"][name] for target in result["targets"]])) for name in names]

    def draw() -> Figure:
        figure, axes = canvas()
        plot.draw_accuracies(axes, values, accuracies)
        return figure

    said = [f"{attack['name']} {correlation_text(attack['correlation'])}" for attack in result["attacks"]]
    return Picture(
        "accuracy-pdtp",
        "Who is found out, against PDTP",
        f"Correlations: {'; '.join(said)}.",
        f"A mark is a target under one attack. Correlation with PDTP: {'; '.join(said)}.",
        draw,
        Cells(
            "Targets",
            ("record", "PDTP", *names),
            tuple(
                (
                    str(target["index"]),
                    precise(target["pdtp"]),
                    *(f"{target['accuracy'][name]:.3f}" for name in names),
                )
                for target in result["targets"]
            ),
            ("record", "PDTP", *names),
            folded=True,
        ),
    )


def correlation_text(found: Mapping[str, Any]) -> str:
    if found["with_pdtp"] is None:
        return f"none ({visible(found['reason'] or 'undefined')})"
    return f"{number(found['with_pdtp'], 2)} (p {precise(found['p_value'])})"
