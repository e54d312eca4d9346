"""The charts of an `attack` run."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from jaxaudit.errors import visible
from jaxaudit.plots import attack as plot
from jaxaudit.plots.style import canvas, row_height
from jaxaudit.report.attack.record import AttackRecord, Estimate
from jaxaudit.report.attack.view import best_of, correlation_text
from jaxaudit.report.numbers import number, percent, precise
from jaxaudit.report.page import Cells, Picture
from jaxaudit.report.record import as_float
from jaxaudit.report.run import Run, named

SAMPLED = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, *(share / 10 for share in range(1, 11)))


def attack_pictures(run: Run[AttackRecord]) -> tuple[Picture, ...]:
    """All charts of a run."""
    result = run.result
    rows = [_row(attack.name, attack.accuracy) for attack in result.attacks]
    accuracies = _estimates("accuracy", "Accuracy of each attack", rows, result.level)
    return (accuracies, *(_curves(run) if run.arrays else ()), _against_pdtp(result))


def compared_picture(runs: Sequence[Run[AttackRecord]]) -> Picture:
    """The best attack of several runs."""
    found = [(named(run), best_of(run.result)) for run in runs]
    rows = [_row(f"{name}: {best.name}", best.accuracy) for name, best in found]
    return _estimates("compared-accuracy", "Accuracy of the best attack", rows, runs[0].result.level)


def _row(name: str, estimate: Estimate) -> plot.Row:
    return plot.Row(visible(name), *(as_float(each) for each in (estimate.value, estimate.low, estimate.high)))


def _estimates(name: str, title: str, rows: list[plot.Row], level: float) -> Picture:

    def draw() -> Figure:
        figure, axes = canvas(row_height(len(rows)))
        plot.draw_estimates(axes, rows, "attack accuracy", 0.5)
        return figure

    return Picture(
        name,
        title,
        "; ".join(f"{row.name}: {number(row.value)}" for row in rows) + ". A line marks 0.5.",
        f"The diamond is the accuracy, the bar its {percent(level)} interval. The dotted line is guessing.",
        draw,
        Cells(
            "Accuracy",
            ("attack", "accuracy", "low", "high"),
            tuple((row.name, *(number(value) for value in row[1:])) for row in rows),
            ("accuracy", "low", "high"),
            folded=True,
        ),
    )


def _curves(run: Run[AttackRecord]) -> list[Picture]:
    curves = [
        (visible(attack.name), plot.operating_curve(run.arrays[f"scores_{attack.name}"], run.arrays["truth"]))
        for attack in run.result.attacks
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
        "The true positive rate at each false positive rate. The higher above the dotted line, the better the attack.",
        "The same on logarithmic axes: the left end shows members that are found at almost no false positives. A curve "
        "above the dotted line there finds some members with high confidence.",
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


def _against_pdtp(result: AttackRecord) -> Picture:
    names = [attack.name for attack in result.attacks]
    values = np.array([as_float(target.pdtp) for target in result.targets])
    accuracies = [(visible(name), np.array([target.accuracy[name] for target in result.targets])) for name in names]

    def draw() -> Figure:
        figure, axes = canvas()
        plot.draw_accuracies(axes, values, accuracies)
        return figure

    shown = tuple(map(visible, names))
    said = "; ".join(f"{visible(attack.name)} {correlation_text(attack.correlation)}" for attack in result.attacks)
    return Picture(
        "accuracy-pdtp",
        "Attack accuracy against PDTP",
        f"Correlations: {said}.",
        f"A mark is a target under one attack. Correlation with PDTP: {said}.",
        draw,
        Cells(
            "Targets",
            ("record", "PDTP", *shown),
            tuple(
                (str(each.index), precise(each.pdtp), *(f"{each.accuracy[name]:.3f}" for name in names))
                for each in result.targets
            ),
            ("record", "PDTP", *shown),
            folded=True,
        ),
    )
