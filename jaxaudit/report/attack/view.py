"""The content of an `attack` run for the terminal and the page."""

from jaxaudit.errors import visible
from jaxaudit.report.attack.record import Attack, AttackRecord, Correlation, Estimate, Rate
from jaxaudit.report.glossary import Term, terms
from jaxaudit.report.numbers import number, percent, precise, span, text
from jaxaudit.report.page import Answer, Cells, Part, Picture, Where
from jaxaudit.report.repeat import repeat
from jaxaudit.report.run import Run, named

NUMBERS = ("accuracy", "precision", "recall", "f1", "auc")
TITLES = ("accuracy", "precision", "recall", "F1", "AUC")
LISTED = 60


def attack_part(run: Run[AttackRecord], top: int = 5) -> Part:
    """The content of a run of `attack`; `top` is the number of targets that a terminal lists."""
    result, protocol = run.result, run.result.protocol
    learner = text(result.provenance.options.get("model"))

    def pictures() -> tuple[Picture, ...]:
        from jaxaudit.report.attack.pictures import attack_pictures

        return attack_pictures(run)

    return Part(
        named(run),
        run.kind,
        "Can an attacker tell which records were in the training set?",
        f"The classifier ({learner}) was trained on random halves of {protocol.candidates:,} records. "
        f"{protocol.targets:,} target records were attacked {protocol.attacks_on_each_target:,} times each, half "
        "of them as members. Guessing has an accuracy of 50%.",
        (_answer(result),),
        (_grid(result), _metrics(result), _targets(result, top, "terminal"), _targets(result, LISTED, "page")),
        pictures,
        _legend(result),
        repeat(result.provenance),
        (
            *terms("membership attack", "accuracy of an attack", "ROC and AUC", "PDTP", "nat"),
            *terms("correlation", "interval"),
            *(Term(f"{each.name} attack", each.meaning, each.source) for each in result.attacks if each.meaning),
        ),
        (
            "Where models remember nothing, `attack succeeds` is said with probability 5% at most, over all attacks "
            f"together. Intervals are {percent(result.level)} intervals over targets.",
        ),
    )


def best_of(result: AttackRecord) -> Attack:
    """The attack that the finding is about."""
    return next(attack for attack in result.attacks if attack.name == result.best_attack)


def _answer(result: AttackRecord) -> Answer:
    best = best_of(result)
    accuracy = best.accuracy
    known = accuracy.low is not None and accuracy.high is not None
    between = f"{accuracy.low:.1%} to {accuracy.high:.1%} ({percent(result.level)} interval)" if known else ""
    return Answer(
        "",
        result.finding,
        f"accuracy of the best attack ({visible(best.name)})",
        f"{accuracy.value:.1%}",
        between,
        (
            ("Area under its ROC", f"{number(best.auc.value)} ({span(best.auc, 3) or 'no interval'})"),
            ("Largest PDTP of a target", f"{number(result.max_pdtp)} nats"),
        ),
    )


def _legend(result: AttackRecord) -> tuple[str, ...]:
    protocol, strongest = result.protocol, result.strongest
    found = [
        f"{protocol.targets:,} targets, {protocol.attacks_on_each_target:,} attacks on each, half of them as members.",
        f"Target accuracy: {result.train_accuracy:.1%} train, {result.test_accuracy:.1%} held out.",
        f"Below each number: its {percent(result.level)} interval. r: correlation of a target's attack accuracy with "
        "its PDTP, over targets; below it its p-value. -: too few attacks on non-members.",
        f"Target PDTP: mean {number(result.mean_pdtp)}, max {number(result.max_pdtp)}; above 1: "
        f"{strongest.pdtp_above_1}.",
    ]
    if len(result.attacks) > 1:
        found.append(
            f"Each target's best attack accuracy against its PDTP: r = {correlation_text(strongest.correlation)}."
        )
    return tuple(found)


def _grid(result: AttackRecord) -> Cells:
    """A row an attack, narrow enough for 80 columns."""
    limits = [rate.at_false_positive_rate for rate in result.attacks[0].true_positive_rates]
    numbers = (*TITLES, *(f"TPR at\n{100 * limit:g}% FPR" for limit in limits), "r with\nPDTP")

    def below(estimate: Estimate | Rate) -> str:
        ends = [f"{end:.2f}".removeprefix("0") for end in (estimate.low, estimate.high) if end is not None]
        return f"{number(estimate.value)}\n{'-'.join(ends) if len(ends) == 2 else 'none'}"

    def row(attack: Attack) -> tuple[str, ...]:
        rates = (below(rate) if rate.resolvable else "-" for rate in attack.true_positive_rates)
        found = attack.correlation
        r = "none" if found.with_pdtp is None else f"{found.with_pdtp:.2f}\np {found.p_value:.1g}"
        return (visible(attack.name), *(below(getattr(attack, name)) for name in NUMBERS), *rates, r)

    return Cells("", ("attack", *numbers), tuple(map(row, result.attacks)), numbers, on="terminal")


def _metrics(result: AttackRecord) -> Cells:
    attacks = result.attacks
    rows = [
        (label, *(_estimate(getattr(attack, name)) for attack in attacks))
        for name, label in zip(NUMBERS, TITLES, strict=True)
    ]
    for place, rate in enumerate(attacks[0].true_positive_rates):
        rates = [attack.true_positive_rates[place] for attack in attacks]
        shown = (_estimate(rate) if rate.resolvable else "not resolvable" for rate in rates)
        rows.append((f"true positive rate at {100 * rate.at_false_positive_rate:g}% false positives", *shown))
    rows.append(("correlation with PDTP", *(correlation_text(attack.correlation) for attack in attacks)))
    names = tuple(visible(attack.name) for attack in attacks)
    return Cells(f"Each attack ({percent(result.level)} intervals)", ("number", *names), tuple(rows), names)


def _estimate(estimate: Estimate | Rate) -> str:
    between = span(estimate, 3)
    return number(estimate.value) + (f" ({between})" if between else "")


def correlation_text(found: Correlation) -> str:
    """A correlation and its p-value, or why there is none."""
    if found.with_pdtp is None:
        return f"none ({visible(found.reason or 'undefined')})"
    return f"{number(found.with_pdtp, 2)} (p = {precise(found.p_value)})"


def _targets(result: AttackRecord, count: int, on: Where) -> Cells:
    ranked = sorted(result.targets, key=lambda target: -target.largest_accuracy)[:count]
    numbers = ("record", "accuracy", "PDTP")
    rows = (
        (str(each.index), number(each.largest_accuracy), precise(each.pdtp), visible(each.strongest_attack))
        for each in ranked
    )
    title = f"The {len(ranked)} targets with the highest attack accuracy"
    return Cells(title, (*numbers, "best attack"), tuple(rows), numbers, folded=True, on=on)
