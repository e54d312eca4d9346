"""`jaxaudit ks`: its options. Imports nothing heavy, so that `--help` is instant."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jaxaudit.cli.groups import AUDIT, DATA, MODEL, MOST, OUTPUT, TRAINING, Level, Output, Recipe, failing
from jaxaudit.cli.harness import Command, Job, Planned
from jaxaudit.cli.options import group, option
from jaxaudit.cli.progress import say
from jaxaudit.cli.sets import Sets, ShadowNetwork, shadow_count
from jaxaudit.cli.words import check_pair, parse_target_data, share_check
from jaxaudit.errors import InputError

TARGET = "Target"
SHADOW_MODELS, HOLDOUT_MODELS = 39, 31
ALL = "all"


@dataclass(frozen=True)
class KSData(Sets):
    """The data."""

    holdout: str | None = option(
        None,
        "Records of the query set's provider that the target was not trained on: makes the test exact.",
        names="data",
    )
    sample: int | None = option(
        None,
        "Use at most this many records of each set, drawn at random. [default: all, as far as the budget goes]",
        formerly=("--records",),
        minimum=20,
        maximum=MOST * 1000,
    )


@dataclass(frozen=True)
class Targets:
    """What is judged."""

    target: tuple[Path, ...] = option(
        (), "A target's outputs on the query set, in its order: .npz, .npy, .csv or .parquet. Repeatable.", names="file"
    )
    holdout_target: tuple[Path, ...] = option(
        (), "The same target's outputs on the holdout, in its order. Repeatable, in step with --target.", names="file"
    )
    target_kind: Literal["auto", "probabilities", "logits"] = option(
        "auto", "Content of the files.", choices=("auto", "probabilities", "logits")
    )
    target_data: tuple[str, ...] = option(
        (),
        "Simulate a target trained on this data; repeated, on all of it together.",
        metavar="NAME[:FRACTION]",
        check=parse_target_data,
        names="data",
        place=lambda text: parse_target_data(text)[0],
    )
    allow_unrelated_target: bool = option(False, "Judge outputs no better than guessing, too.")


@dataclass(frozen=True)
class KSAudit(Level):
    """Which tests are made, and with how many models."""

    tests: str | None = option(
        None,
        "Tests to make, of holdout, shadow, ema and rho; the first decides. all: every one that the data allow. "
        "[default: holdout with --holdout, else shadow]",
        formerly=("--method",),
        metavar="NAME,...",
    )
    shadow_models: int | None = shadow_count(
        SHADOW_MODELS,
        "Shadow test: models trained without the query set; half as many (19 or more) are trained on half of it, and "
        "as many on all of it.",
        "--shadows",
    )
    holdout_shadow_models: int | None = shadow_count(
        HOLDOUT_MODELS,
        "Holdout test: models, each trained on a part of the query set and of the holdout.",
        "--holdout-shadows",
    )
    replicates: int | None = option(
        None, "rho: pairs of shadow models, each with its own seed. [default: 5]", minimum=1, maximum=MOST
    )
    controls: int = option(1, "rho: positive controls, models trained on both sets.", minimum=0, maximum=MOST)
    subsample: float = option(
        0.9, "rho: share of the calibration set each replicate draws.", check=share_check("subsample")
    )
    min_accuracy: float = option(0.9, "Minimum training accuracy of a shadow model.", check=share_check("min_accuracy"))
    budget: str | None = option(
        None,
        "Time limit, such as 10m or 2h: records, models and design are chosen to fit, except those given by hand; "
        "none: everything in full. [default: 10m on a CPU, else none]",
        metavar="TIME",
    )
    dry_run: bool = option(False, "Print the plan and how long it takes, and stop.", decides=False)


@dataclass(frozen=True)
class KSOutput(Output):
    """What is printed and written."""

    fail_on: tuple[str, ...] = failing("forgotten", "not forgotten", "inconclusive")


@dataclass(frozen=True)
class KSOptions:
    """All options of the command."""

    data: KSData = group(DATA, KSData())
    target: Targets = group(TARGET, Targets())
    model: ShadowNetwork = group(MODEL, ShadowNetwork())
    recipe: Recipe = group(TRAINING, Recipe())
    audit: KSAudit = group(AUDIT, KSAudit())
    output: KSOutput = group(OUTPUT, KSOutput())


def tests_named(audit: KSAudit, holdout: bool) -> tuple[str, ...]:
    """The tests by name, the deciding one first; `all` is every one in their own order."""
    if audit.tests is None:
        return ("holdout",) if holdout else ("shadow",)
    return tuple(dict.fromkeys(name.strip() for name in audit.tests.split(",") if name.strip()))


def _check(options: KSOptions) -> None:
    """Refuses what does not go together, by the words of the command line."""
    check_pair(options.data.query, options.data.calibration)
    held, names = options.data.holdout is not None, tests_named(options.audit, options.data.holdout is not None)
    files, on_holdout = len(options.target.target), len(options.target.holdout_target)
    if on_holdout and not held:
        raise InputError("--holdout-target needs --holdout: the records that these are outputs on.")
    if "holdout" in names and not held:
        raise InputError("--tests holdout needs --holdout: records of the query set's provider not trained on.")
    if held and not {"holdout", ALL} & set(names):
        raise InputError(f"--tests {','.join(names)} does not use --holdout; leave one out, or use --tests all.")
    if held and files != on_holdout:
        raise InputError(
            f"--target was given {files} times and --holdout-target {on_holdout} times: give a target's outputs on the "
            "query set and on the holdout in step, the first with the first."
        )
    if {"ema", ALL} & set(names) and options.audit.subsample == 1:
        raise InputError(
            "EMA learns from calibration records that a calibration model was not trained on, and --subsample 1 leaves "
            "none; use --subsample 0.9."
        )


def _prepare(options: KSOptions) -> Job[Any] | Planned:
    if options.data.query is not None and not options.target.target and not options.target.target_data:
        say("No --target was given: three targets of known truth are simulated instead.")
    from jaxaudit.cli.ks.run import prepare

    return prepare(options)


KS = Command(
    "ks",
    KSOptions,
    _prepare,
    """Has a model forgotten a data set, or never used it?

    Trains shadow models with and without the query set and asks which of them the target's outputs are like: how likely
    they are of a model that never used the data, of one that used all of it, and what fraction was used. Beside it
    stands rho (Liu & Tsaftaris 2020).

    Examples:

    `jaxaudit ks` (embedded data, targets of known truth, about a minute)

    `jaxaudit ks --query mnist` (what ten minutes allow; `--dry-run` prints the plan)

    `jaxaudit ks --query mnist --calibration svhn_cropped --target-data svhn_cropped --target-data mnist:0.1`

    `jaxaudit ks --query hospital_b.npz --calibration hospital_a/ --target outputs.csv --json`

    `jaxaudit ks --query q.npz --calibration c.npz --target out.csv --holdout h.npz --holdout-target out_h.csv`
    """,
    _check,
)
