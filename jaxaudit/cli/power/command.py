"""`jaxaudit power`: its options, and what is printed. Imports nothing heavy, so that `--help` is instant."""

import enum
from typing import Annotated

import typer

from jaxaudit.cli import preflight
from jaxaudit.cli.ks import options as shared


def power(
    query: shared.Query = None,
    calibration: shared.Calibration = None,
    holdout_size: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Records that the provider could keep back. [default: as many as the query set has]",
            rich_help_panel=shared.DATA,
        ),
    ] = None,
    data_dir: shared.DataDir = None,
    image_size: shared.ImageSize = None,
    gray: shared.Gray = True,
    field_strength: shared.FieldStrength = None,
    drop_overlap: shared.DropOverlap = False,
    drop_unshared: shared.DropUnshared = False,
    model: shared.Model = None,
    hidden: shared.Hidden = None,
    epochs: shared.Epochs = None,
    batch_size: shared.BatchSize = 64,
    learning_rate: shared.LearningRate = 1e-3,
    optimizer: shared.OptimizerChoice = shared.Optimizer.adam,
    width: shared.Width = None,
    fraction: Annotated[
        float, typer.Option(help="A used share of the query set to notice.", rich_help_panel=shared.AUDIT)
    ] = 0.1,
    holdout_shadows: shared.HoldoutShadows = None,
    seed: shared.Seed = 7,
    as_json: shared.AsJson = False,
) -> None:
    """How small a used part of a data set could `jaxaudit ks --holdout` notice?

    Trains shadow models, each on half of the query data and a share of the calibration data, and measures how far their
    outputs tell the halves apart. Then says how likely the use of 1% to 100% is noticed, with as many records as given,
    fewer and more.

    Examples:

    `jaxaudit power` (embedded data, about half a minute)

    `jaxaudit power --query q.npz --calibration c.npz --holdout-size 500 --fraction 0.05`
    """
    given = {name: value.value if isinstance(value, enum.Enum) else value for name, value in locals().items()}
    from jaxaudit.cli.work import lasting_work

    preflight.check(given)
    with lasting_work(None) as begin:
        from jaxaudit.cli.power.run import run
        from jaxaudit.cli.show import show
        from jaxaudit.report.power.table import power_table

        as_json = given.pop("as_json")
        result, answer = run(given, begin)
        show(power_table(answer), result if as_json else None)
