"""How the figures of the experiments are drawn, and where they are written with their numbers."""

import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.record import device_slug

COLORS = ("#1f5f8b", "#c8553d", "#5a8f4e", "#8a6bb0", "#b8892b")
STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9.5,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "savefig.dpi": 130,
}


def panels(rows: int, columns: int, *, width: float, height: float, **how: Any) -> tuple[Figure, list[Axes]]:
    """An empty figure of `width` x `height` inches, and its panels, row by row."""
    plt.rcParams.update(STYLE)
    figure, axes = plt.subplots(rows, columns, figsize=(width, height), squeeze=False, layout="constrained", **how)
    return figure, list(axes.ravel())


def write(directory: Path, name: str, record: dict[str, Any], lines: list[str], figure: Figure | None = None) -> Path:
    """Writes `NAME-DEVICE.json`, `.md` (the lines, below the picture) and `.png`; the path of the Markdown file."""
    stem = f"{name}-{device_slug()}"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{stem}.json").write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
    title, *rest = lines
    picture = []
    if figure is not None:
        figure.savefig(directory / f"{stem}.png", dpi=STYLE["savefig.dpi"])
        picture = ["", f"![{title.lstrip('# ')}]({stem}.png)"]
    path = directory / f"{stem}.md"
    path.write_text("\n".join([title, *picture, *rest]) + "\n")
    return path
