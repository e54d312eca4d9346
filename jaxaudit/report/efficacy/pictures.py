"""The charts of an `efficacy` run."""

from collections.abc import Sequence

import numpy as np

from jaxaudit.audits.efficacy.result import EfficacyResult
from jaxaudit.errors import visible
from jaxaudit.plots import unlearn as plot
from jaxaudit.plots.style import chart, row_height
from jaxaudit.report.information import bounds_picture, layers_picture
from jaxaudit.report.numbers import precise
from jaxaudit.report.page import PageTable, Picture
from jaxaudit.report.record import Run


def pictures(run: Run[EfficacyResult]) -> tuple[Picture, ...]:
    """All charts of a run."""
    drawn = [method._replace(name=visible(method.name)) for method in run.result.drawn()]
    return (
        _efficacies("efficacy", "Efficacy of all weights", drawn),
        *_layers(run.result),
        bounds_picture(drawn, _numbers(drawn)),
    )


def compared(runs: Sequence[Run[EfficacyResult]]) -> tuple[Picture]:
    """Efficacy of all weights of several runs."""
    each_run = [(run, method) for run in runs for method in run.result.drawn()]
    drawn = [method._replace(name=visible(f"{run.name}: {method.name}")) for run, method in each_run]
    return (_efficacies("compared-efficacy", "Efficacy of all weights of these runs", drawn),)


def _numbers(drawn: Sequence[plot.MethodMarks]) -> PageTable:
    return PageTable(
        "Efficacy and bound",
        ("weights", "efficacy", "bound"),
        tuple((method.name, precise(float(method.efficacy[0])), precise(float(method.bound[0]))) for method in drawn),
        ("efficacy", "bound"),
    )


def _efficacies(name: str, title: str, drawn: Sequence[plot.MethodMarks]) -> Picture:
    return Picture(
        name,
        title,
        "; ".join(f"{method.name}: {precise(float(method.efficacy[0]))}" for method in drawn),
        "On a logarithmic axis: the further right, the better the weights fit the records. A triangle is infinite.",
        chart(lambda axes: plot.draw_efficacies(axes, drawn, None), row_height(len(drawn))),
        _numbers(drawn),
    )


def _layers(result: EfficacyResult) -> tuple[Picture, ...]:
    """A chart of the information of each layer; none for a network with one layer."""
    models, judged = result.models, result.models[0]
    if len(judged.layers) < 2:
        return ()
    most = max(judged.layers, key=lambda layer: layer.information)
    moved = (
        " A reference is what the weights in question are compared with, such as the model before unlearning or one "
        "retrained without the records: where their marks lie together, the records move that layer as much."
        if len(models) > 1
        else ""
    )
    picture = layers_picture(
        "Information by layer",
        f"; of {visible(judged.name)}, {visible(most.name)} has the most.",
        "On a logarithmic axis: the further right, the larger the records' gradients in that layer. Layers add up to "
        f"the whole.{moved}",
        [layer.name for layer in judged.layers],
        [(model.name, np.array([layer.information for layer in model.layers])) for model in models],
        0.125,
    )
    return (picture,)
