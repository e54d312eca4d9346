"""The shadow models of the tests of use: which tests can be made, how large an audit is, and the training.

An effort is a number of counted operations (`models_per_batch.py`), the same on every machine, and a plan a function of
shapes and options. An audit that would take more is reduced; what was given by hand stands. No set is refused: where
nothing is within the effort, the smallest audit is made. Records left out are drawn by the seed alone, outputs in step.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from jaxaudit.audits.ks.models import Rows, make_pool, train_rows
from jaxaudit.audits.ks.target import FileTarget, SimulatedTarget, Target, all_on_calibration, kinds_of_targets
from jaxaudit.audits.ks.tests_of_use import (
    BUILT_IN,
    TESTS,
    KSTest,
    RhoTest,
    ShadowTest,
    usual_tests,
)
from jaxaudit.audits.ks.tests_of_use.shadow import least_models
from jaxaudit.audits.ks.tests_of_use.test import TrainingSizes
from jaxaudit.data.examples import Examples, Role, Sets
from jaxaudit.data.pairs import CALIBRATION, refuse_held
from jaxaudit.data.sequences import are_texts
from jaxaudit.ensemble import DEFAULT_EXECUTION, Execution, StepCost
from jaxaudit.errors import InputError
from jaxaudit.learners import Learner
from jaxaudit.metrics.arrays import ModelNumbers, OneKey
from jaxaudit.metrics.shadow import SHARE, refuse_few
from jaxaudit.randomness import stream
from jaxaudit.shadow_models import OF_RHO, Kind, Pool, ShadowModels, kind_words, no_models

EFFORTS = {"quick": 1.5e13, "full": math.inf}
"""Counted operations of each effort: on two cores of a CPU, `quick` takes at most about five minutes with reading,
compiling and judging."""
FEWEST, FEWEST_OF_LAST = 2_000, 1_000
"""Query records below which a smaller model is preferred to fewer records, and, where there is none, fewer epochs: of
MNIST, an MLP on 20,000 records of each set finds use of 15%, and Liu's network on 4,400, which takes longer, use of 27
to 30%."""
LEAST_RECORDS = 200
"""The smallest number of records that a plan chooses."""
LEAST_STEPS = 600
"""If records are reduced, epochs are added until the smallest training set gives this many minibatches: a network that
fits its records badly remembers little of them."""
LEAST_EPOCHS = 5
ROUND = 100
"""Records are rounded to hundreds."""


def no_lesson(records: int) -> float:
    """The operations to teach how difficult compared records are, where none are taught."""
    return 0.0


class Work(NamedTuple):
    """The models of an audit, as far as they affect its cost: records of each set, training records of each simulated
    target for `whole` query records, the tests with rho, and each with the fewest models allowed (`lightest`); the
    operations to teach how difficult so many compared records are (`lesson`).
    """

    query: int
    calibration: int
    holdout: int
    targets: tuple[int, ...]
    whole: int
    tests: tuple[KSTest, ...]
    epochs: int
    batch_size: int
    members: int = 0
    lightest: tuple[KSTest, ...] = ()
    lesson: Callable[[int], float] = no_lesson

    @property
    def sizes(self) -> Sets[int]:
        """The records of each set."""
        return Sets(query=self.query, calibration=self.calibration, holdout=self.holdout, members=self.members)

    @property
    def records(self) -> tuple[int, int, int, int]:
        return self.query, self.calibration, self.holdout, self.members


class Free(NamedTuple):
    """What a plan may reduce beside the models of tests: options that were not given. With `epochs_last` epochs stay as
    they are while fewer records suffice; else fewer records are walked more often.
    """

    records: bool
    epochs: bool
    epochs_last: bool = False


class Plan(NamedTuple):
    """An audit of some effort: the index of the model that it trains, that model's cost, and all counted operations."""

    network: int
    work: Work
    cost: StepCost
    operations: float


def members(work: Work) -> ModelNumbers:
    """The number of training records of each model."""
    scale = work.query / work.whole
    parts = [(models, size) for _, sizes in sizes_of(work.tests, work.sizes) for models, size in sizes]
    parts += [(1, round(scale * target)) for target in work.targets]
    return np.concatenate([np.full(models, max(1, size)) for models, size in parts])


def sizes_of(tests: Iterable[KSTest], set_sizes: Sets[int]) -> Iterator[tuple[KSTest, TrainingSizes]]:
    """Each test with the numbers of models and of their training records; models that two tests share count once."""
    kinds_before = set[str]()
    for test in tests:
        kinds = set(test.kinds())
        shared = bool(kinds) and kinds <= kinds_before
        yield test, () if shared else test.training_sizes(set_sizes)
        kinds_before |= kinds


def plan_of(network: int, work: Work, cost: StepCost) -> Plan:
    """The plan of a work: with the operations to train all models, to evaluate them on all records, and to teach how
    difficult those are that are compared.
    """
    sizes = members(work)
    steps = work.epochs * int((-(-sizes // work.batch_size)).sum())
    lesson = work.lesson(work.query + work.holdout + work.members)
    return Plan(network, work, cost, steps * cost.step + len(sizes) * sum(work.records) * cost.record + lesson)


def choose(full: Work, costs: Iterable[StepCost], effort: str, free: Free) -> Plan:
    """The plan of an effort that reduces least; the smallest of all if none is within it.

    In order: the full work; fewer replicates of rho; the fewest shadow models for a p-value of 0.05; fewer records,
    down to `FEWEST`; the same with the next model, whose cost is only then asked for; of the last one fewer records,
    down to `FEWEST_OF_LAST`; fewer epochs, even fewer records.
    """
    most, more_epochs = EFFORTS[effort], free._replace(epochs=free.epochs and not free.epochs_last)
    for network, cost in enumerate(costs):
        for work in _lighter(full):
            plan = plan_of(network, work, cost)
            if plan.operations <= most:
                return plan
        fewer = _fewer_records(plan, most, more_epochs, min(FEWEST, full.query))
        if fewer.operations <= most:
            return fewer
    fewer = _fewer_records(plan, most, more_epochs, min(FEWEST_OF_LAST, full.query))
    if fewer.operations <= most:
        return fewer
    epochs = min(work.epochs, LEAST_EPOCHS) if free.epochs else work.epochs
    short = plan._replace(work=work._replace(epochs=epochs))
    return _fewer_records(short, most, free._replace(epochs=False), LEAST_RECORDS)


def _lighter(full: Work) -> Iterator[Work]:
    yield full
    work = full
    for of_guess in (True, False):
        pairs = zip(work.tests, full.lightest, strict=True)
        tests = tuple(light if test.of_guess == of_guess else test for test, light in pairs)
        if tests != work.tests:
            work = work._replace(tests=tests)
            yield work


def _fewer_records(plan: Plan, most: float, free: Free, fewest: int) -> Plan:
    """The plan with the most records that takes at most so many operations, or with the `fewest` records."""
    largest = max(plan.work.records)
    sizes = [fewest, *range(ROUND * (fewest // ROUND + 1), largest + 1, ROUND)] if free.records else [largest]
    low, high = 0, len(sizes)

    def of_size(index: int) -> Plan:
        return plan_of(plan.network, _of_records(plan.work, sizes[index], free.epochs), plan.cost)

    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if of_size(middle).operations <= most else (low, middle)
    return of_size(max(0, low - 1))


def _of_records(work: Work, records: int, more_epochs: bool) -> Work:
    """The work with at most this many records of each set, and enough epochs to learn them."""
    query, calibration, holdout, members = (min(size, records) for size in work.records)
    fewer = work._replace(query=query, calibration=calibration, holdout=holdout, members=members)
    if more_epochs and fewer != work:
        steps = -(-min(query, round(SHARE * calibration)) // work.batch_size)
        fewer = fewer._replace(epochs=max(work.epochs, -(-LEAST_STEPS // steps)))
    return fewer


NEEDS_BEFORE = "it needs each target's outputs before the deletion (`before`), on query set and holdout"


class Available(NamedTuple):
    """Whether the finished models suffice for a test; numbers of models are by the field of the test, `planned` those
    that there will be. `lacks`: what the test needs apart from models, in a sentence.
    """

    test: KSTest
    kinds: dict[str, str]
    finished: dict[str, int]
    planned: dict[str, int]
    lacks: str = ""

    @property
    def usual(self) -> dict[str, int]:
        """The numbers of models that the test has if nothing else is said."""
        return {field: int(getattr(self.test, field)) for field in self.kinds}

    @property
    def possible(self) -> bool:
        return not self.lacks and all(self.finished[field] >= count for field, count in self.test.least.items())


def offered(test: KSTest, values: Mapping[str, Any]) -> KSTest:
    """The test with those of these values that it has fields for; a value that is not the field's default stays."""
    fields = dataclasses.fields(cast("Any", test)) if dataclasses.is_dataclass(test) else ()
    at_default = {field.name for field in fields if field.init and getattr(test, field.name) == field.default}
    return _with(test, {name: values[name] for name in at_default & values.keys()})


def _with(test: KSTest, values: Mapping[str, Any]) -> KSTest:
    return dataclasses.replace(cast("Any", test), **values) if values else test


def available_tests(
    pool: Pool, finished: Iterable[str], planned: Iterable[str] = (), tests: Iterable[KSTest] | None = None
) -> tuple[Available, ...]:
    """What each test that says so (`KSTest.least`) needs, and what there is; by default of the built-in tests."""
    counts = Counter(finished), Counter(planned)
    answers = []
    for test in (test() for test in TESTS) if tests is None else tests:
        kinds = test.kinds()
        if not kinds or len(kinds) != len(test.least):
            continue
        lacks = (
            "There is no holdout." if Role.HOLDOUT in test.roles and pool.holdout.stop == pool.holdout.start else "",
            "The records have no classes." if test.of_classes and pool.classless else "",
        )
        kinds_by_field = dict(zip(test.least, kinds, strict=True))
        models, expected = ({field: count[kind] for field, kind in kinds_by_field.items()} for count in counts)
        answers.append(Available(test, kinds_by_field, models, expected, next(filter(None, lacks), "")))
    return tuple(answers)


def made_tests(shadows: ShadowModels, tests: Sequence[KSTest]) -> tuple[KSTest, ...]:
    """The tests, each with the numbers of models in `shadows`."""
    answers = available_tests(shadows.pool, shadows.kinds, tests=tests)
    finished = {answer.test.name: answer.finished for answer in answers}
    return tuple(_with(test, finished.get(test.name, {})) for test in tests)


def possible_tests(shadows: ShadowModels, targets: Sequence[Target]) -> tuple[KSTest, ...]:
    """The tests that the models and outputs allow: members, holdout, shadow; and rho where possible. Beside another
    test the shadow test is made only if the targets from files have outputs on the calibration set.
    """
    pool, files = shadows.pool, [target for target in targets if isinstance(target, FileTarget)]
    if not len(shadows):
        return default_tests(pool.sets, targets, trained=False)
    offers = [offered(test(), {"targets": len(targets)}) for test in TESTS]
    tests = {test.name: test for test in made_tests(shadows, offers)}
    # As offered: a test with none of its models may be made without them, where there are no shadow models at all.
    lacking = {answer.test.name: lacks(answer, files) for answer in available_tests(pool, shadows.kinds, tests=offers)}
    allowed = {name for name in _of_sets(pool.sets, targets) if not lacking.get(name)}
    names = usual_tests(allowed, on_calibration=all_on_calibration(files))
    possible = [tests[name] for name in names if name in allowed]
    if shadows.kinds.count(Kind.QUERY) and shadows.kinds.count(Kind.CALIBRATION):
        possible.append(RhoTest())
    if not possible:
        raise InputError(f"no test can be made: {'; '.join(f'{name}: {why}' for name, why in lacking.items())}.")
    return tuple(possible)


def lacks(answer: Available, files: Sequence[FileTarget]) -> str:
    """Why this test cannot be made of targets from files; empty if it can."""
    test, sentence = answer.test, answer.lacks
    if sentence:
        return f"{sentence[:1].lower()}{sentence[1:].removesuffix('.')}"
    if not answer.possible:
        few = (
            f"{answer.finished[field]} of at least {count} models {kind_words(answer.kinds[field])}"
            for field, count in test.least.items()
            if answer.finished[field] < count
        )
        return f"there are {' and '.join(few)}"
    if Role.HOLDOUT in test.roles and not all(Role.HOLDOUT in file.on for file in files):
        return "it needs the target's outputs on the holdout"
    if test.needs_before and not _all_before(files):
        return NEEDS_BEFORE
    return ""


def refuse(
    targets: Sequence[Target],
    tests: Sequence[KSTest],
    sets: Sets[Examples],
) -> None:
    """Rejects tests that cannot be made with these sets, and outputs that do not fit them or that no test compares."""
    names = [test.name for test in tests]
    if not 0 < len(names) == len(set(names)):
        raise InputError(f"give at least one test, each once, first the one for the verdict; got ({', '.join(names)}).")
    for test in tests:
        test.refuse(sets)
    for target in targets:
        target.refuse(sets)
    earlier = [isinstance(target, FileTarget) and bool(target.before) for target in targets]
    if any(earlier) and not any(test.needs_before for test in tests):
        raise InputError("no test compares the outputs before the deletion: add DeletionTest().")
    for test in tests:
        if test.needs_before and not all(earlier):
            raise InputError(f"the {test.title} cannot be made: {NEEDS_BEFORE}.")


def train_shadows(
    key: OneKey,
    query: Examples,
    calibration: Examples | None = None,
    learner: Learner | None = None,
    targets: Sequence[Target] = (),
    *,
    tests: Sequence[KSTest] | None = None,
    holdout: Examples | None = None,
    members: Examples | None = None,
    execution: Execution = DEFAULT_EXECUTION,
) -> ShadowModels:
    """Trains shadow models of known membership (Shokri et al. 2017), with which `judge` compares targets.

    All models that the tests need, and every simulated target, are trained in a single `fit_many`.

    Args:
        key: each kind of model has its own stream: a further test, target or replicate changes no existing number.
        query: the data in question, preprocessed as the learner requires. Texts (`sequences`) are judged by the holdout
            and the members test alone. All sets have the same classes in the same order, and share no record. If the
            provider assigned whole groups, such as patients, to query set, holdout and members, all these have
            `groups`: tests then randomise and permute whole groups.
        calibration: data of the same domain. None with known members only: then no model is trained, and only the
            members test can be made.
        learner: the network and recipe of all models: the target's own, as far as it is known.
        targets: the models to judge. A `SimulatedTarget` is trained here; a `FileTarget` that does not fit these sets
            is rejected before anything is trained.
        tests: from `jaxaudit.audits.ks.tests_of_use` or your own; by default `default_tests`.
        holdout: records of the query set's provider that the target was not trained on, sampled as the query set was.
        members: known members: records that the targets did use, sampled as the query set was. They show how much of
            the query set a target used, whatever its network and recipe.
        execution: models per batch, progress, and where finished models are kept.

    Raises:
        InputError: sets overlap, query set and holdout share a group, outputs do not fit, or a test cannot be made.

    >>> import jax
    >>> import jaxaudit as ja
    >>> people = ja.ordinal(ja.load_table("breast-cancer"))
    >>> order = np.random.default_rng(2).permutation(569)
    >>> query, holdout, calibration = map(people.take, np.array_split(order, 3))
    >>> learner, tests = ja.naive_bayes((0,) * 30, 2), [ja.HoldoutTest(mixed=20)]
    >>> shadows = train_shadows(jax.random.key(1), query, calibration, learner, tests=tests, holdout=holdout)
    >>> set(shadows.kinds), shadows.log_odds.shape
    ({<Kind.MIXED: 'mixed'>}, (20, 569))
    """
    sets = Sets(query=query, holdout=holdout, members=members, calibration=calibration)
    if tests is None:
        tests = default_tests(sets, targets, trained=learner is not None)
    of_classes = [test.name for test in tests if test.of_classes]
    if of_classes and are_texts(query):
        raise InputError(
            f"{' and '.join(of_classes)}: compare probabilities of classes, and texts have none; give a holdout "
            "(`holdout`), which texts are judged by."
        )
    compares = any(test.compares_calibration for test in tests) and all_on_calibration(targets)
    refuse(targets, tests, sets)
    if len(tests) == 1:
        tests[0].refuse_targets(len(targets))
    simulated = [target for target in targets if isinstance(target, SimulatedTarget)]
    if (calibration is None or learner is None) and (simulated or any(test.of_guess or test.kinds() for test in tests)):
        raise InputError(
            "without a calibration set and a learner no model is trained. Then the members test can be made, of "
            "targets from files with outputs on known members (`members`), and the deletion test, with outputs before. "
            "Give a calibration set and a learner for others."
        )
    if Role.CALIBRATION in sets:
        refuse_held(query, sets[Role.CALIBRATION], Role.QUERY.words, of=CALIBRATION)
    pool = make_pool(sets, simulated)
    for test in tests:
        test.refuse_pool(pool)
    drawing = stream(key, "draw")
    if calibration is None or learner is None:
        return no_models(pool.comparable())
    kinds = kinds_of_targets(simulated)
    of_guess = _together([test.draw(drawing, pool) for test in tests if test.of_guess])
    of_targets = [target.draw(drawing, pool, kind) for target, kind in zip(simulated, kinds, strict=True)]
    of_tests = _together([test.draw(drawing, pool) for test in tests if not test.of_guess])
    # Without rho, no model has its kinds, and no other test may use their names.
    none = np.zeros((0, len(pool.examples)), bool)
    rows = _together([{**dict.fromkeys(OF_RHO, none), **of_guess}, *of_targets, of_tests])
    if not any(map(len, rows.values())):
        raise InputError("no model is to be trained: add a test that compares with models, such as RhoTest().")
    if compares:
        # Records that a simulated target was trained on are no known non-members of it.
        used = (int(rows[kind][0, pool.calibration].sum()) for kind in kinds)
        refuse_few(len(calibration) - max(used, default=0))
    return train_rows(stream(key, "train"), rows, pool, learner, execution=execution)


def default_tests(sets: Sets[Examples], targets: Sequence[Target] = (), *, trained: bool = True) -> tuple[KSTest, ...]:
    """The default tests (`usual_tests`) of these sets, with trained models or without. rho is made if named."""
    on_calibration = all_on_calibration(targets)
    names = usual_tests(_of_sets(sets, targets), on_calibration=on_calibration, trained=trained)
    values = {"never": max(ShadowTest().never, least_models(len(targets))), "targets": max(1, len(targets))}
    values |= {} if trained else {"mixed": 0}
    return tuple(offered(test(), values) for test in TESTS if test.name in names)


def _of_sets(sets: Sets[Examples], targets: Sequence[Target]) -> set[str]:
    """The names of the built-in tests that these sets, and the targets' outputs, allow."""
    roles = {*map(str, sets), *(["before"] if _all_before(targets) else [])}
    return {name for name, needs in BUILT_IN.items() if roles.issuperset(needs)}


def _all_before(targets: Sequence[Target]) -> bool:
    """Whether there are targets, and all have outputs before a deletion."""
    return bool(targets) and all(isinstance(target, FileTarget) and target.before for target in targets)


def _together(drawn: Sequence[Rows]) -> Rows:
    """The membership masks of all kinds, from all tests and targets."""
    rows: Rows = {}
    for rows_of_test in drawn:
        # Tests may share models: those with one name and the same masks.
        twice = {
            name for name in rows.keys() & rows_of_test.keys() if not np.array_equal(rows[name], rows_of_test[name])
        }
        if twice:
            raise InputError(
                f"two tests draw models of one name ({', '.join(sorted(twice))}): rename those of one. The names "
                f"{', '.join(OF_RHO)} are rho's."
            )
        rows |= rows_of_test
    return rows
