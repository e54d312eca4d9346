"""The tests of `ks`: one file each, and one line in `TESTS`."""

from jaxaudit.audits.ks.tests.ema import EMATest
from jaxaudit.audits.ks.tests.holdout import HoldoutTest
from jaxaudit.audits.ks.tests.members import MembersTest
from jaxaudit.audits.ks.tests.reference import ReferenceTest
from jaxaudit.audits.ks.tests.rho import RhoTest
from jaxaudit.audits.ks.tests.shadow import ShadowTest
from jaxaudit.audits.ks.tests.test import Judgement, KSTest

TESTS: tuple[type[KSTest], ...] = (MembersTest, HoldoutTest, ReferenceTest, ShadowTest, EMATest, RhoTest)
"""The tests of `jaxaudit ks`; the first that can be made gives the verdict."""

__all__ = [
    "TESTS",
    "EMATest",
    "HoldoutTest",
    "Judgement",
    "KSTest",
    "MembersTest",
    "ReferenceTest",
    "RhoTest",
    "ShadowTest",
]
