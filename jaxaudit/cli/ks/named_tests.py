"""The names in a list of tests, such as that of `--tests`. Imports nothing heavy."""

from collections.abc import Iterable, Sequence

from jaxaudit.audits.ks.tests_of_use import BUILT_IN
from jaxaudit.cli.own_code import OwnCode, parse_own_names
from jaxaudit.cli.sets import ALL

OF_RHO = ("rho", "ema")
"""Tests that need models for rho."""


def parse_tests(text: str, further: tuple[str, ...] = (ALL,)) -> dict[str, OwnCode | None]:
    """The tests of `--tests` in order, each with the location of your own code; may contain the `further` words."""
    return parse_own_names("--tests", text, (*BUILT_IN, *further), "your own test", "Test")


def with_all(names: Iterable[str], possible: Sequence[str]) -> tuple[str, ...]:
    """The names, with `all` replaced by the possible built-in tests.

    >>> with_all(["rho", "all", "mine.py:Test"], ["shadow", "rho"])
    ('shadow', 'rho', 'mine.py:Test')
    """
    requested = tuple(names)
    if ALL not in requested:
        return requested
    before, after = requested[: requested.index(ALL)], requested[requested.index(ALL) :]
    return (*filter(is_own, before), *possible, *filter(is_own, after))


def is_own(name: str) -> bool:
    """Whether a name of a list is that of your own test."""
    return ":" in name
