"""Imports all built-in tests of use. (Their names alone are in `__init__`, which imports nothing heavy.)"""

from importlib import import_module

from jaxaudit.audits.ks.tests_of_use import BUILT_IN
from jaxaudit.audits.ks.tests_of_use.test import KSTest

TESTS: tuple[type[KSTest], ...] = tuple(
    import_module(f"jaxaudit.audits.ks.tests_of_use.{name}").TEST for name in BUILT_IN
)
"""The tests of `jaxaudit ks`; the first that can be made gives the verdict."""
