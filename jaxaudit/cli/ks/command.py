"""`jaxaudit ks`: which of its options go together. Imports nothing heavy, so that `--help` is instant."""

from jaxaudit.audits.ks.tests_of_use import BUILT_IN
from jaxaudit.cli.harness import Command
from jaxaudit.cli.ks.chosen_tests import reference_flag, tests_named
from jaxaudit.cli.ks.named_tests import OF_RHO, is_own
from jaxaudit.cli.ks.options import KSOptions
from jaxaudit.cli.options import ModelSource, fields_of, with_values
from jaxaudit.cli.parsers import check_pair
from jaxaudit.cli.preflight import ask
from jaxaudit.cli.sets import check_group_options
from jaxaudit.errors import InputError

SETS = ("query", "holdout", "members", "groups", "holdout_groups", "members_groups")
ANSWERS = ("holdout_target", "members_target", "holdout_before")
"""Options that the key of a challenge stands for."""


def opened(options: KSOptions) -> KSOptions:
    """The options with the sets beside the key of a challenge, and each target's one file of outputs for each."""
    path, target = options.data.challenge, options.target
    if path is None:
        return options
    from jaxaudit.data.challenge import read_key
    from jaxaudit.data.group_values import COLUMN

    fields_by_name = {field.name: field for field in fields_of(options)}
    twice = ", ".join(fields_by_name[name].flag for name in (*SETS, *ANSWERS) if fields_by_name[name].value)
    if twice:
        raise InputError(f"--challenge names the sets and splits the outputs on them; leave out {twice}.")
    if not target.target:
        raise InputError("--challenge needs --target: the target's outputs on the challenge, in its order.")
    key = read_key(path)
    if key.label is not None and options.data.label not in (None, key.label):
        raise InputError("--challenge names the column with the label; leave out --label.")
    has_members, whole = "members" in key.rows, COLUMN if key.groups else None
    if not (has_members or target.before or options.data.calibration):
        raise InputError(
            "this challenge has no members, so --challenge needs --calibration, to train shadow models, or --before, "
            "the answers of the model before the deletion."
        )
    return with_values(
        options,
        **{role: str(path.parent / key.set_file(role)) for role in key.rows},
        label=key.label or options.data.label,
        groups=whole,
        holdout_groups=whole,
        members_groups=whole if has_members else None,
        holdout_target=target.target,
        members_target=target.target if has_members else (),
        holdout_before=target.before,
    )


def as_given(options: KSOptions) -> KSOptions:
    """The options without what a challenge stands for: those of the command that repeats the run."""
    if options.data.challenge is None:
        return options
    from jaxaudit.data.challenge import read_key

    label = options.data.label if read_key(options.data.challenge).label is None else None
    return with_values(options, **dict.fromkeys(SETS), label=label, **dict.fromkeys(ANSWERS, ()))


def _check_pair(options: KSOptions) -> None:
    if options.source is ModelSource.TRAINING and not options.has_set_alone:
        check_pair(options.data.query, options.data.calibration)


def _check_groups(options: KSOptions) -> None:
    if options.source is ModelSource.BANK:
        return
    check_group_options(options.data)
    if options.data.members is not None and (options.data.groups is None) != (options.data.members_groups is None):
        raise InputError("--groups and --members-groups need each other where there are --members.")


def _check_failing(options: KSOptions) -> None:
    of_groups = [verdict for verdict in options.output.fail_on if verdict.startswith("group-")]
    if of_groups and options.scores.by is None:
        raise InputError(f"--fail-on {of_groups[0]} needs --scores and --by group; without them no group is judged.")


def _check_members(options: KSOptions) -> None:
    data = options.data
    if data.members is None or options.source is ModelSource.BANK:
        return
    if data.query is None or data.holdout is None:
        raise InputError(
            "--members needs --query and --holdout: members show what the target remembers of records that it used, "
            "and a holdout what it says of others."
        )
    if options.source is ModelSource.ANSWERS and not options.target.target:
        raise InputError(
            "--members without --calibration trains no shadow models, so there is no target to simulate: give "
            "--target, --holdout-target and --members-target, or --calibration."
        )


def _check_targets(options: KSOptions) -> None:
    data, target, banked = options.data, options.target, options.source is ModelSource.BANK
    if banked and not target.target:
        raise InputError("--shadows needs --target: outputs of the target on the query set of the bank.")
    if data.members is None and (target.members_target or data.members_groups):
        raise InputError("--members-target and --members-groups need --members: the records that they are of.")
    if banked:
        return
    if target.holdout_target and data.holdout is None:
        raise InputError("--holdout-target needs --holdout: the records that these are outputs on.")
    if target.reference_target and data.reference is None:
        raise InputError("--reference-target needs --reference: the records that these are outputs on.")
    if target.calibration_target and data.reference is not None:
        raise InputError(
            "--calibration-target and --reference give two references: give the target's outputs on the calibration "
            "set, or --reference with --reference-target."
        )
    if (target.before or target.holdout_before) and data.holdout is None:
        raise InputError(
            "--before needs --holdout: outputs before and after a deletion are compared on the query set and on "
            "records that neither model used."
        )


def _check_in_step(options: KSOptions) -> None:
    data, target, banked = options.data, options.target, options.source is ModelSource.BANK
    before = bool(target.before or target.holdout_before)
    files = {
        "--holdout-target": (target.holdout_target, "on the holdout", data.holdout is not None and not banked),
        "--members-target": (target.members_target, "on the members", data.members is not None),
        "--calibration-target": (target.calibration_target, "on the calibration set", False),
        "--reference-target": (target.reference_target, "on the reference", data.reference is not None),
        "--before": (target.before, "before the deletion", before),
        "--holdout-before": (target.holdout_before, "on the holdout before the deletion", before),
    }
    for flag, (answers, which, needed) in files.items():
        if (answers or needed) and len(answers) != len(target.target):
            raise InputError(
                f"--target was given {len(target.target)} times and {flag} {len(answers)} times: give each target's "
                f"outputs on the query set and those {which}, in the same order."
            )


def _check_tests(options: KSOptions) -> None:
    """Refuses tests that do not go with the data. What a test of your own needs is not known here."""
    if options.source is ModelSource.BANK:
        return
    held, has_members = options.data.holdout is not None, options.data.members is not None
    names = tests_named(options)
    flag, flag_and_names, has_own = reference_flag(options), f"--tests {','.join(names)}", any(map(is_own, names))
    roles = {role for name in names for role in BUILT_IN.get(name, ())}
    if "members" in roles and not has_members:
        raise InputError(f"{flag_and_names} needs --members; leave one out, or use --tests all.")
    if "reference" in roles and options.target.target and not flag:
        raise InputError(
            f"{flag_and_names} needs --calibration-target, the target's outputs on the calibration set, or --reference "
            "with --reference-target, those on other data that it did not use."
        )
    if flag and "reference" not in roles and not has_own:
        raise InputError(f"{flag_and_names} does not use {flag}; leave one out, or use --tests all.")
    if "holdout" in roles and not held:
        raise InputError(f"{flag_and_names} needs --holdout: records of the query set's provider not trained on.")
    if held and "holdout" not in roles and options.source is ModelSource.TRAINING and not has_own:
        raise InputError(f"{flag_and_names} does not use --holdout; leave one out, or use --tests all.")
    if has_members and "members" not in roles and not has_own:
        raise InputError(f"{flag_and_names} does not use --members; leave one out, or use --tests all.")
    if options.target.before and not (has_own or {"holdout", "deletion"} & set(names)):
        raise InputError(f"{flag_and_names} does not use --before; leave one out, or add deletion to the tests.")
    if "deletion" in names and not options.target.before:
        raise InputError(f"{flag_and_names} needs --before and --holdout-before, the outputs before the deletion.")
    first = next((name for name in ("members", "holdout") if name in names), names[0])
    if held and names[0] != first:
        further_names = ",".join(name for name in names if name != first)
        raise InputError(f"{flag_and_names}: with --{first} the {first} test decides; give {first},{further_names}.")
    needing = [name for name in names if name in OF_RHO]
    if options.audit.replicates == 0 and needing:
        raise InputError(
            f"{flag_and_names}: --replicates 0 trains no models of rho, which {' and '.join(needing)} need; "
            "leave out one of the two options, or give --replicates 2 or more."
        )
    if "ema" in names and options.audit.subsample == 1:
        raise InputError(
            "EMA needs calibration records that a calibration model was not trained on, and --subsample 1 leaves none; "
            "use --subsample 0.9."
        )


CHECKS = (_check_pair, _check_groups, _check_failing, _check_members, _check_targets, _check_in_step, _check_tests)


def _check(options: KSOptions) -> None:
    """Refuses options that do not go together, with what a challenge stands for among them."""
    if options.data.challenge is not None and not options.data.challenge.exists():
        return  # which is an error of its own
    opened_options = opened(options)
    ask([(question, (opened_options,)) for question in CHECKS])


KS = Command(
    "ks",
    KSOptions,
    {
        ModelSource.TRAINING: "ks.run:prepare",
        ModelSource.ANSWERS: "ks.run:prepare_by_outputs",
        ModelSource.BANK: "ks.without_training:prepare_by_bank",
        ModelSource.SCORES: "ks.without_training:prepare_by_scores",
    },
    """Has a model forgotten a data set, or never used it?

    Compares the target's outputs on the query set with those on records of the same provider that nobody trained on
    (--holdout) and on records that it did use (--members), and with outputs of shadow models trained with and without
    the query set. Tests "none of the query set was used", and estimates the used fraction. `forgotten`: no use is
    detected, and the upper limit of the used fraction is at most --stated-share. That needs --members, or shadow models
    of the target's own recipe: else nobody knows how much it remembers. Also gives rho (Liu & Tsaftaris 2020).

    Examples:

    `jaxaudit ks --query q.npz --holdout h.npz --members m.npz --target out.csv --holdout-target out_h.csv
    --members-target out_m.csv` (after `jaxaudit deal`; no shadow models)

    `jaxaudit ks --query q.npz --holdout later.npz --target after.csv --holdout-target after_h.csv --before before.csv
    --holdout-before before_h.csv --question left` (everything was shared, nothing kept: the model before and after)

    `jaxaudit ks --challenge deal/key.json --target outputs.csv` (after `jaxaudit deal --blind`)

    `jaxaudit ks --scores scores.csv` (any number a record, such as a language model's losses; trains nothing)

    `jaxaudit ks --scores scores.csv --by group` (which authors, or patients, are still remembered)

    `jaxaudit ks` (deals embedded data, and judges three targets of known truth, in about a minute)

    `jaxaudit ks --query mnist` (the same with a set of yours, named or a file; `--dry-run` prints the plan)

    `jaxaudit ks --query mnist --calibration svhn_cropped --target-data svhn_cropped --target-data mnist:0.1`

    `jaxaudit ks --query hospital_b.npz --calibration hospital_a/ --target outputs.csv --json`

    `jaxaudit ks --query q.npz --calibration c.npz --target out.csv --calibration-target out_c.csv`

    `jaxaudit ks --query q.npz --calibration c.npz --target out.csv --reference r.npz --reference-target out_r.csv`

    `jaxaudit ks --query q.npz --calibration c.npz --target out.csv --holdout h.npz --holdout-target out_h.csv`

    `jaxaudit ks --query q.jsonl --calibration c.jsonl --target out.csv --holdout h.jsonl --holdout-target out_h.csv`
    (texts; the target's files have a mean log-likelihood each)

    `jaxaudit ks --shadows bank --target out.csv --holdout-target out_h.csv` (trains nothing)

    `jaxaudit ks --query q.npz --calibration c.npz --target out.csv --tests shadow,mine.py:MyTest` (beside a test of
    your own)
    """,
    (_check,),
    first=("query", "calibration", "target"),
)
