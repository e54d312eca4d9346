"""The tests that `--tests` names, and those that are meant without it. Imports nothing heavy."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from jaxaudit.audits.ks.tests_of_use import BUILT_IN, usual_tests
from jaxaudit.cli.options import ModelSource
from jaxaudit.cli.own_code import OwnCode, parse_own_names
from jaxaudit.cli.sets import ALL

if TYPE_CHECKING:
    from jaxaudit.cli.ks.options import KSOptions

OF_RHO = ("rho", "ema")
"""Tests that need models for rho."""
OF_OUTPUTS = ("members", "deletion")
"""Tests that need no models, but the target's own outputs alone."""


def parse_tests(text: str, further: tuple[str, ...] = (ALL,)) -> dict[str, OwnCode | None]:
    """The tests of `--tests` in order, each with the location of your own code; may contain the `further` words."""
    return parse_own_names("--tests", text, (*BUILT_IN, *further), "your own test", "Test")


def tests_named(options: "KSOptions") -> tuple[str, ...]:
    """The tests that these options name; for `all`, every test that they allow, in the usual order."""
    data = options.data
    has_set = {
        "members": data.members is not None,
        "holdout": data.holdout is not None,
        "reference": bool(reference_flag(options)),
        # A target that is simulated here has nothing from before.
        "before": bool(options.target.before) and not options.target.target_data,
    }
    by_outputs = [name for name in OF_OUTPUTS if all(has_set[need] for need in BUILT_IN[name])]
    if options.source is ModelSource.ANSWERS:
        return with_all(parse_tests(options.audit.tests or ALL), by_outputs)
    if options.audit.tests is None:
        return usual_tests([role for role, is_present in has_set.items() if is_present])
    # A target that is simulated here has outputs on any record.
    has_set["reference"] |= not options.target.target
    without = OF_RHO if options.audit.replicates == 0 else ()
    possible = [
        name for name, roles in BUILT_IN.items() if name not in without and all(has_set[role] for role in roles)
    ]
    return with_all(parse_tests(options.audit.tests), possible)


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
