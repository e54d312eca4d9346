"""The `pdtp` answer for a person at a terminal."""

import math

import numpy as np
from jaxtyping import Int
from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from jaxaudit.audits.pdtp.audit import PDTPAudit, Reduction
from jaxaudit.errors import visible
from jaxaudit.report.pdtp.record import because, verdict

_STYLE = {"publish": "bold green", "do not publish": "bold red", "inconclusive": "bold yellow"}
EDGES = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, math.inf)
BAR = 40


def pdtp_table(
    audit: PDTPAudit,
    reduction: Reduction | None,
    class_names: tuple[str, ...],
    bound: float | None,
    top: int,
    own_values: dict[int, str] | None = None,
) -> RenderableType:
    """The verdict, the distribution, the riskiest records, what should be kept in mind, and the reduction.

    With `own_values`, what stands in each record of the riskiest, those are shown too.
    """
    return Group(
        _verdict(audit),
        Text(),
        _distribution(audit),
        *([_riskiest(audit, class_names, top)] if top else []),
        *(Text(visible(f"  {record}: {said}")) for record, said in (own_values or {}).items()),
        *([Text()] if own_values else []),
        *_notes(audit, bound),
        *([] if reduction is None else [Text(), _reduction(reduction)]),
    )


def _verdict(audit: PDTPAudit) -> RenderableType:
    said = verdict(audit)
    return Group(
        Text("May the classifier be published?", "bold"),
        Text.assemble("  ", (said, _STYLE[said]), f": {because(audit)}"),
        Text(
            f"  largest PDTP {_nats(audit.max_pdtp)}, median {_nats(float(np.median(audit.values)))}; "
            f"{audit.above_floor:,} of {len(audit.records):,} records above their seed floor"
        ),
        Text(f"  {_on_any_input(audit)}"),
    )


def _on_any_input(audit: PDTPAudit) -> str:
    if audit.dtp_bound is None:
        return "on other inputs (DTP): no bound is worked out for this learner and columns"
    most = float(audit.dtp_bound.max())
    if math.isinf(most):
        return "on any input (DTP): no bound, as a class vanishes with its only member"
    return f"on any input (DTP): no record moves an output by more than {_nats(most)}"


def _distribution(audit: PDTPAudit) -> RenderableType:
    table = Table(box=SIMPLE, pad_edge=False, show_edge=False)
    table.add_column("PDTP (nats)", justify="right")
    table.add_column("records", justify="right")
    table.add_column("")
    places = np.searchsorted(EDGES, audit.values, side="left")
    counts = np.bincount(places, minlength=len(EDGES))
    for place, (edge, count) in enumerate(zip(EDGES, counts.tolist(), strict=True)):
        below = EDGES[place - 1] if place else 0.0
        name = "0" if place == 0 else f"above {below:g}" if math.isinf(edge) else f"{below:g}-{edge:g}"
        length = math.ceil(BAR * count / max(counts))
        table.add_row(name, f"{count:,}", Text("█" * length, "red" if below >= 1 else "blue"))
    return table


def riskiest(audit: PDTPAudit, top: int) -> Int[np.ndarray, " top"]:
    """The places of so many measured records, the largest PDTP first, the first of equals."""
    return np.argsort(-audit.values, kind="stable")[:top]


def _riskiest(audit: PDTPAudit, class_names: tuple[str, ...], top: int) -> RenderableType:
    shown = riskiest(audit, top)
    title = f"riskiest {len(shown)} records, counted from 0"
    table = Table(title=title, title_justify="left", box=SIMPLE, pad_edge=False)
    for name in ("record", "PDTP", "seed floor", "copies"):
        table.add_column(name, justify="right")
    table.add_column("class that moves")
    for place in shown.tolist():
        way = {1: "more with it", -1: "less with it", 0: ""}[int(audit.directions[place])]
        alone = ", the only record of its class" if audit.only_member[place] else ""
        table.add_row(
            f"{audit.records[place]}",
            _nats(float(audit.values[place])),
            f"{_nats(float(audit.floor.mean[place]))} (max {_nats(float(audit.floor.largest[place]))})"
            if audit.seeded
            else "0",
            f"{audit.duplicates[place]}",
            Text(visible(f"{class_names[audit.classes[place]]} {way}{alone}")),
        )
    return table


def _notes(audit: PDTPAudit, bound: float | None) -> list[RenderableType]:
    notes = []
    if bound is not None and bound <= 1:
        notes.append(
            f"smoothing alone keeps every change of an output, without bins, to {bound:.2f}: such a learner passes the "
            "rule whatever it is trained on"
        )
    risky = audit.values > 1
    within = int((risky & (audit.values <= audit.floor.largest)).sum())
    if within:
        notes.append(
            f"{within:,} of the {int(risky.sum()):,} records above 1 {'is' if within == 1 else 'are'} within the seed "
            "floor: another seed moves those outputs as far"
        )
    if audit.bins:
        most = math.log(2 * audit.bins - 1)
        notes.append(f"outputs compared in {audit.bins} bins: no value can be above {most:.2f}")
        edges = int((risky & (audit.exact <= 1)).sum())
        if edges:
            notes.append(
                f"{edges:,} of the {int(risky.sum()):,} records above 1 would not be without bins (--bins 0): a small "
                "probability that crosses one edge counts as log 3 = 1.10"
            )
    if not audit.seeded:
        notes.append("this learner uses no random numbers: its seed floor is 0")
    copies = int((audit.duplicates > 1).sum())
    if copies:
        notes.append(f"{copies:,} records have exact copies, which hide them: PDTP measures one copy at a time")
    alone = int(audit.only_member.sum())
    if alone:
        plural = "record is" if alone == 1 else "records are"
        notes.append(f"{alone} {plural} the only one of a class, which vanishes with it")
    if audit.publish:
        notes.append("a rule of thumb, no guarantee: attack the classifier (jaxaudit attack) before it is published")
    notes.append(f"accuracy on the measured records: {audit.train_accuracy:.1%}")
    return [Padding(Text(note, "dim"), (0, 0, 0, 1)) for note in notes]


def _reduction(reduction: Reduction) -> RenderableType:
    table = Table(
        title="largest PDTP as the riskiest record is removed", title_justify="left", box=SIMPLE, pad_edge=False
    )
    table.add_column("removed", justify="right")
    table.add_column("record", justify="right")
    table.add_column("largest PDTP", justify="right")
    table.add_column("")
    finite = [value for value in reduction.max_pdtp if math.isfinite(value)]
    scale = max([*finite, 1.0])
    for step, value in enumerate(reduction.max_pdtp.tolist()):
        record = f"{reduction.removed[step - 1]}" if step else ""
        length = BAR if math.isinf(value) else math.ceil(BAR * value / scale)
        table.add_row(f"{step}", record, _nats(value), Text("█" * length, "red" if value > 1 else "blue"))
    return table


def _nats(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{value:.3f}"
