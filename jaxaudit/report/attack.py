"""The content of an `attack` run for the terminal and the page, and its charts."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter

import numpy as np

from jaxaudit.audits.attack.finding import GRADED_AT, NOT_GIVEN
from jaxaudit.audits.attack.result import (
    AttackedTarget,
    AttackOutcome,
    AttackResult,
    Published,
    Riskiest,
    check_attack_result,
)
from jaxaudit.errors import visible
from jaxaudit.metrics.attack import AttackRates, Curve, RateAt
from jaxaudit.metrics.over_models import Estimate
from jaxaudit.plots import charts as plot
from jaxaudit.plots.style import chart
from jaxaudit.report.kinds import Run, RunKind, record_type
from jaxaudit.report.numbers import NONE, count_text, level_text, number_text, precise, span, text
from jaxaudit.report.page import (
    Answer,
    ColumnsByHead,
    PageTable,
    Picture,
    RunContent,
    Where,
    table_of,
    tables_of_first,
)
from jaxaudit.report.sources import Term, terms

METRICS = {"accuracy": "accuracy", "precision": "precision", "recall": "recall", "f1": "F1"}


def attack_part(run: Run[AttackResult]) -> RunContent:
    result = run.result

    question, introduction = _asked(result, text(run.provenance.options.get("model")))
    splits = result.splits
    target_rates = result.deciding.of_targets
    return RunContent(
        question,
        introduction,
        (_answer(result), *(_answer_of_target(target, result.unit) for target in result.targets)),
        (
            *(() if splits is None else (_metrics(result),)),
            _grid(result),
            _rates_table(result.decided_by, result.deciding, "page"),
            *(
                ()
                if target_rates is None
                else (_rates_table(f"{result.decided_by}, targets of known membership", target_rates, "both"),)
            ),
            *((_with_less_published(result),) if result.published else ()),
            *records_tables(result),
        ),
        _legend(result),
        (
            *terms("membership attack", "ROC and AUC", "interval"),
            *(terms("log-odds", "shadow bank", "shadow model") if splits is None else ()),
            *(terms("accuracy of an attack", "PDTP", "nat", "correlation") if splits is not None else ()),
            *(Term(f"{visible(attack.name)} attack", attack.meaning, attack.source) for attack in result.attacks),
        ),
        _errors(result),
        pictures=_pictures(result),
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
            "Where models remember nothing, `gives some away` or more is said with probability 5% at most, over all "
            f"attacks together. Intervals are {level_text(result.level)} intervals, those of accuracies over targets."
        )
    reached = "; ".join(
        f"{level_text(rate.fpr)} stated, {100 * rate.realised.value:.2g}% reached"
        for rate in result.deciding.tpr_at_fpr
        if math.isfinite(rate.realised.value)
    )
    return (f"{sentence} False positive rates by thresholds of other models: {reached}." if reached else sentence,)


def _answer(result: AttackResult) -> Answer:
    best, exposure, splits = result.deciding, result.exposure, result.splits
    area = number_text(best.auc.value)
    between = f"{span(best.auc, 3)} ({level_text(result.level)} interval)" if span(best.auc) else ""
    if splits is not None and best.metrics is not None:
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
                ("Largest PDTP of a target", f"{number_text(max(record.pdtp for record in splits.records))} nats"),
            ),
        )
    facts = [(f"{result.unit.title()}s", f"{result.attacked:,}"), ("Shadow models", f"{result.models:,}")]
    if exposure is not None and math.isfinite(exposure.exposed) and math.isfinite(exposure.at_fpr):
        named_at = f"{exposure.exposed:.1%} (at {level_text(exposure.at_fpr)} false positives)"
        facts.append((f"{result.unit.title()}s that half or more of their models give away", named_at))
    about = "models of this recipe" if result.targets else ""
    measure = f"area under the ROC curve ({visible(best.name)})"
    return Answer(about, result.finding, measure, area, between, tuple(facts))


def _answer_of_target(target: AttackedTarget, unit: str) -> Answer:
    # At the largest rate of at most 1%, or the smallest that there is.
    call = next((call for call in target.named if call.fpr <= 0.01), target.named[-1] if target.named else None)
    if call is None:
        return Answer(visible(target.name), target.finding, f"{unit}s called members", NONE, "")
    return Answer(
        visible(target.name),
        target.finding,
        f"{unit}s called members, at {level_text(call.fpr)} false positives",
        f"{call.count:,}",
        f"by chance about {number_text(call.by_chance, 0)}, at most {number_text(call.at_most, 0)}",
    )


def _metrics(result: AttackResult) -> PageTable:
    """Measures of attacks on random halves, with their intervals."""

    def shown(estimate: Estimate) -> str:
        ends = [f"{end:.2f}".removeprefix("0") for end in (estimate.low, estimate.high) if math.isfinite(end)]
        return f"{number_text(estimate.value)}\n{'-'.join(ends) if len(ends) == 2 else NONE}"

    def correlated(attack: AttackOutcome) -> str:
        r = attack.correlation
        return NONE if r is None or math.isnan(r.coefficient) else f"{r.coefficient:.2f}\np {r.p_value:.1g}"

    columns = {
        "attack": _name,
        **{name: lambda attack, field=field: shown(getattr(attack.metrics, field)) for field, name in METRICS.items()},
        "r with\nPDTP": correlated,
    }
    title = f"Each attack's answers ({level_text(result.level)} intervals)"
    return table_of(title, result.attacks, columns, ("attack",), on="both", bare=True)


def _name(attack: AttackOutcome) -> str:
    return visible(attack.name)


def _grid(result: AttackResult) -> PageTable:
    columns = {
        "attack": _name,
        "AUC": lambda attack: f"{number_text(attack.auc.value)}\n{span(attack.auc, 3).replace(' to ', '-')}",
        **_rate_columns([rate.fpr for rate in result.attacks[0].tpr_at_fpr if rate.resolvable]),
    }
    title = "All attacks; in brackets the realised false positive rate"
    if any(map(_withheld, result.attacks)):
        title += f"; {NONE} beside one: {NOT_GIVEN}"
    return table_of(title, result.attacks, columns, ("attack",), on="both", bare=True)


def _rate_columns(limits: Sequence[float]) -> ColumnsByHead:
    """A column for each stated false positive rate, of rows with rates."""

    def shown(row: AttackRates | Published, limit: float) -> str:
        return next(_rate(rate.value, rate.realised.value) for rate in row.tpr_at_fpr if rate.fpr == limit)

    return {f"TPR at\n{level_text(limit)} FPR": partial(shown, limit=limit) for limit in limits}


def _rate(value: float, realised: float) -> str:
    if math.isnan(realised):
        return NONE
    if value == realised == 0:
        return "ties"
    return f"{NONE if math.isnan(value) else f'{value:.2%}'}\n({100 * realised:.2g}%)"


def _rates_table(name: str, rates: AttackRates, on: Where) -> PageTable:
    """A table with one column per stated false positive rate, since paper and terminals are narrow."""
    resolved = [rate for rate in rates.tpr_at_fpr if rate.resolvable]
    rows: dict[str, Callable[[RateAt], str]] = {
        "true positive rate": lambda rate: f"{number_text(rate.value, 4)} ({span(rate, 4)})" if rate.holds else NONE,
        "realised false positive rate": lambda rate: (
            f"{number_text(rate.realised.value, 4)} ({span(rate.realised, 4)})"
        ),
        "TPR, SD over models": lambda rate: number_text(rate.spread, 4),
        "TPR on the curve": lambda rate: number_text(rate.on_curve, 4),
    }
    columns = {
        "false positive rate": itemgetter(0),
        **{f"{level_text(rate.fpr)} stated": lambda row, rate=rate: row[1](rate) for rate in resolved},
    }
    title = f"What {visible(name)} reaches" + (f"; {NONE}: {NOT_GIVEN}" if _withheld(rates) else "")
    return table_of(title, rows.items() if resolved else (), columns, ("false positive rate",), on=on)


def _with_less_published(result: AttackResult) -> PageTable:
    """What the deciding attack reaches on coarser outputs of the same models, beside all outputs."""
    deciding = result.deciding
    whole = Published("all outputs", result.finding.verdict, deciding.auc, deciding.tpr_at_fpr)
    limits = [rate.fpr for rate in deciding.tpr_at_fpr if rate.resolvable and rate.fpr in GRADED_AT]
    columns: ColumnsByHead = {
        "if a model publishes": ("outputs", visible),
        "verdict": ("verdict", visible),
        "AUC": ("auc.value", number_text),
        **_rate_columns(limits),
    }
    title = f"What would help: {visible(result.decided_by)} on the same models, if they publish less"
    return table_of(title, (whole, *result.published), columns, ("if a model publishes", "verdict"), on="both")


def _withheld(rates: AttackRates) -> bool:
    """Whether some true positive rate is withheld because thresholds do not hold."""
    return any(rate.resolvable and not rate.holds for rate in rates.tpr_at_fpr)


def _legend(result: AttackResult) -> tuple[str, ...]:
    halves, exposure = result.splits, result.exposure
    has_rates = any(rate.resolvable for attack in result.attacks for rate in attack.tpr_at_fpr)
    over = "mean over models" if halves is None else "of all attacks together"
    lines = [
        f"AUC: area under the ROC curve, {over}, with its {level_text(result.level)} interval."
        + has_rates * " TPR: with thresholds of the other models; below it the realised false positive rate.",
    ]
    if halves is not None:
        pdtp = [record.pdtp for record in halves.records]
        lines = [
            f"{result.records:,} targets, {result.models:,} attacks on each, half of them as members.",
            f"Target accuracy: {halves.train_accuracy:.1%} train, {halves.test_accuracy:.1%} held out.",
            f"Below each number: its {level_text(result.level)} interval. r: correlation of a target's attack accuracy "
            "with its PDTP, over targets; below it its p-value.",
            f"Target PDTP: mean {number_text(float(np.mean(pdtp)))}, max {number_text(max(pdtp))}.",
            *lines,
        ]
    if exposure is not None and math.isfinite(exposure.at_fpr):
        lines.append(
            f"{exposure.exposed:.1%} of {exposure.judged:,} {result.unit}s are named in half or more of the models "
            f"trained on them, at {level_text(exposure.at_fpr)} false positives."
        )
        lines.append(
            f"named: share of the models trained on a {result.unit} in which it is called a member, at "
            f"{level_text(exposure.at_fpr)} false positives. separation: chance that "
            + (
                "a model with it is surer of its class than one without."
                if any(record.label for record in exposure.riskiest)
                else "the output on it is higher in a model with it than in one without."
            )
        )
    coarse = [level_text(rate.fpr) for rate in result.attacks[0].tpr_at_fpr if not rate.resolvable]
    if coarse:
        lines.append(f"Not shown, for too few {result.unit}s: rates at {' and '.join(coarse)} false positives.")
    if any(map(_withheld, result.attacks)):
        lines.append(f"{NONE} beside a realised rate: {NOT_GIVEN}. It happens where many scores of a model are equal.")
    if result.published:
        lines.append(
            "What would help is measured with one question a record. Who may ask for the classes of many inputs near a "
            "record learns more from classes alone (Choquette-Choo et al. 2021)."
        )
    if result.left_out:
        lines.append(f"Too few shadow models for: {', '.join(map(visible, result.left_out))}.")
    return tuple(lines)


SHOWN = 6
"""The most curves in one chart: the deciding attack, then those with the largest areas."""
SAMPLED = (0.0001, 0.001, 0.01, 0.1, 0.5)


def _pictures(result: AttackResult) -> tuple[Picture, ...]:
    splits = result.splits
    if splits is None:
        return (_curves(result),)
    names = [attack.name for attack in result.attacks]
    against_pdtp = Picture(
        "accuracy-pdtp",
        "Attack accuracy against PDTP",
        "A mark is a target under one attack.",
        chart(lambda axes: plot.draw_accuracies(axes, splits.records, names)),
        table_of("Targets", splits.records, _accuracies(result)),
    )
    return _curves(result), against_pdtp


def _curves(result: AttackResult) -> Picture:
    first = result.deciding
    other_attacks = sorted(
        (attack for attack in result.attacks if attack is not first), key=lambda attack: -attack.auc.value
    )
    shown = (first, *other_attacks[: SHOWN - 1])
    columns = {
        "false positive rate": lambda limit: f"{limit:g}",
        **{_name(attack): lambda limit, roc=attack.roc: _at(roc, limit) for attack in shown},
    }
    return Picture(
        "roc-log",
        "ROC curves, logarithmic",
        "The left end shows members that are found at almost no false positives. The band is the first attack's "
        "(Clopper-Pearson, all models together). Above the dotted line an attack finds some members with confidence.",
        chart(lambda axes: plot.draw_curves(axes, {_name(attack): attack.roc for attack in shown})),
        table_of("True positive rate at no more than this false positive rate", SAMPLED, columns),
    )


def _at(roc: Curve, limit: float) -> str:
    index = int(np.searchsorted(roc.fpr, limit, side="right")) - 1
    return f"{roc.tpr[max(index, 0)]:.4f}"


# Tables of single records: the riskiest, and the attacked.


def _accuracies(result: AttackResult) -> ColumnsByHead:
    """The columns of a table of attacked records."""
    return {
        "record": ("index", str),
        "PDTP": ("pdtp", precise),
        **{_name(attack): lambda record, name=attack.name: f"{record.accuracy[name]:.3f}" for attack in result.attacks},
    }


def records_tables(result: AttackResult) -> tuple[PageTable, ...]:
    if result.splits is not None:
        ranked = sorted(result.splits.records, key=lambda record: -record.largest_accuracy)
        return tables_of_first("The {} targets with the highest attack accuracy", ranked, _accuracies(result))
    assert result.exposure is not None
    return _riskiest(result, result.exposure.riskiest)


def _riskiest(result: AttackResult, riskiest: Sequence[Riskiest]) -> tuple[PageTable, ...]:
    def place(record: Riskiest) -> str:
        copies = f" ({record.copies} cop{'y' if record.copies == 1 else 'ies'})" if record.copies else ""
        return f"{visible(record.set)} {record.place}{copies}"

    grouped = result.groups is not None
    columns: ColumnsByHead = {"group of record" if grouped else "record": place}
    if any(record.id for record in riskiest):
        columns["id"] = ("id", visible)
    if grouped:
        columns["records"] = ("records", count_text)
    if any(record.label for record in riskiest):
        columns["class"] = lambda record: visible(record.label) or NONE
    columns |= {
        "named": lambda record: f"{record.named:.0%} of {record.models}",
        "interval": lambda record: f"{record.named_low:.0%} to {record.named_high:.0%}",
        "separation": ("separation", number_text),
    }
    words = set(columns) - {"records", "separation"}
    return tables_of_first(f"The {{}} {result.unit}s that are given away most", riskiest, columns, tuple(words))


ATTACK = RunKind("attack", record_type("attack", AttackResult), attack_part, check_attack_result)
