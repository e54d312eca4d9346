"""The `unlearn` answer for a person at a terminal."""

import math

import numpy as np
from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from jaxaudit.audits.unlearn.result import COMPARED, REFERENCES, MethodResult, UnlearnAudit
from jaxaudit.errors import visible
from jaxaudit.report.unlearn.record import caveats, median

TITLES = {
    "efficacy": "efficacy",
    "bound": "bound",
    "remaining_accuracy": "accuracy:\nremaining",
    "forgotten_accuracy": "\nforgotten",
    "test_accuracy": "\ntest",
    "attack": "\nattack",
}
ALIKE = "~"
WIDEST_RANGE = 11
"""Characters: wider ones are broken, so that six columns fit a terminal."""
STYLE = {"above": "red", "below": "red"}


def unlearn_table(audit: UnlearnAudit, forgotten: str, notes: tuple[str, ...]) -> RenderableType:
    """A row a method: each score's median and range over seeds, and where it lies beside the retrained models.

    Args:
        audit: what was found; its one set is shown.
        forgotten: what was to be forgotten, in words.
        notes: further sentences.
    """
    table = Table(box=SIMPLE, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("models")
    for name in COMPARED:
        table.add_column(TITLES[name], justify="right", no_wrap=True)
    for method in audit.methods:
        cells = [_cell(audit, method, name) for name in COMPARED]
        table.add_row(Text(visible(method.name)), *(median for median, _, _ in cells))
        table.add_row("", *(between for _, between, _ in cells))
        table.add_row("", *(mark for _, _, mark in cells))
    below = [
        f"each number: the median of {audit.seeds} seeds, below it the smallest and largest, below that how it lies to "
        f"the retrained models: above, below, or {ALIKE} where it is not told apart ({audit.level:.0%}, over all)",
        "efficacy = 1 / information, never above its bound; the smaller, the less is exposed",
        *caveats(audit, notes),
    ]
    return Group(
        Text(visible(f"Are {forgotten} forgotten?"), "bold"),
        *_summary(audit),
        Text(),
        table,
        *(Padding(Text(visible(note), "dim"), (0, 0, 0, 1)) for note in below),
    )


def _summary(audit: UnlearnAudit) -> list[RenderableType]:
    """What each method's scores say, in a sentence each."""
    lines: list[RenderableType] = []
    for method in audit.methods:
        if method.name in REFERENCES:
            continue
        said = {name: audit.verdict(method.places[name][0]) for name in method.places}
        apart = [f"{name.replace('_', ' ')} {verdict}" for name, verdict in said.items() if verdict in STYLE]
        if apart:
            line = f"differs from retraining: {', '.join(apart)}"
        elif not audit.enough_seeds:
            line = "inconclusive: too few seeds"
        elif audit.conclusion(method.name) == "inconclusive":
            line = "inconclusive: not even the original, which forgot nothing, is told apart from retraining"
        else:
            line = "is not told apart from retraining"
        said = Text(visible(f"{method.name} {line}"), STYLE["above"] if apart else "")
        lines.append(Padding(said, (0, 0, 0, 2)))
    return lines


def _cell(audit: UnlearnAudit, method: MethodResult, name: str) -> tuple[Text, Text, Text]:
    """The median, the range, and where it lies."""
    values: np.ndarray = getattr(method.scores, name)[0]
    if np.isnan(values).any():
        return Text("-"), Text(), Text()
    low, high = _number(values.min(), name), _number(values.max(), name)
    between = f"{low}-{high}" if len(low) + len(high) < WIDEST_RANGE else f"{low} -\n{high}"
    place = method.places.get(name)
    verdict = "" if place is None else audit.verdict(place[0])
    mark = verdict if verdict in (*STYLE, "") else "?" if verdict == "too few seeds" else ALIKE
    return Text(_number(median(values), name)), Text(between), Text(mark, STYLE.get(verdict, ""))


def _number(value: float, name: str) -> str:
    """Two digits, as short as can be: six columns of ranges are to fit 80 characters."""
    if math.isinf(value):
        return "inf"
    if name not in ("efficacy", "bound"):
        return f"{value:.2f}".removeprefix("0") if value < 0.995 else "1.0"
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    if -3 <= int(exponent) < 4:
        return f"{float(f'{value:.1e}'):.6g}".removeprefix("0") or "0"
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"
