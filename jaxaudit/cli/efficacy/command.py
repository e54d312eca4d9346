"""`jaxaudit efficacy`: its options, and what is printed. Imports nothing heavy, so that `--help` is instant."""

from pathlib import Path
from typing import Annotated

import typer

from jaxaudit.cli import network_options as shared
from jaxaudit.cli import preflight, report_option
from jaxaudit.cli.own_model import OWN

OUTPUT_OPTIONS = ("as_json", "out", "report", "top")


def efficacy(
    data: Annotated[
        str | None,
        typer.Option(
            help="The records in question: NAME[@SPLIT] or a path. [default: some digits]",
            rich_help_panel=shared.DATA,
        ),
    ] = None,
    data_dir: shared.DataDir = None,
    image_size: shared.ImageSize = "none",
    gray: shared.Gray = False,
    classes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Outputs of the network, which labels count from 0. [default: as many as the data have classes]",
            rich_help_panel=shared.NETWORK,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help=f"The network: mlp, liu-cnn, medical-cnn, or {OWN}.",
            rich_help_panel=shared.NETWORK,
        ),
    ] = None,
    hidden: shared.Hidden = "512,256,128",
    params: Annotated[
        Path | None,
        typer.Option(
            help="Its weights: .safetensors, Flax .msgpack, or an Orbax directory.", rich_help_panel=shared.NETWORK
        ),
    ] = None,
    reference: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATH",
            help="Weights of the same network to put beside it, such as retrained=PATH; untrained alone makes new "
            "ones from the seed. Repeatable.",
            rich_help_panel=shared.NETWORK,
        ),
    ] = None,
    chunk: Annotated[
        int | None,
        typer.Option(
            min=1, help="Records at a time. [default: what fits a modest memory]", rich_help_panel=shared.AUDIT
        ),
    ] = None,
    seed: shared.Seed = 7,
    top: Annotated[
        int, typer.Option(min=0, help="Show so many of the most exposed records.", rich_help_panel=shared.OUTPUT)
    ] = 5,
    as_json: shared.AsJson = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Also write result and a row a record into this new directory.", rich_help_panel=shared.OUTPUT
        ),
    ] = None,
    report: report_option.Report = None,
) -> None:
    """How much do a model's weights still expose of some records? (Becker & Liebig 2022)

    Measures the Fisher information of the weights about the records, exactly: the mean squared norm of each record's
    gradient. Its inverse is the efficacy, which training makes large and forgetting should make small. Put weights
    beside it that never saw the records: a lone number is no verdict.

    Examples:

    `jaxaudit efficacy` (digits that come with the package, a model with and one without them, less than a minute)

    `jaxaudit efficacy --model package.module:factory --params weights.safetensors --data forget.npz --classes 10`

    `jaxaudit efficacy --model mlp --params a.safetensors --data mnist@train[:100] --reference untrained --json`
    """
    given = dict(locals())
    from jaxaudit.cli.work import lasting_work

    preflight.check(given)
    with lasting_work(out):
        from jaxaudit.cli.efficacy.run import run, save
        from jaxaudit.cli.show import show
        from jaxaudit.report.efficacy.table import efficacy_table

        answer = run({name: value for name, value in given.items() if name not in OUTPUT_OPTIONS})
        table = efficacy_table(answer.audit, answer.class_names, answer.notes, top)
        try:
            if out is not None:
                save(out, answer, table)
            report_option.write(report, out, answer.json())
        finally:
            # Whatever becomes of the directory, the work is not lost.
            show(table, answer.json() if as_json else None)
