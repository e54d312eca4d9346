"""The tests that the options of `ks` name: built-in, your own, and those that texts allow."""

from collections.abc import Mapping
from typing import Any

from jaxaudit.audits.ks.models import LEAST
from jaxaudit.audits.ks.tests import TESTS, HoldoutTest, KSTest, MembersTest, ReferenceTest, RhoTest, ShadowTest
from jaxaudit.cli.ks.options import (
    HOLDOUT_MODELS,
    OF_RHO,
    SHADOW_MODELS,
    TEST_NAMES,
    KSOptions,
    parse_tests,
    tests_named,
)
from jaxaudit.cli.options import with_usual, with_values
from jaxaudit.cli.own_code import load_named
from jaxaudit.cli.parsers import is_texts
from jaxaudit.cli.sets import ALL
from jaxaudit.errors import InputError

REPLICATES = 5
OF_CLASSES = ("reference", "shadow", *OF_RHO)
"""Tests of records with classes."""


def of_texts(options: KSOptions) -> KSOptions:
    """The options with what follows from sets of texts: no models of rho, and tests of one number a record alone."""
    if options.data.query is None or not is_texts(options.data.query):
        return options
    if options.target.target_kind != "auto":
        raise InputError(f"--target-kind {options.target.target_kind}: texts have log-likelihoods; leave it out.")
    options = with_usual(options, replicates=0)
    names = tests_named(options)
    if ALL in (options.audit.tests or "").split(","):
        names = tuple(name for name in names if name not in OF_CLASSES)
    useless = [name for name in names if name in OF_CLASSES] + (["rho"] if options.audit.replicates else [])
    if useless:
        raise InputError(
            f"{' and '.join(dict.fromkeys(useless))}: compare probabilities of classes, and texts have none; give a "
            "holdout (--holdout, --holdout-target), which texts are judged by, and leave out --replicates."
        )
    return with_values(options, tests=",".join(names))


def load_own_tests(options: KSOptions) -> dict[str, KSTest]:
    """Your own tests among those that the options name."""
    named = parse_tests(options.audit.tests or "all")
    return load_named(
        "--tests", named, KSTest, "a value with the methods of jaxaudit.audits.ks.tests.KSTest", TEST_NAMES
    )


def tests_of(options: KSOptions, targets: int, own: Mapping[str, KSTest]) -> tuple[KSTest, ...]:
    """The tests that the options name, your own included; the first gives the verdict."""
    audit = options.audit
    without, stated, replicates = audit.shadow_models or SHADOW_MODELS, audit.stated_share, audit.replicates or 0
    some = max(LEAST, without // 2)
    by_rank: dict[str, Any] = {"never": without, "half": some, "fully": some, "stated": stated, "targets": targets}
    made = (
        MembersTest(question=audit.question, stated=stated),
        HoldoutTest(mixed=audit.holdout_shadow_models or HOLDOUT_MODELS, stated=stated),
        ReferenceTest(**by_rank),
        ShadowTest(**by_rank),
        RhoTest(replicates=replicates, controls=audit.controls, subsample=audit.subsample),
    )
    usual: dict[str, KSTest] = {test.name: test() for test in TESTS}
    known = {**usual, **{test.name: test for test in made}, **own}
    names = tests_named(options)
    # rho is added to all other tests, unless it has no replicates.
    names = names if "rho" in names or not replicates else (*names, "rho")
    return tuple(known[name] for name in names)
