"""The verdicts on groups of the query set, after their p-values are adjusted over all groups and targets."""

from collections import Counter
from collections.abc import Sequence
from math import comb

import numpy as np
from jaxtyping import Array, Key
from msgspec import structs

from jaxaudit.audits.finding import Confidence, Finding, sentence, undecided
from jaxaudit.audits.ks.by_group import (
    DealtGroups,
    GroupEvidence,
    group_counts,
    group_evidence,
    numbered_groups,
    reaches,
)
from jaxaudit.audits.ks.group_result import Basis, Grouping, GroupResult, GroupVerdict
from jaxaudit.audits.ks.known_models import contrary_scores
from jaxaudit.audits.ks.result import TargetResult
from jaxaudit.audits.ks.score_evidence import CONTRARY
from jaxaudit.data.scores.table import ScoreTable
from jaxaudit.json_types import number
from jaxaudit.metrics.checks import HOLDOUT_LIKE_QUERY
from jaxaudit.metrics.effect import ALPHA
from jaxaudit.metrics.usage import benjamini_hochberg, holm

ADJUSTMENT = (
    "p_adjusted: by Holm's method, over {tests}; that any group is called remembered that was never used has a "
    "probability of at most 5%. p_adjusted_bh: by that of Benjamini and Hochberg; of the groups that are called "
    "remembered or suspected, at most 5% on average were never used."
)
NOT_COUNTED = " {count} that can never reach 5% are not counted."
RESTS: dict[Basis, Confidence] = {
    "own records": Confidence(
        "strong", "A group's own records of both sets are compared: exact if the records were dealt at random."
    ),
    "holdout groups": Confidence(
        "strong",
        "A group's p-value is its rank among the groups of the holdout: exact if whole groups were dealt at random.",
    ),
    "models": Confidence(
        "fair", "Groups are compared with models without the query set: the t-test takes a group's mean as normal."
    ),
}
"""How far to trust a test of a group, by what it is compared with."""
BY_MODELS = (
    "By models, the rate of false suspects (Benjamini-Hochberg) is not proven; that of false accusations (Holm) is."
)
UNRELATED = "Whether a group was used, or made to be forgotten, must not have depended on what is in its records."
UNUSED_OR_HOLDOUT = "what nobody used"
AdjustedValues = tuple[float | None, float | None]
"""A p-value adjusted by Holm's method, and by that of Benjamini and Hochberg; None if it is not counted."""
NONE_RULED_OUT = "A group that is not found is not shown to be forgotten."


def with_groups(
    key: Key[Array, ""],
    table: ScoreTable,
    targets: Sequence[TargetResult],
    dealt_groups: DealtGroups,
    level: float,
) -> tuple[TargetResult, ...]:
    """The results for the targets of a table, each with a verdict on every group of the query set.

    Holm's method counts every group of every target. That of Benjamini and Hochberg counts the groups of one target,
    times the number of targets.

    Raises:
        InputError: as `group_evidence`.
    """
    evidence = [group_evidence(key, table, model, dealt_groups, level) for model in table.of("target")]
    p_values = [[part.test.p_never for part in parts if part.test and part.can_reach()] for parts in evidence]
    tests, every = sum(map(len, p_values)), iter(holm([p_value for of_target in p_values for p_value in of_target]))
    counted = f"{tests} tests" if len(targets) == 1 else f"{tests} tests of {len(targets)} targets"
    results = []
    for target, model, parts, p_of_target in zip(targets, table.of("target"), evidence, p_values, strict=True):
        reasons = _withheld(target, contrary_scores(table, model))
        suspects = iter(np.minimum(np.array(benjamini_hochberg(p_of_target)) * len(targets), 1.0).tolist())
        groups = []
        for name, part in zip(dealt_groups.names.tolist(), parts, strict=True):
            p_values_of_part = (next(every), next(suspects)) if part.can_reach() else (None, None)
            verdict = "inconclusive" if reasons else _verdict(part, p_values_of_part, tests)
            groups.append(_group_result(table, name, part, verdict, p_values_of_part))
        left_out = len(parts) - len(p_of_target)
        adjustment = ADJUSTMENT.format(tests=counted) + (NOT_COUNTED.format(count=left_out) if left_out else "")
        finding = _finding(groups, dealt_groups, tests or len(parts) * len(targets), reasons)
        groups.sort(key=lambda group: (np.inf if group.p_never is None else group.p_never, group.name))
        grouping = Grouping(finding=finding, adjustment=adjustment, tests=tests)
        results.append(structs.replace(target, groups=tuple(groups), grouping=grouping))
    return tuple(results)


def _withheld(target: TargetResult, contrary: Sequence[str]) -> tuple[str, ...]:
    """Why no verdict on a group can be given, whatever the p-values are."""
    failed = [check for check in target.finding.checks if check.name == HOLDOUT_LIKE_QUERY and check.state == "failed"]
    reasons = tuple(f"{check.name}: {check.message}" for check in failed)
    return (*reasons, *((CONTRARY.format(names=", ".join(contrary), low=UNUSED_OR_HOLDOUT),) if contrary else ()))


def _verdict(part: GroupEvidence, p_values: AdjustedValues, tests: int) -> GroupVerdict:
    p_adjusted, suspected = p_values
    if p_adjusted is not None and reaches(p_adjusted):
        return "remembered"
    if suspected is not None and reaches(suspected):
        return "suspected"
    return "not found" if part.can_reach(tests) else "cannot be found"


def _group_result(
    table: ScoreTable,
    name: int,
    part: GroupEvidence,
    verdict: GroupVerdict,
    p_values: AdjustedValues,
) -> GroupResult:
    rows, share = table.rows("query"), part.share
    has_share = np.isfinite(share.fraction)
    numbers = (None,) * 4 if part.test is None else (part.test.p_never, part.test.effect, part.test.low, part.test.high)
    p_never, effect, low, high = (None if value is None else number(value) for value in numbers)
    return GroupResult(
        name=name,
        first=int(rows[numbered_groups(table)[rows] == name][0]),
        records=int(group_counts(table, "query")[name]),
        holdout_records=int(group_counts(table, "holdout")[name]),
        verdict=verdict,
        basis=part.basis,
        p_never=p_never,
        p_adjusted=p_values[0],
        p_adjusted_bh=p_values[1],
        effect=effect,
        low=low,
        high=high,
        share=float(share.fraction) if has_share else None,
        share_low=share.low if has_share else None,
        share_high=share.high if has_share else None,
    )


def _finding(groups: Sequence[GroupResult], dealt_groups: DealtGroups, tests: int, withheld: Sequence[str]) -> Finding:
    """The answer about all groups of one target in words."""
    counts = Counter(group.verdict for group in groups)
    remembered, suspected, count = counts["remembered"], counts["suspected"], _groups_text(len(groups))
    if withheld:
        reason = "; ".join(withheld)
        return undecided("No verdict by group can be given.", (reason,), sentence(reason))
    bases = dict.fromkeys(group.basis for group in groups)
    helps = (_needs(dealt_groups, tests),) if counts["cannot be found"] else ()
    caveats = (NONE_RULED_OUT, *((BY_MODELS,) if "models" in bases else ()), UNRELATED)
    trust = min(
        (confidence for basis, confidence in RESTS.items() if basis in bases),
        key=lambda confidence: confidence.word == "strong",
    )
    if remembered or suspected:
        words = [f"{remembered} of {count} {'is' if remembered == 1 else 'are'} still remembered"] if remembered else []
        words += [f"{suspected} more {'is' if suspected == 1 else 'are'} suspected"] if suspected and remembered else []
        words += [f"{suspected} of {count} {'is' if suspected == 1 else 'are'} suspected"] if not remembered else []
        reasons = tuple(f"{number_of} {verdict}" for verdict, number_of in counts.most_common())
        verdict = f"{remembered} remembered" if remembered else f"{suspected} suspected"
        return Finding(
            verdict, "bad" if remembered else "open", f"{' and '.join(words)}.", reasons, trust, (), caveats, helps
        )
    if counts["not found"]:
        some = f" {counts['cannot be found']} cannot be found." if counts["cannot be found"] else ""
        return Finding(
            "none found",
            "open",
            f"None of {count} is found to be remembered, which rules none out.{some}",
            ("no adjusted p-value is at most 5%",),
            trust,
            (),
            caveats,
            helps,
        )
    return undecided(
        f"None of {count} can be found with these numbers: {_needs(dealt_groups, tests)}",
        ("no p-value could reach 5%, whatever the scores are",),
        "The numbers of records and groups allow no verdict.",
        caveats,
        helps,
    )


def _needs(dealt_groups: DealtGroups, tests: int) -> str:
    """What a verdict on a single group needs."""
    if dealt_groups.within:
        return (
            f"a group needs more records in both sets: {_records_needed(tests)} in each, for {tests} tests of groups "
            "and targets; or at least two models without the query set."
        )
    return (
        f"to accuse one of {tests} groups and targets, the holdout needs at least {round(tests / ALPHA) - 1:,} groups, "
        f"and has {dealt_groups.holdout:,}; or give scores of at least two models without the query set, or deal the "
        "records of each group over both sets."
    )


def _records_needed(tests: int) -> int:
    """The fewest records in each set, with which a p-value of a group's own records can reach 5% adjusted."""
    return next(size for size in range(2, 100) if reaches(tests / comb(2 * size, size)))


def _groups_text(count: int) -> str:
    return f"{count:,} group{'' if count == 1 else 's'}"
