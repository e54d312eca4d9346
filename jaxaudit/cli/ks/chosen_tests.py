"""The tests that the options of `jaxaudit ks` mean, named by `--tests` or not. Imports nothing heavy."""

from jaxaudit.audits.ks.tests_of_use import BUILT_IN, usual_tests
from jaxaudit.cli.ks.named_tests import OF_RHO, parse_tests, with_all
from jaxaudit.cli.ks.options import KSOptions
from jaxaudit.cli.options import ModelSource
from jaxaudit.cli.sets import ALL

OF_OUTPUTS = ("members", "deletion")
"""Tests that need no models, but the target's own outputs alone."""


def tests_named(options: KSOptions) -> tuple[str, ...]:
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


def reference_flag(options: KSOptions) -> str:
    """The option that gives a reference; empty without one."""
    if options.data.reference is not None:
        return "--reference"
    return "--calibration-target" if options.target.calibration_target else ""
