"""Several targets of one audit share its deal and its shadow models: their p-values are adjusted for that."""

from collections.abc import Sequence

import msgspec

from jaxaudit.audits.ks.tests.test import Judgement, p_text
from jaxaudit.metrics.effect import ALPHA
from jaxaudit.metrics.usage import holm


def adjusted(names: Sequence[str], judgements: Sequence[tuple[Judgement, ...]]) -> list[tuple[Judgement, ...]]:
    """The same judgements with `Usage.p_never_adjusted`, by Holm's method over all targets, for each test of use.

    A test called `not forgotten` whose adjusted p-value is above 0.05 has a further limitation. The verdict stays: its
    p-value is that of this target, and exact for it, however many others were judged. With a single target nothing is
    changed.

    Args:
        names: of the targets.
        judgements: of each target, the same tests in the same order.
    """
    if len(judgements) < 2:
        return list(judgements)
    by_test = (_of_one_test(names, each) for each in zip(*judgements, strict=True))
    return list(zip(*by_test, strict=True))


def _of_one_test(names: Sequence[str], judgements: tuple[Judgement, ...]) -> list[Judgement]:
    """One test of all targets."""
    usages = [each.usage for each in judgements if each.usage is not None]
    if len(usages) < len(judgements):
        return list(judgements)
    p_values = holm([usage.p_never for usage in usages])
    return [_with(*each, len(usages)) for each in zip(names, judgements, p_values, strict=True)]


def _with(name: str, judgement: Judgement, p_value: float, targets: int) -> Judgement:
    if judgement.usage is None:
        return judgement
    finding = judgement.finding
    if finding.verdict == "not forgotten" and p_value > ALPHA:
        title = f"{judgement.title[:1].upper()}{judgement.title[1:]}"
        words = f"{title}, {name}: {targets} targets share records and models; adjusted for that, {p_text(p_value)}."
        finding = msgspec.structs.replace(finding, caveats=(words, *finding.caveats))
    usage = judgement.usage._replace(p_never_adjusted=p_value)
    return judgement._replace(finding=finding, usage=usage, source=f"{judgement.source}; Holm 1979")
