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
from jaxaudit.report.kinds import RunKind
from jaxaudit.report.numbers import count_text, level_text
from jaxaudit.report.page import Answer, PageTable, RunContent, table_of
from jaxaudit.report.record import Run, record_type
from jaxaudit.report.sources import terms
from jaxaudit.report.unlearn import OF_CHALLENGE, in_lines, number_and_interval, with_interval


def unlearn_outputs_part(run: Run[UnlearnOutputsResult], top: int = 0) -> RunContent:
    result, protocol = run.result, run.result.protocol
    return RunContent(
        "Does unlearning work?",
        f"{len(_judged(result))} methods are judged by what their models, which were trained elsewhere, say of "
        f"{protocol.records:,} records to forget. Models retrained without those records show what forgetting should "
        f"look like. {' '.join(map(visible, (*result.shortfalls, result.finding.sentence)))}",
        tuple(_answer(method, protocol.level) for method in _judged(result)),
        (_compared(result), _accuracies(result)),
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
            f"Compared: {protocol.compared} models of a method with {protocol.compared} retrained ones, on "
            f"{protocol.records:,} records, with intervals ({level_text(protocol.level)}) over models. `{AGAIN}`: "
            "other retrained models as a method, as good as can be.",
            "U-LiRA: accuracy of an attack that knows the method; 0.5 is a guess, smaller is better. TPR: its true "
            f"positive rate at {protocol.false_positive_rate:.0%} false positives.",
            "Quality F and score (F times RA and TA, the ratios of remaining and test accuracy) are those of the "
            f"unlearning challenge of 2023. Larger is better: compare with `{AGAIN}`, and with no other program.",
        ]
    return tuple(lines)


def _compared(result: UnlearnOutputsResult) -> PageTable:
    """The numbers of models that were compared with retrained ones."""
    columns = {
        "models": ("name", visible),
        "U-LiRA": ("u_lira", in_lines),
        "TPR": ("true_positive_rate", in_lines),
        **OF_CHALLENGE,
    }
    methods = [method for method in result.methods if method.challenge is not None]
    return table_of("Told from retrained models", methods, columns, ("models",), on="both")


def _accuracies(result: UnlearnOutputsResult) -> PageTable:
    """The mean accuracies over all models of a file."""

    def mean(accuracy: AccuracyOfModels | None) -> str:
        return "-" if accuracy is None else with_interval(accuracy.mean)

    columns = {
        "models": ("name", visible),
        "count": ("models", count_text),
        "forgotten": ("forgotten_accuracy", mean),
        "remaining": ("remaining_accuracy", mean),
        "test": ("test_accuracy", mean),
    }
    title = f"Accuracy, mean over models ({level_text(result.protocol.level)})"
    return table_of(title, result.methods, columns, ("models",), on="both")


UNLEARN_OUTPUTS = RunKind(
    "unlearn_outputs",
    record_type("unlearn_outputs", UnlearnOutputsResult),
    unlearn_outputs_part,
    check_unlearn_outputs,
)
