"""The charts of an `unlearn` run."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from jaxaudit.audits.unlearn.result import RETRAINING
from jaxaudit.errors import visible
from jaxaudit.plots import unlearn as plot
from jaxaudit.plots.style import canvas, row_height
from jaxaudit.report.numbers import number, precise
from jaxaudit.report.page import Cells, Picture
from jaxaudit.report.record import as_float
from jaxaudit.report.run import Run, named
from jaxaudit.report.unlearn.record import Spread, UnlearnRecord

SHADED = " The shaded band is the range of retrained models, the reference: less or more is a difference from them."


def unlearn_pictures(run: Run[UnlearnRecord]) -> tuple[Picture, ...]:
    """All charts of a run."""
    drawn = _drawn(run.result)
    attacked = any(method.attack is not None for method in drawn)
    return (
        _efficacies("efficacy", drawn, _band(run.result)),
        _bounds(drawn),
        *([_attacks(drawn, run.result.protocol.members_share)] if attacked else []),
    )


def compared_picture(runs: Sequence[Run[UnlearnRecord]]) -> Picture:
    """Efficacy of the models of several runs."""
    drawn = [each._replace(name=f"{named(run)}: {each.name}") for run in runs for each in _drawn(run.result)]
    return _efficacies("compared-unlearning", drawn, None)


def _drawn(result: UnlearnRecord) -> list[plot.Method]:
    """Every method whose efficacy was measured."""

    def values(spread: Spread | None) -> np.ndarray | None:
        return None if spread is None else np.array([as_float(value) for value in spread.values])

    found = []
    for method in result.methods:
        efficacy, bound = values(method.scores.efficacy), values(method.scores.bound)
        if efficacy is not None and bound is not None:
            found.append(plot.Method(visible(method.name), efficacy, bound, values(method.scores.attack)))
    return found


def _band(result: UnlearnRecord) -> tuple[float, float] | None:
    spread = next((method.scores.efficacy for method in result.methods if method.name == RETRAINING), None)
    return None if spread is None else (as_float(spread.low), as_float(spread.high))


def _values(drawn: list[plot.Method], title: str, names: tuple[str, ...]) -> Cells:
    rows = []
    for method in drawn:
        for seed in range(len(method.efficacy)):
            columns = (getattr(method, name) for name in names)
            cells = ("-" if values is None else precise(float(values[seed])) for values in columns)
            rows.append((method.name, str(seed), *cells))
    return Cells(title, ("models", "seed", *names), tuple(rows), ("seed", *names), folded=True)


def _efficacies(name: str, drawn: list[plot.Method], band: tuple[float, float] | None) -> Picture:
    def draw() -> Figure:
        figure, axes = canvas(row_height(len(drawn)) + 0.2)
        plot.draw_efficacies(axes, drawn, band)
        return figure

    return Picture(
        name,
        "Efficacy" + (" beside retrained models" if band else " of each method's models"),
        "; ".join(f"{method.name}: median {precise(float(np.median(method.efficacy)))}" for method in drawn),
        "A mark is a model, a bar the median, a triangle an infinite value." + (SHADED if band else ""),
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
        "The bound is never below the efficacy. The nearer a mark to the dotted line, the tighter the bound.",
        draw,
        _values(drawn, "Efficacy and bound of every model", ("efficacy", "bound")),
    )


def _attacks(drawn: list[plot.Method], baseline: float | None) -> Picture:
    def draw() -> Figure:
        figure, axes = canvas()
        plot.draw_attacks(axes, drawn, baseline)
        return figure

    medians = (f"{m.name}: median {number(float(np.median(m.attack)), 2)}" for m in drawn if m.attack is not None)
    line = "" if baseline is None else f" The dotted line is the baseline (no information): {number(baseline, 2)}."
    return Picture(
        "attack",
        "Attack probability against efficacy",
        "; ".join(medians),
        "The mean probability of membership that a learned attack gives the forgotten records." + line,
        draw,
        _values(drawn, "Efficacy and attack probability of every model", ("efficacy", "attack")),
    )
