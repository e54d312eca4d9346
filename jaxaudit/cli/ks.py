"""`jaxaudit ks`: its options, and what is printed. Imports nothing heavy, so that `--help` is instant."""

import enum
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jaxaudit.cli import report_option

if TYPE_CHECKING:
    from jaxaudit.audits.ks_result import KSAudit


class TargetKind(enum.StrEnum):
    """What a file of outputs holds."""

    auto = "auto"
    probabilities = "probabilities"
    logits = "logits"


class Optimizer(enum.StrEnum):
    """How shadow models are trained."""

    adam = "adam"
    sgd = "sgd"


class FailOn(enum.StrEnum):
    """Verdicts a caller may want a status for."""

    forgotten = "forgotten"
    not_forgotten = "not-forgotten"
    inconclusive = "inconclusive"


DATA, TARGET, SHADOW, AUDIT, OUTPUT = "Data", "Target", "Shadow models", "Audit", "Output"

OUTPUT_OPTIONS = ("as_json", "out", "report", "fail_on")


def ks(
    query: Annotated[
        str | None,
        typer.Option(help="The data in question: NAME[@SPLIT] or a path. [default: digits]", rich_help_panel=DATA),
    ] = None,
    calibration: Annotated[
        str | None,
        typer.Option(
            help="Data of the same domain, none of it in the query set. [default: printed-digits]", rich_help_panel=DATA
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            envvar="JAXAUDIT_DATA", help="Where data sets and their original files lie.", rich_help_panel=DATA
        ),
    ] = None,
    image_size: Annotated[
        str | None,
        typer.Option(
            help="Resize images to HEIGHTxWIDTH; none keeps their size. [default: 28x28; none for medical-cnn]",
            rich_help_panel=DATA,
        ),
    ] = None,
    gray: Annotated[bool, typer.Option("--gray/--color", help="Make images gray.", rich_help_panel=DATA)] = True,
    field_strength: Annotated[
        Path | None,
        typer.Option(
            help="CSV of patient,field_strength for acdc:FOLDER@STRENGTH. [default: FOLDER/field_strength.csv]",
            rich_help_panel=DATA,
        ),
    ] = None,
    drop_overlap: Annotated[
        bool,
        typer.Option(
            "--drop-overlap", help="Drop calibration records that are in the query set.", rich_help_panel=DATA
        ),
    ] = False,
    drop_unshared: Annotated[
        bool,
        typer.Option(
            "--drop-unshared", help="Drop calibration classes the query set has no record of.", rich_help_panel=DATA
        ),
    ] = False,
    target: Annotated[
        list[Path] | None,
        typer.Option(
            help="A target's outputs on the query set, in its order: .npz, .npy, .csv or .parquet. Repeatable.",
            rich_help_panel=TARGET,
        ),
    ] = None,
    target_kind: Annotated[
        TargetKind, typer.Option(help="What the files hold.", rich_help_panel=TARGET)
    ] = TargetKind.auto,
    target_data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:FRACTION]",
            help="Simulate a target trained on this data; repeated, on all of it together.",
            rich_help_panel=TARGET,
        ),
    ] = None,
    allow_unrelated_target: Annotated[
        bool,
        typer.Option(
            "--allow-unrelated-target", help="Judge outputs no better than guessing, too.", rich_help_panel=TARGET
        ),
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(
            help="The target's design: mlp, liu-cnn, medical-cnn, or package.module:factory of your own Flax module. "
            "[default: liu-cnn for images, mlp for tables]",
            rich_help_panel=SHADOW,
        ),
    ] = None,
    hidden: Annotated[
        str | None, typer.Option(help="Widths of mlp's hidden layers. [default: 512,256,128]", rich_help_panel=SHADOW)
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Walks through the training data. [default: 15]", rich_help_panel=SHADOW)
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Records a step.", rich_help_panel=SHADOW)] = 64,
    learning_rate: Annotated[float, typer.Option(help="The optimiser's step.", rich_help_panel=SHADOW)] = 1e-3,
    optimizer: Annotated[
        Optimizer, typer.Option(help="Adam is with b1 = 0.5.", rich_help_panel=SHADOW)
    ] = Optimizer.adam,
    width: Annotated[
        int | None,
        typer.Option(
            min=1, help="Models trained side by side. [default: measured once a machine]", rich_help_panel=SHADOW
        ),
    ] = None,
    replicates: Annotated[
        int, typer.Option(min=1, help="Pairs of shadow models, each with its own seed.", rich_help_panel=AUDIT)
    ] = 5,
    controls: Annotated[
        int,
        typer.Option(min=0, help="Models trained on both sets, to prove that memory shows.", rich_help_panel=AUDIT),
    ] = 1,
    subsample: Annotated[
        float, typer.Option(help="Share of the calibration set each replicate draws.", rich_help_panel=AUDIT)
    ] = 0.9,
    level: Annotated[float, typer.Option(help="Confidence level of the interval.", rich_help_panel=AUDIT)] = 0.95,
    min_accuracy: Annotated[
        float, typer.Option(help="What well trained means, on a shadow's own data.", rich_help_panel=AUDIT)
    ] = 0.9,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="All randomness follows from it.", rich_help_panel=AUDIT)
    ] = 7,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of a table.", rich_help_panel=OUTPUT)
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Also write result and arrays into this new directory.", rich_help_panel=OUTPUT)
    ] = None,
    report: report_option.Report = None,
    fail_on: Annotated[
        list[FailOn] | None,
        typer.Option(help="Exit with status 3 where a target gets this verdict. Repeatable.", rich_help_panel=OUTPUT),
    ] = None,
) -> None:
    """Has a model forgotten a data set? (Liu & Tsaftaris 2020)

    Trains shadow models on the query and on the calibration data and compares confidences: rho of 1 or more means the
    target is no nearer to models that saw the query data than models that never did.

    Examples:

    `jaxaudit ks` (embedded data, targets of known truth, about a minute)

    `jaxaudit ks --query mnist --calibration svhn_cropped --target-data svhn_cropped --target-data mnist:0.1`

    `jaxaudit ks --query hospital_b.npz --calibration hospital_a/ --target outputs.csv --json`
    """
    given = {name: value.value if isinstance(value, enum.Enum) else value for name, value in locals().items()}
    from jaxaudit.cli.work import lasting_work

    report_option.claim(report, out)
    with lasting_work(out) as begin:
        from jaxaudit.cli.ks_run import arrays_of, run, save

        result, audit = run({name: value for name, value in given.items() if name not in OUTPUT_OPTIONS}, begin)
        try:
            if out is not None:
                save(out, result, audit)
            report_option.write(report, out, result, arrays_of(audit))
        finally:
            # Whatever becomes of the directory, the work is not lost.
            _show(result, audit, as_json)
    if {verdict.replace("-", " ") for verdict in fail_on or ()} & {target.verdict for target in audit.targets}:
        raise typer.Exit(3)


def _show(result: dict[str, Any], audit: "KSAudit", as_json: bool) -> None:
    if as_json:
        print(json.dumps(result, allow_nan=False), flush=True)
        return
    from rich.console import Console

    from jaxaudit.report.ks_table import ks_table

    Console().print(ks_table(audit, result["provenance"]["options"]["level"]))
