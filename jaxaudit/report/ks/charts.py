"""The charts of a `ks` run."""

from collections.abc import Sequence
from math import isnan

import numpy as np

from jaxaudit.audits.ks.result import KSResult, TargetResult, rho_rows, share_rows, typical
from jaxaudit.errors import visible
from jaxaudit.plots import ks as plot
from jaxaudit.plots.style import chart, row_height
from jaxaudit.report.ks.groups import group_pictures
from jaxaudit.report.ks.tables import fractions
from jaxaudit.report.numbers import level_text, number_text, precise
from jaxaudit.report.page import PageTable, Picture, table_of
from jaxaudit.report.record import Run

SAMPLED = (0.001, 0.01, 0.05, *(share / 10 for share in range(1, 10)), 0.95, 0.99, 0.999, 0.9999, 0.99999, 1.0)


def pictures(run: Run[KSResult]) -> tuple[Picture, ...]:
    result, targets = run.result, run.result.targets
    confidences = [picture for place, target in enumerate(targets) for picture in _confidences(run, place, target)]
    # A control is compared beside each target; here as beside the first.
    rows = rho_rows(targets, targets[0].controls)
    return (
        *_shares(result),
        *group_pictures(targets, result.level),
        *confidences,
        *([_ratios("rho", rows, result.level)] if rows else []),
        *_distances(result),
    )


def compared(runs: Sequence[Run[KSResult]]) -> tuple[Picture, ...]:
    """rho of the targets of several runs that were made with it."""
    runs = [run for run in runs if run.result.noise_floor is not None]
    rows = [
        row._replace(name=f"{visible(run.name)}: {row.name}")
        for run in runs
        for row in rho_rows(run.result.targets, ())
    ]
    return (_ratios("compared-rho", rows, runs[0].result.level),) if len(runs) > 1 else ()


def _confidences(run: Run[KSResult], place: int, target: TargetResult) -> list[Picture]:
    rho = target.rho
    if not run.arrays or rho is None:
        return []
    name, which, replicates = visible(target.name), typical(rho), len(rho.values)
    samples = [run.arrays["query"][which], run.arrays[f"target_{place}"], run.arrays["calibration"][which]]
    gap = plot.widest_gap_at(samples[0], samples[1])
    distance, other = rho.distances[which], number_text(rho.calibration_distances[which])
    seen = (
        f"Three rising curves. Those of the query model and the target are furthest apart at a confidence of "
        f"{gap.confidence:.4g}, by {distance:.3f}; the calibration model is {other} from the query model."
    )
    places = [(f"{at:g}", at) for at in SAMPLED] + [(f"{gap.confidence:.8g} (widest gap)", gap.confidence)]
    shares = {
        role: plot.share_at_most(sample, np.array([at for _, at in places], sample.dtype))
        for role, sample in zip(plot.ROLES, samples, strict=True)
    }
    columns = {
        "confidence": ("1.0", str),
        **{role: lambda row, values=values: f"{values[row[0]]:.4f}" for role, values in shares.items()},
    }
    numbers = table_of(f"Share of query records with at most this confidence, {name}", enumerate(places), columns)

    captions = (
        f"The gap is the distance of {name} from a query model; rho divides it by that of the calibration model "
        f"({other}). Replicate {which + 1} of {replicates}, whose rho is nearest to the median.",
        "The same curves on an axis that spreads out confidences close to 1; distances are the same on both axes.",
    )
    return [
        Picture(
            f"confidences-{place}{'-log-odds' if stretched else ''}",
            f"Confidences of {name}" + (", log-odds" if stretched else ""),
            seen,
            captions[stretched],
            chart(
                lambda axes, stretched=stretched: plot.draw_confidences(
                    axes, samples, gap, distance, stretched=stretched
                )
            ),
            numbers,
        )
        for stretched in (False, True)
    ]


def _between(row: plot.RhoRow, digits: int) -> str:
    return "none" if isnan(row.low) else f"{row.low:.{digits}f} to {row.high:.{digits}f}"


def _ratios(name: str, rows: Sequence[plot.RhoRow], level: float) -> Picture:
    seen = (f"{row.name}: median {number_text(row.median, 2)}, interval {_between(row, 2)}" for row in rows)
    columns = {
        "model": ("name", str),
        "median": ("median", _shown),
        "interval": lambda row: _between(row, 4),
        "replicates": lambda row: ", ".join(map(_shown, row.values)),
    }
    return Picture(
        name,
        "rho against 1",
        f"{'; '.join(seen)}. A line marks 1.",
        f"Left of the line at 1: nearer to models trained on the query set. A circle is a replicate, the diamond their "
        f"median, the bar the {level_text(level)} interval.",
        chart(lambda axes: plot.draw_rho(axes, rows), row_height(len(rows))),
        table_of("rho", rows, columns, ("model", "interval", "replicates")),
    )


def _distances(result: KSResult) -> tuple[Picture, ...]:
    floor, of_targets = (
        result.noise_floor,
        [(visible(target.name), target.rho) for target in result.targets if target.rho],
    )
    if floor is None or not of_targets:
        return ()
    groups = [
        ("another query model", floor.values),
        ("calibration models", of_targets[0][1].calibration_distances),
        *((f"target {name}", rho.distances) for name, rho in of_targets),
    ]
    drawn = [(name, np.array(values, float)) for name, values in groups]

    distances_text = ". ".join(
        f"{name}: {', '.join(number_text(value) for value in values)}" for name, values in groups[1:]
    )
    return (
        Picture(
            "noise-floor",
            "Distances and the noise floor",
            f"Query models of different seeds are {number_text(floor.median)} apart, at most "
            f"{number_text(floor.max)}. {distances_text}",
            "Distances of models from a query model. The shaded range is the effect of another seed alone: a target "
            "within it cannot be distinguished from a query model.",
            chart(lambda axes: plot.draw_distances(axes, drawn), row_height(len(drawn))),
            PageTable(
                "Kolmogorov-Smirnov distances from a query model",
                ("of", "distances"),
                tuple((name, ", ".join(precise(value) for value in values) or "none") for name, values in groups),
                folded=True,
            ),
        ),
    )


def _shares(result: KSResult) -> tuple[Picture, ...]:
    """The used fraction of every target by every test of use; none where there is no such test."""
    rows = share_rows(result.targets)
    if not rows:
        return ()

    def shown(value: float) -> str:
        return "unknown" if isnan(value) else precise(value)

    seen = (
        f"{row.name}: {shown(row.share)}"
        + ("" if isnan(row.share) else f", {shown(row.low)} to {shown(row.high)}, upper limit {shown(row.upper)}")
        + f", minimum detectable {_shown(row.least)}"
        for row in rows
    )
    title = fractions(result.targets)
    columns = {
        "target": ("name", str),
        title: ("share", shown),
        "low": ("low", shown),
        "high": ("high", shown),
        "upper limit": ("upper", shown),
        "minimum detectable": ("least", _shown),
    }
    return (
        Picture(
            "used",
            f"Estimated {title} of the query set",
            f"{'; '.join(seen)}.",
            f"The diamond is the estimate, the bar its {level_text(result.level)} interval. The triangle is the "
            "one-sided 95% upper limit, which `forgotten` is concluded from. The upright line is the minimum "
            "detectable fraction, which is found with 95% probability; without a line, even use of all may be missed.",
            chart(lambda axes: plot.draw_shares(axes, rows, title), row_height(len(rows)) + 0.3),
            table_of("Used fractions" if title == "used fraction" else "Fractions", rows, columns, ("target",)),
        ),
    )


def _shown(value: float) -> str:
    return precise(None if isnan(value) else float(value))
