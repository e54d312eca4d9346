"""The content of a run of `unlearn --outputs` for the terminal and the page, from its result alone."""

from jaxaudit.audits.unlearn.finding import clause
from jaxaudit.audits.unlearn.given_models import AGAIN
from jaxaudit.audits.unlearn.outputs_result import (
    AccuracyOfModels,
    ScoredMethod,
    UnlearnOutputsResult,
    check_unlearn_outputs,
)
from jaxaudit.errors import visible
from jaxaudit.metrics.over_models import Estimate
from jaxaudit.report.glossary import terms
from jaxaudit.report.kinds import RunKind
from jaxaudit.report.numbers import level_text, number_text, span
from jaxaudit.report.page import Answer, PageTable, RunContent
from jaxaudit.report.record import Run, record_type

CHALLENGE = ("quality F", "RA", "TA", "score")


def unlearn_outputs_part(run: Run[UnlearnOutputsResult], top: int = 0) -> RunContent:
    """The content of a run of `unlearn --outputs`, which lists no records: `top` has no effect."""
    result, protocol = run.result, run.result.protocol
    return RunContent(
        "Does unlearning work?",
        f"{len(_judged(result))} methods are judged by what their models, which were trained elsewhere, say of "
        f"{protocol.records:,} records to forget. Models retrained without those records show what forgetting should "
        f"look like. {' '.join(map(visible, (*result.shortfalls, result.finding.sentence)))}",
        tuple(_answer(method, protocol.level) for method in _judged(result)),
        (*_compared(result), _accuracies(result)),
        _legend(result),
        terms("retraining", "distinguishable", "forgetting quality", "U-LiRA"),
        (
            "A method that is as good as retraining is called distinguishable if the whole 95% interval of U-LiRA's "
            "accuracy lies above 0.5: at most 2% of such methods were, on simulated log-odds.",
        ),
    )


def _judged(result: UnlearnOutputsResult) -> list[ScoredMethod]:
    return [method for method in result.methods if method.finding is not None]


def _answer(method: ScoredMethod, level: float) -> Answer:
    assert method.finding is not None
    number, interval = _number(method.u_lira)
    quality = () if method.challenge is None else (("Forgetting quality F", _whole(method.challenge.quality)),)
    rate = method.true_positive_rate
    rates = () if rate is None else (("True positive rate of U-LiRA at 1% false positives", _whole(rate)),)
    return Answer(
        visible(method.name),
        method.finding,
        "accuracy of U-LiRA",
        number,
        interval and f"{interval} ({level_text(level)})",
        (*quality, *rates),
        alone=clause(method.finding.verdict),
        kind="method",
    )


def _legend(result: UnlearnOutputsResult) -> tuple[str, ...]:
    protocol = result.protocol
    lines = [f"Too few models: {visible(line)}" for line in result.shortfalls]
    if protocol.compared:
        lines += [
            f"Compared: {protocol.compared} models of a method with {protocol.references} retrained ones, on "
            f"{protocol.records:,} records, with intervals ({level_text(protocol.level)}) over models. `{AGAIN}`: "
            "other retrained models as a method, as good as can be.",
            "U-LiRA: accuracy of an attack that knows the method; 0.5 is a guess, smaller is better. TPR: its true "
            f"positive rate at {protocol.false_positive_rate:.0%} false positives.",
            "Quality F and score (F times RA and TA, the ratios of remaining and test accuracy) are those of the "
            f"unlearning challenge of 2023. Larger is better: compare with `{AGAIN}`, and with no other program.",
        ]
    return tuple(lines)


def _compared(result: UnlearnOutputsResult) -> tuple[PageTable, ...]:
    """A table with one line per method on a page, two on a terminal; none if models were not compared."""
    numbers, rows, whole = ("U-LiRA", "TPR", *CHALLENGE), list[tuple[str, ...]](), list[tuple[str, ...]]()
    for method in result.methods:
        challenge = method.challenge
        if challenge is None:
            continue
        columns = (
            method.u_lira,
            method.true_positive_rate,
            challenge.quality,
            challenge.remaining_ratio,
            challenge.test_ratio,
            challenge.score,
        )
        cells = [_number(value) for value in columns]
        rows += [(visible(method.name), *(value for value, _ in cells)), ("", *(interval for _, interval in cells))]
        together = (f"{value} ({interval})" if interval else value for value, interval in cells)
        whole.append((visible(method.name), *together))
    if not rows:
        return ()
    title, columns = "Told from retrained models", ("models", *numbers)
    return (
        PageTable(title, columns, tuple(rows), numbers, on="terminal"),
        PageTable(title, columns, tuple(whole), numbers, on="page"),
    )


def _accuracies(result: UnlearnOutputsResult) -> PageTable:
    """The mean accuracies over all models of a file."""
    numbers = ("count", "forgotten", "remaining", "test")
    rows = tuple(
        (
            visible(method.name),
            f"{method.models:,}",
            *map(_mean, (method.forgotten_accuracy, method.remaining_accuracy, method.test_accuracy)),
        )
        for method in result.methods
    )
    title = f"Accuracy, mean over models ({level_text(result.protocol.level)})"
    return PageTable(title, ("models", *numbers), rows, numbers, on="both")


def _mean(accuracy: AccuracyOfModels | None) -> str:
    return "-" if accuracy is None else _whole(accuracy.mean)


def _number(value: Estimate | float | None) -> tuple[str, str]:
    """A number and its interval, which may be empty."""
    if isinstance(value, Estimate):
        return number_text(value.value, 2), span(value)
    return number_text(value, 2), ""


def _whole(estimate: Estimate) -> str:
    number, interval = _number(estimate)
    return f"{number} ({interval})" if interval else number


UNLEARN_OUTPUTS = RunKind(
    "unlearn_outputs",
    record_type("unlearn_outputs", UnlearnOutputsResult),
    unlearn_outputs_part,
    check_unlearn_outputs,
)
