"""The `efficacy` answer as a part of a page."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from jaxaudit.errors import visible
from jaxaudit.plots import unlearn as plot
from jaxaudit.plots.style import canvas, row_height
from jaxaudit.report.numbers import nats, precise
from jaxaudit.report.page import Answer, Cells, Checked, Confidence, Part, Picture
from jaxaudit.report.repeat import repeat
from jaxaudit.report.run import Run, named

LISTED = 50


def efficacy_part(run: Run) -> Part:
    """What a page says of a run of `efficacy`."""
    result = run.result
    drawn = drawn_weights(result)
    return Part(
        named(run),
        run.kind,
        "How much do these weights still expose of the records?",
        f"Of {result['records_measured']:,} records, by the Fisher information that the weights have about them: how "
        "much the loss of each record still pulls at the weights. Efficacy is one divided by it: the smaller, the less "
        "is exposed. It means something only beside weights whose past is known.",
        (_answer(result),),
        _checks(result),
        (_efficacies(result, drawn), _bounds(result, drawn)),
        (_models(result), _layers(result), _records(result)),
        tuple(f"{visible(caveat)}." for caveat in result["caveats"]),
        repeat(result["provenance"]),
        ("efficacy", "bound of the efficacy", "Fisher information"),
    )


def drawn_weights(result: Mapping[str, Any]) -> list[plot.Method]:
    """The weights in question and their references, to be drawn."""
    return [
        plot.Method(visible(model["name"]), np.array([nats(model["efficacy"])]), np.array([nats(model["bound"])]), None)
        for model in result["models"]
    ]


def _answer(result: Mapping[str, Any]) -> Answer:
    judged, *others = result["models"]
    value = nats(judged["efficacy"])
    words = [
        f"{'less' if value < nats(other['efficacy']) else 'more'} than {visible(other['name'])}"
        for other in others
        if value != nats(other["efficacy"])
    ]
    sentence = f"It exposes {', '.join(words)}." if words else "There is nothing beside it that tells it apart."
    return Answer(
        visible(judged["name"]),
        "no verdict",
        "open",
        sentence,
        "efficacy",
        precise(judged["efficacy"]),
        "",
        Confidence(
            "weak" if words else "none",
            "One model a reference: chance between seeds is not shown. The unlearn command places a method among many "
            "retrained models."
            if words
            else "A lone efficacy is no verdict; put known weights beside it (--reference).",
        ),
        (
            ("Its upper bound", precise(judged["bound"])),
            ("Information (mean squared gradient norm)", precise(judged["information"])),
            ("Accuracy on the records", f"{judged['accuracy']:.1%}"),
        ),
    )


def _checks(result: Mapping[str, Any]) -> tuple[Checked, ...]:
    references = len(result["models"]) - 1
    endless = [visible(model["name"]) for model in result["models"] if model["efficacy"] == "infinity"]
    found = (
        Checked(
            "references",
            "passed" if references else "warning",
            f"{references} other weights stand beside it"
            if references
            else "a lone efficacy is no verdict: give --reference",
        ),
        Checked(
            "finite efficacies",
            "warning" if endless else "passed",
            f"{', '.join(endless)}: every gradient is 0, which is what fitting the records perfectly looks like, too"
            if endless
            else "no weights fit the records so perfectly that nothing could be measured",
        ),
    )
    return tuple(sorted(found, key=lambda each: ("failed", "warning", "passed").index(each.state)))


def _numbers(result: Mapping[str, Any]) -> Cells:
    return Cells(
        "Efficacy and bound",
        ("weights", "efficacy", "bound"),
        tuple((visible(m["name"]), precise(m["efficacy"]), precise(m["bound"])) for m in result["models"]),
        ("efficacy", "bound"),
        folded=True,
    )


def _efficacies(result: Mapping[str, Any], drawn: list[plot.Method]) -> Picture:
    def draw() -> Figure:
        figure, axes = canvas(row_height(len(drawn)))
        plot.draw_efficacies(axes, drawn, None)
        return figure

    return Picture(
        "efficacy",
        "Efficacy of each",
        "; ".join(f"{visible(model['name'])}: {precise(model['efficacy'])}" for model in result["models"]),
        "On a logarithmic axis: the further left, the less is exposed. A triangle is an infinite value.",
        draw,
        _numbers(result),
    )


def _bounds(result: Mapping[str, Any], drawn: list[plot.Method]) -> Picture:
    def draw() -> Figure:
        figure, axes = canvas()
        plot.draw_bounds(axes, drawn)
        return figure

    return Picture(
        "bound",
        "Efficacy against its bound",
        "Every mark lies on or above the line where the two are equal.",
        "The bound is never below the efficacy: a mark near the dotted line is where it is good.",
        draw,
        _numbers(result),
    )


def _models(result: Mapping[str, Any]) -> Cells:
    numbers = ("efficacy", "information", "bound", "accuracy", "mean log-probability")
    return Cells(
        "Weights",
        ("weights", "role", *numbers),
        tuple(
            (
                visible(model["name"]),
                model["role"],
                *(precise(model[name]) for name in ("efficacy", "information", "bound")),
                f"{model['accuracy']:.1%}",
                precise(model["mean_log_probability"]),
            )
            for model in result["models"]
        ),
        numbers,
    )


def _layers(result: Mapping[str, Any]) -> Cells:
    return Cells(
        "Layer by layer",
        ("weights", "layer", "information", "efficacy", "bound"),
        tuple(
            (visible(m["name"]), visible(e["name"]), *(precise(e[n]) for n in ("information", "efficacy", "bound")))
            for m in result["models"]
            for e in m["layers"]
        ),
        ("information", "efficacy", "bound"),
        folded=True,
    )


def _records(result: Mapping[str, Any]) -> Cells:
    judged = result["models"][0]["name"]
    records = sorted(result["records"], key=lambda record: record["information"].get(judged, 0.0))[:LISTED]
    return Cells(
        f"The {len(records)} records most exposed",
        ("record", "class", "information"),
        tuple(
            (str(record["index"]), visible(record["class"]), precise(record["information"].get(judged)))
            for record in records
        ),
        ("record", "information"),
        folded=True,
    )
