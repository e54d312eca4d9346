"""`jaxaudit unlearn`: its options, and what is printed. Imports nothing heavy, so that `--help` is instant."""

import enum
from pathlib import Path
from typing import Annotated

import typer

from jaxaudit.cli import network_options as shared
from jaxaudit.cli import preflight, report_option
from jaxaudit.cli.own_model import OWN

OUTPUT_OPTIONS = ("as_json", "out", "report")


class FisherVariant(enum.StrEnum):
    """How large the noise of Fisher forgetting is."""

    golatkar = "golatkar"
    paper = "paper"
    becker_code = "becker-code"


def unlearn(
    data: Annotated[
        str | None,
        typer.Option(help="The training set: NAME[@SPLIT] or a path. [default: digits]", rich_help_panel=shared.DATA),
    ] = None,
    test_data: Annotated[
        str | None,
        typer.Option(
            help="Records that are never trained on. [default: the split test of --data, or its other records]",
            rich_help_panel=shared.DATA,
        ),
    ] = None,
    data_dir: shared.DataDir = None,
    image_size: shared.ImageSize = "none",
    gray: shared.Gray = True,
    per_class: Annotated[
        int,
        typer.Option(
            min=0,
            max=1_000_000,
            help="Train on the first so many of each class; 0: on all.",
            rich_help_panel=shared.DATA,
        ),
    ] = 100,
    class_name: Annotated[
        str | None,
        typer.Option(
            "--class", help="The class to forget records of. [default: 3, of digits]", rich_help_panel=shared.DATA
        ),
    ] = None,
    fraction: Annotated[
        float, typer.Option(help="Share of its training records to forget, the first.", rich_help_panel=shared.DATA)
    ] = 0.5,
    model: Annotated[
        str,
        typer.Option(
            help=f"The network: mlp, liu-cnn, medical-cnn, or {OWN}.",
            rich_help_panel=shared.NETWORK,
        ),
    ] = "mlp",
    hidden: Annotated[
        str | None,
        typer.Option(
            help="Widths of mlp's hidden layers. [default: 512,256,128; 128,64 without --data]",
            rich_help_panel=shared.NETWORK,
        ),
    ] = None,
    epochs: Annotated[
        int,
        typer.Option(
            min=1,
            max=1_000_000,
            help="Walks through the training data.",
            rich_help_panel=shared.NETWORK,
        ),
    ] = 50,
    batch_size: Annotated[
        int,
        typer.Option(
            min=1,
            max=1_000_000,
            help="Records a step.",
            rich_help_panel=shared.NETWORK,
        ),
    ] = 32,
    learning_rate: Annotated[float, typer.Option(help="The optimiser's step.", rich_help_panel=shared.NETWORK)] = 0.1,
    optimizer: Annotated[
        shared.Optimizer, typer.Option(help="Adam is with b1 = 0.5.", rich_help_panel=shared.NETWORK)
    ] = shared.Optimizer.sgd,
    width: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1_000_000,
            help="Models trained side by side. [default: measured once a machine]",
            rich_help_panel=shared.NETWORK,
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="Of retraining, amnesiac and fisher; retraining is always done, to compare with.",
            rich_help_panel=shared.AUDIT,
        ),
    ] = "retraining,amnesiac,fisher",
    fisher_variant: Annotated[
        FisherVariant,
        typer.Option(
            help="fisher: the noise of Golatkar et al., of the paper's equation, or of the paper's code.",
            rich_help_panel=shared.AUDIT,
        ),
    ] = FisherVariant.golatkar,
    alpha: Annotated[
        float, typer.Option(help="fisher: the strength of the noise.", rich_help_panel=shared.AUDIT)
    ] = 3e-6,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=1_000_000,
            help="Models of each kind. [default: 20; 10 without --data]",
            rich_help_panel=shared.AUDIT,
        ),
    ] = None,
    nonmembers: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Test records that membership attacks learn from; 0: no attack. [default: as many as are trained on]",
            rich_help_panel=shared.AUDIT,
        ),
    ] = None,
    attack_epochs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Walks of an attack through its records. [default: 100; 20 without --data]",
            rich_help_panel=shared.AUDIT,
        ),
    ] = None,
    level: Annotated[
        float, typer.Option(help="Confidence with which a method is said to differ.", rich_help_panel=shared.AUDIT)
    ] = 0.95,
    seed: shared.Seed = 7,
    as_json: shared.AsJson = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Also write result, all models' weights and the forgotten records into this new directory.",
            rich_help_panel=shared.OUTPUT,
        ),
    ] = None,
    report: report_option.Report = None,
) -> None:
    """Did unlearning work? (Becker & Liebig 2022)

    Trains models, makes them forget some records by each method, and places efficacy, accuracy and the success of
    membership attacks among those of models retrained without the records: forgetting too little shows, and too much.

    Examples:

    `jaxaudit unlearn` (digits that come with the package, about a minute)

    `jaxaudit unlearn --data mnist --class 3 --fraction 0.5 --method retraining,amnesiac,fisher --seeds 20`

    `jaxaudit unlearn --data mine.npz --class cat --fraction 1 --fisher-variant paper --alpha 1e-9 --out run`
    """
    given = {name: value.value if isinstance(value, enum.Enum) else value for name, value in locals().items()}
    from jaxaudit.cli.work import lasting_work

    preflight.check(given)
    with lasting_work(out) as begin:
        from jaxaudit.cli.show import show
        from jaxaudit.cli.unlearn.run import run, save
        from jaxaudit.report.unlearn.table import unlearn_table

        answer = run({name: value for name, value in given.items() if name not in OUTPUT_OPTIONS}, begin)
        table = unlearn_table(answer.audit, answer.forgotten, answer.notes)
        try:
            if out is not None:
                save(out, answer, table)
            report_option.write(report, out, answer.json())
        finally:
            # Whatever becomes of the directory, the work is not lost.
            show(table, answer.json() if as_json else None)
