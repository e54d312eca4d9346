"""The error rates of an audit on its own data: each shadow model in turn is a target of known truth."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Int, Key
from scipy import special

from jaxaudit.audits.ks.bank.evidence import ROLE_OF
from jaxaudit.audits.ks.bank.state import MIXED, WITH, WITHOUT
from jaxaudit.audits.ks.evidence import Compared, Evidence, Said, as_logits, resolution_of
from jaxaudit.audits.ks.judge import judge_targets
from jaxaudit.audits.ks.models import LEAST
from jaxaudit.audits.ks.result import Rates
from jaxaudit.audits.ks.tests import HoldoutTest, KSTest, ReferenceTest
from jaxaudit.audits.ks.tests.holdout import ROLE
from jaxaudit.audits.ks.tests.shadow import ROLES
from jaxaudit.audits.pool import Pool
from jaxaudit.data.groups import numbered
from jaxaudit.errors import InputError
from jaxaudit.learners.learner import Progress
from jaxaudit.metrics.deal import dealt_alike
from jaxaudit.metrics.reference import LEAST_RECORDS
from jaxaudit.randomness import generator_of, stream

SHARES = (0.0, 0.5, 1.0)
"""Used fractions of the targets, in the order of `ROLES`."""


class _Case(NamedTuple):
    """A target of known truth, and what it is judged by."""

    evidence: Evidence
    said: Said
    used: float


def leave_one_out(
    key: Key[Array, ""],
    evidence: Evidence,
    tests: Sequence[KSTest],
    *,
    level: float = 0.95,
    progress: Progress | None = None,
) -> tuple[Rates, ...]:
    """Judges every shadow model by the others, and counts the verdicts.

    - Shadow and reference test: a model used none, half or all of the query set, and is judged as a target would be;
      its reference are the calibration records that it was not trained on.
    - Holdout test: a model used a random part of query set and holdout. A part of what it did not use acts as holdout;
      the query set is made of what it did not use, of what it used, or of both, in the proportion of the two sets. So
      it is judged with fewer records than a target (half of them, for sets of one size), and less is detected. Where
      whole groups were dealt, such as the copies of a record, whole groups are dealt anew.

    The rates are those of targets like the shadow models, whose calibration records a target need not have.

    Args:
        key: random key.
        evidence: the models of a bank.
        tests: whose rates are wanted.
        level: as for the audit.
        progress: told of each target judged.

    Raises:
        InputError: a test has too few models, groups or calibration records.
    """
    # Which design a shadow model resembles is no question of its verdict.
    evidence = replace(evidence, design_names=())
    cases = [(test, list(_cases(key, evidence, test))) for test in tests]
    total, done, found = sum(len(of_test) for _, of_test in cases), 0, []
    for test, of_test in cases:
        verdicts: dict[float, Counter[str]] = {used: Counter() for used in SHARES}
        sizes: dict[float, list[int]] = {used: [] for used in SHARES}
        for make, used in of_test:
            case = make()
            judged = judge_targets(key, case.evidence, [case.said], [test], level=level)
            verdicts[used][judged.targets[0].verdict] += 1
            sizes[used].append(case.evidence.queries)
            done += 1
            if progress is not None:
                progress(done, total)
        for used, counts in verdicts.items():
            numbers = (counts[name] for name in ("not forgotten", "forgotten", "inconclusive"))
            if counts:
                found.append(Rates(test.name, used, round(np.mean(sizes[used])), counts.total(), *numbers))
    return tuple(found)


def _cases(key: Key[Array, ""], evidence: Evidence, test: KSTest) -> Iterator[tuple[Callable[[], _Case], float]]:
    """What makes each target with its evidence, and its used fraction."""
    holding = test.name == HoldoutTest.name
    for kind in (MIXED,) if holding else (WITHOUT, WITH):
        models = len(evidence.roles[ROLE_OF[kind]])
        if models <= LEAST:
            raise InputError(
                f"--leave-one-out needs more than {LEAST} models {kind.replace('_', ' ')}, one of which is the target; "
                f"there are {models}. Add some to the bank (--models)."
            )
    if isinstance(test, ReferenceTest):
        unseen = int((~evidence.members(*ROLES)[:, evidence.dealt.stop :]).sum(axis=1).min())
        if unseen < LEAST_RECORDS:
            raise InputError(
                f"--leave-one-out: a shadow model was not trained on {unseen} of the calibration records, and as a "
                f"target of the reference test it needs {LEAST_RECORDS}; leave it out, or make a bank with more."
            )
    if holding:
        for used in SHARES:
            for place in range(len(evidence.roles[ROLE])):
                yield lambda used=used, place=place: _dealt_anew(key, evidence, place, used), used
        return
    for role, used in zip(ROLES, SHARES, strict=True):
        for place in range(len(evidence.roles[role])):
            yield lambda role=role, place=place, used=used: _as_target(evidence, role, place, used, test), used


def _as_target(evidence: Evidence, role: str, place: int, used: float, test: KSTest) -> _Case:
    """A model as a target, judged by the others."""
    asked = np.arange(len(evidence.pool.asked))
    unseen = None
    if isinstance(test, ReferenceTest):
        # What it was trained on is no reference for it.
        of_reference = (asked >= evidence.referred.start) & (asked < evidence.referred.stop)
        unseen = of_reference & ~evidence.members(role)[place]
    said = _said(evidence, evidence.trained[role].log_odds[place], evidence.queries)._replace(unseen=unseen)
    rest = np.delete(np.arange(len(evidence.roles[role])), place)
    return _Case(_only(evidence, {role: rest}), said, used)


def _dealt_anew(key: Key[Array, ""], evidence: Evidence, place: int, used: float) -> _Case:
    """A model as a target with a query set of which it used this fraction, and a holdout that it did not use."""
    members, whole = evidence.members(ROLE)[:, evidence.dealt], evidence.pool.groups
    # What was dealt: records, or whole groups of them.
    units = np.arange(members.shape[1]) if whole is None else numbered(whole)
    rows = members[:, np.unique(units, return_index=True)[1]]
    own = rows[place]
    generator = generator_of(stream(key, "leave one out", place))
    inside, outside = (generator.permutation(np.flatnonzero(side)) for side in (own, ~own))
    # In the proportion of query set and holdout, as the other models were dealt them.
    share = (units[: evidence.queries].max() + 1) / len(own)
    size, held = min(int(share * len(outside)), len(inside)), int((1 - share) * len(outside))
    count = round(used * size)
    sides = np.concatenate([inside[:count], outside[: size - count]]), outside[len(outside) - held :]
    dealt = rows[:, np.concatenate(sides)].sum(axis=1)
    alike = (dealt > 0) & (dealt < size + held) & dealt_alike(dealt, size, size + held)
    rest = np.flatnonzero(alike & (np.arange(len(rows)) != place))
    if size < 2 or held < 2 or len(rest) < LEAST - 1:
        what = "records" if whole is None else "groups"
        raise InputError(
            f"--leave-one-out: model {place} of the holdout test leaves {size} query and {held} holdout {what}, and "
            f"{len(rest)} models that were dealt them alike; leave it out, or make a larger bank."
        )
    query, holdout = (_records_of(units, side) for side in sides)
    return _among(evidence, place, rest, np.concatenate([query, holdout]), len(query), used)


def _records_of(units: Int[np.ndarray, " n"], chosen: Int[np.ndarray, " some"]) -> Int[np.ndarray, " records"]:
    """The records of these units, in the order of the units."""
    order = np.argsort(units, kind="stable")
    starts = np.searchsorted(units[order], [chosen, chosen + 1])
    return np.concatenate([order[start:end] for start, end in starts.T])


def _among(
    evidence: Evidence,
    place: int,
    rest: Int[np.ndarray, " others"],
    columns: Int[np.ndarray, " some"],
    size: int,
    used: float,
) -> _Case:
    """A model as a target on these records, of which the first `size` are its query set, judged by the others."""
    pool, trained = evidence.pool, evidence.trained[ROLE]
    rows = evidence.members(ROLE)[:, columns]
    examples = pool.examples.take(pool.asked[columns])
    groups = None if pool.groups is None else numbered(pool.groups[columns])
    small = Pool(examples, slice(0, size), slice(size, size), slice(size, len(columns)), groups)
    of_rest = trained.taken(rest)._replace(
        confidences=trained.confidences[rest][:, :0], log_odds=trained.log_odds[rest][:, columns]
    )
    judged = replace(
        evidence,
        trained={ROLE: of_rest},
        roles={ROLE: [row[None] for row in rows[rest]]},
        pool=small,
        query=examples.take(small.query),
        designs={ROLE: evidence.designs[ROLE][rest]} if ROLE in evidence.designs else {},
        sampled_alike=None,
        _known={},
    )
    return _Case(judged, _said(evidence, trained.log_odds[place, columns], size), used)


def _said(evidence: Evidence, log_odds: np.ndarray, queries: int) -> Said:
    """What a model says, at the resolution of the others."""
    bring = resolution_of(evidence.stored)
    own = bring(log_odds[None])[0]
    confidences = special.expit(own[None, :queries].astype(np.float64)).astype(np.float32)
    none = np.zeros((0, queries), np.float32)
    compared = Compared(none, none, none, confidences, confidences)
    return Said("", None, own, bring, not as_logits(evidence.stored), compared, None, trained_here=True)


def _only(evidence: Evidence, models: dict[str, Int[np.ndarray, " models"]]) -> Evidence:
    """The evidence with only these models of some roles."""
    trained = {**evidence.trained, **{role: evidence.trained[role].taken(rows) for role, rows in models.items()}}
    roles = {**evidence.roles, **{role: [evidence.roles[role][row] for row in rows] for role, rows in models.items()}}
    designs = {role: places[models[role]] if role in models else places for role, places in evidence.designs.items()}
    return replace(evidence, trained=trained, roles=roles, designs=designs, _known={})
