"""The tests that `--tests` names, and those that are meant without it. Imports nothing heavy."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from jaxaudit.cli.own_code import OwnCode, parse_own_names
from jaxaudit.cli.sets import ALL

if TYPE_CHECKING:
    from jaxaudit.cli.ks.options import KSOptions

OF_RHO = ("rho", "ema")
"""Tests that need models for rho."""
TEST_NAMES = ("members", "holdout", "reference", "shadow", "ema", "rho")
"""The tests in the order of `TESTS`, which takes a second to import; a test of this package compares the two."""


def parse_tests(text: str) -> dict[str, OwnCode | None]:
    """The tests of `--tests`, the deciding one first, each with the location of your own code; may contain `all`."""
    return parse_own_names("--tests", text, (*TEST_NAMES, ALL), "your own test", "Test")


def tests_named(options: "KSOptions") -> tuple[str, ...]:
    """The tests that these options name; for `all`, every test that they allow, in the usual order."""
    holdout, reference = options.data.holdout is not None, reference_flag(options)
    if options.audit.tests is None:
        has_set = {"members": options.data.members is not None, "holdout": holdout, "reference": bool(reference)}
        return tuple(name for name, is_present in has_set.items() if is_present) or ("shadow",)
    # A target that is simulated here has outputs on any record.
    simulated = not options.target.target
    missing = {*(() if holdout else ("holdout",)), *(() if reference or simulated else ("reference",))}
    missing |= set(() if options.data.members is not None else ("members",))
    missing |= set(OF_RHO if options.audit.replicates == 0 else ())
    return with_all(parse_tests(options.audit.tests), [name for name in TEST_NAMES if name not in missing])


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


def reference_flag(options: "KSOptions") -> str:
    """The option that gives a reference; empty without one."""
    if options.data.reference is not None:
        return "--reference"
    return "--calibration-target" if options.target.calibration_target else ""
