"""Which tests of use the models, counted by kind (`Kind`: what they are trained on), and the targets' outputs allow."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from jaxaudit.audits.ks.target import FileTarget, Target
from jaxaudit.audits.ks.tests_of_use import TESTS, KSTest, RhoTest, usual_tests
from jaxaudit.data.examples import Examples
from jaxaudit.data.roles import Role, Sets
from jaxaudit.errors import InputError
from jaxaudit.metrics.reference import LEAST_RECORDS
from jaxaudit.shadow_models import Kind, Pool, ShadowModels, kind_words

NEEDS_BEFORE = "it needs each target's outputs before the deletion (`before`, `before_on_holdout`)"


class Available(NamedTuple):
    """Whether the finished models suffice for a test. Numbers of models are by the field of the test.

    Attributes:
        kinds: the kind of the models.
        finished, planned: numbers of models that there are, and that there will be.
        lacks: what the test needs apart from models, in a sentence.
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
        """Whether the test can be made."""
        return not self.lacks and _suffice(self.finished, self.test.least)

    @property
    def complete(self) -> bool:
        """Whether the test can be made with as many models as it usually has."""
        return not self.lacks and _suffice(self.finished, self.usual)

    @property
    def will_be_complete(self) -> bool:
        """Whether the test will have as many models as it usually has, once all models of the bank are finished."""
        return not self.lacks and _suffice(self.planned, self.usual)


def _suffice(models: Mapping[str, int], needed: Mapping[str, int]) -> bool:
    return all(models[field] >= count for field, count in needed.items())


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
    reference, which = (pool.reference, "reference") if pool.reference_apart else (pool.calibration, "calibration")
    referred = reference.stop - reference.start
    few_records = f"There are {referred} {which} records; it needs {LEAST_RECORDS}." if referred < LEAST_RECORDS else ""
    answers = []
    for test in (test() for test in TESTS) if tests is None else tests:
        # With a separate reference, the models of the reference test have other kinds.
        kinds = test.kinds(pool)
        if not kinds or len(kinds) != len(test.least):
            continue
        lacks = (
            "There is no holdout." if Role.HOLDOUT in test.roles and pool.holdout.stop == pool.holdout.start else "",
            "The records have no classes." if test.of_classes and pool.classless else "",
            few_records if Role.REFERENCE in test.roles else "",
        )
        kinds_by_field = dict(zip(test.least, kinds, strict=True))
        models, expected = ({field: count[kind] for field, kind in kinds_by_field.items()} for count in counts)
        answers.append(Available(test, kinds_by_field, models, expected, next(filter(None, lacks), "")))
    return tuple(answers)


def made_tests(shadows: ShadowModels, tests: Iterable[KSTest]) -> tuple[KSTest, ...]:
    """The tests, each with the numbers of models in `shadows`."""
    tests = tuple(tests)
    answers = available_tests(shadows.pool, shadows.kinds, tests=tests)
    finished = {answer.test.name: answer.finished for answer in answers}
    return tuple(_with(test, finished.get(test.name, {})) for test in tests)


def possible_tests(shadows: ShadowModels, targets: Sequence[Target]) -> tuple[KSTest, ...]:
    """The tests that the models and outputs allow: members, holdout, reference, or else shadow; and rho where possible.

    The reference test is made if there is a separate reference, or if every target from a file has outputs on the
    calibration set. Simulated targets alone do not make the calibration set a reference.
    """
    pool, files = shadows.pool, [target for target in targets if isinstance(target, FileTarget)]
    built_in = made_tests(shadows, (offered(test(), {"targets": len(targets)}) for test in TESTS))
    tests = {test.name: test for test in built_in}
    lacking = {
        answer.test.name: lacks(answer, files) for answer in available_tests(pool, shadows.kinds, tests=built_in)
    }
    if not files and not pool.reference_apart:
        lacking |= dict.fromkeys(
            (test.name for test in built_in if Role.REFERENCE in test.roles),
            "no target has outputs on the calibration set",
        )
    allowed = {name for name in tests if not lacking.get(name)}
    if pool.members.stop == pool.members.start:
        allowed -= {test.name for test in built_in if Role.MEMBERS in test.roles}
    possible = [tests[name] for name in usual_tests(allowed) if name in allowed]
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
        return "it needs the target's outputs on the holdout (`on_holdout`)"
    if test.needs_before and not (files and all(file.earlier for file in files)):
        return NEEDS_BEFORE
    if Role.REFERENCE in test.roles and not all(Role.REFERENCE in file.on for file in files):
        return "it needs the target's outputs on the calibration set (`on_reference`)"
    return ""


def refuse(
    targets: Sequence[Target],
    tests: Sequence[KSTest],
    sets: Sets[Examples],
) -> None:
    """Rejects tests that cannot be made with these sets, and outputs that do not fit them or that no test compares."""
    names = [test.name for test in tests]
    if not names:
        raise InputError("there is no test: give at least one, such as ShadowTest(); without `tests`, some are made.")
    if len(set(names)) < len(names):
        raise InputError(f"a test is given twice ({', '.join(names)}): give each once, first the one for the verdict.")
    for test in tests:
        test.refuse(sets)
    for target in targets:
        target.refuse(sets)
    earlier = [isinstance(target, FileTarget) and bool(target.earlier) for target in targets]
    if any(earlier) and not any(test.compares_before for test in tests):
        raise InputError("no test compares the outputs before the deletion: add DeletionTest() or HoldoutTest().")
    for test in tests:
        if test.needs_before and not all(earlier):
            raise InputError(f"the {test.title} cannot be made: {NEEDS_BEFORE}.")
