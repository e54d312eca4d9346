"""`jaxaudit ks`: which of its options go together. Imports nothing heavy, so that `--help` is instant."""

from jaxaudit.cli.harness import Command
from jaxaudit.cli.ks.options import KSOptions, check_first, tests_named
from jaxaudit.cli.options import ModelSource, refuse_options
from jaxaudit.cli.parsers import check_pair
from jaxaudit.errors import InputError


def _check_sets(options: KSOptions) -> None:
    if options.source is ModelSource.SCORES or not options.can_be_read:
        return
    if options.deal and not options.target:
        raise InputError("--deal needs --target: a model's outputs on its sets.")
    if options.source is ModelSource.TRAINING and not options.has_set_alone:
        names = {str(role): name for role, name in options.inputs.sets.names.items()}
        check_pair(names.get("query"), names.get("calibration"))


def _check_failing(options: KSOptions) -> None:
    if options.by is None:
        of_groups = [verdict for verdict in options.fail_on if verdict.startswith("group-")]
        refuse_options({"--fail-on": of_groups}, f"{', '.join(of_groups)} is of --scores with --by group")


def _check_targets(options: KSOptions) -> None:
    if options.source is ModelSource.BANK and not options.target:
        raise InputError("--shadows needs --target: a model's outputs on the sets of the bank.")
    refuse_options({"--before": not options.target and options.before}, "goes with --target")


def _check_tests(options: KSOptions) -> None:
    if options.source in (ModelSource.BANK, ModelSource.SCORES) or not options.can_be_read:
        return
    names, inputs = tests_named(options), options.inputs
    check_first(names, [*inputs.sets.names])
    if options.target and "deletion" not in names:
        refuse_options({"--before": bool(inputs.before)}, f"no test of --tests {','.join(names)} uses it; name one, or")


KS = Command(
    "ks",
    KSOptions,
    {
        ModelSource.ANSWERS: "ks.run:prepare_by_outputs",
        ModelSource.BANK: "ks.run:prepare_by_bank",
        ModelSource.SCORES: "ks.run:prepare_by_scores",
    },
    """Has a model forgotten a data set, or never used it?

    Compares the model's outputs on the query set with those on records of the same provider that nobody trained on (the
    holdout), on records that it did use (the members), and with those of the model before a deletion, as far as these
    are there. `forgotten`: no use is detected, and the upper limit of the used fraction is at most 25%. That needs
    members, the model before, or shadow models of the target's own recipe: else nobody knows how much it remembers.

    Examples:

    `jaxaudit ks --deal deal --target outputs.npz` (after `jaxaudit deal`; arrays query, holdout and members; or a
    folder of query.csv and so on, or a table with a column `set`)

    `jaxaudit ks --deal sets --target after.npz --before before.npz --question left` (everything was shared, nothing
    kept: the model before and after)

    `jaxaudit ks --deal blind --target answers.csv` (after `jaxaudit deal --blind`)

    `jaxaudit ks --scores scores.csv` (any number a record, such as a language model's losses)

    `jaxaudit ks --shadows bank --target outputs.npz` (beside shadow models of `jaxaudit shadows train`)

    `jaxaudit ks` (deals embedded data, and judges three targets of known truth, in about a minute)

    `jaxaudit ks --query mnist` (the same with a set of yours, named or a file)
    """,
    (_check_sets, _check_failing, _check_targets, _check_tests),
    first=("deal", "target", "query", "calibration"),
)
