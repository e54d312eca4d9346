"""The charts of an `unlearn` run."""

from collections.abc import Sequence

import numpy as np

from jaxaudit.audits.unlearn.result import RETRAINING, UNTRAINED, UnlearnResult
from jaxaudit.errors import visible
from jaxaudit.plots import unlearn as plot
from jaxaudit.plots.style import chart, row_height
from jaxaudit.report.estimates import estimates_pictures
from jaxaudit.report.information import bounds_picture, layers_picture
from jaxaudit.report.numbers import number_text, precise
from jaxaudit.report.page import PageTable, Picture
from jaxaudit.report.record import Run

MOST_METHODS = 7
"""The most marks in one row of a readable chart."""
SHADED = " The shaded band is the range of retrained models, the reference: less or more is a difference from them."


def pictures(run: Run[UnlearnResult]) -> tuple[Picture, ...]:
    """All charts of a run."""
    drawn = [method._replace(name=visible(method.name)) for method in run.result.drawn()]
    attacked = any(method.attack is not None for method in drawn)
    return (
        _efficacies("efficacy", drawn, run.result.band),
        *_layers(run.result),
        bounds_picture(drawn, _values(drawn, "Efficacy and bound of every model", ("efficacy", "bound"))),
        *([_attacks(drawn, run.result.protocol.members_share)] if attacked else []),
        *_told_apart(run.result),
    )


def compared(runs: Sequence[Run[UnlearnResult]]) -> tuple[Picture]:
    """Efficacy of the models of several runs."""
    each_run = [(run, method) for run in runs for method in run.result.drawn()]
    drawn = [method._replace(name=visible(f"{run.name}: {method.name}")) for run, method in each_run]
    return (_efficacies("compared-unlearning", drawn, None),)


def _values(drawn: list[plot.MethodMarks], title: str, names: tuple[str, ...]) -> PageTable:
    rows = []
    for method in drawn:
        for seed in range(len(method.efficacy)):
            columns = (getattr(method, name) for name in names)
            cells = ("-" if values is None else precise(float(values[seed])) for values in columns)
            rows.append((method.name, str(seed), *cells))
    return PageTable(title, ("models", "seed", *names), tuple(rows), ("seed", *names))


def _efficacies(name: str, drawn: list[plot.MethodMarks], band: tuple[float, float] | None) -> Picture:
    return Picture(
        name,
        "Efficacy" + (" beside retrained models" if band else " of each method's models"),
        "; ".join(f"{method.name}: median {precise(float(np.median(method.efficacy)))}" for method in drawn),
        "A mark is a model, a bar the median, a triangle an infinite value." + (SHADED if band else ""),
        chart(lambda axes: plot.draw_efficacies(axes, drawn, band), row_height(len(drawn)) + 0.2),
        _values(drawn, "Efficacy of every model", ("efficacy",)),
    )


def _layers(result: UnlearnResult) -> tuple[Picture, ...]:
    """A chart of the information of each layer before and after; none for a network with one layer."""
    models = [method for method in result.methods if method.layers and method.name != UNTRAINED][:MOST_METHODS]
    if (
        not models
        or len(models[0].layers) < 2
        or any(model.layers.keys() != models[0].layers.keys() for model in models)
    ):
        return ()
    picture = layers_picture(
        "Information by layer, before and after",
        f" of {', '.join(visible(model.name) for model in models)}.",
        "On a logarithmic axis, medians over models: the further right, the larger the gradients of the forgotten "
        "records in that layer. The mark of original is before, a method's after; what forgot as retraining does has "
        "its marks where retraining has its own, in every layer.",
        list(models[0].layers),
        [(model.name, np.array([model.layers[layer] for layer in models[0].layers])) for model in models],
        0.12,
    )
    return (picture,)


def _attacks(drawn: list[plot.MethodMarks], baseline: float | None) -> Picture:
    medians = (f"{m.name}: median {number_text(float(np.median(m.attack)), 2)}" for m in drawn if m.attack is not None)
    line = "" if baseline is None else f" The dotted line is the baseline (no information): {number_text(baseline, 2)}."
    return Picture(
        "attack",
        "Attack probability against efficacy",
        "; ".join(medians),
        "The mean probability of membership that a learned attack gives the forgotten records." + line,
        chart(lambda axes: plot.draw_attacks(axes, drawn, baseline)),
        _values(drawn, "Efficacy and attack probability of every model", ("efficacy", "attack")),
    )


def _told_apart(result: UnlearnResult) -> tuple[Picture, ...]:
    """Charts of forgetting quality and U-LiRA, with the references; none if models were not compared."""
    compared = [method for method in result.methods if method.challenge is not None and method.u_lira is not None]
    quality = [(method.name, method.challenge.quality) for method in compared if method.challenge is not None]
    lira = [(method.name, method.u_lira) for method in compared if method.u_lira is not None]
    return estimates_pictures(quality, lira, RETRAINING, result.protocol.level)
