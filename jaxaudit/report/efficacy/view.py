"""The content of an `efficacy` run for the terminal and the page."""

from collections.abc import Sequence

from rich.cells import chop_cells

from jaxaudit.audits.efficacy.finding import CONTRACTED
from jaxaudit.errors import visible
from jaxaudit.report.efficacy.record import EfficacyRecord, Exposed, Model
from jaxaudit.report.glossary import terms
from jaxaudit.report.numbers import precise
from jaxaudit.report.page import Answer, Cells, Part, Picture
from jaxaudit.report.repeat import repeat
from jaxaudit.report.run import Run, named

LISTED = 50
FRAMEWORKS = {"torch": "PyTorch", "keras": "Keras"}
ROOM, LEAST_ROOM = 58, 9
"""Columns of a terminal that the names of weights may share, and how many each needs for its numbers."""


def efficacy_part(run: Run[EfficacyRecord], top: int = 5) -> Part:
    """The content of a run of `efficacy`; `top` is the number of records that a terminal lists."""
    result = run.result
    count = result.records_measured

    def pictures() -> tuple[Picture, ...]:
        from jaxaudit.report.efficacy.pictures import efficacy_pictures

        return efficacy_pictures(run)

    return Part(
        named(run),
        run.kind,
        f"How much do the weights still expose of {count:,} record{'' if count == 1 else 's'}?",
        "Measured by the Fisher information of the weights about the records: the mean squared norm of each record's "
        "gradient. Efficacy is 1 / information: the smaller, the less is exposed. Compare it with that of weights "
        "whose training is known.",
        (_answer(result),),
        (
            _weights(result),
            _models(result),
            _layers_side_by_side(result),
            _layers(result),
            *([_most_exposed(result, top)] if top else []),
            _records(result),
        ),
        pictures,
        (
            "Efficacy is 1 / information, and never above its bound. The smaller it is, the less the weights fit the "
            "records, and the less they expose by this measure.",
            _paths(result),
            *_converted(result),
        ),
        repeat(result.provenance),
        terms("efficacy", "bound of the efficacy", "Fisher information"),
        ("Efficacy is measured, not tested: it has no error rate.",),
    )


def _answer(result: EfficacyRecord) -> Answer:
    judged = result.models[0]
    return Answer(
        visible(judged.name),
        result.finding,
        "efficacy",
        precise(judged.efficacy),
        "",
        (
            ("Its upper bound", precise(judged.bound)),
            ("Information (mean squared gradient norm)", precise(judged.information)),
            ("Accuracy on the records", f"{judged.accuracy:.1%}"),
        ),
    )


def _paths(result: EfficacyRecord) -> str:
    paths = list(result.paths.values())
    return (
        f"{paths.count(CONTRACTED)} of {len(paths)} parameter tensors: per-example norms without materialising "
        "per-example gradients."
    )


def _converted(result: EfficacyRecord) -> tuple[str, ...]:
    """That the network was measured as a function of JAX, and how far that is from what it was."""
    if result.conversion_error is None:
        return ()
    return (
        f"The network is written in {FRAMEWORKS.get(result.framework, result.framework)}. In JAX, its outputs on these "
        f"records differ by {result.conversion_error:.0e} of their size at most.",
    )


def _weights(result: EfficacyRecord) -> Cells:
    numbers = ("efficacy", "information", "bound", "accuracy")
    rows = ((visible(model.name), *_numbers(model), f"{model.accuracy:.1%}") for model in result.models)
    return Cells("", ("weights", *numbers), tuple(rows), numbers, on="terminal")


def _models(result: EfficacyRecord) -> Cells:
    numbers = ("efficacy", "information", "bound", "accuracy", "mean log-probability")
    rows = (
        (
            *(visible(model.name), model.role, *_numbers(model)),
            *(f"{model.accuracy:.1%}", precise(model.mean_log_probability)),
        )
        for model in result.models
    )
    return Cells("Weights", ("weights", "role", *numbers), tuple(rows), numbers)


def _numbers(model: Model) -> tuple[str, str, str]:
    return precise(model.efficacy), precise(model.information), precise(model.bound)


def _layers_side_by_side(result: EfficacyRecord) -> Cells:
    """Information of each layer, a column for each set of weights."""
    columns = _columns(result.models)
    rows = (
        (visible(layers[0].name), *(precise(layer.information) for layer in layers))
        for layers in zip(*(model.layers for model in result.models), strict=True)
    )
    return Cells("Information by layer", ("layer", *columns), tuple(rows), columns, on="terminal")


def _layers(result: EfficacyRecord) -> Cells:
    numbers = ("information", "efficacy", "bound")
    rows = (
        (visible(model.name), visible(layer.name), *(precise(getattr(layer, name)) for name in numbers))
        for model in result.models
        for layer in model.layers
    )
    return Cells("Layer by layer", ("weights", "layer", *numbers), tuple(rows), numbers, folded=True)


def _most_exposed(result: EfficacyRecord, count: int) -> Cells:
    """The records with the smallest gradients, a column for each set of weights."""
    found, columns = _ranked(result)[:count], _columns(result.models)
    rows = (
        (
            *(str(each.index), visible(each.class_name)),
            *(precise(each.information[model.name]) for model in result.models),
        )
        for each in found
    )
    return Cells(
        f"The {len(found)} most exposed records, by information",
        ("record", "class", *columns),
        tuple(rows),
        ("record", *columns),
        on="terminal",
    )


def _records(result: EfficacyRecord) -> Cells:
    judged, found = result.models[0].name, _ranked(result)[:LISTED]
    rows = ((str(each.index), visible(each.class_name), precise(each.information[judged])) for each in found)
    title = f"The {len(found)} most exposed records"
    numbers = ("record", "information")
    return Cells(title, ("record", "class", "information"), tuple(rows), numbers, folded=True)


def _ranked(result: EfficacyRecord) -> list[Exposed]:
    """The records that the judged weights expose most first."""
    judged = result.models[0].name
    return sorted(result.records, key=lambda record: record.information[judged])


def _columns(models: Sequence[Model]) -> tuple[str, ...]:
    """The names of weights, long ones broken into lines, so that a terminal has room for all."""
    room = max(LEAST_ROOM, ROOM // len(models) - 2)
    return tuple("\n".join(chop_cells(visible(model.name), room)) for model in models)
