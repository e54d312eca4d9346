"""Which groups of the query set, such as authors, a target still remembers: adjusted tests, and verdicts.

A group is tested by what is exact for it, if the numbers of records or groups let it reach 5% alone, after the
adjustment; else by at least three models without the query set: by how far these drift from each other, and by
Student's t over the groups of the holdout, of which the larger p-value counts (`metrics/score_tests.py`). Counts decide
this, and no score does. A group that could never reach 5%, or that has no rank for its size, is told so, and is not
counted in the adjustment.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from msgspec import structs

from jaxaudit.audits.finding import Confidence, Finding, plural, sentence, undecided
from jaxaudit.audits.ks.judge_outputs import trusted_by_checks
from jaxaudit.audits.ks.known_models import (
    NOTHING_SHOWS,
    SAY,
    PlacedScores,
    directed_scores,
    placed_scores,
    target_residuals,
)
from jaxaudit.audits.ks.result import Basis, Details, Grouping, GroupResult, GroupVerdict, TargetResult
from jaxaudit.audits.ks.tests_of_use.test import p_text
from jaxaudit.data.scores.table import ScoredModel, ScoreTable
from jaxaudit.errors import InputError
from jaxaudit.json_types import number
from jaxaudit.metrics.arrays import Integers, OneKey
from jaxaudit.metrics.checks import HOLDOUT_LIKE_QUERY
from jaxaudit.metrics.permutation import least_permutations
from jaxaudit.metrics.score_tests import (
    FEWEST_HOLDOUT,
    FEWEST_MODELS,
    FEWEST_QUERY,
    GroupTest,
    among_groups,
    beyond_groups,
    counted_deals,
    drift_test,
    one_sided_groups,
    share_left,
    sizes_apart,
    unlike_in_size,
    within_group,
)
from jaxaudit.metrics.usage import ALPHA, UNKNOWN, Limits, Usage, benjamini_hochberg, holm
from jaxaudit.randomness import stream

MOST_PERMUTATIONS = 199_999
"""Of one group's records."""
FINER = 4
"""So many times the permutations that a single p-value of 5% needs after its adjustment."""


class DealtGroups(NamedTuple):
    """How the groups of a table were dealt: the numbers of those of the query set, ascending; how many the holdout has;
    and whether records of a group are in both sets, so that records were dealt, and not groups (`within`).
    """

    names: Int[np.ndarray, " groups"]
    holdout: int
    within: bool


def dealt_groups_of(table: ScoreTable) -> DealtGroups:
    """How the groups of a table were dealt: whole, or record by record. Neither, if more groups than a random deal of
    records allows (by three standard deviations) have records of one set alone, is an `InputError`.
    """
    counts = np.stack([group_counts(table, role) for role in ("query", "holdout")])
    in_sets = counts > 0
    names, whole = np.flatnonzero(in_sets[0]), int(in_sets[1].sum())
    if not in_sets.all(axis=0).any():
        return DealtGroups(names, whole, within=False)
    one_sided, most = one_sided_groups(counts)
    if one_sided > most:
        raise InputError(
            f"{table.name}: {int(in_sets.all(axis=0).sum())} groups have records of both query set and holdout, and "
            f"{one_sided} have several of one set alone: neither whole groups nor single records were dealt at random. "
            "Give all records of a group to one of the two sets, or deal the records of every group."
        )
    return DealtGroups(names, whole, within=True)


def refuse_groups_of_members(table: ScoreTable) -> None:
    """Refuses groups with records among the known members and in another set, where groups were dealt whole."""
    if table.groups is None:
        return
    units_of_records = table.groups[table.rows("query", "holdout")]
    common = len(np.intersect1d(table.groups[table.rows("members")], units_of_records))
    if common:
        raise InputError(
            f"{table.name}: {common} groups have records among the known members, and in the query set or the holdout: "
            "a member's group tells of others. Give all records of a group to one set, or leave out the column `group` "
            "if records were dealt one by one."
        )


def group_counts(table: ScoreTable, role: str) -> Int[np.ndarray, " groups"]:
    groups = numbered_groups(table)
    return np.bincount(groups[table.rows(role)], minlength=int(groups.max()) + 1)


def reaches(p_value: float) -> bool:
    """Whether a p-value is at most 5%, up to rounding: 20 / 400 is."""
    return p_value <= ALPHA + 1e-12


class GroupEvidence(NamedTuple):
    """What a target's scores show of one group: a `test` if anything tells, and the `share` of the effect of use that
    is left. No rank is exact of a group `unlike` all others, which have more, or fewer, records.
    """

    test: GroupTest | None
    basis: Basis
    share: Limits = UNKNOWN
    unlike: bool = False

    def can_reach(self, tests: int = 1) -> bool:
        """Whether some scores would lead to a p-value of at most 5% after it is multiplied by the number of tests."""
        return bool(self.test) and not self.unlike and reaches(self.test.least * tests)


def group_evidence(
    key: OneKey, table: ScoreTable, target: ScoredModel, dealt_groups: DealtGroups
) -> tuple[GroupEvidence, ...]:
    """What a target's scores show of each group of the query set, in the order of `dealt_groups.names`."""
    directions = directed_scores(table, target)
    if not directions:
        raise InputError(f"{table.name}: a verdict by group needs to know which way a score points. {SAY}")
    tests = len(dealt_groups.names) * len(table.of("target"))
    exact = _exact(key, table, target, dealt_groups, least_permutations(FINER * tests))
    placed = placed_scores(table, target, directions)
    modelled = _by_models(table, placed, dealt_groups) if placed else exact
    return tuple(
        by_models if by_models.test and not by_deal.can_reach(tests) else by_deal._replace(share=by_models.share)
        for by_deal, by_models in zip(exact, modelled, strict=True)
    )


def _exact(
    key: OneKey, table: ScoreTable, target: ScoredModel, dealt_groups: DealtGroups, permutations: int
) -> list[GroupEvidence]:
    """The exact test of each group; none where there is no holdout to compare with."""
    rows, size = table.rows("query", "holdout"), len(table.rows("query"))
    left, directions = target_residuals(table, target, rows)
    basis: Basis = "own records" if dealt_groups.within else "holdout groups"
    if size == len(rows) or not directions.any():
        return [GroupEvidence(None, basis)] * len(dealt_groups.names)
    groups, scores = numbered_groups(table)[rows], (left[0] * directions)[:, directions != 0].mean(axis=1)
    if not dealt_groups.within:
        sized = zip(among_groups(scores, groups, size), unlike_in_size(groups, size).tolist(), strict=True)
        return [GroupEvidence(test, basis, unlike=is_unlike) for test, is_unlike in sized]
    permutations = min(permutations, MOST_PERMUTATIONS)
    return [
        GroupEvidence(
            within_group(
                stream(key, "group", name), scores[groups == name], int((groups[:size] == name).sum()), permutations
            ),
            basis,
        )
        for name in dealt_groups.names.tolist()
    ]


def _by_models(table: ScoreTable, placed: PlacedScores, dealt_groups: DealtGroups) -> list[GroupEvidence]:
    """Each group's place between models of known truth; its test is None with too few of them, or of groups."""
    size, groups = len(table.rows("query")), numbered_groups(table)[placed.rows]
    tests, evidence = _drifts(placed, groups, size, dealt_groups), []
    for name, test in zip(dealt_groups.names.tolist(), tests, strict=True):
        # The records of the group are all there are of it, and those of the holdout stand for others.
        chosen = np.r_[np.flatnonzero(groups[:size] == name), size : len(groups)]
        records = int((chosen < size).sum())
        units = np.r_[
            np.arange(records), records + (np.arange(len(chosen) - records) if dealt_groups.within else groups[size:])
        ]
        share = share_left(
            placed.target[chosen], placed.unused[:, chosen], placed.used[:, chosen], records, groups=units
        )
        evidence.append(GroupEvidence(test, "models", share.limits))
    return evidence


def _drifts(placed: PlacedScores, groups: Integers, size: int, dealt_groups: DealtGroups) -> list[GroupTest | None]:
    """The test of each group of the query set by how models without the query set drift from each other."""
    count = len(dealt_groups.names)
    has_holdout = len(groups) > size and not dealt_groups.within and dealt_groups.holdout >= FEWEST_HOLDOUT
    if len(placed.unused) < FEWEST_MODELS or not (has_holdout or count >= FEWEST_QUERY):
        return [None] * count
    rows = len(groups) if has_holdout else size
    names, unit_of_record = np.unique(groups[:rows], return_inverse=True)
    target, *unused = (
        np.bincount(unit_of_record, scores[:rows]) / np.bincount(unit_of_record)
        for scores in (placed.target, *placed.unused)
    )
    in_query = np.isin(names, dealt_groups.names)
    effects, p_values = (numbers[in_query] for numbers in drift_test(target, np.stack(unused), ~in_query))
    if not has_holdout:
        return [
            GroupTest(float(p_value), 0.0, float(effect)) for p_value, effect in zip(p_values, effects, strict=True)
        ]
    apart = placed.target - placed.unused.mean(axis=0)
    spread, among = beyond_groups(apart, groups, size), among_groups(apart, groups, size)
    return [
        test._replace(p_never=float(p_value), least=0.0)
        for test, p_value in zip(among, np.maximum(p_values, spread), strict=True)
    ]


def numbered_groups(table: ScoreTable) -> Integers:
    """The groups of a table that has some."""
    if table.groups is None:
        raise InputError(
            f"{table.name}: has no column `group`, so there is no verdict by group; add the group of each record, such "
            "as its author."
        )
    return table.groups


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
FEW_MODELS = (
    "{models} models without the query set can hardly show one group among several, however much of it is left: "
    f"give {ENOUGH_MODELS} or more (columns `unused.`), or deal the records of each group over both sets."
)
NO_SHARE = "Shares of groups by models of known truth are not given: {why}."
NONE_RULED_OUT = "A group that is not found is not shown to be forgotten."


def with_groups(
    key: OneKey,
    table: ScoreTable,
    targets: Sequence[TargetResult],
    of_set: Sequence[Details],
    unlike: Sequence[str],
    dealt_groups: DealtGroups,
) -> tuple[TargetResult, ...]:
    """The results for the targets of a table, each with a verdict on every group of the query set.

    Holm's method counts every group of every target. That of Benjamini and Hochberg counts the groups of one target,
    times the number of targets. What makes the numbers behind the verdict on the query set (`of_set`) invalid does so
    for its groups; where models of known truth tell no share (`unlike`), they tell none of a group.
    """
    evidence = [group_evidence(key, table, model, dealt_groups) for model in table.of("target")]
    p_values = [[part.test.p_never for part in parts if part.test and part.can_reach()] for parts in evidence]
    tests, every = sum(map(len, p_values)), iter(holm([p_value for of_target in p_values for p_value in of_target]))
    # Adjusted p-values rise with each p-value, so these are the smallest that any scores could lead to.
    smallest = iter(holm([part.test.least for parts in evidence for part in parts if part.test and part.can_reach()]))
    counted = f"{tests} tests" if len(targets) == 1 else f"{tests} tests of {len(targets)} targets"
    query, results = table.rows("query"), []
    group_of_query = numbered_groups(table)[query]
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
            shown = part._replace(share=UNKNOWN) if why or reasons else part
            groups.append(
                GroupResult(
                    name=name + 1,
                    first=int(query[group_of_query == name][0]) + 1,
                    records=int(group_counts(table, "query")[name]),
                    holdout_records=int(group_counts(table, "holdout")[name]),
                    verdict=verdict,
                    basis=shown.basis,
                    p_never=shown.test and number(shown.test.p_never),
                    p_adjusted=p_values_of_part[0],
                    p_adjusted_bh=p_values_of_part[1],
                    effect=shown.test and number(shown.test.effect),
                    share=number(float(shown.share.fraction)),
                )
            )
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
        trust = trusted_by_checks((finding.confidence, frozenset({HOLDOUT_LIKE_QUERY})), target.checks)
        finding = structs.replace(finding, confidence=trust, caveats=(*finding.caveats, *no_share))
        groups.sort(key=lambda group: (np.inf if group.p_never is None else group.p_never, group.name))
        grouping = Grouping(finding=finding, adjustment=adjustment, tests=tests, groups=tuple(groups))
        results.append(structs.replace(target, grouping=grouping))
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


def _finding(
    groups: Sequence[GroupResult],
    dealt_groups: DealtGroups,
    tests: int,
    models: int,
    withheld: Sequence[str],
    doubts: Sequence[str],
) -> Finding:
    """The answer about all groups of one target in words; `tests` counts the groups of all targets."""
    counts = Counter(group.verdict for group in groups)
    remembered, suspected, count = counts["remembered"], counts["suspected"], plural(len(groups), "group")
    if withheld:
        reason = "; ".join(withheld)
        return undecided("No verdict by group can be given.", (reason,), sentence(reason))
    bases = dict.fromkeys(group.basis for group in groups)
    few = (FEW_MODELS.format(models=models),) if "models" in bases and models < ENOUGH_MODELS and tests > 1 else ()
    helps = (*few, *((needs_text(dealt_groups, tests),) if counts["cannot be found"] else ()))
    count_unlike = counts["inconclusive"]
    verb, pronoun = ("has", "it") if count_unlike == 1 else ("have", "them")
    unlike = (UNLIKE.format(count=f"{plural(count_unlike, 'group')} {verb}", them=pronoun),) if count_unlike else ()
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


def needs_text(dealt_groups: DealtGroups, tests: int) -> str:
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
    """The records in each set that let a group's own reach 5% adjusted, for up to `MOST_TESTS` groups and targets."""
    most = min(tests, MOST_TESTS)
    return next(size for size in range(2, 100) if reaches(most / counted_deals(size, size, MOST_PERMUTATIONS)))
