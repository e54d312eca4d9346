"""The tests of `ks`: a file each, and a line in `TESTS`."""

from jaxaudit.audits.ks.tests.ema import EMATest
from jaxaudit.audits.ks.tests.holdout import HoldoutTest
from jaxaudit.audits.ks.tests.rho import RhoTest
from jaxaudit.audits.ks.tests.shadow import ShadowTest
from jaxaudit.audits.ks.tests.test import Judgement, KSTest

TESTS: tuple[type[KSTest], ...] = (HoldoutTest, ShadowTest, EMATest, RhoTest)
"""Those that `jaxaudit ks` knows; the first that can be made decides."""

__all__ = ["TESTS", "EMATest", "HoldoutTest", "Judgement", "KSTest", "RhoTest", "ShadowTest"]
