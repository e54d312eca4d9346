"""The `attack` answer for a person at a terminal."""

import math
from decimal import Decimal

import numpy as np
from jaxtyping import Int
from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from jaxaudit.audits.attack.result import AttackAudit, AttackResult, caveats
from jaxaudit.metrics.attack import Correlation, Estimate, TruePositiveRate

OUT_OF_REACH = "-"


def attack_table(audit: AttackAudit, records: Int[np.ndarray, " targets"], level: float, top: int) -> RenderableType:
    """A row an attack with intervals at this level, the targets most often found out, and what to keep in mind."""
    models, targets = audit.truth.shape
    title = Text("Can an attacker tell who was in the training set?", "bold")
    said = Text(
        f"  {answer(audit)}\n"
        f"  {targets:,} targets attacked {models:,} times each, half as members: 0.5 is guessing\n"
        f"  the classifier is right of {audit.train_accuracy:.1%} of its training set, {audit.test_accuracy:.1%} of "
        "other records"
    )
    limits = [rate.limit for rate in audit.attacks[0].metrics.true_positive_rates]
    # Narrow, so that all of it fits 80 columns.
    table = Table(box=SIMPLE, pad_edge=False, show_edge=False, padding=0)
    table.add_column("attack", no_wrap=True)
    for name in (
        "accuracy",
        "precision",
        "recall",
        "F1",
        "AUC",
        *(f"TPR at\n{_percent(limit)} FPR" for limit in limits),
    ):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("r with\nPDTP", justify="right", no_wrap=True)
    for attack in audit.attacks:
        table.add_row(*_row(attack))
    pdtp = audit.pdtp
    below = [
        f"below each number: its {_percent(level)} interval; r is the correlation over targets of accuracy and "
        "PDTP, below it its p-value",
        f"PDTP of the targets: mean {_nats(pdtp.mean())}, largest {_nats(pdtp.max())}, above 1 of "
        f"{int((pdtp > 1).sum())}",
        *_strongest(audit),
        *caveats(audit),
    ]
    notes = [Padding(Text(note, "dim"), (0, 0, 0, 1)) for note in below]
    return Group(
        title, said, Text(), table, Text(), *([_most_exposed(audit, records, top), Text()] if top else []), *notes
    )


def answer(audit: AttackAudit) -> str:
    """Whether some attack did better than guessing, in words: where the whole interval of its accuracy is above 0.5."""
    best = max(audit.attacks, key=lambda attack: attack.metrics.accuracy.value)
    found = best.metrics.accuracy
    right = f"{best.name} is right {found.value:.1%} of the time"
    if not math.isfinite(found.low):
        return f"unknown: {right}, of a single target"
    interval = f"{right} ({found.low:.1%} to {found.high:.1%})"
    return f"yes: {interval}" if found.low > 0.5 else f"not by these attacks: {interval}"


def _row(attack: AttackResult) -> list[Text]:
    found = attack.metrics
    numbers = [found.accuracy, found.precision, found.recall, found.f1, found.auc]
    return [
        Text(attack.name),
        *(_estimate(number) for number in numbers),
        *(_rate(rate) for rate in found.true_positive_rates),
        _correlation(attack.correlation),
    ]


def _estimate(estimate: Estimate) -> Text:
    ends = [f"{end:.2f}".removeprefix("0") for end in (estimate.low, estimate.high)]
    interval = "-".join(ends) if math.isfinite(estimate.low) else "none"
    return Text.assemble(_decimal(estimate.value), "\n", (interval, "dim"))


def _rate(rate: TruePositiveRate) -> Text:
    return _estimate(rate.rate) if rate.resolvable else Text(OUT_OF_REACH)


def _correlation(found: Correlation) -> Text:
    if found.reason is not None:
        return Text("none")
    return Text.assemble(f"{found.coefficient:.2f}\n", (f"p {found.p_value:.1g}", "dim"))


def _strongest(audit: AttackAudit) -> list[str]:
    if len(audit.attacks) < 2:
        return []
    found = audit.strongest_correlation
    words = (
        f"the largest of a target's accuracies correlates with PDTP at {found.coefficient:.2f} (p {found.p_value:.1g})"
    )
    return [words if found.reason is None else f"the largest of a target's accuracies: no correlation, {found.reason}"]


def _most_exposed(audit: AttackAudit, records: np.ndarray, top: int) -> RenderableType:
    largest, which = audit.strongest
    shown = np.argsort(-largest, kind="stable")[:top]
    table = Table(title=f"{len(shown)} targets most often found out", title_justify="left", box=SIMPLE, pad_edge=False)
    for name in ("record", "accuracy", "PDTP"):
        table.add_column(name, justify="right")
    table.add_column("by")
    for place in shown.tolist():
        table.add_row(
            f"{records[place]}",
            f"{largest[place]:.2f}",
            _nats(float(audit.pdtp[place])),
            audit.attacks[which[place]].name,
        )
    return table


def _percent(share: float) -> str:
    """All of its decimals, as they were given: 0.9999999 is not 100%."""
    return f"{(100 * Decimal(str(share))).normalize():f}%"


def _decimal(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "none"


def _nats(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{value:.3f}"
