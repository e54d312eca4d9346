"""The charts of an `efficacy` run."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from jaxaudit.audits.efficacy.result import EfficacyResult
from jaxaudit.errors import visible
from jaxaudit.plots import unlearn as plot
from jaxaudit.plots.style import canvas, row_height
from jaxaudit.report.bounds import bounds_picture
from jaxaudit.report.numbers import precise
from jaxaudit.report.page import Cells, Picture
from jaxaudit.report.run import Run, named


def efficacy_pictures(run: Run[EfficacyResult]) -> tuple[Picture, ...]:
    """All charts of a run."""
    drawn = _drawn(run.result)
    return (
        _efficacies("efficacy", "Efficacy of all weights", drawn),
        *_layers(run.result),
        bounds_picture(drawn, _numbers(drawn)),
    )


def compared_picture(runs: Sequence[Run[EfficacyResult]]) -> Picture:
    """Efficacy of all weights of several runs."""
    drawn = [each._replace(name=f"{named(run)}: {each.name}") for run in runs for each in _drawn(run.result)]
    return _efficacies("compared-efficacy", "Efficacy of all weights of these runs", drawn)


def _drawn(result: EfficacyResult) -> list[plot.Method]:
    """The weights in question and their references."""
    return [
        plot.Method(visible(model.name), np.array([model.efficacy]), np.array([model.bound]), None)
        for model in result.models
    ]


def _numbers(drawn: Sequence[plot.Method]) -> Cells:
    return Cells(
        "Efficacy and bound",
        ("weights", "efficacy", "bound"),
        tuple((each.name, precise(float(each.efficacy[0])), precise(float(each.bound[0]))) for each in drawn),
        ("efficacy", "bound"),
        folded=True,
    )


def _efficacies(name: str, title: str, drawn: Sequence[plot.Method]) -> Picture:
    def draw() -> Figure:
        figure, axes = canvas(row_height(len(drawn)))
        plot.draw_efficacies(axes, drawn, None)
        return figure

    return Picture(
        name,
        title,
        "; ".join(f"{each.name}: {precise(float(each.efficacy[0]))}" for each in drawn),
        "On a logarithmic axis: the further right, the better the weights fit the records. A triangle is infinite.",
        draw,
        _numbers(drawn),
    )


def _layers(result: EfficacyResult) -> tuple[Picture, ...]:
    """Where the information lies, layer by layer; none of a network of one layer."""
    models, judged = result.models, result.models[0]
    names = [layer.name for layer in judged.layers]
    information = np.array([[layer.information for layer in model.layers] for model in models])
    if len(names) < 2:
        return ()
    # In the order of the network, as it stands in the record.
    chosen = np.sort(np.argsort(-information.max(0), kind="stable")[: plot.MOST_LAYERS])
    shown = [visible(names[place]) for place in chosen]
    drawn = [(visible(model.name), row[chosen]) for model, row in zip(models, information, strict=True)]

    def draw() -> Figure:
        figure, axes = canvas(row_height(len(shown)) + 0.25 * len(drawn) / 2)
        plot.draw_layers(axes, shown, drawn)
        return figure

    most = names[int(np.argmax(information[0]))]
    left = (
        f" The {plot.MOST_LAYERS} of {len(names)} layers with the most are shown."
        if len(names) > plot.MOST_LAYERS
        else ""
    )
    moved = (
        " A reference is what the weights in question are compared with, such as the model before unlearning or one "
        "retrained without the records: where their marks lie together, the records move that layer as much."
        if len(models) > 1
        else ""
    )
    return (
        Picture(
            "layers",
            "Information by layer",
            f"{len(shown)} layers; of {visible(judged.name)}, {visible(most)} has the most.",
            "On a logarithmic axis: the further right, the larger the records' gradients in that layer. Layers add "
            f"up to the whole.{moved}{left}",
            draw,
            Cells(
                "Information of the layers shown",
                ("layer", *(name for name, _ in drawn)),
                tuple((name, *(precise(float(row[place])) for _, row in drawn)) for place, name in enumerate(shown)),
                tuple(name for name, _ in drawn),
                folded=True,
            ),
        ),
    )
