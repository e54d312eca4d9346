"""The charts of how well unlearned models are distinguished from retrained ones, whoever trained them."""

from collections.abc import Sequence

import msgspec

from jaxaudit.errors import visible
from jaxaudit.metrics.over_models import Estimate
from jaxaudit.plots import unlearn as plot
from jaxaudit.plots.attack import EstimateRow
from jaxaudit.plots.style import chart, row_height
from jaxaudit.report.numbers import level_text, number_text
from jaxaudit.report.page import PageTable, Picture

Estimates = Sequence[tuple[str, Estimate]]
"""Of each method and reference, by name."""


def estimates_pictures(quality: Estimates, lira: Estimates, retraining: str, level: float) -> tuple[Picture, ...]:
    """Charts of forgetting quality and U-LiRA; none without estimates.

    `retraining` is the name of the retrained models among them, `level` that of the intervals.
    """
    if not quality or not lira:
        return ()
    most, least = "Further right is better forgetting.", "Further left is better forgetting."
    return (
        _picture("quality", "Forgetting quality F", ", of the challenge of 2023", quality, most, retraining, level),
        _picture("u-lira", "Accuracy of U-LiRA", ", which knows the method", lira, least, retraining, level, 0.5),
    )


def _picture(
    name: str,
    measured: str,
    which: str,
    estimates: Estimates,
    meaning: str,
    retraining: str,
    level: float,
    guess: float | None = None,
) -> Picture:
    across = measured[0].lower() + measured[1:]
    best = next(estimate for method, estimate in estimates if method == retraining)
    rows = [EstimateRow(visible(method), *msgspec.structs.astuple(estimate)) for method, estimate in estimates]
    chance = best.value if guess is None else guess
    return Picture(
        name,
        measured + which,
        "; ".join(f"{row.name}: {number_text(row.value, 2)}" for row in rows) + ".",
        "The diamond compares models of a method with retrained models of other seeds, the bar is its "
        f"{level_text(level)} interval over models. The shaded band is what retraining once more gets, "
        f"the best there is; original are the models before unlearning. {meaning} The dotted line is "
        + ("retraining." if guess is None else "guessing."),
        chart(
            lambda axes: plot.draw_told_apart(axes, rows, across, (best.low, best.high), chance),
            row_height(len(rows)) + 0.2,
        ),
        PageTable(
            measured,
            ("models", across, "low", "high"),
            tuple((row.name, *(number_text(value, 4) for value in row[1:])) for row in rows),
            (across, "low", "high"),
        ),
    )
