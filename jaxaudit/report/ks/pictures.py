"""The charts of a `ks` run."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from jaxaudit.errors import visible
from jaxaudit.plots import ks as plot
from jaxaudit.plots.style import canvas, row_height
from jaxaudit.report.numbers import level_of, nats, number, precise, span
from jaxaudit.report.page import Cells, Picture
from jaxaudit.report.run import Run

SAMPLED = (0.001, 0.01, 0.05, *(share / 10 for share in range(1, 10)), 0.95, 0.99, 0.999, 0.9999, 0.99999, 1.0)


def typical(target: Mapping[str, Any]) -> int:
    """The replicate whose rho is nearest to the median."""
    values = np.array([nats(value) for value in target["rho"]["values"]])
    middle = nats(target["rho"]["median"])
    return 0 if np.isnan(middle) or np.isnan(values).all() else int(np.nanargmin(np.abs(values - middle)))


def confidence_pictures(run: Run, place: int) -> list[Picture]:
    if not run.arrays:
        return []
    target = run.result["targets"][place]
    name = visible(target["name"])
    which = typical(target)
    samples = [run.arrays["query"][which], run.arrays[f"target_{place}"], run.arrays["calibration"][which]]
    gap = plot.widest_gap(samples[0], samples[1])
    distance = nats(target["ks"]["target"][which])
    distance = gap.distance if np.isnan(distance) else distance
    other = number(target["ks"]["calibration"][which])
    seen = (
        f"Three rising curves. Those of the query model and the target are furthest apart at a confidence of "
        f"{gap.confidence:.4g}, by {distance:.3f}; the calibration model is {other} from the query model."
    )
    numbers = Cells(
        f"Share of query records with at most this confidence, {name}",
        ("confidence", *plot.ROLES),
        tuple(
            (label, *(f"{plot.share_at_most(sample, np.array([at], sample.dtype))[0]:.4f}" for sample in samples))
            for label, at in [(f"{at:g}", at) for at in SAMPLED]
            + [(f"{gap.confidence:.8g} (widest gap)", gap.confidence)]
        ),
        ("confidence", *plot.ROLES),
        folded=True,
    )

    def draw(stretched: bool) -> Figure:
        figure, axes = canvas()
        plot.draw_confidences(axes, samples, gap, distance, stretched=stretched)
        return figure

    captions = (
        f"The gap is the distance of {name} from a query model; rho compares it with that of the calibration model "
        f"({other}). Replicate {which + 1} of {len(target['rho']['values'])}, whose rho is nearest to the median.",
        "The same curves where confidences close to 1 lie apart; distances are the same on both axes.",
    )
    return [
        Picture(
            f"confidences-{place}{'-log-odds' if stretched else ''}",
            f"Confidences of {name}" + (", log-odds" if stretched else ""),
            seen,
            captions[stretched],
            lambda stretched=stretched: draw(stretched),
            numbers,
        )
        for stretched in (False, True)
    ]


def rho_rows(run: Run, prefix: str = "", controls: bool = True) -> list[plot.Row]:
    """rho of every target, and of the controls: of each once, as judged beside the first target."""
    named_rows = [(target["name"], target["rho"]) for target in run.result["targets"]]
    if controls:
        for index, control in enumerate(run.result["targets"][0]["controls"], 1):
            named_rows.append((f"control {index} (saw both)", control))
    return [
        plot.Row(
            f"{prefix}{visible(name)}",
            np.array([nats(value) for value in rho["values"]]),
            *(nats(rho[each]) for each in ("median", "low", "high")),
        )
        for name, rho in named_rows
    ]


def rho_picture(name: str, rows: Sequence[plot.Row], level: str) -> Picture:
    """rho of several models against 1."""

    def draw() -> Figure:
        figure, axes = canvas(row_height(len(rows)))
        plot.draw_rho(axes, rows)
        return figure

    return Picture(
        name,
        "rho against 1",
        "; ".join(
            f"{row.name}: median {number(row.median, 2)}, interval {number(row.low, 2)} to {number(row.high, 2)}"
            for row in rows
        )
        + ". A line marks 1.",
        f"Left of the line at 1: nearer to models that saw the query set. A circle is a replicate, the diamond their "
        f"median, the bar the {level} interval.",
        draw,
        Cells(
            "rho",
            ("model", "median", "interval", "replicates"),
            tuple(
                (
                    row.name,
                    precise(row.median if np.isfinite(row.median) else None),
                    span({"low": _json(row.low), "high": _json(row.high)}, 4) or "none",
                    ", ".join(precise(_json(value)) for value in row.values),
                )
                for row in rows
            ),
            ("median",),
            folded=True,
        ),
    )


def own_rho_picture(run: Run) -> Picture:
    return rho_picture("rho", rho_rows(run), level_of(run.result["provenance"]))


def distances_picture(run: Run) -> Picture:
    targets = run.result["targets"]
    groups = [
        ("another query model", run.result["noise_floor"]["values"]),
        ("calibration models", targets[0]["ks"]["calibration"]),
        *((f"target {target['name']}", target["ks"]["target"]) for target in targets),
    ]
    drawn = [(name, np.array([nats(value) for value in values])) for name, values in groups]

    def draw() -> Figure:
        figure, axes = canvas(row_height(len(drawn)))
        plot.draw_distances(axes, drawn)
        return figure

    floor = run.result["noise_floor"]
    return Picture(
        "noise-floor",
        "Distances and the noise floor",
        f"Query models of different seeds are {number(floor['median'])} apart, at most {number(floor['max'])}. "
        + ". ".join(f"{visible(name)}: {', '.join(number(value) for value in values)}" for name, values in groups[1:]),
        "How far models are from a query model. The shaded part is what another seed alone does: a target within it is "
        "a query model as far as the method can tell.",
        draw,
        Cells(
            "Kolmogorov-Smirnov distances from a query model",
            ("of", "distances"),
            tuple((visible(name), ", ".join(precise(value) for value in values) or "none") for name, values in groups),
            folded=True,
        ),
    )


def _json(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
