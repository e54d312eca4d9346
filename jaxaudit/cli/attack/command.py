"""`jaxaudit attack`: its options, and what is printed. Imports nothing heavy, so that `--help` is instant."""

import enum
from typing import Annotated

import typer

from jaxaudit.cli import classifier_options as shared
from jaxaudit.cli import preflight, report_option

OUTPUT_OPTIONS = ("as_json", "out", "report", "top")


def attack(
    data: shared.Data = None,
    csv: shared.Csv = None,
    label: shared.Label = None,
    categorical: shared.Categorical = None,
    numeric: shared.Numeric = None,
    drop: shared.Drop = None,
    missing: shared.MissingNumbers = shared.Missing.error,
    delimiter: shared.Delimiter = None,
    encoding: shared.Encoding = None,
    decimal: shared.Decimal = None,
    data_dir: shared.DataDir = None,
    candidates: Annotated[
        int | None,
        typer.Option(
            min=4,
            help="Records who may be in the training set, drawn at random; half are. [default: 2000, or all]",
            rich_help_panel=shared.DATA,
        ),
    ] = None,
    learner: shared.Learner = shared.LearnerName.nn,
    hidden: shared.Hidden = "64",
    epochs: shared.Epochs = 100,
    batch_size: shared.BatchSize = 32,
    learning_rate: shared.LearningRate = 0.01,
    optimizer: shared.OptimizerName = shared.Optimizer.sgd,
    smoothing: shared.Smoothing = None,
    penalty: shared.Penalty = 1.0,
    trees: shared.Trees = 10,
    depth: shared.Depth = 6,
    neighbours: shared.Neighbours = 5,
    width: shared.Width = None,
    attacks: Annotated[
        str,
        typer.Option(metavar="NAME,...", help="Of untargeted, distance and frequency.", rich_help_panel=shared.AUDIT),
    ] = "untargeted,distance,frequency",
    iterations: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=shared.MOST,
            help="Random splits; each target is attacked twice in each. [default: 100; 10 without --data]",
            rich_help_panel=shared.AUDIT,
        ),
    ] = None,
    targets: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Records to attack, drawn at random. [default: 100, or all; 20 without --data]",
            rich_help_panel=shared.AUDIT,
        ),
    ] = None,
    shadows: Annotated[
        int,
        typer.Option(
            min=1,
            max=shared.MOST,
            help="distance, frequency: pairs of shadow models a target, with and without it.",
            rich_help_panel=shared.AUDIT,
        ),
    ] = 5,
    fresh_shadows: Annotated[
        bool,
        typer.Option(
            "--fresh-shadows",
            help="Train those anew in every iteration: as many times the work.",
            rich_help_panel=shared.AUDIT,
        ),
    ] = False,
    untargeted_shadows: Annotated[
        int, typer.Option(min=1, max=shared.MOST, help="untargeted: shadow models.", rich_help_panel=shared.AUDIT)
    ] = 20,
    measured: Annotated[
        int,
        typer.Option(
            min=1, max=1_000_000, help="Measure PDTP in so many iterations, the first.", rich_help_panel=shared.AUDIT
        ),
    ] = 10,
    bins: shared.Bins = 100,
    level: Annotated[
        float, typer.Option(help="Confidence level of the intervals.", rich_help_panel=shared.AUDIT)
    ] = 0.95,
    seed: shared.Seed = 7,
    top: Annotated[
        int,
        typer.Option(
            min=0,
            max=1_000_000,
            help="Show so many of the targets most often found out.",
            rich_help_panel=shared.OUTPUT,
        ),
    ] = 5,
    as_json: shared.AsJson = False,
    out: shared.Out = None,
    report: report_option.Report = None,
) -> None:
    """Can an attacker tell who was in the training set? (Long, Bindschaedler & Gunter 2017)

    Splits candidate records into halves at random, again and again, trains the classifier on each half, and attacks
    target records through what it says of them: an accuracy of 0.5 is guessing. Beside it stands the targets' PDTP,
    which should foresee who is found out; the pdtp command measures it of every record.

    Examples:

    `jaxaudit attack` (breast cancer data that come with the package, a neural network, less than a minute)

    `jaxaudit attack --data adult --learner nn --attacks untargeted,distance,frequency --iterations 100 --targets 100`

    `jaxaudit attack --csv people.csv --label income --learner nb --attacks distance --json`
    """
    given = {name: value.value if isinstance(value, enum.Enum) else value for name, value in locals().items()}
    from jaxaudit.cli.work import lasting_work

    preflight.check(given)
    with lasting_work(out) as begin:
        from jaxaudit.cli.attack.run import arrays_of, run, save
        from jaxaudit.cli.show import show
        from jaxaudit.report.attack.table import attack_table

        answer = run({name: value for name, value in given.items() if name not in OUTPUT_OPTIONS}, begin)
        table = attack_table(answer.audit, answer.records, answer.level, top)
        try:
            if out is not None:
                save(out, answer, table)
            report_option.write(report, out, answer.json(), arrays_of(answer))
        finally:
            # Whatever becomes of the directory, the work is not lost.
            show(table, answer.json() if as_json else None)
