"""The tests of `ks`: one file each, and one line in `TESTS`.

A test, an attack, a learner is a value in a file. `audits/ks/tests_of_use/` has the tests of `ks`: each says which
models it wants, what it refuses, what it needs to be believed, what it assumes, and how it judges; the first one asked
for decides, the others stand beside it. rho is one of them: made by default, and an audit can be without it. `attacks/`
has the attacks: log probabilities, labels and shadow models in, a score a record out. A learner brings what is known of
it: its leave-one-out models (`LeavesOneOut`), a bound on DTP (`BoundsDTP`). One tuple names them all (`TESTS`,
`ATTACKS`, `FAMILIES` of `cli/classifiers.py`); a user's own value goes to `judge(tests=)` and `attack(attacks=)` and
through JSON, terminal and page without a further line.
"""

from jaxaudit.audits.ks.tests_of_use.ema import EMATest
from jaxaudit.audits.ks.tests_of_use.holdout import HoldoutTest
from jaxaudit.audits.ks.tests_of_use.members import MembersTest
from jaxaudit.audits.ks.tests_of_use.reference import ReferenceTest
from jaxaudit.audits.ks.tests_of_use.rho import RhoTest
from jaxaudit.audits.ks.tests_of_use.shadow import ShadowTest
from jaxaudit.audits.ks.tests_of_use.test import Judgement, KSTest

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
