"""The names of `audits.ks.tests_of_use`: see `jaxaudit/__init__.pyi`."""

import collections.abc

from .built_in import TESTS as TESTS
from .deletion import DeletionTest as DeletionTest
from .holdout import HoldoutTest as HoldoutTest
from .members import MembersTest as MembersTest
from .rho import RhoTest as RhoTest
from .shadow import ShadowTest as ShadowTest
from .test import Judgement as Judgement
from .test import KSTest as KSTest

BUILT_IN: dict[str, tuple[str, ...]]

BY_MODELS: tuple[str, ...]
USUAL: tuple[str, ...]

def usual_tests(
    possible: collections.abc.Collection[str], *, on_calibration: bool = False, trained: bool = True
) -> tuple[str, ...]: ...
