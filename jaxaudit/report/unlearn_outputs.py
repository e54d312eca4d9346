"""The content of a run of `unlearn --outputs` for the terminal and the page, from its result alone, and its charts."""

from collections.abc import Sequence

from jaxaudit.audits.unlearn.finding import clause
from jaxaudit.audits.unlearn.given_models import AGAIN
from jaxaudit.audits.unlearn.outputs_result import (
    AccuracyOfModels,
    ScoredMethod,
    UnlearnOutputsResult,
    check_unlearn_outputs,
)
from jaxaudit.errors import visible
from jaxaudit.report.kinds import RunKind
from jaxaudit.report.numbers import estimates_pictures, level_text
from jaxaudit.report.page import Answer, PageTable, Picture, RunContent
from jaxaudit.report.record import Run, record_type
from jaxaudit.report.sources import terms
from jaxaudit.report.unlearn import number_and_interval, retraining_tables, with_interval

CHALLENGE = ("quality F", "RA", "TA", "score")


def unlearn_outputs_part(run: Run[UnlearnOutputsResult], top: int = 0) -> RunContent:
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
    number, interval = number_and_interval(method.u_lira)
    quality = () if method.challenge is None else (("Forgetting quality F", with_interval(method.challenge.quality)),)
    rate = method.true_positive_rate
    rates = () if rate is None else (("True positive rate of U-LiRA at 1% false positives", with_interval(rate)),)
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
    """The numbers of models that were compared with retrained ones, as `retraining_tables`."""
    by_method = {
        method.name: (
            method.u_lira,
            method.true_positive_rate,
            method.challenge.quality,
            method.challenge.remaining_ratio,
            method.challenge.test_ratio,
            method.challenge.score,
        )
        for method in result.methods
        if method.challenge is not None
    }
    return retraining_tables("Told from retrained models", ("U-LiRA", "TPR", *CHALLENGE), by_method)


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
    return "-" if accuracy is None else with_interval(accuracy.mean)


UNLEARN_OUTPUTS = RunKind(
    "unlearn_outputs",
    record_type("unlearn_outputs", UnlearnOutputsResult),
    unlearn_outputs_part,
    check_unlearn_outputs,
)


def pictures(run: Run[UnlearnOutputsResult]) -> tuple[Picture, ...]:
    """All charts of a run; none if no models were compared."""
    quality = [(method.name, method.challenge.quality) for method in run.result.methods if method.challenge is not None]
    lira = [(method.name, method.u_lira) for method in run.result.methods if method.u_lira is not None]
    return estimates_pictures(quality, lira, AGAIN, run.result.protocol.level)


def compared(runs: Sequence[Run[UnlearnOutputsResult]]) -> tuple[Picture, ...]:
    """None: numbers of runs with other retrained models are not comparable."""
    return ()
