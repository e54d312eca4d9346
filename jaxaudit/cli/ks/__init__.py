"""`jaxaudit ks`: which of its options go together. Imports nothing heavy, so that `--help` is instant."""

from jaxaudit.audits.ks.tests_of_use import BUILT_IN
from jaxaudit.cli.groups import check_group_options
from jaxaudit.cli.harness import Command, ask
from jaxaudit.cli.ks.options import KSOptions, check_chosen, tests_named
from jaxaudit.cli.options import ModelSource, fields_of, refuse_options, with_values
from jaxaudit.cli.parsers import check_pair
from jaxaudit.errors import InputError

SETS = ("query", "holdout", "members", "groups", "holdout_groups", "members_groups")
ANSWERS = ("holdout_target", "members_target", "holdout_before")
"""Options that the key of a challenge stands for."""


def opened(options: KSOptions) -> KSOptions:
    """The options with the sets beside the key of a challenge, and each target's one file of outputs for each."""
    path, target = options.data.challenge, options.target
    if path is None:
        refuse_options({"--commitment": options.data.commitment}, "is that of a --challenge, and there is none")
        return options
    from jaxaudit.data.challenge import read_key
    from jaxaudit.data.labels import COLUMN

    fields_by_name = {field.name: field for field in fields_of(options)}
    twice = {fields_by_name[name].flag: fields_by_name[name].value for name in (*SETS, *ANSWERS)}
    refuse_options(twice, "--challenge names the sets and splits the outputs on them")
    if not target.target:
        raise InputError("--challenge needs --target: the target's outputs on the challenge, in its order.")
    key = read_key(path)
    if options.data.commitment not in (None, key.commitment):
        raise InputError(f"{path}: has another commitment than was published; give the key of that deal, unchanged.")
    if options.data.label != key.label is not None:
        refuse_options({"--label": options.data.label}, "--challenge names the column with the label")
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
    data = options.data
    if options.source is ModelSource.TRAINING and not options.has_set_alone:
        check_pair(data.query, data.calibration)
    if options.source is ModelSource.ANSWERS and data.query is None:
        raise InputError(
            "--query is missing: the records in question, which --holdout and --members are compared with."
        )


def _check_groups(options: KSOptions) -> None:
    if options.source is not ModelSource.BANK:
        check_group_options(options.data)


def _check_failing(options: KSOptions) -> None:
    if options.scores.by is None:
        of_groups = [verdict for verdict in options.output.fail_on if verdict.startswith("group-")]
        refuse_options({"--fail-on": of_groups}, f"{', '.join(of_groups)} is of --scores with --by group")


def _check_targets(options: KSOptions) -> None:
    """Refuses answers without the set that they are on, and another number of them than there are targets."""
    data, target, banked = options.data, options.target, options.source is ModelSource.BANK
    held, has_members = data.holdout is not None or banked, data.members is not None
    before = {"--before": target.before, "--holdout-before": target.holdout_before}
    of_sets = {
        "--holdout": (held, {"--holdout-target": target.holdout_target, **before}),
        "--members": (
            has_members,
            {"--members-target": target.members_target, "--members-groups": data.members_groups},
        ),
    }
    for flag, (has_set, answers) in of_sets.items():
        if not has_set:
            refuse_options(answers, f"is of the records of {flag}, and there are none")
    needed = {
        "--holdout-target": (target.holdout_target, held and not banked),
        "--members-target": (target.members_target, has_members),
        "--calibration-target": (target.calibration_target, False),
        **{flag: (answers, any(before.values())) for flag, answers in before.items()},
    }
    for flag, (answers, is_needed) in needed.items():
        if (answers or is_needed) and len(answers) != len(target.target):
            raise InputError(
                f"--target was given {len(target.target)} times and {flag} {len(answers)} times: give one of each "
                "target, in the same order."
            )


def _check_tests(options: KSOptions) -> None:
    if options.source is ModelSource.BANK:
        return
    data, names = options.data, tests_named(options)
    flags_by_role = {
        "holdout": "--holdout" if data.holdout is not None else "",
        "members": "--members" if data.members is not None else "",
        "calibration": "--calibration-target" if options.target.calibration_target else "",
        "before": "--before" if options.target.before else "",
    }
    used = {role for name in names for role in BUILT_IN.get(name, ())}
    # What a test compares if it is there: outputs before a deletion, and on the calibration set.
    used |= {role for name, role in (("holdout", "before"), ("shadow", "calibration")) if name in names}
    check_chosen(names, flags_by_role, used)


CHECKS = (_check_pair, _check_groups, _check_failing, _check_targets, _check_tests)


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
