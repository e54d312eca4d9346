"""The content of an `attack` run for the terminal and the page, and its charts."""

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from jaxaudit.audits.attack.exposure import OFTEN, RISKY
from jaxaudit.audits.attack.finding import NOT_GIVEN
from jaxaudit.audits.attack.result import (
    AttackedTarget,
    AttackOutcome,
    AttackResult,
    BesidePDTP,
    Exposure,
    SplitAttacks,
    check_attack_result,
)
from jaxaudit.errors import visible
from jaxaudit.metrics.attack import Correlation
from jaxaudit.metrics.attack_rates import AttackRates, Curve
from jaxaudit.metrics.over_models import Estimate
from jaxaudit.plots import attack as plot
from jaxaudit.plots.attack import EstimateRow, draw_estimates
from jaxaudit.plots.style import chart, row_height
from jaxaudit.report.attack_records import CUT, beside_table, beside_words, records_tables
from jaxaudit.report.kinds import RunKind
from jaxaudit.report.numbers import NONE, level_text, number_text, precise, span, text
from jaxaudit.report.page import Answer, PageTable, Picture, RunContent, Where
from jaxaudit.report.record import Run, record_type
from jaxaudit.report.sources import Term, terms

METRICS = {"accuracy": "accuracy", "precision": "precision", "recall": "recall", "f1": "F1"}


def attack_part(run: Run[AttackResult], top: int = 5) -> RunContent:
    result = run.result

    question, setting = _asked(result, text(run.provenance.options.get("model")))
    halves, beside = result.splits, result.beside_pdtp
    rates_by_attack = [(attack.name, attack.of_targets) for attack in result.attacks if attack.of_targets is not None]
    return RunContent(
        question,
        setting,
        (_answer(result), *(_of_target(target, result.unit) for target in result.targets)),
        (
            *(() if halves is None else (_metrics(result, "terminal"), _metrics(result, "page"))),
            _grid(result, "terminal"),
            _grid(result, "page"),
            _rates_table(result.decided_by, result.deciding, "page"),
            *(
                _rates_table(f"{name}, targets of known membership", rates, "both")
                for name, rates in rates_by_attack[:1]
            ),
            *(() if beside is None else (beside_table(beside, result.decided_by, result.unit),)),
            *records_tables(result, top),
        ),
        _legend(result),
        (
            *terms("membership attack", "ROC and AUC", "nat", "interval"),
            *(terms("log-odds", "shadow bank", "shadow model") if halves is None else ()),
            *(terms("accuracy of an attack", "PDTP", "correlation") if halves is not None else ()),
            *(terms("PDTP", "DTP-1") if beside is not None else ()),
            *(Term(f"{visible(attack.name)} attack", attack.meaning, attack.source) for attack in result.attacks),
        ),
        _errors(result),
    )


def _asked(result: AttackResult, learner: str) -> tuple[str, str]:
    if result.splits is not None:
        return (
            "Can an attacker tell which records were in the training set?",
            f"jaxaudit trained the classifier ({learner}) on random halves of {result.splits.candidates:,} records. "
            f"{result.records:,} target records were attacked {result.models:,} times each, half of them as members. "
            "Guessing has an accuracy of 50%.",
        )
    views = "" if result.views == 1 else f", in {result.views} views"
    words = "a record in its training set, judging by its output"
    of = f"{result.records:,} records{views}."
    if result.groups is not None:
        words = "a group in its training set, judging by its outputs on the group's records"
        of = f"{result.groups:,} groups of {result.records:,} records{views}: the bank deals whole groups."
    return (
        f"Which {result.unit}s does a model of this recipe give away?",
        f"{result.models:,} shadow models were each attacked by the others: was {words}? {of} Thresholds come from the "
        "other models alone.",
    )


def _errors(result: AttackResult) -> tuple[str]:
    """Known error rates of the verdict, and realised rates of the thresholds."""
    sentence = f"Intervals are {level_text(result.level)} intervals."
    if result.splits is not None:
        sentence = (
            "Where models remember nothing, `attack succeeds` is said with probability 5% at most, over all attacks "
            f"together. Intervals are {level_text(result.level)} intervals, those of accuracies over targets."
        )
    reached = "; ".join(
        f"{level_text(rate.fpr)} stated, {100 * rate.value:.2g}% reached"
        for rate in result.deciding.realised_fpr
        if math.isfinite(rate.value)
    )
    return (f"{sentence} False positive rates by thresholds of other models: {reached}." if reached else sentence,)


def _answer(result: AttackResult) -> Answer:
    best, exposure, halves = result.deciding, result.exposure, result.splits
    area = number_text(best.auc.value)
    between = f"{span(best.auc, 3)} ({level_text(result.level)} interval)" if span(best.auc) else ""
    if halves is not None and best.metrics is not None:
        accuracy = best.metrics.accuracy
        ends = f"{accuracy.low:.1%} to {accuracy.high:.1%} ({level_text(result.level)} interval)"
        return Answer(
            "",
            result.finding,
            f"accuracy of the best attack ({visible(best.name)})",
            f"{accuracy.value:.1%}",
            ends if math.isfinite(accuracy.low) else "",
            (
                ("Area under its ROC curve", f"{area} ({span(best.auc, 3) or 'no interval'})"),
                ("Largest PDTP of a target", f"{number_text(halves.max_pdtp)} nats"),
            ),
        )
    facts = [(f"{result.unit.title()}s", f"{result.attacked:,}"), ("Shadow models", f"{result.models:,}")]
    if exposure is not None and math.isfinite(exposure.exposed) and math.isfinite(exposure.at_fpr):
        named_at = f"{exposure.exposed:.1%} (at {level_text(exposure.at_fpr)} false positives)"
        facts.append((f"{result.unit.title()}s that half or more of their models give away", named_at))
    if result.epsilon is not None:
        bound = result.epsilon
        least = f"at least {bound.bound:.3g} ({level_text(bound.level)})" if bound.bound > 0 else "no bound above 0"
        facts.append((f"Epsilon of this recipe, for one {bound.of}, at delta {bound.delta:g}", least))
    about = "models of this recipe" if result.targets else ""
    measure = f"area under the ROC curve ({visible(best.name)})"
    return Answer(about, result.finding, measure, area, between, tuple(facts))


def _of_target(target: AttackedTarget, unit: str) -> Answer:
    first = target.named[min(1, len(target.named) - 1)] if target.named else None
    if first is None:
        return Answer(visible(target.name), target.finding, f"{unit}s called members", NONE, "")
    return Answer(
        visible(target.name),
        target.finding,
        f"{unit}s called members, at {level_text(first.fpr)} false positives",
        f"{first.count:,}",
        f"by chance about {number_text(first.by_chance, 0)}, at most {number_text(first.at_most, 0)}",
    )


def _metrics(result: AttackResult, on: Where) -> PageTable:
    """Measures of attacks on random halves: one row per attack on a narrow terminal, one column each on a page."""

    def shown(estimate: Estimate) -> str:
        if on == "page":
            return number_text(estimate.value) + (f" ({span(estimate, 3)})" if span(estimate) else "")
        ends = [f"{end:.2f}".removeprefix("0") for end in (estimate.low, estimate.high) if math.isfinite(end)]
        return f"{number_text(estimate.value)}\n{'-'.join(ends) if len(ends) == 2 else NONE}"

    def row(attack: AttackOutcome) -> tuple[str, ...]:
        assert attack.metrics is not None
        assert attack.correlation is not None
        correlation = attack.correlation
        r = (
            NONE
            if math.isnan(correlation.coefficient)
            else f"{correlation.coefficient:.2f}\np {correlation.p_value:.1g}"
        )
        cells = (shown(getattr(attack.metrics, name)) for name in METRICS)
        return visible(attack.name), *cells, r if on == "terminal" else correlation_text(correlation)

    rows = tuple(map(row, result.attacks))
    if on == "terminal":
        numbers = (*METRICS.values(), "r with\nPDTP")
        return PageTable("", ("attack", *numbers), rows, numbers, on=on)
    names, *columns = zip(*rows, strict=True)
    titles = (*METRICS.values(), "correlation with PDTP")
    turned = tuple((title, *cells) for title, cells in zip(titles, columns, strict=True))
    return PageTable(
        f"Each attack's answers ({level_text(result.level)} intervals)", ("number", *names), turned, names, on=on
    )


def correlation_text(correlation: Correlation) -> str:
    """A correlation and its p-value, or why there is none."""
    if math.isnan(correlation.coefficient):
        return f"{NONE} ({visible(correlation.reason or 'undefined')})"
    return f"{number_text(correlation.coefficient, 2)} (p = {precise(correlation.p_value)})"


def _grid(result: AttackResult, on: Where) -> PageTable:
    limits = [rate.fpr for rate in result.attacks[0].tpr_at_fpr if rate.resolvable]
    gap = "\n" if on == "terminal" else " "
    heads = tuple(f"TPR at\n{level_text(limit)} FPR" for limit in limits)
    rows = tuple(
        (
            visible(attack.name),
            f"{number_text(attack.auc.value)}{gap}{span(attack.auc, 3).replace(' to ', '-')}",
            number_text(attack.balanced_accuracy.value),
            *(_rate(rate.value, real.value, gap) for rate, real in attack.rates if rate.fpr in limits),
        )
        for attack in result.attacks
    )
    columns = ("attack", "AUC", "balanced\naccuracy", *heads)
    title = "" if on == "terminal" else "All attacks; in brackets the realised false positive rate"
    if title and any(map(_withheld, result.attacks)):
        title += f"; {NONE} beside one: {NOT_GIVEN}"
    return PageTable(title, columns, rows, columns[1:], on=on)


def _rate(value: float, realised: float, gap: str) -> str:
    if math.isnan(realised):
        return NONE
    if value == realised == 0:
        return "ties"
    return f"{NONE if math.isnan(value) else f'{value:.2%}'}{gap}({100 * realised:.2g}%)"


def _rates_table(name: str, rates: AttackRates, on: Where) -> PageTable:
    """A table with one column per stated false positive rate, since paper and terminals are narrow."""
    resolved_rates = [(rate, real) for rate, real in rates.rates if rate.resolvable]
    columns = tuple(f"{level_text(rate.fpr)} stated" for rate, _ in resolved_rates)
    rows = {
        "true positive rate": [
            f"{number_text(rate.value, 4)} ({span(rate, 4)})" if rate.holds else NONE for rate, _ in resolved_rates
        ],
        "realised false positive rate": [
            f"{number_text(real.value, 4)} ({span(real, 4)})" for _, real in resolved_rates
        ],
        "TPR, SD over models": [number_text(rate.spread, 4) for rate, _ in resolved_rates],
        "TPR on the curve": [number_text(rate.on_curve, 4) for rate, _ in resolved_rates],
        **{
            f"right if {level_text(float(share))} are members": [
                number_text(rate.predictive_value[share]) for rate, _ in resolved_rates
            ]
            for share in rates.tpr_at_fpr[0].predictive_value
        },
    }
    title = f"What {visible(name)} reaches" + (f"; {NONE}: {NOT_GIVEN}" if _withheld(rates) else "")
    table_rows = tuple((title, *cells) for title, cells in rows.items()) if resolved_rates else ()
    return PageTable(title, ("false positive rate", *columns), table_rows, columns, on=on)


def _withheld(rates: AttackRates) -> bool:
    """Whether some true positive rate is withheld because thresholds do not hold."""
    return any(rate.resolvable and not rate.holds for rate in rates.tpr_at_fpr)


def _legend(result: AttackResult) -> tuple[str, ...]:
    halves, exposure = result.splits, result.exposure
    lines = [
        f"AUC: area under the ROC curve, {area_of(result)}, with its {level_text(result.level)} interval. Balanced "
        "accuracy and TPR: with thresholds of the other models; below TPR the realised false positive rate.",
    ]
    if halves is not None:
        lines = [*_of_halves(result, halves), *lines]
    if exposure is not None and math.isfinite(exposure.at_fpr):
        lines.append(
            f"named: share of the models trained on a {result.unit} in which it is called a member, at "
            f"{level_text(exposure.at_fpr)} false positives. separation: chance that "
            + (
                "a model with it is surer of its class than one without."
                if any(record.label for record in exposure.riskiest)
                else "the output on it is higher in a model with it than in one without."
            )
            + (
                " given away by: the class whose probability changes most."
                if any(record.revealing is not None for record in exposure.riskiest)
                else ""
            )
        )
    coarse = [level_text(rate.fpr) for rate in result.attacks[0].tpr_at_fpr if not rate.resolvable]
    if coarse:
        lines.append(f"Not shown, for too few {result.unit}s: rates at {' and '.join(coarse)} false positives.")
    if any(map(_withheld, result.attacks)):
        lines.append(f"{NONE} beside a realised rate: {NOT_GIVEN}. It happens where many scores of a model are equal.")
    if exposure is not None and any(record.saturated for record in exposure.riskiest):
        lines.append(
            f"{CUT.strip()}: some of the models' log-odds on this {result.unit} lie where their files can say no more, "
            "so the gap is not known."
        )
    if result.epsilon is not None:
        bound = result.epsilon
        lines.append(
            f"{bound.sentence} By {visible(bound.attack)}: {bound.references} models attack {bound.audited} others; "
            f"{bound.right:,} of {bound.guesses:,} guesses are right. For one {bound.of} added or removed, by outputs "
            "on these records alone."
        )
    if result.beside_pdtp is not None:
        lines.append(beside_words(result.beside_pdtp, result.unit))
    if result.left_out:
        lines.append(f"Too few shadow models for: {', '.join(map(visible, result.left_out))}.")
    return tuple(lines)


def area_of(result: AttackResult) -> str:
    """What an area under the ROC curve is computed over."""
    return "mean over models" if result.splits is None else "of all attacks together"


def _of_halves(result: AttackResult, halves: SplitAttacks) -> list[str]:
    lines = [
        f"{result.records:,} targets, {result.models:,} attacks on each, half of them as members.",
        f"Target accuracy: {halves.train_accuracy:.1%} train, {halves.test_accuracy:.1%} held out.",
        f"Below each number: its {level_text(result.level)} interval. r: correlation of a target's attack accuracy "
        "with its PDTP, over targets; below it its p-value.",
        f"Target PDTP: mean {number_text(halves.mean_pdtp)}, max {number_text(halves.max_pdtp)}; above 1: "
        f"{halves.strongest.pdtp_above_1}.",
    ]
    if len(result.attacks) > 1:
        related = correlation_text(halves.strongest.correlation)
        lines.append(f"Each target's best attack accuracy against its PDTP: r = {related}.")
    return lines


ATTACK = RunKind("attack", record_type("attack", AttackResult), attack_part, check_attack_result)


SHOWN = 6
"""The most curves in one chart: the deciding attack, then those with the largest areas."""
SAMPLED = (0.0001, 0.001, 0.01, 0.1, 0.5)


def pictures(run: Run[AttackResult]) -> tuple[Picture, ...]:
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
