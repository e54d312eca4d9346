"""`jaxaudit ks`: which of its options go together. Imports nothing heavy, so that `--help` is instant."""

from collections.abc import Callable
from typing import Any

from jaxaudit.cli.harness import Command, Job, Planned
from jaxaudit.cli.ks.options import OF_RHO, TEST_NAMES, KSOptions, reference_flag, tests_named
from jaxaudit.cli.progress import say
from jaxaudit.cli.sets import check_groups, refuse_without_effect
from jaxaudit.cli.words import check_pair
from jaxaudit.errors import InputError

OF_BANK = frozenset(
    {
        *("shadows", "query", "holdout", "calibration", "data_dir", "field_strength", "target", "holdout_target"),
        *("calibration_target", "before", "holdout_before", "target_kind", "allow_unrelated_target", "tests"),
        *("members", "members_target", "members_groups", "question", "same_recipe"),
        *("leave_one_out", "stated_share", "level", "seed", "as_json", "out", "report", "fail_on"),
    }
)
"""The options that mean something where a bank is given."""
OF_MEMBERS = frozenset(
    {
        *("query", "holdout", "members", "groups", "holdout_groups", "members_groups", "data_dir", "field_strength"),
        *("image_size", "gray", "drop_overlap", "drop_unshared", "target", "holdout_target", "members_target"),
        *("target_kind", "allow_unrelated_target", "tests", "question", "stated_share", "level", "seed", "as_json"),
        *("out", "report", "fail_on"),
    }
)
"""The options that mean something where known members are given and no calibration set: nothing is trained."""


def trains_nothing(options: KSOptions) -> bool:
    """Whether these options leave nothing to train, though they name no bank."""
    return options.data.members is not None and options.data.calibration is None and options.audit.shadows is None


def _check_targets(options: KSOptions) -> None:
    """Refuses outputs on the holdout that are not in step with the others."""
    held = options.data.holdout is not None
    files, on_holdout = len(options.target.target), len(options.target.holdout_target)
    if on_holdout and not held:
        raise InputError("--holdout-target needs --holdout: the records that these are outputs on.")
    if held and files != on_holdout:
        raise InputError(
            f"--target was given {files} times and --holdout-target {on_holdout} times: give each target's outputs on "
            "the query set and on the holdout, in the same order."
        )


def _check_members(options: KSOptions) -> None:
    """Refuses known members without a holdout, and outputs on them that are not in step with the others."""
    data, target = options.data, options.target
    if data.members is None and (target.members_target or data.members_groups):
        raise InputError("--members-target and --members-groups need --members: the records that they are of.")
    if data.members is None:
        return
    banked = options.audit.shadows is not None
    if not banked and (data.query is None or data.holdout is None):
        raise InputError(
            "--members needs --query and --holdout: members show what the target remembers of records that it used, "
            "and a holdout what it says of others."
        )
    if len(target.target) != len(target.members_target):
        raise InputError(
            f"--target was given {len(target.target)} times and --members-target {len(target.members_target)} times: "
            "give each target's outputs on the query set and on the members, in the same order."
        )
    if (data.groups is None) != (data.members_groups is None) and not banked:
        raise InputError("--groups and --members-groups need each other where there are --members.")
    if trains_nothing(options):
        if not target.target:
            raise InputError(
                "--members without --calibration trains nothing, so there is no target to simulate: give --target, "
                "--holdout-target and --members-target, or --calibration."
            )
        refuse_without_effect(options, OF_MEMBERS, "--members without --calibration, which trains nothing")


def _check_reference(options: KSOptions) -> None:
    """Refuses outputs on a reference that are not in step with the others, and two references."""
    target, given = options.target, options.data.reference is not None
    if target.reference_target and not given:
        raise InputError("--reference-target needs --reference: the records that these are outputs on.")
    if target.calibration_target and given:
        raise InputError(
            "--calibration-target and --reference give two references: give the target's outputs on the calibration "
            "set, or --reference with --reference-target."
        )
    flag, outputs, of = "--calibration-target", target.calibration_target, "calibration set"
    if given:
        flag, outputs, of = "--reference-target", target.reference_target, "reference"
    files, referred = len(target.target), len(outputs)
    if (given or outputs) and files != referred:
        raise InputError(
            f"--target was given {files} times and {flag} {referred} times: give each target's outputs on the query "
            f"set and on the {of}, in the same order."
        )


def _check_before(options: KSOptions) -> None:
    """Refuses outputs before a deletion that are not in step with the others, or that no test compares."""
    files, before, on_holdout = (
        len(each) for each in (options.target.target, options.target.before, options.target.holdout_before)
    )
    if not before and not on_holdout:
        return
    if options.data.holdout is None:
        raise InputError(
            "--before needs --holdout: only the holdout test compares outputs before and after a deletion."
        )
    if before != on_holdout or before != files:
        raise InputError(
            f"--target was given {files} times, --before {before} times and --holdout-before {on_holdout} times: give "
            "for each target its outputs before the deletion on the query set and on the holdout, in the same order."
        )


def _check_tests(options: KSOptions) -> None:
    """Refuses tests that do not go with the data."""
    held = options.data.holdout is not None
    names = tests_named(options)
    flag = reference_flag(options)
    if "reference" in names and options.target.target and not flag:
        raise InputError(
            "--tests reference needs --calibration-target, the target's outputs on the calibration set, or --reference "
            "with --reference-target, those on other data that it did not use."
        )
    if flag and "reference" not in names:
        raise InputError(f"--tests {','.join(names)} does not use {flag}; leave one out, or use --tests all.")
    if "holdout" in names and not held:
        raise InputError("--tests holdout needs --holdout: records of the query set's provider not trained on.")
    if held and "holdout" not in names and not trains_nothing(options):
        raise InputError(f"--tests {','.join(names)} does not use --holdout; leave one out, or use --tests all.")
    known = options.data.members is not None
    if ("members" in names) != known:
        raise InputError(
            f"--tests {','.join(names)} {'does not use --members' if known else 'needs --members'}; leave one out, or "
            "use --tests all."
        )
    first = "members" if known else "holdout"
    if held and names[0] in TEST_NAMES and names[0] != first:
        others = ",".join(name for name in names if name != first)
        raise InputError(f"--tests {','.join(names)}: with --{first} the {first} test decides; give {first},{others}.")
    needing = [name for name in names if name in OF_RHO]
    if options.audit.replicates == 0 and needing:
        raise InputError(
            f"--tests {','.join(names)}: --replicates 0 trains no models of rho, which {' and '.join(needing)} need; "
            "leave out one of the two options, or give --replicates 2 or more."
        )
    if "ema" in names and options.audit.subsample == 1:
        raise InputError(
            "EMA needs calibration records that a calibration model was not trained on, and --subsample 1 leaves none; "
            "use --subsample 0.9."
        )


def _check_bank(options: KSOptions) -> None:
    """Refuses options that a bank leaves nothing to do, and outputs that are not in step with the others."""
    if not options.target.target:
        raise InputError("--shadows needs --target: outputs of the target on the query set of the bank.")
    refuse_without_effect(options, OF_BANK)
    files, target = len(options.target.target), options.target
    others = {
        "--holdout-target": target.holdout_target,
        "--members-target": target.members_target,
        "--calibration-target": target.calibration_target,
        "--before": target.before,
        "--holdout-before": target.holdout_before,
    }
    for flag, given in others.items():
        if given and len(given) != files:
            raise InputError(
                f"--target was given {files} times and {flag} {len(given)} times: give one of each target, in the same "
                "order."
            )
    if bool(target.before) != bool(target.holdout_before):
        raise InputError("--before and --holdout-before need each other: outputs on query set and holdout.")


def _check_rates(options: KSOptions) -> None:
    """Refuses error rates without the models that they are measured on."""
    if options.audit.leave_one_out:
        raise InputError(
            "--leave-one-out needs --shadows: a bank, such as the directory that --out of a run without it names."
        )


def _check_pair(options: KSOptions) -> None:
    check_pair(options.data.query, options.data.calibration)


def _of_sets(check: Callable[[KSOptions], None]) -> Callable[[KSOptions], None]:
    """A check of options that name sets to train on; a bank has its own."""
    return lambda options: check(options) if options.audit.shadows is None else None


def _prepare(options: KSOptions) -> Job[Any] | Planned:
    if options.audit.shadows is not None:
        from jaxaudit.cli.ks.by_bank import prepare_by_bank

        return prepare_by_bank(options)
    if trains_nothing(options):
        from jaxaudit.cli.ks.by_members import prepare_by_members

        return prepare_by_members(options)
    if options.data.query is not None and not options.target.target and not options.target.target_data:
        say("No --target was given: three targets of known truth are simulated instead.")
    from jaxaudit.cli.ks.run import prepare

    return prepare(options)


KS = Command(
    "ks",
    KSOptions,
    _prepare,
    """Has a model forgotten a data set, or never used it?

    Compares the target's outputs on the query set with those on records of the same provider that nobody trained on
    (--holdout) and on records that it did use (--members), and with outputs of shadow models trained with and without
    the query set. Tests "none of the query set was used", and estimates the used fraction. `forgotten`: no use is
    detected, and the upper limit of the used fraction is at most --stated-share. That needs --members, or shadow models
    of the target's own recipe: else nobody knows how much it remembers. Also gives rho (Liu & Tsaftaris 2020).

    Examples:

    `jaxaudit ks --query q.npz --holdout h.npz --members m.npz --target out.csv --holdout-target out_h.csv
    --members-target out_m.csv` (after `jaxaudit deal`; trains nothing)

    `jaxaudit ks` (embedded data, targets of known truth, about a minute)

    `jaxaudit ks --query mnist` (limited to ten minutes on a CPU; `--dry-run` prints the plan)

    `jaxaudit ks --query mnist --calibration svhn_cropped --target-data svhn_cropped --target-data mnist:0.1`

    `jaxaudit ks --query hospital_b.npz --calibration hospital_a/ --target outputs.csv --json`

    `jaxaudit ks --query q.npz --calibration c.npz --target out.csv --calibration-target out_c.csv`

    `jaxaudit ks --query q.npz --calibration c.npz --target out.csv --reference r.npz --reference-target out_r.csv`

    `jaxaudit ks --query q.npz --calibration c.npz --target out.csv --holdout h.npz --holdout-target out_h.csv`

    `jaxaudit ks --shadows bank --target out.csv --holdout-target out_h.csv` (trains nothing)
    """,
    (
        lambda options: None if trains_nothing(options) else _of_sets(_check_pair)(options),
        _of_sets(lambda options: check_groups(options.data)),
        _check_members,
        *map(_of_sets, (_check_targets, _check_reference, _check_before, _check_tests)),
        _of_sets(_check_rates),
        lambda options: None if options.audit.shadows is None else _check_bank(options),
    ),
    first=("query", "calibration", "target"),
)
