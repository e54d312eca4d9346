"""Charts shared by the audits of information: efficacy with its bound, and information by layer."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from jaxaudit.errors import visible
from jaxaudit.plots import unlearn as plot
from jaxaudit.plots.style import chart, row_height
from jaxaudit.report.numbers import precise
from jaxaudit.report.page import PageTable, Picture


def bounds_picture(drawn: Sequence[plot.MethodMarks], numbers: PageTable) -> Picture:
    """Efficacy against its upper bound, with the numbers beneath."""
    return Picture(
        "bound",
        "Efficacy against its bound",
        "Every mark lies on or above the line where the two are equal.",
        "The bound is never below the efficacy. The nearer a mark to the dotted line, the tighter the bound.",
        chart(lambda axes: plot.draw_bounds(axes, drawn)),
        numbers,
    )


def layers_picture(
    title: str,
    seen: str,
    caption: str,
    names: Sequence[str],
    models: Sequence[tuple[str, Float[np.ndarray, " layers"]]],
    thickness: float,
) -> Picture:
    """A picture and a table of the information of each layer, in the order of the network.

    Of many layers, those with the most information are shown, and the caption says so.

    Args:
        title, caption: of the picture.
        seen: ends the description for screen readers, which begins with the number of layers.
        names: the names of the layers.
        models: the name of each set of weights, and the information of its layers.
        thickness: the height that each set of weights adds, in inches.
    """
    most = np.stack([values for _, values in models]).max(axis=0)
    chosen = np.sort(np.argsort(-most, kind="stable")[: plot.MOST_LAYERS])
    shown = [visible(names[index]) for index in map(int, chosen)]
    drawn = [(visible(name), values[chosen]) for name, values in models]
    left = f" The {len(shown)} of {len(names)} layers with the most are shown." if len(names) > len(shown) else ""
    columns = tuple(name for name, _ in drawn)
    return Picture(
        "layers",
        title,
        f"{len(shown)} layers{seen}",
        caption + left,
        chart(lambda axes: plot.draw_layers(axes, shown, drawn), row_height(len(shown)) + thickness * len(drawn)),
        PageTable(
            "Information of the layers shown",
            ("layer", *columns),
            tuple((name, *(precise(float(row[index])) for _, row in drawn)) for index, name in enumerate(shown)),
            columns,
            folded=True,
        ),
    )
