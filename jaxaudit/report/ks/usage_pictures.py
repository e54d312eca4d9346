"""The chart of what the tests of use say."""

from collections.abc import Mapping, Sequence
from math import isnan, nan
from typing import Any

from matplotlib.figure import Figure

from jaxaudit.errors import visible
from jaxaudit.metrics.usage import Share
from jaxaudit.plots.style import canvas, row_height
from jaxaudit.plots.usage import Row, draw_shares
from jaxaudit.report.ks.usage import UNKNOWN, share_of
from jaxaudit.report.numbers import nats, precise
from jaxaudit.report.page import Cells, Picture

NOTHING = Share(nan, nan, nan)


def shares_pictures(targets: Sequence[Mapping[str, Any]], level: str) -> tuple[Picture, ...]:
    """The used share of every target by every test of use; none where there is no such test."""
    tests = [(target, usage) for target in targets for usage in target.get("usage") or ()]
    if not tests:
        return ()
    several = max(len(target.get("usage") or ()) for target in targets) > 1
    shares = [share_of(usage) or NOTHING for _, usage in tests]
    rows = [
        Row(
            visible(target["name"]) + (f" ({usage['method']})" if several else ""),
            *share,
            nats(usage["detectable"]),
        )
        for (target, usage), share in zip(tests, shares, strict=True)
    ]

    def draw() -> Figure:
        figure, axes = canvas(row_height(len(rows)) + 0.3)
        draw_shares(axes, rows)
        return figure

    cells = tuple(
        (row.name, *(UNKNOWN if isnan(each) else precise(each) for each in share), precise(usage["detectable"]))
        for row, share, (_, usage) in zip(rows, shares, tests, strict=True)
    )
    seen = (
        f"{name}: {share}{f', from {low} to {high}' if share != UNKNOWN else ''}, least {least}"
        for name, share, low, high, least in cells
    )
    columns = ("looks used", "at least", "at most", "least that would have shown")
    return (
        Picture(
            "used",
            "How much of the query set looks used",
            f"Shares of the query set. {'; '.join(seen)}.",
            f"The diamond is the estimate, the bar its {level} interval; the use of the share at the upright line, or "
            "of more, would have shown 19 times of 20. Without such a line not even the use of all would have.",
            draw,
            Cells("Shares of the query set", ("target", *columns), cells, columns, folded=True),
        ),
    )
