"""What may be written of a verdict, and what may not: for whoever puts the answer into a letter or a decision."""

from jaxaudit.audits.ks.result import KSResult, TargetResult
from jaxaudit.errors import visible
from jaxaudit.metrics.usage import at_most
from jaxaudit.report.page import PageTable
from jaxaudit.report.record import Run

NOT_SAID = {
    "forgotten": "That none of the query set was used: {less} is not ruled out. That another model of its maker has "
    "forgotten the query set, or that this one will have when it is trained further.",
    "not forgotten": "That all of the query set was used, or by whom and why. Of a holdout that was not dealt at "
    "random: that use is the only cause, since sets of two sources look like it.",
    "inconclusive": "That the query set was used, or that it was not: the outputs do not tell.",
}
"""By the verdict; `less` is the use that a test of this size may miss."""


def statements(run: Run[KSResult]) -> PageTable:
    """A row a target: a sentence with its numbers, and what these numbers do not say."""
    provenance = run.provenance
    when = f"On {visible(provenance.started[:10])}, jaxaudit {visible(provenance.jaxaudit)} compared outputs"
    rows = [
        (visible(target.name), f"{when} of the target: {visible(target.finding.sentence)}", _not_said(target))
        for target in run.result.targets
    ]
    columns = ("model", "you may write", "you may not write")
    return PageTable("What you may write of it", columns, tuple(rows))


def _not_said(target: TargetResult) -> str:
    usage = target.usage[0] if target.usage else None
    less = "less use" if usage is None else f"use of up to {at_most(usage.upper)}"
    return NOT_SAID[target.verdict].format(less=less)
