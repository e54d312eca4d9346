"""Which tests of use the models, counted by kind (`Kind`: what they are trained on), and the targets' outputs allow."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from jaxaudit.audits.ks.models import LEAST
from jaxaudit.audits.ks.target import FileTarget, Target
from jaxaudit.audits.ks.tests_of_use import HoldoutTest, KSTest, MembersTest, ReferenceTest, RhoTest, ShadowTest
from jaxaudit.data.examples import Examples
from jaxaudit.data.roles import Role, Sets
from jaxaudit.errors import InputError
from jaxaudit.metrics.reference import LEAST_RECORDS
from jaxaudit.metrics.usage import STATED_FRACTION
from jaxaudit.shadow_models import Kind, Pool, ShadowModels

OF_HOLDOUT = {Kind.MIXED: LEAST}
OF_SHADOW = {Kind.NEVER: LEAST, Kind.HALF: 0, Kind.FULLY: LEAST}
"""The least number of models of each kind that a test needs, in the order of its `kinds`."""


class Available(NamedTuple):
    """Whether the finished models suffice for a test. Numbers of models are by kind.

    Attributes:
        test: name of the test. `title`: its name in words.
        possible: whether it can be made. `complete`: with as many models as it uses by default.
        least, usual: numbers of models that it needs, and that it uses by default.
        lacks: what it needs apart from models, in a sentence.
    """

    test: str
    title: str
    possible: bool
    complete: bool
    finished: dict[Kind, int]
    planned: dict[Kind, int]
    least: dict[Kind, int]
    usual: dict[Kind, int]
    lacks: str = ""

    @property
    def will_be_complete(self) -> bool:
        """Whether the test will have as many models as it uses by default, once all models of the bank are finished."""
        return not self.lacks and all(self.planned[kind] >= count for kind, count in self.usual.items())


def available_tests(pool: Pool, finished: Iterable[str], planned: Iterable[str] = ()) -> tuple[Available, ...]:
    """What each test of use needs, and what there is."""
    counts = Counter(finished), Counter(planned)
    reference, which = (pool.reference, "reference") if pool.reference_apart else (pool.calibration, "calibration")
    referred = reference.stop - reference.start
    no_holdout = "" if pool.holdout.stop > pool.holdout.start else "There is no holdout."
    classless = "The records have no classes." if pool.classless else ""
    few_records = f"There are {referred} {which} records; it needs {LEAST_RECORDS}." if referred < LEAST_RECORDS else ""
    tests = []
    for test, least, lacks in (
        (HoldoutTest(), OF_HOLDOUT, no_holdout),
        (ReferenceTest(), OF_SHADOW, classless or few_records),
        (ShadowTest(), OF_SHADOW, classless),
    ):
        usual = {kind: int(getattr(test, kind)) for kind in least}
        # With a separate reference, the models of the reference test have other kinds.
        models, planned = (
            dict(zip(least, (count[kind] for kind in test.kinds(pool)), strict=True)) for count in counts
        )
        possible, complete = (
            not lacks and all(models[kind] >= count for kind, count in needed.items()) for needed in (least, usual)
        )
        tests.append(Available(test.name, test.title, possible, complete, models, planned, least, usual, lacks))
    return tuple(tests)


def made_tests(shadows: ShadowModels, stated: float = STATED_FRACTION, targets: int = 1) -> dict[str, KSTest]:
    """The tests of use by name, each with the numbers of models in `shadows`."""
    finished = {test.test: test.finished for test in available_tests(shadows.pool, shadows.kinds)}
    by_rank: dict[str, Any] = {"stated": stated, "targets": targets}
    return {
        MembersTest.name: MembersTest(stated=stated),
        HoldoutTest.name: HoldoutTest(**finished[HoldoutTest.name], stated=stated),
        ReferenceTest.name: ReferenceTest(**finished[ReferenceTest.name], **by_rank),
        ShadowTest.name: ShadowTest(**finished[ShadowTest.name], **by_rank),
    }


def possible_tests(
    shadows: ShadowModels, targets: Sequence[Target], stated: float = STATED_FRACTION
) -> tuple[KSTest, ...]:
    """The tests that the models and outputs allow: members, holdout, reference, or else shadow; and rho where possible.

    The reference test is made if there is a separate reference, or if every target from a file has outputs on the
    calibration set. Simulated targets alone do not make the calibration set a reference.
    """
    pool, files = shadows.pool, [target for target in targets if isinstance(target, FileTarget)]
    lacking = {test.test: lacks(test, files) for test in available_tests(pool, shadows.kinds)}
    if not files and not pool.reference_apart:
        lacking[ReferenceTest.name] = "no target has outputs on the calibration set"
    tests = made_tests(shadows, stated, len(targets))
    members = pool.members.stop > pool.members.start
    preferred = (*((MembersTest.name,) if members else ()), HoldoutTest.name, ReferenceTest.name)
    possible = [tests[name] for name in preferred if not lacking.get(name)]
    if not possible and not lacking[ShadowTest.name]:
        possible = [tests[ShadowTest.name]]
    if shadows.kinds.count(Kind.QUERY) and shadows.kinds.count(Kind.CALIBRATION):
        possible.append(RhoTest())
    if not possible:
        raise InputError(f"no test can be made: {'; '.join(f'{name}: {why}' for name, why in lacking.items())}.")
    return tuple(possible)


def lacks(test: Available, files: Sequence[FileTarget]) -> str:
    """Why this test cannot be made of targets from files; empty if it can."""
    if test.lacks:
        return f"{test.lacks[:1].lower()}{test.lacks[1:].removesuffix('.')}"
    if not test.possible:
        few = (
            f"{test.finished[kind]} of at least {count} models {kind.words}"
            for kind, count in test.least.items()
            if test.finished[kind] < count
        )
        return f"there are {' and '.join(few)}"
    if test.test == HoldoutTest.name and not all(Role.HOLDOUT in file.on for file in files):
        return "it needs the target's outputs on the holdout (`on_holdout`)"
    if test.test == ReferenceTest.name and not all(Role.REFERENCE in file.on for file in files):
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
    paired = any(isinstance(target, FileTarget) and target.earlier for target in targets)
    if paired and not any(test.compares_before for test in tests):
        raise InputError("outputs before the deletion are compared by the holdout test only: add HoldoutTest().")
