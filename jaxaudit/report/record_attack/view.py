"""The content of an `attack --shadows` run for the terminal and the page."""

from jaxaudit.audits.record_attack.finding import NOT_GIVEN
from jaxaudit.errors import visible
from jaxaudit.report.glossary import Term, terms
from jaxaudit.report.numbers import NONE, number, percent, precise, span
from jaxaudit.report.page import Answer, Cells, Part, Picture, Where
from jaxaudit.report.record_attack.beside_pdtp import beside_table, beside_words
from jaxaudit.report.record_attack.exposure import Riskiest
from jaxaudit.report.record_attack.record import Attack, Rates, RecordAttackRecord, Target
from jaxaudit.report.repeat import repeat
from jaxaudit.report.run import Run, named

LISTED, CUT = 60, " (cut)"


def record_attack_part(run: Run[RecordAttackRecord], top: int = 10) -> Part:
    """The content of a run; `top` is the number of records that a terminal lists."""
    result = run.result
    told = [attack for attack in result.attacks if attack.of_targets is not None]
    views = "" if result.views == 1 else f", in {result.views} views"

    def pictures() -> tuple[Picture, ...]:
        from jaxaudit.report.record_attack.pictures import record_attack_pictures

        return record_attack_pictures(run)

    return Part(
        named(run),
        run.kind,
        "Which records does a model of this recipe give away?",
        f"{result.models:,} shadow models were each attacked by the others: was a record in its training set, judging "
        f"by its output? {result.records:,} records{views}. Thresholds come from the other models alone.",
        (_answer(result), *(_of_target(target) for target in result.targets)),
        (
            _grid(result, "terminal"),
            _grid(result, "page"),
            *(_rates_table(attack.name, attack, "page") for attack in result.attacks[:1]),
            *(
                _rates_table(f"{attack.name}, targets of known membership", attack.of_targets, "both")
                for attack in told[:1]
                if attack.of_targets is not None
            ),
            *(() if result.beside_pdtp is None else (beside_table(result.beside_pdtp, result.decided_by),)),
            _riskiest(result, top, "terminal"),
            _riskiest(result, LISTED, "page"),
        ),
        pictures,
        _legend(result),
        repeat(result.provenance),
        (
            *terms("membership attack", "ROC and AUC", "log-odds", "nat", "shadow bank", "shadow model", "interval"),
            *(() if result.beside_pdtp is None else terms("PDTP", "DTP-1")),
            *(Term(f"{visible(each.name)} attack", each.meaning, each.source) for each in result.attacks),
        ),
        _errors(result),
    )


def _errors(result: RecordAttackRecord) -> tuple[str, ...]:
    """What the thresholds of the deciding attack led to."""
    reached = (
        f"{percent(rate.fpr)} stated, {100 * rate.value:.2g}% reached"
        for rate in result.attacks[0].realised_fpr
        if rate.value is not None
    )
    rates = "; ".join(reached)
    sentence = f"Intervals are {percent(result.level)} intervals."
    return (f"{sentence} False positive rates by thresholds of other models: {rates}." if rates else sentence,)


def _answer(result: RecordAttackRecord) -> Answer:
    best, exposure = result.attacks[0], result.exposure
    facts = [("Records", f"{result.records:,}"), ("Shadow models", f"{result.models:,}")]
    if exposure.exposed is not None and exposure.at_fpr is not None:
        facts.append(
            (
                "Records that half or more of their models give away",
                f"{exposure.exposed:.1%} (at {percent(exposure.at_fpr)} false positives)",
            )
        )
    if result.epsilon is not None:
        bound = result.epsilon
        facts.append(
            (
                f"Epsilon of this recipe, at delta {bound.delta:g}",
                f"at least {bound.bound:.3g} ({percent(bound.level)})" if bound.bound > 0 else "no bound above 0",
            )
        )
    return Answer(
        "models of this recipe" if result.targets else "",
        result.finding,
        f"area under the ROC curve ({visible(best.name)})",
        number(best.auc.value),
        f"{span(best.auc, 3)} ({percent(result.level)} interval)" if span(best.auc) else "",
        tuple(facts),
    )


def _of_target(target: Target) -> Answer:
    first = target.named[min(1, len(target.named) - 1)] if target.named else None
    if first is None:
        return Answer(visible(target.name), target.finding, "records called members", NONE, "")
    return Answer(
        visible(target.name),
        target.finding,
        f"records called members, at {percent(first.fpr)} false positives",
        f"{first.count:,}",
        f"by chance about {number(first.by_chance, 0)}, at most {number(first.at_most, 0)}",
    )


def _grid(result: RecordAttackRecord, on: Where) -> Cells:
    """A row an attack."""
    limits, gap = (
        [rate.fpr for rate in result.attacks[0].tpr_at_fpr if rate.resolvable],
        "\n" if on == "terminal" else " ",
    )
    heads = tuple(f"TPR at\n{percent(limit)} FPR" for limit in limits)

    def row(attack: Attack) -> tuple[str, ...]:
        rates = [rate for rate in attack.tpr_at_fpr if rate.fpr in limits]
        real = {rate.fpr: rate.value for rate in attack.realised_fpr}
        shown = (_rate(rate.value, real[rate.fpr], gap) for rate in rates)
        area = f"{number(attack.auc.value)}{gap}{span(attack.auc, 3).replace(' to ', '-')}"
        return (visible(attack.name), area, number(attack.balanced_accuracy.value), *shown)

    columns = ("attack", "AUC", "balanced\naccuracy", *heads)
    title = "" if on == "terminal" else "All attacks; in brackets the realised false positive rate"
    if title and any(map(_withheld, result.attacks)):
        title += f"; {NONE} beside one: {NOT_GIVEN}"
    return Cells(title, columns, tuple(map(row, result.attacks)), columns[1:], on=on)


def _rate(value: float | None, realised: float | None, gap: str) -> str:
    if realised is None:
        return NONE
    if value == realised == 0:
        return "ties"
    return f"{NONE if value is None else f'{value:.2%}'}{gap}({100 * realised:.2g}%)"


def _rates_table(name: str, rates: Rates, on: Where) -> Cells:
    rows = []
    for rate, real in zip(rates.tpr_at_fpr, rates.realised_fpr, strict=True):
        if not rate.resolvable:
            continue
        right = (number(rate.predictive_value[share]) for share in rate.predictive_value)
        rows.append(
            (
                percent(rate.fpr),
                f"{number(rate.value, 4)} ({span(rate, 4)})" if rate.holds else NONE,
                f"{number(real.value, 4)} ({span(real, 4)})",
                number(rate.spread, 4),
                number(rate.on_curve, 4),
                *right,
            )
        )
    shares = [f"right if {percent(float(share))} are members" for share in rates.tpr_at_fpr[0].predictive_value]
    columns = ("stated FPR", "true positive rate", "realised FPR", "TPR, SD over models", "TPR on the curve", *shares)
    title = f"What {visible(name)} reaches" + (f"; {NONE}: {NOT_GIVEN}" if _withheld(rates) else "")
    return Cells(title, columns, tuple(rows), columns, on=on)


def _withheld(rates: Rates) -> bool:
    """Whether a rate is not given because thresholds of other models do not hold."""
    return any(rate.resolvable and not rate.holds for rate in rates.tpr_at_fpr)


def _riskiest(result: RecordAttackRecord, count: int, on: Where) -> Cells:
    listed = result.exposure.riskiest[:count]
    columns = ("record", "class", "named", "interval", "separation", "gap (nats)", "given away by")

    def row(each: Riskiest) -> tuple[str, ...]:
        copies = f" ({each.copies} cop{'y' if each.copies == 1 else 'ies'})" if each.copies else ""
        interval = f"{each.named_low:.0%} to {each.named_high:.0%}"
        return (
            f"{visible(each.set)} {each.place}{copies}",
            visible(each.label),
            f"{each.named:.0%} of {each.models}",
            interval,
            number(each.separation),
            precise(each.gap) + (CUT if each.saturated else ""),
            NONE if each.revealing is None else visible(each.revealing),
        )

    title = f"The {len(listed)} records that are given away most" if listed else ""
    return Cells(title, columns, tuple(map(row, listed)), ("separation", "gap (nats)"), folded=True, on=on)


def _legend(result: RecordAttackRecord) -> tuple[str, ...]:
    found = [
        f"AUC: area under the ROC curve, mean over models, with its {percent(result.level)} interval. Balanced "
        "accuracy and TPR: with thresholds of the other models; below TPR the realised false positive rate.",
    ]
    if result.exposure.at_fpr is not None:
        found.append(
            "named: share of the models trained on a record in which it is called a member, at "
            f"{percent(result.exposure.at_fpr)} false positives. separation: chance that a model with it is surer of "
            "its class than one without. given away by: the class whose probability changes most."
        )
    coarse = [percent(rate.fpr) for rate in result.attacks[0].tpr_at_fpr if not rate.resolvable]
    if coarse:
        found.append(f"Not shown, for too few records: rates at {' and '.join(coarse)} false positives.")
    if any(map(_withheld, result.attacks)):
        found.append(f"{NONE} beside a realised rate: {NOT_GIVEN}. It happens where many scores of a model are equal.")
    if any(each.saturated for each in result.exposure.riskiest):
        found.append(
            f"{CUT.strip()}: some of the models' log-odds on this record lie where their files can say no more, so the "
            "gap is not known."
        )
    if result.epsilon is not None:
        bound = result.epsilon
        found.append(
            f"{bound.sentence} By {visible(bound.attack)}: {bound.references} models attack {bound.audited} others; "
            f"{bound.right:,} of {bound.guesses:,} guesses are right. For one record added or removed, by outputs on "
            "these records alone."
        )
    if result.beside_pdtp is not None:
        found.append(beside_words(result.beside_pdtp))
    if result.left_out:
        found.append(f"Too few shadow models for: {', '.join(map(visible, result.left_out))}.")
    return tuple(found)
