"""From `--method` and its numbers to the tests that `audit_ks` is asked for."""

from typing import TYPE_CHECKING, NamedTuple

from jaxaudit.cli.repeat import Options
from jaxaudit.errors import InputError

if TYPE_CHECKING:
    from jaxaudit.audits.ks.models import Shadows
    from jaxaudit.data import Examples


class Asked(NamedTuple):
    """What is asked for: shadow models of the tests of use, and whether EMA's test is made."""

    shadows: "Shadows"
    ema: bool


def settle_method(options: Options) -> None:
    """Refuses what does not go together, by the words of the command line, and fills in the default method."""
    if options["method"] is None:
        options["method"] = "shadow" if options["holdout"] is None else "holdout"
    method, held = options["method"], options["holdout"] is not None
    if options["holdout_target"] and not held:
        raise InputError("--holdout-target needs --holdout: the records that these are outputs on.")
    if method == "holdout" and not held:
        raise InputError("--method holdout needs --holdout: records of the query set's provider that nobody was given.")
    if held and method not in ("holdout", "all"):
        raise InputError(f"--method {method} has no use for --holdout; leave one out, or use --method all.")
    files, on_holdout = len(options["target"]), len(options["holdout_target"])
    if held and files != on_holdout:
        raise InputError(
            f"--target was given {files} times and --holdout-target {on_holdout} times: give a target's outputs on the "
            "query set and on the holdout in step, the first with the first."
        )
    if method in ("ema", "all") and options["subsample"] == 1:
        raise InputError(
            f"--method {method} learns from calibration records that a calibration model was not trained on, and "
            "--subsample 1 leaves none; use --subsample 0.9."
        )


def asked_of(options: Options) -> Asked:
    """The tests that a settled method stands for."""
    # Imported here because they import JAX, and options are checked before that.
    from jaxaudit.audits.ks.evidence import LEAST
    from jaxaudit.audits.ks.models import Shadows

    method, shadows = options["method"], Shadows()
    if method in ("shadow", "all"):
        some = max(LEAST, options["shadows"] // 2)
        shadows = shadows._replace(never=options["shadows"], half=some, fully=some)
    if method == "holdout" or (method == "all" and options["holdout"] is not None):
        shadows = shadows._replace(mixed=options["holdout_shadows"])
    return Asked(shadows, method in ("ema", "all"))


def named(holdout: "Examples | None") -> "dict[str, Examples]":
    """The holdout among data sets by name, if there is one."""
    return {} if holdout is None else {"holdout": holdout}
