"""The content of an `unlearn` run for the terminal and the page, and its charts; of `unlearn --outputs`, too."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

from jaxaudit.audits.finding import Tone
from jaxaudit.audits.unlearn.outputs_result import AGAIN, UnlearnOutputsResult, check_unlearn_outputs
from jaxaudit.audits.unlearn.result import (
    SCORES,
    MethodResult,
    Score,
    UnlearnResult,
    check_unlearn_result,
)
from jaxaudit.errors import visible
from jaxaudit.metrics.over_models import Estimate
from jaxaudit.plots import charts as plot
from jaxaudit.plots.style import chart, row_height
from jaxaudit.report.kinds import Run, RunKind, record_type
from jaxaudit.report.numbers import count_text, level_text, number_text, precise, span, two_decimals
from jaxaudit.report.page import Answer, Column, ColumnsByHead, PageTable, Picture, RunContent, table_of
from jaxaudit.report.sources import terms

COLUMNS: dict[Score, str] = {
    "efficacy": "efficacy",
    "bound": "bound",
    "remaining_accuracy": "accuracy:\nremaining",
    "forgotten_accuracy": "\nforgotten",
    "test_accuracy": "\ntest",
    "attack": "\nattack",
}
"""Of the terminal's table."""
OF_TEXTS: dict[Score, str] = {
    "efficacy": "efficacy",
    "bound": "bound",
    "remaining_log_likelihood": "log-likelihood:\nremaining",
    "forgotten_log_likelihood": "\nforgotten",
    "test_log_likelihood": "\ntest",
}
"""The same for texts."""
MARKS = {"above": "above", "below": "below", "not distinguishable": "~", "too few seeds": "?"}
WIDEST_RANGE = 11
"""The most characters of a range: wider ones are broken, so that six columns fit a terminal."""


def unlearn_part(run: Run[UnlearnResult]) -> RunContent:
    result, protocol = run.result, run.result.protocol
    judged = tuple(_answer(method) for method in result.methods if method.finding is not None)
    title = "Told from retrained models of other seeds"
    # Texts have no accuracies, and so neither the ratios nor the score.
    columns = {**(QUALITY if result.of_texts else OF_CHALLENGE), **U_LIRA}
    return RunContent(
        "Does unlearning work?",
        f"{protocol.seeds} models were trained on {protocol.training_records:,} records, and each method made them "
        f"forget {protocol.forgotten_records:,} of these ({visible(result.forgotten)}). Models retrained without those "
        "records show what forgetting should look like. A method is distinguishable from retraining if a score lies "
        "above or below those of the retrained models: it forgot too little or changed too much. "
        f"{visible(result.finding.sentence)}",
        judged or (Answer("", result.finding, "methods judged", "0", ""),),
        (
            _grid(result),
            _against_retrained(title, result.methods, columns),
            _places(result),
        ),
        _legend(result),
        terms(
            "efficacy",
            "bound of the efficacy",
            "Fisher information",
            "retraining",
            "amnesiac unlearning",
            "Fisher forgetting",
            "membership attack",
            "distinguishable",
            *(("forgetting quality", "U-LiRA") if result.compared else ()),
        ),
        (
            "A method that is as good as retraining is called distinguishable with probability 5% at most, over all of "
            "its scores.",
        ),
        pictures=_pictures(result),
    )


def _answer(method: MethodResult) -> Answer:
    assert method.finding is not None
    place, (spread, attack) = method.places.get("efficacy"), map(method.scores.get, ("efficacy", "attack"))
    facts = []
    if place is not None:
        band = f"{precise(place.retrained_low)} to {precise(place.retrained_high)}"
        facts.append(("Efficacy of retrained models", band))
    if attack is not None:
        facts.append(("Attack probability (median)", number_text(attack.median, 2)))
    return Answer(
        visible(method.name),
        method.finding,
        "efficacy (median)",
        "none" if spread is None else precise(spread.median),
        "" if spread is None else f"{precise(spread.low)} to {precise(spread.high)} (all seeds)",
        tuple(facts),
    )


def _legend(result: UnlearnResult) -> tuple[str, ...]:
    protocol = result.protocol
    lines = [
        visible(result.finding.sentence),
        f"Forgotten: {visible(result.forgotten)}.",
        f"Each cell: median over {protocol.seeds} seeds; range; position relative to retrained models "
        "(~: not distinguishable; ?: too few seeds; 95% over all scores of a method).",
        "Efficacy is 1 / information, and never above its bound. It is large where a model fits the forgotten records, "
        "and small for a model that never saw them.",
    ]
    if protocol.members_share is not None:
        lines.append(
            "Attack: mean probability of membership that a learned attack gives the forgotten records; baseline (no "
            f"information): {number_text(protocol.members_share, 2)}."
        )
    if result.of_texts:
        lines.append("Log-likelihood: mean over records of their tokens' mean log-likelihood, in nats.")
    if result.compared:
        half = protocol.seeds // 2
        lines.append(
            f"Told from retrained models: {half} models of a method against {protocol.seeds - half} retrained models "
            f"of other seeds, with intervals ({level_text(protocol.level)}) over models. Forgetting quality F"
            + ("" if result.of_texts else " and score (F times RA and TA, the ratios of remaining and test accuracy)")
            + (" is that" if result.of_texts else " are those")
            + " of the unlearning challenge of 2023. Larger is better, and `retraining` is as good as can be. U-LiRA: "
            "accuracy of an attack that knows the method; 0.5 is a guess."
        )
    return tuple(lines)


def number_and_interval(value: Estimate | float | None) -> tuple[str, str]:
    if isinstance(value, Estimate):
        return number_text(value.value, 2), span(value)
    return number_text(value, 2), ""


def in_lines(value: Estimate | float | None) -> str:
    """A number and, in a second line, its interval, if it has one."""
    return "\n".join(filter(None, number_and_interval(value)))


def with_interval(value: Estimate | float | None) -> str:
    """A number with its interval, if it has one, in brackets."""
    number, interval = number_and_interval(value)
    return f"{number} ({interval})" if interval else number


QUALITY: ColumnsByHead = {"quality F": ("challenge.quality", in_lines)}
OF_CHALLENGE: ColumnsByHead = {
    **QUALITY,
    "RA": ("challenge.remaining_ratio", in_lines),
    "TA": ("challenge.test_ratio", in_lines),
    "score": ("challenge.score", in_lines),
}
U_LIRA: ColumnsByHead = {"U-LiRA": ("u_lira", in_lines)}


def _against_retrained(title: str, methods: Sequence[MethodResult], columns: Mapping[str, Column]) -> PageTable:
    """The numbers of models that were compared with retrained ones."""
    compared = [method for method in methods if method.challenge]
    return table_of(title, compared, {"models": ("name", visible), **columns}, ("models",), on="both")


def _grid(result: UnlearnResult) -> PageTable:
    """Medians, ranges and positions, in three lines per method, narrow enough for 80 columns."""
    columns = {
        "models": ("name", visible),
        **{head: partial(_cell, name=name) for name, head in _columns(result).items()},
    }
    title = "Median, range over seeds, position among retrained models (~: not distinguishable; ?: too few seeds)"
    tones: dict[str, Tone] = {"above": "bad", "below": "bad"}
    return table_of(title, result.methods, columns, ("models",), on="both", bare=True, tones=tones)


def _columns(result: UnlearnResult) -> dict[Score, str]:
    return OF_TEXTS if result.of_texts else COLUMNS


def _cell(method: MethodResult, name: Score) -> str:
    spread = method.scores.get(name)
    if spread is None:
        return "-"
    low, high = _brief(spread.low, name), _brief(spread.high, name)
    between = f"{low}-{high}" if len(low) + len(high) < WIDEST_RANGE else f"{low} -\n{high}"
    place = method.places.get(name)
    return "\n".join([_brief(spread.median, name), between, "" if place is None else MARKS[place.verdict]])


def _brief(value: float, name: str) -> str:
    """A number with two digits, as short as possible: six columns of ranges must fit 80 characters."""
    if math.isinf(value):
        return "inf"
    if name not in ("efficacy", "bound"):
        return f"{value:.2f}".removeprefix("0") if value < 0.995 else "1.0"
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    if -3 <= int(exponent) < 4:
        return f"{float(f'{value:.1e}'):.6g}".removeprefix("0") or "0"
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def _places(result: UnlearnResult) -> PageTable:
    columns = {
        "models": ("0", visible),
        "score": lambda row: SCORES[row[1]],
        "position": ("2.verdict", str),
        "p": ("2.p_value", precise),
        "retrained from": ("2.retrained_low", precise),
        "to": ("2.retrained_high", precise),
        "share below": ("2.share_below", two_decimals),
        "share above": ("2.share_above", two_decimals),
    }
    rows = [(method.name, name, place) for method in result.methods for name, place in method.places.items()]
    title = "Positions relative to retrained models"
    return table_of(title, rows, columns, ("models", "score", "position"), folded=True)


SHADED = " The shaded band is the range of retrained models, the reference: less or more is a difference from them."


def _pictures(result: UnlearnResult) -> tuple[Picture, ...]:
    drawn = [method._replace(name=visible(method.name)) for method in result.drawn()]
    attacked = any(method.attack is not None for method in drawn)
    return (_efficacies(drawn, result.band), *([_attacks(drawn, result.protocol.members_share)] if attacked else []))


def _values(drawn: list[plot.MethodMarks], *names: str) -> PageTable:
    def of_seed(name: str) -> Column:
        return lambda row: "-" if getattr(row[0], name) is None else precise(float(getattr(row[0], name)[row[1]]))

    columns: ColumnsByHead = {"models": ("0.name", str), "seed": ("1", str)}
    columns |= {name: of_seed(name) for name in names}
    rows = [(method, seed) for method in drawn for seed in range(len(method.efficacy))]
    return table_of("Every model", rows, columns, ("models",))


def _efficacies(drawn: list[plot.MethodMarks], band: tuple[float, float] | None) -> Picture:
    return Picture(
        "efficacy",
        "Efficacy beside retrained models" if band else "Efficacy of each method's models",
        "A mark is a model, a bar the median, a triangle an infinite value." + (SHADED if band else ""),
        chart(lambda axes: plot.draw_efficacies(axes, drawn, band), row_height(len(drawn)) + 0.2),
        _values(drawn, "efficacy", "bound"),
    )


def _attacks(drawn: list[plot.MethodMarks], baseline: float | None) -> Picture:
    line = "" if baseline is None else f" The dotted line is the baseline (no information): {number_text(baseline, 2)}."
    return Picture(
        "attack",
        "Attack probability against efficacy",
        "The mean probability of membership that a learned attack gives the forgotten records." + line,
        chart(lambda axes: plot.draw_attacks(axes, drawn, baseline)),
        _values(drawn, "efficacy", "attack"),
    )


UNLEARN = RunKind("unlearn", record_type("unlearn", UnlearnResult), unlearn_part, check_unlearn_result)


def unlearn_outputs_part(run: Run[UnlearnOutputsResult]) -> RunContent:
    result = run.result
    judged = tuple(_scored_answer(method, result.level) for method in result.methods if method.finding is not None)
    columns = {**U_LIRA, "TPR": ("true_positive_rate", in_lines), **OF_CHALLENGE}
    return RunContent(
        "Does unlearning work?",
        f"{len(judged)} methods are judged by what their models, which were trained elsewhere, say of "
        f"{result.records:,} records to forget. Models retrained without those records show what forgetting should "
        f"look like. {' '.join(map(visible, (*result.shortfalls, result.finding.sentence)))}",
        judged,
        (_against_retrained("Told from retrained models", result.methods, columns), _accuracies(result)),
        _scored_legend(result),
        terms("retraining", "distinguishable", "forgetting quality", "U-LiRA"),
        (
            "A method that is as good as retraining is called distinguishable if the whole 95% interval of U-LiRA's "
            "accuracy lies above 0.5: at most 2% of such methods were, on simulated log-odds.",
        ),
    )


def _scored_answer(method: MethodResult, level: float) -> Answer:
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
    )


def _scored_legend(result: UnlearnOutputsResult) -> tuple[str, ...]:
    lines = [f"Too few models: {visible(line)}" for line in result.shortfalls]
    if result.compared:
        lines += [
            f"Compared: {result.compared} models of a method with {result.compared} retrained ones, on "
            f"{result.records:,} records, with intervals ({level_text(result.level)}) over models. `{AGAIN}`: "
            "other retrained models as a method, as good as can be.",
            "U-LiRA: accuracy of an attack that knows the method; 0.5 is a guess, smaller is better. TPR: its true "
            f"positive rate at {result.false_positive_rate:.0%} false positives.",
            "Quality F and score (F times RA and TA, the ratios of remaining and test accuracy) are those of the "
            f"unlearning challenge of 2023. Larger is better: compare with `{AGAIN}`, and with no other program.",
        ]
    return tuple(lines)


def _accuracies(result: UnlearnOutputsResult) -> PageTable:
    """The mean accuracies over all models of a file."""

    def mean(method: MethodResult, name: Score) -> str:
        accuracy = method.scores.get(name)
        ends = (accuracy and accuracy.interval) or (math.nan, math.nan)
        return "-" if accuracy is None else with_interval(Estimate(accuracy.mean, *ends))

    columns = {
        "models": ("name", visible),
        "count": ("models", count_text),
        "forgotten": lambda method: mean(method, "forgotten_accuracy"),
        "remaining": lambda method: mean(method, "remaining_accuracy"),
        "test": lambda method: mean(method, "test_accuracy"),
    }
    title = f"Accuracy, mean over models ({level_text(result.level)})"
    return table_of(title, result.methods, columns, ("models",), on="both")


UNLEARN_OUTPUTS = RunKind(
    "unlearn_outputs",
    record_type("unlearn_outputs", UnlearnOutputsResult),
    unlearn_outputs_part,
    check_unlearn_outputs,
)
