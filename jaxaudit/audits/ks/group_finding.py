"""The verdicts on groups of the query set, after their p-values are adjusted over all groups and targets."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from jaxtyping import Array, Key
from msgspec import structs

from jaxaudit.audits.finding import Confidence, Finding, sentence, undecided
from jaxaudit.audits.ks.by_group import (
    MOST_PERMUTATIONS,
    DealtGroups,
    GroupEvidence,
    group_counts,
    group_evidence,
    numbered_groups,
    reaches,
)
from jaxaudit.audits.ks.group_result import Basis, Grouping, GroupResult, GroupVerdict
from jaxaudit.audits.ks.model_evidence import NOTHING_SHOWS
from jaxaudit.audits.ks.result import Details, TargetResult
from jaxaudit.audits.ks.tests_of_use.test import p_text
from jaxaudit.data.scores.table import ScoreTable
from jaxaudit.json_types import number
from jaxaudit.metrics.checks import HOLDOUT_LIKE_QUERY
from jaxaudit.metrics.effect import ALPHA, UNKNOWN
from jaxaudit.metrics.group_drift import FEWEST_HOLDOUT, FEWEST_QUERY
from jaxaudit.metrics.group_tests import counted_deals, sizes_apart
from jaxaudit.metrics.usage import Usage, benjamini_hochberg, holm

ADJUSTMENT = (
    "remembered: p_adjusted, by Holm's method over {tests}, is at most 5%; that any group is called so that was never "
    "used has a probability of at most 5%. suspected: p_adjusted_bh, by that of Benjamini and Hochberg (BH), is at "
    "most 5%, or a group is compared with models; of the groups that are called remembered or suspected, at most 5% on "
    "average were never used."
)
NOT_COUNTED = "{count} that can never reach 5%, or that no group of the holdout is like in size, are not counted."
NONE_COUNTED = "No p-value is adjusted:"
RESTS: dict[Basis, Confidence] = {
    "own records": Confidence(
        "strong", "A group's own records of both sets are compared: exact if the records were dealt at random."
    ),
    "holdout groups": Confidence(
        "strong",
        "A group's p-value is its rank among the groups of the holdout: exact if whole groups were dealt at random.",
    ),
    "models": Confidence(
        "fair",
        "Groups are compared with models without the query set: the t-test takes a group's mean as normal from model "
        "to model, and its variance as not too far from that of other groups.",
    ),
}
"""How far to trust a test of a group, by what it is compared with."""
SIZES_NOT_DEALT = Confidence(
    "fair",
    "A group's p-value is its rank among the groups of the holdout, and sizes of groups differ between both sets: how "
    "much more the means of small groups vary is estimated, so the rank is not exact.",
)
UNLIKE = "{count} more records than every group of the holdout, or fewer than every one: no verdict on {them}."
OTHER_SIZES = (
    "groups of the query set have other numbers of records than those of the holdout ({p} if both were dealt alike), "
    "so a group's rank among them is not exact: deal whole groups at random, or keep equally many records of each "
    "group, chosen at random"
)
MOST_TESTS = round(ALPHA * (MOST_PERMUTATIONS + 1))
"""P-values of more groups and targets cannot be adjusted, however many records a group has."""
FEW_DEALS = 0.01
"""Of sets that were dealt at random, at most so many are taken for sets with groups of other sizes."""
BY_MODELS = (
    "By models, a group is suspected at most: the adjusted p-values hold as far as those of the t-tests do, and the "
    "rate of false suspects (Benjamini-Hochberg) is not proven even then. Without a holdout, a group stands out from "
    "the other ones: if most were used, none does."
)
UNRELATED = "Whether a group was used, or made to be forgotten, must not have depended on what is in its records."
AdjustedValues = tuple[float | None, float | None]
"""A p-value adjusted by Holm's method, and by that of Benjamini and Hochberg; None if it is not counted."""
ENOUGH_MODELS = 5
"""Models without the query set, from which on Student's t is no longer wide beyond use."""
NO_SHARE = "Shares of groups by models of known truth are not given: {why}."
NONE_RULED_OUT = "A group that is not found is not shown to be forgotten."


def with_groups(
    key: Key[Array, ""],
    table: ScoreTable,
    targets: Sequence[TargetResult],
    of_set: Sequence[Details],
    unlike: Sequence[str],
    dealt_groups: DealtGroups,
    level: float,
) -> tuple[TargetResult, ...]:
    """The results for the targets of a table, each with a verdict on every group of the query set.

    Holm's method counts every group of every target. That of Benjamini and Hochberg counts the groups of one target,
    times the number of targets. `of_set` has the numbers behind the verdict on the whole query set, by target: what
    makes these invalid, such as a score that is read the wrong way round, holds for its groups, too. `unlike` has, by
    target, why models of known truth tell no share: then they tell none of a group.

    Raises:
        InputError: as `group_evidence`.
    """
    evidence = [group_evidence(key, table, model, dealt_groups, level) for model in table.of("target")]
    p_values = [[part.test.p_never for part in parts if part.test and part.can_reach()] for parts in evidence]
    tests, every = sum(map(len, p_values)), iter(holm([p_value for of_target in p_values for p_value in of_target]))
    # Adjusted p-values rise with each p-value, so these are the smallest that any scores could lead to.
    smallest = iter(holm([part.test.least for parts in evidence for part in parts if part.test and part.can_reach()]))
    counted = f"{tests} tests" if len(targets) == 1 else f"{tests} tests of {len(targets)} targets"
    results = []
    for target, numbers, why, parts, p_of_target in zip(targets, of_set, unlike, evidence, p_values, strict=True):
        by_rank = any(part.basis == "holdout groups" and part.can_reach() for part in parts)
        reasons = (*_withheld(target, numbers), *(_sizes_not_dealt(table) if by_rank else ()))
        suspects = iter(np.minimum(np.array(benjamini_hochberg(p_of_target)) * len(targets), 1.0).tolist())
        groups = []
        for name, part in zip(dealt_groups.names.tolist(), parts, strict=True):
            p_values_of_part, least = (None, None), 1.0
            if part.can_reach():
                p_values_of_part, least = (next(every), next(suspects)), next(smallest)
            verdict = "inconclusive" if reasons else _verdict(part, p_values_of_part, least)
            shown = part._replace(share=UNKNOWN) if why else part
            groups.append(_group_result(table, name, shown, verdict, p_values_of_part))
        left_out = len(parts) - len(p_of_target)
        adjustment = " ".join(
            [
                *([ADJUSTMENT.format(tests=counted)] if tests else [NONE_COUNTED]),
                *([NOT_COUNTED.format(count=left_out)] if left_out else []),
            ]
        )
        doubts = numbers.doubts if isinstance(numbers, Usage) else ()
        has_share = any(np.isfinite(part.share.fraction) for part in parts)
        no_share = (NO_SHARE.format(why=why),) if why and has_share else ()
        finding = _finding(groups, dealt_groups, len(parts) * len(targets), len(table.of("unused")), reasons, doubts)
        finding = structs.replace(finding, caveats=(*finding.caveats, *no_share))
        groups.sort(key=lambda group: (np.inf if group.p_never is None else group.p_never, group.name))
        first_is = "record" if table.above is None else "line"
        grouping = Grouping(finding=finding, adjustment=adjustment, tests=tests, first_is=first_is)
        results.append(structs.replace(target, groups=tuple(groups), grouping=grouping))
    return tuple(results)


def _withheld(target: TargetResult, numbers: Details) -> tuple[str, ...]:
    """Why no verdict on a group can be given, whatever the p-values are: what forbids one on the set."""
    failed = [check for check in target.finding.checks if check.name == HOLDOUT_LIKE_QUERY and check.state == "failed"]
    reasons = tuple(f"{check.name}: {check.message}" for check in failed)
    of_set = numbers.invalid if isinstance(numbers, Usage) else ()
    # By models, a group is suspected at most, for standing out from other groups: no statement on recipes is needed.
    return (*reasons, *(reason for reason in of_set if reason != NOTHING_SHOWS))


def _sizes_not_dealt(table: ScoreTable) -> tuple[str, ...]:
    """Why ranks among the groups of the holdout tell nothing, if groups of the query set have other sizes."""
    rows = table.rows("query", "holdout")
    p_value = sizes_apart(numbered_groups(table)[rows], len(table.rows("query")))
    return (OTHER_SIZES.format(p=p_text(p_value)),) if p_value <= FEW_DEALS else ()


def _verdict(part: GroupEvidence, p_values: AdjustedValues, least: float) -> GroupVerdict:
    """The verdict on a group; `least` is the smallest p-value, adjusted by Holm's method, that it could have had."""
    if part.unlike:
        return "inconclusive"
    p_adjusted, suspected = p_values
    if p_adjusted is not None and reaches(p_adjusted):
        return "suspected" if part.basis == "models" else "remembered"
    if suspected is not None and reaches(suspected):
        return "suspected"
    return "not found" if reaches(least) else "cannot be found"


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
        name=name + 1,
        first=int(rows[numbered_groups(table)[rows] == name][0]) + (table.above or 0) + 1,
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


def _finding(
    groups: Sequence[GroupResult],
    dealt_groups: DealtGroups,
    tests: int,
    models: int,
    withheld: Sequence[str],
    doubts: Sequence[str],
) -> Finding:
    """The answer about all groups of one target in words.

    `tests` is the number of all groups, of all targets; `models` that of models without the query set.
    """
    counts = Counter(group.verdict for group in groups)
    remembered, suspected, count = counts["remembered"], counts["suspected"], _groups_text(len(groups))
    if withheld:
        reason = "; ".join(withheld)
        return undecided("No verdict by group can be given.", (reason,), sentence(reason))
    bases = dict.fromkeys(group.basis for group in groups)
    few = (few_models_text(models),) if "models" in bases and models < ENOUGH_MODELS and tests > 1 else ()
    helps = (*few, *((needs_text(dealt_groups, tests),) if counts["cannot be found"] else ()))
    unlike = () if not counts["inconclusive"] else (_unlike(counts["inconclusive"]),)
    of_set = tuple(f"Of the whole set: {doubt}." for doubt in doubts)
    caveats = (NONE_RULED_OUT, *unlike, *of_set, *((BY_MODELS,) if "models" in bases else ()), UNRELATED)
    trusts = [confidence for basis, confidence in RESTS.items() if basis in bases]
    trust = min((*trusts, *((SIZES_NOT_DEALT,) if unlike else ())), key=lambda confidence: confidence.word == "strong")
    if remembered or suspected:
        words = [f"{remembered} of {count} {'is' if remembered == 1 else 'are'} still remembered"] if remembered else []
        words += [f"{suspected} more {'is' if suspected == 1 else 'are'} suspected"] if suspected and remembered else []
        words += [f"{suspected} of {count} {'is' if suspected == 1 else 'are'} suspected"] if not remembered else []
        reasons = tuple(f"{number_of} {verdict}" for verdict, number_of in counts.most_common())
        verdict = f"{remembered} remembered" if remembered else f"{suspected} suspected"
        return Finding(
            verdict, "bad" if remembered else "open", f"{' and '.join(words)}.", reasons, trust, (), caveats, helps
        )
    some = [f"{counts['cannot be found']} cannot be found."] if counts["cannot be found"] else []
    if counts["not found"]:
        return Finding(
            "none found",
            "open",
            " ".join([f"None of {count} is found to be remembered, which rules none out.", *few, *some, *unlike]),
            ("no adjusted p-value is at most 5%",),
            trust,
            (),
            caveats,
            helps,
        )
    why = " ".join([*([f"With these numbers: {helps[0]}"] if helps else ()), *unlike])
    return undecided(
        f"None of {count} can be found. {why}",
        ("no p-value could reach 5%, whatever the scores are",) if helps else unlike,
        "The numbers of records and groups allow no verdict.",
        caveats,
        helps,
    )


def _unlike(count: int) -> str:
    return UNLIKE.format(
        count=f"{_groups_text(count)} {'has' if count == 1 else 'have'}", them="it" if count == 1 else "them"
    )


def few_models_text(models: int) -> str:
    """What few models without the query set can find, and what would find more."""
    return (
        f"{models} models without the query set can hardly show one group among several, however much of it is left: "
        f"give {ENOUGH_MODELS} or more (columns `unused.`), or deal the records of each group over both sets."
    )


def needs_text(dealt_groups: DealtGroups, tests: int) -> str:
    """What a verdict on a single group needs."""
    models = (
        "or give scores of at least three models without the query set (better eight), which can raise suspicion where "
        f"there are {FEWEST_HOLDOUT} groups of a holdout, or {FEWEST_QUERY} groups to ask about"
    )
    if dealt_groups.within and tests > MOST_TESTS:
        return (
            f"{tests:,} groups and targets are too many at once: p-values can be adjusted for at most {MOST_TESTS:,}, "
            f"however many records a group has. Ask about fewer, chosen without a look at their scores; {models}."
        )
    if dealt_groups.within:
        return (
            f"a group needs more records in both sets: {records_a_set_needed(tests)} in each, for {tests:,} tests of "
            f"groups and targets; {models}."
        )
    return (
        f"to accuse one of {tests:,} groups and targets, the holdout needs at least {holdout_groups_needed(tests):,} "
        f"groups, and has {dealt_groups.holdout:,}; deal the records of each group over both sets; {models}."
    )


def holdout_groups_needed(tests: int) -> int:
    """The fewest groups of the holdout, with which a group's rank among them can reach 5% adjusted."""
    return round(tests / ALPHA) - 1


def records_a_set_needed(tests: int) -> int:
    """So many records in each set are enough for a p-value of a group's own records to reach 5% adjusted.

    For up to `MOST_TESTS` groups and targets; of more, none can.
    """
    most = min(tests, MOST_TESTS)
    return next(size for size in range(2, 100) if reaches(most / counted_deals(size, size, MOST_PERMUTATIONS)))


def _groups_text(count: int) -> str:
    return f"{count:,} group{'' if count == 1 else 's'}"
