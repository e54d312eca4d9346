"""The `efficacy` answer for a person at a terminal."""

import math

import numpy as np
from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from jaxaudit.audits.efficacy.audit import EfficacyAudit, JudgedWeights
from jaxaudit.errors import visible
from jaxaudit.report.efficacy.record import caveats


def efficacy_table(
    audit: EfficacyAudit, class_names: tuple[str, ...], notes: tuple[str, ...], top: int
) -> RenderableType:
    """The weights beside their references, layer by layer, the records most exposed, and what to keep in mind.

    Args:
        audit: what was found.
        class_names: of the network's outputs.
        notes: further sentences.
        top: records to show.
    """
    count = len(audit.labels)
    title = Text(f"How much do the weights still expose of {count:,} record{'s' if count > 1 else ''}?", "bold")
    lower = Text(
        "  efficacy = 1 / information, never above its bound; the smaller it is, the\n"
        "  less the weights fit the records, and the less they expose by this measure"
    )
    return Group(
        title,
        lower,
        Text(),
        _models(audit),
        Text("information by layer", "italic"),
        _layers(audit),
        *(_records(audit, class_names, top) if top else ()),
        *[Padding(Text(visible(note), "dim"), (0, 0, 0, 1)) for note in (_paths(audit), *caveats(audit, notes))],
    )


def _models(audit: EfficacyAudit) -> RenderableType:
    table = _table()
    table.add_column("weights")
    for name in ("efficacy", "information", "bound", "accuracy"):
        table.add_column(name, justify="right")
    for model in audit.models:
        whole = model.measured.whole
        table.add_row(
            Text(visible(model.name), "bold" if model is audit.judged else ""),
            *(_number(value) for value in (whole.efficacy, whole.information, whole.bound)),
            f"{model.accuracy:.1%}",
        )
    return table


def _layers(audit: EfficacyAudit) -> RenderableType:
    table = _table()
    table.add_column("layer")
    for model in audit.models:
        table.add_column(_name(model), justify="right", overflow="fold")
    for name in audit.judged.measured.layers:
        layers = [model.measured.layers[name] for model in audit.models]
        table.add_row(Text(visible(name)), *(_number(layer.information) for layer in layers))
    return table


def _records(audit: EfficacyAudit, class_names: tuple[str, ...], top: int) -> tuple[RenderableType, ...]:
    shown = np.argsort(audit.judged.measured.per_example, kind="stable")[:top].tolist()
    table = _table()
    table.add_column("record", justify="right")
    table.add_column("class")
    for model in audit.models:
        table.add_column(_name(model), justify="right", overflow="fold")
    for place in shown:
        values = [float(model.measured.per_example[place]) for model in audit.models]
        table.add_row(f"{place}", Text(visible(class_names[audit.labels[place]])), *map(_number, values))
    title = f"{len(shown)} most exposed records" if len(shown) > 1 else "the most exposed record"
    return Text(f"{title}, by {'their' if len(shown) > 1 else 'its'} information", "italic"), table


def _name(model: JudgedWeights) -> Text:
    return Text(visible(model.name), overflow="fold")


def _paths(audit: EfficacyAudit) -> str:
    paths = list(audit.judged.measured.paths.values())
    return f"{paths.count('contracted')} of {len(paths)} parameters contracted, without a gradient an example"


def _table() -> Table:
    return Table(box=SIMPLE, pad_edge=False)


def _number(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{value:.4g}"
