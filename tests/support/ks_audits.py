"""The `ks` audit in one call: the shadow models of its tests are trained, and judge."""

from typing import Any

from jaxaudit import KSAudit, Sets, judge, train_shadows
from jaxaudit.audits import default_tests

OF_JUDGING = ("own_recipe", "reduced")


def audit_ks(
    key: Any, query: Any, calibration: Any, learner: Any, targets: Any, *, tests: Any = None, **options: Any
) -> KSAudit:
    """`judge` by `train_shadows`, with the options of both; the tests are those that training is for."""
    of_judging = {name: options.pop(name) for name in OF_JUDGING if name in options}
    if tests is None:
        sets = Sets(holdout=options.get("holdout"), members=options.get("members"))
        tests = default_tests(sets, targets, trained=learner is not None)
    shadows = train_shadows(key, query, calibration, learner, targets, tests=tests, **options)
    return judge(key, shadows, targets, tests=tests, **of_judging)
