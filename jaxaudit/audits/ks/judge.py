"""Judges targets with shadow models that exist, and each of these in turn as a target of known truth, for error rates.

A failed check takes away the verdicts that rest on it, and no other: each judgement names its checks. A check moves to
other models where its own are missing: whether the calibration set is like the query set is measured on rho's
calibration models or on shadow models without query records; without either it is a warning.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import msgspec
import numpy as np
from scipy import special

from jaxaudit.audits.ks.evidence import Evidence, TargetOutputs, all_logits, resolution_of
from jaxaudit.audits.ks.judge_outputs import judge_outputs
from jaxaudit.audits.ks.models import LEAST
from jaxaudit.audits.ks.result import KSAudit, Rates
from jaxaudit.audits.ks.target import FileTarget, Target, all_on_calibration, kinds_of_targets, refuse_one_target_twice
from jaxaudit.audits.ks.taught import TAUGHT, taught_by_records
from jaxaudit.audits.ks.tests_of_use import KSTest
from jaxaudit.audits.ks.train import available_tests, lacks, possible_tests, refuse
from jaxaudit.data.examples import Role
from jaxaudit.data.labels import number_groups
from jaxaudit.ensemble import Progress
from jaxaudit.errors import InputError
from jaxaudit.metrics.arrays import OneKey, units_of_records
from jaxaudit.metrics.checks import MIN_REACH
from jaxaudit.metrics.deal import dealt_alike
from jaxaudit.metrics.shadow import LEAST_RECORDS, refuse_few
from jaxaudit.randomness import generator_of, stream
from jaxaudit.shadow_models import OF_QUERY, Kind, Pool, ShadowModels, kind_words

BY_CLASSES = (
    "Whether the known members are like query set and holdout was measured on their classes alone, and whether they "
    "share records with these was not looked at: the bank has no records. Give the query records and the holdout, too."
)
BY_NUMBERS = (
    "Whether the known members are like query set and holdout, and share no records with these, was not looked at: "
    "only numbers of these records are known."
)


def judge(
    key: OneKey,
    shadows: ShadowModels,
    targets: Sequence[Target],
    *,
    tests: Sequence[KSTest] | None = None,
    own_recipe: bool = False,
    reduced: Sequence[str] = (),
    rates: bool = False,
    progress: Progress | None = None,
) -> KSAudit:
    """Has each target forgotten the query set? Tests with known error rates, and Liu & Tsaftaris (2020).

    The first test gives the verdict; the results of the others are given, too. Shadow models of `train_shadows` and
    equal ones of a bank (`open_bank`) give equal numbers, except those of the holdout test: a bank has no inputs, so
    its records cannot teach how difficult each of them is.

    Args:
        key: every test uses the stream of its name, and all targets share its draws.
        shadows: the shadow models; none with known members, as `train_shadows` gives without a learner.
        targets: models to judge: `FileTarget`, with one row per record of each given set; or `SimulatedTarget`, if
            trained with the shadow models.
        tests: the tests to make, the deciding one first; by default those that the models and outputs allow: the
            members, the holdout, the shadow test (beside others only with outputs on the calibration set), then rho.
        own_recipe: states that the shadow models have the targets' own network and recipe. Without this statement and
            without known members, a target from a file gets no used fraction and is not called `forgotten`.
        reduced: how the shadow models differ from what was requested, in words; `own_recipe` then counts for nothing.
        rates: also measure each test's error rates by `leave_one_out`, after each of which `progress` is called.

    Returns:
        One result per target, in the same order: the verdict with its reasons, and for each test of use the p-values
            and the used fraction, from 0 to 1.

    Raises:
        InputError: outputs do not fit the sets, files are of one model or a shadow model, or a test cannot be made.

    >>> import jax
    >>> import jaxaudit as ja
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> wine, key = ja.ordinal(ja.load_table("wine")), jax.random.key(1)
    >>> held = np.random.default_rng(2).random(90) < 0.5
    >>> query, holdout = wine.take(np.flatnonzero(~held)), wine.take(np.flatnonzero(held))
    >>> calibration, tests = wine.take(np.arange(90, 178)), [ja.HoldoutTest(mixed=20)]
    >>> used = ja.SimulatedTarget("used", (ja.Part(query, 1.0), ja.Part(calibration, 0.67)))
    >>> learner = ja.EstimatorLearner(KNeighborsClassifier(1), classes=3)
    >>> shadows = ja.train_shadows(key, query, calibration, learner, [used], tests=tests, holdout=holdout)
    >>> answer = judge(key, shadows, [used], tests=tests)
    >>> answer.targets[0].verdict, answer.targets[0].usage[0].p_never < 0.05
    ('not forgotten', True)
    """
    if not targets:
        raise InputError("there is no target: give a file of its outputs (`targets`), or simulate one.")
    if tests is None:
        tests = possible_tests(shadows, targets)
    evidence = Evidence(shadows, own_recipe, tuple(reduced), progress=progress)
    evidence, targets = evidence_for(evidence, targets, tests)
    pool = evidence.pool
    for test in tests:
        test.refuse_pool(pool)
    outputs = [target.says(evidence, kind) for target, kind in zip(targets, kinds_of_targets(targets), strict=True)]
    refuse_one_target_twice([file for file in outputs if not file.trained_here], evidence)
    for target_outputs in outputs if pool.compares_calibration else ():
        # Records that a simulated target was trained on are no known non-members of it.
        refuse_few(int(target_outputs.unseen.sum()))
    audit = judge_outputs(key, evidence, outputs, tests)
    measured = leave_one_out(key, evidence, tests) if rates else ()
    kinds = dict.fromkeys(kind for test in tests for kind in test.kinds())
    return replace(
        audit,
        result=msgspec.structs.replace(audit.result, rates=measured or None),
        models_per_batch=shadows.models_per_batch,
        form=shadows.form,
        shadows=evidence.models.take(evidence.models.of(*kinds)),
        sampled_alike=evidence.once("dealt", lambda: None),
    )


def evidence_for(
    evidence: Evidence, targets: Sequence[Target], tests: Sequence[KSTest]
) -> tuple[Evidence, tuple[Target, ...]]:
    """The evidence for these tests, and the targets with outputs. The holdout is omitted if neither a test nor a file
    needs it; the calibration set is compared if a test does so, and the targets from files have outputs on it.
    """
    shadows, pool = evidence.models, evidence.pool
    kept = tuple(target.of_kept(pool) if isinstance(target, FileTarget) else target for target in targets)
    files = [target for target in kept if isinstance(target, FileTarget)]
    needed = frozenset[Role]().union(*(test.roles for test in tests))
    if files and Role.HOLDOUT not in needed and not any(Role.HOLDOUT in file.on for file in files):
        shadows = shadows.take(records=np.r_[pool.query, pool.holdout.stop : len(pool.examples)])
        pool = shadows.pool
    compares = any(test.compares_calibration for test in tests) and all_on_calibration(files)
    shadows = replace(shadows, pool=pool._replace(compares_calibration=compares))
    answers = available_tests(pool, shadows.kinds, tests=tests)
    lacking = {answer.test.name: lacks(answer, files) for answer in answers}
    for test in tests:
        absent = [kind for kind in test.kinds() if test.name not in lacking and kind not in shadows.kinds]
        why = lacking.get(test.name) or (f"there are no models of the kind {', '.join(absent)}" if absent else "")
        if why:
            raise InputError(f"the {test.title} cannot be made: {why}.")
    sets = pool.sets
    refuse(kept, tests, sets)
    evidence = replace(evidence, models=shadows)
    limitations = (*evidence.limitations, *unlearned_models(evidence, tests))
    if Role.MEMBERS in sets and not pool.examples.inputs.size and pool.at_hand is None:
        limitations = (*limitations, BY_NUMBERS if pool.classless else BY_CLASSES)
    return replace(evidence, limitations=limitations), kept


LARGE, FAR = 100.0, 3.0
"""Inputs with larger absolute values, or a mean of more standard deviations than this, are hard to learn from."""


def unlearned_models(evidence: Evidence, tests: Sequence[KSTest]) -> Iterator[str]:
    """A sentence for each set of shadow models, and the tests that use it, that did not learn: their median training
    accuracy covers less than 10% of the way from the share of the commonest class to 1.
    """
    titles: dict[tuple[str, ...], list[str]] = {}
    for test in tests:
        kinds = tuple(kind for kind in test.kinds() if evidence.count(kind))
        titles.setdefault(kinds, []).append(test.title)
    labels, inputs = evidence.pool.examples.labels, evidence.pool.examples.inputs
    guess, scaled = float(np.bincount(labels).max() / len(labels)), ""
    if inputs.size and not evidence.pool.classless:
        far = abs(float(inputs.mean())) > FAR * float(inputs.std())
        if far or float(np.abs(inputs).max()) > LARGE:
            scaled = "; centre and scale the inputs, in all sets alike, such as to mean 0 and standard deviation 1"
    for kinds, test_titles in titles.items():
        reached = float(np.median(evidence.own_accuracy(*kinds))) if kinds else 1.0
        if guess < 1 and (reached - guess) / (1 - guess) < MIN_REACH:
            title = " and ".join(test_titles)
            yield (
                f"{title[:1].upper()}{title[1:]}: its shadow models did not learn: training accuracy {reached:.0%}, "
                f"guessing {guess:.0%}. It finds less, and its numbers are less certain{scaled}."
            )


SHARES = (0.0, 0.5, 1.0)
"""Used fractions of the simulated targets, in the order of `OF_QUERY`."""


_Case = tuple[Evidence, TargetOutputs]
"""A target of known truth, and the evidence by which it is judged."""


def leave_one_out(key: OneKey, evidence: Evidence, tests: Sequence[KSTest]) -> tuple[Rates, ...]:
    """Judges every shadow model by the others, and counts the verdicts for each test and each used fraction (`SHARES`).

    - Shadow test: a model used none, half or all of the query set, and is judged as a target would be. Where the
      calibration set is compared, its known non-members are the calibration records that it was not trained on.
    - Holdout test: a model used a random part of query set and holdout. Part of what it did not use serves as holdout;
      the query set consists of records that it used, or did not, or of both, in the proportion of the two sets. So
      there are fewer records than for a target (half as many, for sets of equal size), and less use is detected. If
      whole groups were randomised, such as copies of a record, whole groups are drawn again.

    The rates hold for targets like the shadow models; a real one need not have used the calibration set. Tests that
    cannot be measured so are left out.
    """
    cases = [(test, list(_cases(key, evidence, test))) for test in tests if test.left_out != "none"]
    total, done, rates = sum(len(of_test) for _, of_test in cases), 0, []
    for test, of_test in cases:
        verdicts: dict[float, Counter[str]] = {used: Counter() for used in SHARES}
        sizes: dict[float, list[int]] = {used: [] for used in SHARES}
        for make, used in of_test:
            judging, target_outputs = make()
            judged = judge_outputs(key, judging, [target_outputs], [test])
            verdicts[used][judged.targets[0].verdict] += 1
            sizes[used].append(judging.queries)
            done += 1
            if evidence.progress:
                evidence.progress(done, total)
        for used, counts in verdicts.items():
            numbers = (counts[name] for name in ("not forgotten", "forgotten", "inconclusive"))
            if counts:
                rates.append(Rates(test.name, used, round(np.mean(sizes[used])), counts.total(), *numbers))
    return tuple(rates)


def _cases(key: OneKey, evidence: Evidence, test: KSTest) -> Iterator[tuple[Callable[[], _Case], float]]:
    """For each case, the function that makes it, and its used fraction."""
    holding = test.left_out == "dealt"
    for kind in (Kind.MIXED,) if holding else (Kind.NEVER, Kind.FULLY):
        models = evidence.count(kind)
        if models <= LEAST:
            raise InputError(
                f"`rates` needs more than {LEAST} models {kind_words(kind)}, one of which is the target; "
                f"there are {models}. Train more, or add some to the bank."
            )
    if test.compares_calibration and evidence.pool.compares_calibration:
        unseen = int((~evidence.members(*OF_QUERY)[:, evidence.in_calibration]).sum(axis=1).min())
        if unseen < LEAST_RECORDS:
            raise InputError(
                f"`rates`: a shadow model was not trained on {unseen} of the calibration records, and as a target "
                f"whose outputs on them are compared it needs {LEAST_RECORDS}; leave it out, or make a bank with more."
            )
    if holding:
        for used in SHARES:
            for index in range(evidence.count(Kind.MIXED)):
                yield partial(_dealt_anew, key, evidence, index, used), used
        return
    for kind, used in zip(OF_QUERY, SHARES, strict=True):
        for index in evidence.models.of(kind).tolist():
            yield partial(_as_target, evidence, index), used


def _as_target(evidence: Evidence, index: int) -> _Case:
    models, records = evidence.models, evidence.pool.compared
    target_outputs = _target_outputs(evidence, models.log_odds[index, records], evidence.queries)
    # Its known non-members are the calibration records that it was not trained on.
    unseen = evidence.in_calibration & ~models.membership[index, records]
    return evidence.among(np.arange(len(models)) != index), target_outputs._replace(unseen=unseen)


def _dealt_anew(key: OneKey, evidence: Evidence, index: int, used: float) -> _Case:
    """A model as a target, with a query set of which it used this fraction, and a holdout that it did not use."""
    members, whole = evidence.members(Kind.MIXED)[:, evidence.dealt_records], evidence.pool.groups
    # The units of randomisation: records, or whole groups.
    units = number_groups(units_of_records(whole, members.shape[1]))
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
    small = Pool(pool.examples.take(records), slice(0, len(query)), slice(len(query), end), slice(end, end))
    lesson = taught_by_records(key, evidence).taken(columns)
    judged = replace(evidence, models=models.take(mixed[rest], records, small), _known={TAUGHT: lesson})
    return judged, _target_outputs(evidence, models.log_odds[mixed[index], records], len(query))


def _target_outputs(evidence: Evidence, log_odds: np.ndarray, queries: int) -> TargetOutputs:
    """The outputs of a model as a target, at the resolution of the other models."""
    bring = resolution_of(evidence.models.resolutions)
    rounded_odds = bring(log_odds[None])[0]
    confidences = special.expit(rounded_odds[None, :queries].astype(np.float64)).astype(np.float32)
    printed = not all_logits(evidence.models.resolutions)
    return TargetOutputs("", None, rounded_odds, bring, printed, confidences, trained_here=True)
