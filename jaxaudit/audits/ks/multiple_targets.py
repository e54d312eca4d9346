"""Several targets of one audit share its deal and its shadow models: their p-values are adjusted for that."""

from collections.abc import Sequence

from jaxaudit.audits.ks.tests.test import Judgement
from jaxaudit.metrics.usage import decided, holm


def adjusted(judgements: Sequence[tuple[Judgement, ...]]) -> list[tuple[Judgement, ...]]:
    """The same judgements by `Usage.p_never_adjusted`: Holm's method over all targets, for each test of use.

    The probability that any target that never used the query set is called `not forgotten` is then at most 5%. With a
    single target nothing is changed.

    Args:
        judgements: of each target, the same tests in the same order.
    """
    if len(judgements) < 2:
        return list(judgements)
    by_test = (_of_one_test(each) for each in zip(*judgements, strict=True))
    return list(zip(*by_test, strict=True))


def _of_one_test(judgements: tuple[Judgement, ...]) -> list[Judgement]:
    """One test of all targets."""
    usages = [each.usage for each in judgements if each.usage is not None]
    if len(usages) < len(judgements):
        return list(judgements)
    p_values = holm([usage.p_never for usage in usages])
    return [_with(*each) for each in zip(judgements, p_values, strict=True)]


def _with(judgement: Judgement, p_value: float) -> Judgement:
    if judgement.usage is None:
        return judgement
    usage = judgement.usage._replace(p_never_adjusted=p_value)
    # A test of one's own may have another rule.
    found = judgement._replace(usage=usage) if judgement.again is None else judgement.again(decided(usage))
    return found._replace(source=f"{judgement.source}; Holm 1979")
