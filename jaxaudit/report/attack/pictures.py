"""The charts of an `attack` run."""

from collections.abc import Sequence

import msgspec
import numpy as np

from jaxaudit.audits.attack.exposure import OFTEN, RISKY
from jaxaudit.audits.attack.result import AttackOutcome, AttackResult
from jaxaudit.audits.attack.sections import BesidePDTP, Exposure, SplitAttacks
from jaxaudit.errors import visible
from jaxaudit.metrics.attack_rates import Curve
from jaxaudit.plots import attack as plot
from jaxaudit.plots.attack import EstimateRow, draw_estimates
from jaxaudit.plots.style import chart, row_height
from jaxaudit.report.attack.single_records import beside_words
from jaxaudit.report.attack.view import area_of, correlation_text
from jaxaudit.report.numbers import level_text, number_text, precise
from jaxaudit.report.page import PageTable, Picture
from jaxaudit.report.record import Run

SHOWN = 6
"""The most curves in one chart: the deciding attack, then those with the largest areas."""
SAMPLED = (0.0001, 0.001, 0.01, 0.1, 0.5)


def pictures(run: Run[AttackResult]) -> tuple[Picture, ...]:
    """All charts of a run."""
    result = run.result
    areas = _areas(
        "auc", "Area under the ROC curve of each attack", [_row(attack) for attack in result.attacks], result
    )
    return (
        areas,
        _curves(result),
        *(() if result.splits is None else (_against_pdtp(result, result.splits),)),
        *(() if result.exposure is None else (_separations(result.exposure, result.unit),)),
        *(() if result.beside_pdtp is None else (_beside(result.beside_pdtp, result.unit),)),
    )


def compared(runs: Sequence[Run[AttackResult]]) -> tuple[Picture]:
    """The area of the deciding attack in several runs, in one chart."""
    rows = [_row(run.result.deciding, f"{visible(run.name)}: {run.result.decided_by}") for run in runs]
    return (_areas("compared-auc", "Area under the ROC curve of the deciding attack", rows, runs[0].result),)


def _row(attack: AttackOutcome, name: str = "") -> EstimateRow:
    return EstimateRow(visible(name or attack.name), attack.auc.value, attack.auc.low, attack.auc.high)


def _areas(name: str, title: str, rows: list[EstimateRow], result: AttackResult) -> Picture:
    return Picture(
        name,
        title,
        "; ".join(f"{row.name}: {number_text(row.value)}" for row in rows) + ". A line marks 0.5.",
        f"The diamond is the area, {area_of(result)}; the bar is its {level_text(result.level)} interval. The dotted "
        "line is guessing.",
        chart(lambda axes: draw_estimates(axes, rows, "area under the ROC curve", 0.5), row_height(len(rows))),
        PageTable(
            "Areas",
            ("attack", "AUC", "low", "high"),
            tuple((row.name, *(number_text(value, 4) for value in row[1:])) for row in rows),
            ("AUC", "low", "high"),
        ),
    )


def _curves(result: AttackResult) -> Picture:
    first = result.deciding
    other_attacks = sorted(
        (attack for attack in result.attacks if attack is not first), key=lambda attack: -attack.auc.value
    )
    shown = (first, *other_attacks[: SHOWN - 1])
    bands = [plot.Band(visible(attack.name), *map(np.array, msgspec.structs.astuple(attack.roc))) for attack in shown]
    names = tuple(band.name for band in bands)
    rows = tuple((f"{limit:g}", *(_at(attack.roc, limit) for attack in shown)) for limit in SAMPLED)
    seen = "; ".join(f"{visible(attack.name)} {_at(attack.roc, 0.01)}" for attack in shown)
    return Picture(
        "roc-log",
        "ROC curves, logarithmic",
        f"True positive rate at 1% false positives: {seen}.",
        "The left end shows members that are found at almost no false positives. The band is the first attack's "
        "(Clopper-Pearson, all models together). Above the dotted line an attack finds some members with confidence.",
        chart(lambda axes: plot.draw_bands(axes, bands)),
        PageTable(
            "True positive rate at no more than this false positive rate",
            ("false positive rate", *names),
            rows,
            ("false positive rate", *names),
        ),
    )


def _at(roc: Curve, limit: float) -> str:
    index = int(np.searchsorted(roc.fpr, limit, side="right")) - 1
    return f"{roc.tpr[max(index, 0)]:.4f}"


def _against_pdtp(result: AttackResult, splits: SplitAttacks) -> Picture:
    names = [attack.name for attack in result.attacks]
    values = np.array([record.pdtp for record in splits.records])
    accuracies = [(visible(name), np.array([record.accuracy[name] for record in splits.records])) for name in names]
    shown = tuple(map(visible, names))
    correlations = "; ".join(
        f"{visible(attack.name)} {correlation_text(attack.correlation)}"
        for attack in result.attacks
        if attack.correlation is not None
    )
    return Picture(
        "accuracy-pdtp",
        "Attack accuracy against PDTP",
        f"Correlations: {correlations}.",
        f"A mark is a target under one attack. Correlation with PDTP: {correlations}.",
        chart(lambda axes: plot.draw_accuracies(axes, values, accuracies)),
        PageTable(
            "Targets",
            ("record", "PDTP", *shown),
            tuple(
                (str(record.index), precise(record.pdtp), *(f"{record.accuracy[name]:.3f}" for name in names))
                for record in splits.records
            ),
            ("record", "PDTP", *shown),
        ),
    )


def _separations(exposure: Exposure, unit: str) -> Picture:
    edges, counts = np.array(exposure.separation_edges), np.array(exposure.separation_counts)
    above = int(counts[edges[:-1] >= 0.9 - 1e-9].sum())
    rows = tuple(
        (f"{low:.2f} to {high:.2f}", f"{count:,}") for low, high, count in zip(edges, edges[1:], counts, strict=False)
    )
    return Picture(
        "separations",
        f"How far {unit}s are given away",
        f"{above:,} of {int(counts.sum()):,} {unit}s have a separation of 0.9 or more.",
        f"Separation: the chance that a model trained on a {unit} has a higher output on it than one without. "
        f"{unit.title()}s at the dotted line give nothing away; some lie off it by chance.",
        chart(lambda axes: plot.draw_separations(axes, edges, counts, unit)),
        PageTable(f"{unit.title()}s by separation", ("separation", f"{unit}s"), rows, (f"{unit}s",)),
    )


def _beside(comparison: BesidePDTP, unit: str) -> Picture:
    """PDTP against the share of models that name a record, or a group."""
    values, named_shares = np.array(comparison.pdtp), np.array(comparison.named)
    alone = f"{comparison.pdtp_alone:,} at risk by PDTP alone, {comparison.attack_alone:,} by the attack alone"
    columns = ("PDTP (nats)", "share of its models that name it")
    return Picture(
        "beside-pdtp",
        f"PDTP, and how often a {unit} is given away",
        f"{comparison.both:,} {unit}s are at risk by both, {alone}.",
        f"A mark is a {unit}. Right of the vertical line PDTP is above 1 nat; above the horizontal line half or more "
        f"of the models trained on the {unit} give it away. {alone}. {beside_words(comparison, unit)}",
        chart(lambda axes: plot.draw_beside_pdtp(axes, values, named_shares, (RISKY, OFTEN))),
        PageTable(
            f"{unit.title()}s by PDTP and calls",
            columns,
            tuple((f"{value:.4g}", f"{share:.4g}") for value, share in zip(values, named_shares, strict=True)),
            columns,
        ),
    )
