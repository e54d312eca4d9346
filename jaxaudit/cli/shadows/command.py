"""`jaxaudit shadows`: its commands. Imports nothing heavy, so that `--help` is instant."""

from pathlib import Path
from typing import Annotated, Any

import typer

from jaxaudit.cli import preflight
from jaxaudit.cli.groups import DONE, MOST
from jaxaudit.cli.options import as_parameters, at_home
from jaxaudit.cli.sets import check_groups, refuse_without_effect
from jaxaudit.cli.shadows.options import PlanOptions, TrainOptions, check_recipe, used_options
from jaxaudit.cli.workers import before_jax
from jaxaudit.errors import InputError

BankPath = Annotated[Path, typer.Argument(metavar="BANK", help="Directory of the bank.")]

shadows = typer.Typer(
    no_args_is_help=True,
    help="Shadow models for any number of audits: trained here, by your own script, or by another tool.",
)


def _check_sets(options: PlanOptions | TrainOptions) -> None:
    """Refuses a plan without the sets that its models differ in, or without a place."""
    data = options.data
    if data.query is None:
        raise InputError("--query is missing: the data in question.")
    if data.holdout is None and data.calibration is None and not data.coins:
        raise InputError(
            "--holdout or --calibration is missing: shadow models are trained on random records of them; with "
            "--holdout the test is exact."
        )
    if options.place.bank is None:
        raise InputError("--out is missing: the directory of the bank.")


def _plan(options: Any) -> None:
    preflight.check(options, (_check_sets, lambda each: check_groups(each.data)))
    from jaxaudit.cli.shadows.plan import plan

    plan(options)


shadows.command("plan", epilog=DONE)(
    as_parameters(
        PlanOptions,
        _plan,
        """Deals the training sets of shadow models that your own script trains.

    Writes bank.json, labels.npy, membership.npy (a row per model, a column per record: the query set, the holdout, the
    calibration set) and seeds.npy. Your script trains model m on the records where row m is true, and saves its outputs
    on all records as outputs/00000.npy and so on. Repeated with more --models, it keeps those that are there.

    Examples:

    `jaxaudit shadows plan --query q.npz --holdout h.npz --calibration c.npz --models 40 --out bank`

    `jaxaudit shadows plan --query q.npz --calibration c.npz --outputs probabilities --recipe "ResNet-18" --out bank`
    """,
        ("query", "holdout", "bank"),
    )
)


def _check_learner(options: TrainOptions) -> None:
    """Refuses what says how a network is trained beside a learner, which says it itself."""
    used = used_options(options)
    if used is not None:
        refuse_without_effect(options, used, "--learner, which is how its models are trained")


def _train(options: Any) -> None:
    preflight.check(options, (_check_sets, lambda each: check_groups(each.data), _check_learner))
    before_jax(options.recipe)
    from jaxaudit.cli.programs import keep_programs
    from jaxaudit.cli.shadows.train import train

    keep_programs()
    train(options)


shadows.command("train", epilog=DONE)(
    as_parameters(
        TrainOptions,
        _train,
        """Trains shadow models and keeps their outputs, for any number of later audits.

    Models are trained many at once. Each one's outputs are written when its batch is done, so a stopped command
    continues where it was, and with more --models it keeps those that are there.

    Examples:

    `jaxaudit shadows train --query q.npz --holdout h.npz --calibration c.npz --model mlp --epochs 40 --out bank`

    `jaxaudit shadows train --query q.npz --holdout h.npz --model net.py:Net --models 128 --dry-run --out bank`

    `jaxaudit shadows train --query q.npz --holdout h.npz --patience 5 --recipe guess --recipe narrower --out bank`

    `jaxaudit shadows train --query q.npz --holdout h.npz --learner mine.py:learner --out bank`
    """,
        ("query", "holdout", "bank"),
    )
)


@shadows.command(epilog=DONE)
def add(
    bank: BankPath,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Outputs on all records of the bank: .npz, .npy, .csv or .parquet."),
    ],
    model: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, max=MOST, help="The model. [default: missing models in order]"),
    ] = None,
) -> None:
    """Adds outputs of shadow models to a bank.

    Refuses outputs of other records, classes or kind, outputs that another model has already, and outputs that fit the
    training records of another model overwhelmingly better (right outputs are refused at most once in 100 times). Says
    so where outputs cannot show which model they are of, as those of models that hardly remember their records. Files
    that are in the bank already are skipped, so the command can be repeated.

    Examples:

    `jaxaudit shadows add bank outputs_00.csv outputs_01.csv`

    `jaxaudit shadows add bank rerun.npy --model 7`
    """
    from jaxaudit.cli.shadows.add import run

    run(at_home(bank), [at_home(file) for file in files], model)


@shadows.command(epilog=DONE)
def show(
    bank: BankPath,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Shows what is in a bank, which tests it allows, and what is missing.

    Examples:

    `jaxaudit shadows show bank`

    `jaxaudit shadows show bank --json`
    """
    from jaxaudit.cli.shadows.show import run

    run(at_home(bank), as_json)


@shadows.command("import", epilog=DONE)
def import_(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory of tensorflow/privacy's LiRA, or of Privacy Meter.")
    ],
    out: Annotated[Path, typer.Option(metavar="BANK", help="Write the bank into this new directory.")],
    query_rows: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npy", help="The query set: numbers of records. [default: all but the holdout]"),
    ] = None,
    holdout_rows: Annotated[Path | None, typer.Option(metavar="FILE.npy", help="The holdout, in the same way.")] = None,
    labels: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npy", help="Classes of all records, from 0. [default: y_train.npy, if it is there]"),
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(metavar="TEXT", help="How the models were trained. [default: as their files say]")
    ] = None,
) -> None:
    """Makes a bank of the shadow models that another tool left.

    Reads the directory of tensorflow/privacy's mi_lira_2021 (keep.npy and logits or scores of every experiment) or the
    log_dir of Privacy Meter (memberships and signals; with --labels). Both train on random records of one pool: rows
    that you choose at random, or a target's training records, are the query set, others the holdout, and the rest
    becomes the calibration set. A file of rows has numbers of records, or a boolean for each. Nothing there is changed.

    Examples:

    `jaxaudit shadows import exp/cifar10 --query-rows query.npy --holdout-rows holdout.npy --out bank`

    `jaxaudit shadows import demo_cifar10 --labels y_train.npy --out bank`
    """
    check_recipe(recipe or "")
    from jaxaudit.cli.shadows.from_tool import run

    def given(path: Path | None) -> Path | None:
        return None if path is None else at_home(path)

    run(at_home(directory), at_home(out), given(query_rows), given(holdout_rows), given(labels), recipe or "")
