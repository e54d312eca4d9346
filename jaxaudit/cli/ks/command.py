"""`jaxaudit ks`: its options, and what is printed. Imports nothing heavy, so that `--help` is instant."""

import enum
import json
from pathlib import Path
from typing import Annotated

import typer

from jaxaudit.cli import preflight, report_option
from jaxaudit.cli.ks import options as shared


class TargetKind(enum.StrEnum):
    """What a file of outputs holds."""

    auto = "auto"
    probabilities = "probabilities"
    logits = "logits"


class FailOn(enum.StrEnum):
    """Verdicts a caller may want a status for."""

    forgotten = "forgotten"
    not_forgotten = "not-forgotten"
    inconclusive = "inconclusive"


class MethodChoice(enum.StrEnum):
    """What judges."""

    rho = "rho"
    ema = "ema"
    holdout = "holdout"
    shadow = "shadow"
    all = "all"


TARGET = "Target"

OUTPUT_OPTIONS = ("as_json", "out", "report", "fail_on", "dry_run")


def ks(
    query: shared.Query = None,
    calibration: shared.Calibration = None,
    holdout: Annotated[
        str | None,
        typer.Option(
            help="Records of the query set's provider that nobody was given: makes the test exact.",
            rich_help_panel=shared.DATA,
        ),
    ] = None,
    data_dir: shared.DataDir = None,
    image_size: shared.ImageSize = None,
    gray: shared.Gray = True,
    field_strength: shared.FieldStrength = None,
    drop_overlap: shared.DropOverlap = False,
    drop_unshared: shared.DropUnshared = False,
    target: Annotated[
        list[Path] | None,
        typer.Option(
            help="A target's outputs on the query set, in its order: .npz, .npy, .csv or .parquet. Repeatable.",
            rich_help_panel=TARGET,
        ),
    ] = None,
    holdout_target: Annotated[
        list[Path] | None,
        typer.Option(
            help="The same target's outputs on the holdout, in its order. Repeatable, in step with --target.",
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
    model: shared.Model = None,
    hidden: shared.Hidden = None,
    epochs: shared.Epochs = None,
    batch_size: shared.BatchSize = 64,
    learning_rate: shared.LearningRate = 1e-3,
    optimizer: shared.OptimizerChoice = shared.Optimizer.adam,
    width: shared.Width = None,
    method: Annotated[
        MethodChoice | None,
        typer.Option(help="What judges. [default: holdout with --holdout, else shadow]", rich_help_panel=shared.AUDIT),
    ] = None,
    shadows: shared.ShadowModels = None,
    holdout_shadows: shared.HoldoutShadows = None,
    replicates: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=shared.MOST_MODELS,
            help="rho: pairs of shadow models, each with its own seed. [default: 5]",
            rich_help_panel=shared.AUDIT,
        ),
    ] = None,
    controls: Annotated[
        int,
        typer.Option(
            min=0,
            max=shared.MOST_MODELS,
            help="rho: models trained on both sets, to prove that memory shows.",
            rich_help_panel=shared.AUDIT,
        ),
    ] = 1,
    subsample: Annotated[
        float,
        typer.Option(help="rho: share of the calibration set each replicate draws.", rich_help_panel=shared.AUDIT),
    ] = 0.9,
    level: Annotated[
        float, typer.Option(help="Confidence level of the intervals.", rich_help_panel=shared.AUDIT)
    ] = 0.95,
    min_accuracy: Annotated[
        float, typer.Option(help="What well trained means, on a shadow's own data.", rich_help_panel=shared.AUDIT)
    ] = 0.9,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How long it may take, such as 10m or 2h: records, models and design are chosen to fit, except those "
            "given by hand; none: everything in full. [default: 10m on a CPU, else none]",
            rich_help_panel=shared.AUDIT,
        ),
    ] = None,
    records: Annotated[
        int | None,
        typer.Option(
            min=20,
            help="Use at most so many records of each set, drawn at random. [default: all, as far as the budget goes]",
            rich_help_panel=shared.AUDIT,
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Say what would be done, how long it takes, and stop.", rich_help_panel=shared.AUDIT
        ),
    ] = False,
    seed: shared.Seed = 7,
    as_json: shared.AsJson = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Also write result and arrays into this new directory.", rich_help_panel=shared.OUTPUT),
    ] = None,
    report: report_option.Report = None,
    fail_on: Annotated[
        list[FailOn] | None,
        typer.Option(
            help="Exit with status 3 where a target gets this verdict. Repeatable.", rich_help_panel=shared.OUTPUT
        ),
    ] = None,
) -> None:
    """Has a model forgotten a data set, or never used it?

    Trains shadow models with and without the query data and asks which of them the target's outputs are like: how
    likely they are of a model that never used the data, of one that used all of it, and what share was used. Beside it
    stands rho (Liu & Tsaftaris 2020).

    Examples:

    `jaxaudit ks` (embedded data, targets of known truth, about a minute)

    `jaxaudit ks --query mnist` (what ten minutes allow; `--dry-run` says what that is)

    `jaxaudit ks --query mnist --calibration svhn_cropped --target-data svhn_cropped --target-data mnist:0.1`

    `jaxaudit ks --query hospital_b.npz --calibration hospital_a/ --target outputs.csv --json`

    `jaxaudit ks --query q.npz --calibration c.npz --target out.csv --holdout h.npz --holdout-target out_h.csv`
    """
    given = {name: value.value if isinstance(value, enum.Enum) else value for name, value in locals().items()}
    from jaxaudit.cli.work import lasting_work

    preflight.check(given)
    preflight.say_what_is_simulated(given)
    options = {name: value for name, value in given.items() if name not in OUTPUT_OPTIONS}
    with lasting_work(out) as begin:
        from jaxaudit.cli.ks.run import Planned, arrays_of, run, save
        from jaxaudit.cli.show import show, show_text
        from jaxaudit.report.ks.table import ks_table

        done = run(options, begin, dry_run)
        if isinstance(done, Planned):
            show_text(f"{json.dumps(done.numbers) if as_json else chr(10).join(done.lines)}\n")
            return
        result, audit = done
        table = ks_table(audit, result["provenance"]["options"]["level"])
        try:
            if out is not None:
                save(out, result, audit, table)
            report_option.write(report, out, result, arrays_of(audit))
        finally:
            # Whatever becomes of the directory, the work is not lost.
            show(table, result if as_json else None)
    if {verdict.replace("-", " ") for verdict in fail_on or ()} & {target.verdict for target in audit.targets}:
        raise typer.Exit(3)
