"""The error rates of an audit on its own data: each shadow model in turn serves as a target of known truth."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from jaxtyping import Array, Key
from scipy import special

from jaxaudit.audits.ks.evidence import Compared, Evidence, TargetOutputs, all_logits, resolution_of
from jaxaudit.audits.ks.judge_outputs import judge_outputs
from jaxaudit.audits.ks.models import LEAST
from jaxaudit.audits.ks.result import Rates
from jaxaudit.audits.ks.tests_of_use import KSTest
from jaxaudit.audits.ks.tests_of_use.dealt import TAUGHT, taught_by_records
from jaxaudit.data.group_values import number_groups
from jaxaudit.data.roles import Role
from jaxaudit.errors import InputError
from jaxaudit.learners.learner import Progress
from jaxaudit.metrics.deal import dealt_alike
from jaxaudit.metrics.reference import LEAST_RECORDS
from jaxaudit.randomness import generator_of, stream
from jaxaudit.shadow_models import OF_QUERY, Kind, Pool, kind_words

SHARES = (0.0, 0.5, 1.0)
"""Used fractions of the simulated targets, in the order of `OF_QUERY`."""


_Case = tuple[Evidence, TargetOutputs]
"""A target of known truth, and the evidence by which it is judged."""


def leave_one_out(
    key: Key[Array, ""],
    evidence: Evidence,
    tests: Sequence[KSTest],
    *,
    level: float = 0.95,
    progress: Progress | None = None,
) -> tuple[Rates, ...]:
    """Judges every shadow model by the others, and counts the verdicts.

    - Shadow and reference test: a model used none, half or all of the query set, and is judged as a target would be.
      Its known non-members are the calibration records that it was not trained on.
    - Holdout test: a model used a random part of query set and holdout. Part of what it did not use serves as holdout.
      The query set consists of records that it did not use, of records that it used, or of both, in the proportion of
      the two sets. So there are fewer records than for a target (half as many, for sets of equal size), and less use is
      detected. If whole groups were randomised, such as copies of a record, whole groups are drawn again.

    The rates hold for targets like the shadow models. A real target need not have used the calibration set.

    Args:
        key: random key of the draws.
        evidence: the shadow models.
        tests: the tests to measure; those that cannot be measured so are left out.
        level: confidence level of intervals.
        progress: called with the number of judged models and their total; None: not called.

    Returns:
        The verdicts for each test and each used fraction (`SHARES`) that any model has.

    Raises:
        InputError: a test has too few models, groups or calibration records.
    """
    # The design that a shadow model resembles does not affect its verdict.
    evidence = replace(evidence, models=replace(evidence.models, design_names=()))
    cases = [(test, list(_cases(key, evidence, test))) for test in tests if test.left_out != "none"]
    total, done, rates = sum(len(of_test) for _, of_test in cases), 0, []
    for test, of_test in cases:
        verdicts: dict[float, Counter[str]] = {used: Counter() for used in SHARES}
        sizes: dict[float, list[int]] = {used: [] for used in SHARES}
        for make, used in of_test:
            judging, target_outputs = make()
            judged = judge_outputs(key, judging, [target_outputs], [test], level=level)
            verdicts[used][judged.targets[0].verdict] += 1
            sizes[used].append(judging.queries)
            done += 1
            if progress is not None:
                progress(done, total)
        for used, counts in verdicts.items():
            numbers = (counts[name] for name in ("not forgotten", "forgotten", "inconclusive"))
            if counts:
                rates.append(Rates(test.name, used, round(np.mean(sizes[used])), counts.total(), *numbers))
    return tuple(rates)


def _cases(key: Key[Array, ""], evidence: Evidence, test: KSTest) -> Iterator[tuple[Callable[[], _Case], float]]:
    """For each case, the function that makes it, and its used fraction."""
    holding = test.left_out == "dealt"
    for kind in (Kind.MIXED,) if holding else (Kind.NEVER, Kind.FULLY):
        models = evidence.count(kind)
        if models <= LEAST:
            raise InputError(
                f"`rates` needs more than {LEAST} models {kind_words(kind)}, one of which is the target; "
                f"there are {models}. Train more, or add some to the bank."
            )
    if Role.REFERENCE in test.roles:
        unseen = int((~evidence.members(*OF_QUERY)[:, evidence.dealt_records.stop :]).sum(axis=1).min())
        if unseen < LEAST_RECORDS:
            raise InputError(
                f"`rates`: a shadow model was not trained on {unseen} of the calibration records, and as a "
                f"target of the reference test it needs {LEAST_RECORDS}; leave it out, or make a bank with more."
            )
    if holding:
        for used in SHARES:
            for index in range(evidence.count(Kind.MIXED)):
                yield partial(_dealt_anew, key, evidence, index, used), used
        return
    for kind, used in zip(OF_QUERY, SHARES, strict=True):
        for index in evidence.models.of(kind).tolist():
            yield partial(_as_target, evidence, index, test), used


def _as_target(evidence: Evidence, index: int, test: KSTest) -> _Case:
    """A model as a target, judged by the others."""
    models, records = evidence.models, evidence.pool.compared
    unseen = None
    if Role.REFERENCE in test.roles:
        # Its known non-members are the reference records that it was not trained on.
        unseen = evidence.in_reference & ~models.membership[index, records]
    target_outputs = _target_outputs(evidence, models.log_odds[index, records], evidence.queries)._replace(
        unseen=unseen
    )
    return evidence.among(np.arange(len(models)) != index), target_outputs


def _dealt_anew(key: Key[Array, ""], evidence: Evidence, index: int, used: float) -> _Case:
    """A model as a target, with a query set of which it used this fraction, and a holdout that it did not use."""
    members, whole = evidence.members(Kind.MIXED)[:, evidence.dealt_records], evidence.pool.groups
    # The units of randomisation: records, or whole groups.
    units = np.arange(members.shape[1]) if whole is None else number_groups(whole)
    rows = members[:, np.unique(units, return_index=True)[1]]
    membership = rows[index]
    generator = generator_of(stream(key, "leave one out", index))
    inside, outside = (generator.permutation(np.flatnonzero(side)) for side in (membership, ~membership))
    # In the proportion of query set and holdout, as for the other models.
    share = (units[: evidence.queries].max() + 1) / len(membership)
    size, held = min(int(share * len(outside)), len(inside)), int((1 - share) * len(outside))
    count = round(used * size)
    sides = np.concatenate([inside[:count], outside[: size - count]]), outside[len(outside) - held :]
    times_dealt = rows[:, np.concatenate(sides)].sum(axis=1)
    alike = (times_dealt > 0) & (times_dealt < size + held) & dealt_alike(times_dealt, size, size + held)
    rest = np.flatnonzero(alike & (np.arange(len(rows)) != index))
    if size < 2 or held < 2 or len(rest) < LEAST - 1:
        units_word = "records" if whole is None else "groups"
        raise InputError(
            f"`rates`: model {index} of the holdout test leaves {size} query and {held} holdout {units_word}, and "
            f"{len(rest)} models that were dealt them alike; leave it out, or make a larger bank."
        )
    order = np.argsort(units, kind="stable")
    places = (np.searchsorted(units[order], [side, side + 1]).T for side in sides)
    query, held_out = (np.concatenate([order[start:end] for start, end in span]) for span in places)
    models, mixed, pool = evidence.models, evidence.models.of(Kind.MIXED), evidence.pool
    columns, end = np.concatenate([query, held_out]), len(query) + len(held_out)
    records = pool.compared[columns]
    groups = None if pool.groups is None else number_groups(pool.groups[columns])
    small = Pool(pool.examples.take(records), slice(0, len(query)), slice(len(query), end), slice(end, end), groups)
    lesson = taught_by_records(key, evidence).taken(columns)
    judged = replace(evidence, models=models.take(mixed[rest], records, small), _known={TAUGHT: lesson})
    return judged, _target_outputs(evidence, models.log_odds[mixed[index], records], len(query))


def _target_outputs(evidence: Evidence, log_odds: np.ndarray, queries: int) -> TargetOutputs:
    """The outputs of a model as a target, at the resolution of the other models."""
    bring = resolution_of(evidence.models.resolutions)
    rounded_odds = bring(log_odds[None])[0]
    confidences = special.expit(rounded_odds[None, :queries].astype(np.float64)).astype(np.float32)
    none = np.zeros((0, queries), np.float32)
    compared = Compared(none, none, none, confidences, confidences)
    return TargetOutputs(
        "", None, rounded_odds, bring, not all_logits(evidence.models.resolutions), compared, None, trained_here=True
    )
