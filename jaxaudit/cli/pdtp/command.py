"""`jaxaudit pdtp`: its options, and what is printed. Imports nothing heavy, so that `--help` is instant."""

import enum
from functools import partial
from typing import Annotated

import typer

from jaxaudit.cli import classifier_options as shared
from jaxaudit.cli import preflight, report_option

OUTPUT_OPTIONS = ("as_json", "out", "report", "fail_on", "top", "show_values")


class FailOn(enum.StrEnum):
    """Verdicts a caller may want a status for."""

    do_not_publish = "do-not-publish"
    inconclusive = "inconclusive"


def pdtp(
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
    sample: Annotated[
        int | None,
        typer.Option(min=3, help="Train on so many records, drawn at random. [default: all]", rich_help_panel="Data"),
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
    records: Annotated[
        int | None,
        typer.Option(
            min=1, help="Measure so many records, drawn at random. [default: all]", rich_help_panel=shared.AUDIT
        ),
    ] = None,
    bins: shared.Bins = 100,
    measurements: Annotated[
        int,
        typer.Option(
            min=1,
            max=shared.MOST,
            help="Measure so many times with other seeds; take the mean.",
            rich_help_panel=shared.AUDIT,
        ),
    ] = 1,
    floor_seeds: Annotated[
        int,
        typer.Option(
            min=2, max=shared.MOST, help="Models of all records for the seed floor.", rich_help_panel=shared.AUDIT
        ),
    ] = 5,
    reduce: Annotated[
        int,
        typer.Option(
            min=0,
            help="Remove the riskiest record and measure all others anew, so many times.",
            rich_help_panel=shared.AUDIT,
        ),
    ] = 0,
    seed: shared.Seed = 7,
    top: Annotated[
        int, typer.Option(min=0, help="Show so many of the riskiest records.", rich_help_panel=shared.OUTPUT)
    ] = 10,
    show_values: Annotated[
        bool,
        typer.Option(
            "--show-values",
            help="Print what stands in the riskiest records, which is private, below them; never written to a file.",
            rich_help_panel=shared.OUTPUT,
        ),
    ] = False,
    as_json: shared.AsJson = False,
    out: shared.Out = None,
    report: report_option.Report = None,
    fail_on: Annotated[
        list[FailOn] | None,
        typer.Option(help="Exit with status 3 on this verdict. Repeatable.", rich_help_panel=shared.OUTPUT),
    ] = None,
) -> None:
    """May this classifier be published? (Long, Bindschaedler & Gunter 2017)

    Trains the classifier with and without each record and measures how far that moves what it says of the record: its
    PDTP, in nats. Above 1 for any record, the classifier should not be published. The seed floor beside each number is
    what another seed alone would have moved.

    Examples:

    `jaxaudit pdtp` (breast cancer data that come with the package, a neural network, less than a minute)

    `jaxaudit pdtp --data adult --sample 1000 --learner nb`

    `jaxaudit pdtp --csv people.csv --label income --learner lr --json`

    `jaxaudit pdtp --data acs --learner nb --reduce 10`
    """
    given = {name: value.value if isinstance(value, enum.Enum) else value for name, value in locals().items()}
    from jaxaudit.cli.work import lasting_work
    from jaxaudit.errors import InputError

    if show_values and as_json:
        raise InputError("--show-values is for the table that a person reads; leave out --json.")
    preflight.check(given)
    with lasting_work(out) as begin:
        from jaxaudit.cli.pdtp.run import arrays_of, run, save
        from jaxaudit.cli.show import show
        from jaxaudit.report.pdtp.record import verdict
        from jaxaudit.report.pdtp.table import pdtp_table

        answer = run({name: value for name, value in given.items() if name not in OUTPUT_OPTIONS}, begin)
        # What stands in the records is never written to a file.
        table = partial(pdtp_table, answer.audit, answer.reduction, answer.class_names, answer.bound, top)
        try:
            if out is not None:
                save(out, answer, table())
            report_option.write(report, out, answer.json(), arrays_of(answer))
        finally:
            # Whatever becomes of the directory, the work is not lost.
            show(table(answer.own_values(top) if show_values else None), answer.json() if as_json else None)
    if {choice.replace("-", " ") for choice in fail_on or ()} & {verdict(answer.audit)}:
        raise typer.Exit(3)
