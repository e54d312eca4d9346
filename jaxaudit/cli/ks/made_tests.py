"""Makes the tests of use that options name: built-in ones and your own, with the options that they have fields for."""

from collections.abc import Mapping
from typing import Any

from jaxaudit.audits.ks.available import offered
from jaxaudit.audits.ks.models import LEAST
from jaxaudit.audits.ks.tests_of_use import BUILT_IN, TESTS, KSTest
from jaxaudit.cli.ks.chosen_tests import tests_named
from jaxaudit.cli.ks.named_tests import parse_tests
from jaxaudit.cli.ks.options import HOLDOUT_MODELS, SHADOW_MODELS, KSFlags, KSOptions
from jaxaudit.cli.own_code import load_named
from jaxaudit.cli.own_options import with_fields


def load_own_tests(text: str) -> dict[str, KSTest]:
    """Your own tests among those that a list names."""
    return load_named("--tests", parse_tests(text), KSTest, "a value with the methods of jaxaudit.KSTest", BUILT_IN)


def built_in_tests() -> dict[str, KSTest]:
    """The built-in tests by name, without options."""
    return {test.name: test() for test in TESTS}


def fields_of_tests(audit: KSFlags, targets: int) -> dict[str, Any]:
    """The values that options give to every test with a field of the name."""
    never = audit.shadow_models or SHADOW_MODELS
    some = max(LEAST, never // 2)
    return {
        "never": never,
        "half": some,
        "fully": some,
        "mixed": audit.holdout_shadow_models or HOLDOUT_MODELS,
        "stated": audit.stated_share,
        **({} if audit.question is None else {"question": audit.question}),
        "targets": targets,
        "replicates": audit.replicates or 0,
        "controls": audit.controls,
        "subsample": audit.subsample,
    }


def tests_of(options: KSOptions, targets: int, own_tests: Mapping[str, KSTest]) -> tuple[KSTest, ...]:
    """The tests that the options name, your own included; the first gives the verdict."""
    audit, names = options.audit, tests_named(options)
    # rho is added to all other tests, unless it has no replicates.
    names = names if "rho" in names or not audit.replicates else (*names, "rho")
    tests_by_name, values = {**built_in_tests(), **own_tests}, fields_of_tests(audit, targets)
    tests = {name: offered(tests_by_name[name], values) for name in names}
    return tuple(with_fields("--test-option", audit.test_option, tests).values())
