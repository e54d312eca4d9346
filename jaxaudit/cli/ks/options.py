"""The options that `jaxaudit ks` and `jaxaudit power` share. Imports nothing heavy, so that `--help` is instant."""

import enum
from pathlib import Path
from typing import Annotated

import typer

from jaxaudit.cli.own_model import OWN

DATA, SHADOW, AUDIT, OUTPUT = "Data", "Shadow models", "Audit", "Output"
MOST_MODELS, MOST_EPOCHS, MOST_RECORDS = 10_000, 1_000_000, 1_000_000
"""What no machine gets through is refused before it is begun."""


class Optimizer(enum.StrEnum):
    """How shadow models are trained."""

    adam = "adam"
    sgd = "sgd"


Query = Annotated[
    str | None,
    typer.Option(help="The data in question: NAME[@SPLIT] or a path. [default: digits]", rich_help_panel=DATA),
]
Calibration = Annotated[
    str | None,
    typer.Option(
        help="Data of the same domain, none of it in the query set. [default: printed-digits]", rich_help_panel=DATA
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(envvar="JAXAUDIT_DATA", help="Where data sets and their original files lie.", rich_help_panel=DATA),
]
ImageSize = Annotated[
    str | None,
    typer.Option(
        help="Resize images to HEIGHTxWIDTH; none keeps their size. [default: 28x28; none for medical-cnn]",
        rich_help_panel=DATA,
    ),
]
Gray = Annotated[bool, typer.Option("--gray/--color", help="Make images gray.", rich_help_panel=DATA)]
FieldStrength = Annotated[
    Path | None,
    typer.Option(
        help="CSV of patient,field_strength for acdc:FOLDER@STRENGTH. [default: FOLDER/field_strength.csv]",
        rich_help_panel=DATA,
    ),
]
DropOverlap = Annotated[
    bool,
    typer.Option(
        "--drop-overlap",
        help="Drop calibration records that are in the query set or the holdout, and what has copies in these two, "
        "with its outputs.",
        rich_help_panel=DATA,
    ),
]
DropUnshared = Annotated[
    bool,
    typer.Option(
        "--drop-unshared", help="Drop calibration classes the query set has no record of.", rich_help_panel=DATA
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        help=f"The target's design: mlp, liu-cnn, medical-cnn, or {OWN}. [default: liu-cnn for images, mlp for tables]",
        rich_help_panel=SHADOW,
    ),
]
Hidden = Annotated[
    str | None, typer.Option(help="Widths of mlp's hidden layers. [default: 512,256,128]", rich_help_panel=SHADOW)
]
Epochs = Annotated[
    int | None, typer.Option(min=1, max=MOST_EPOCHS, help="Training epochs. [default: 15]", rich_help_panel=SHADOW)
]
BatchSize = Annotated[int, typer.Option(min=1, max=MOST_RECORDS, help="Records a step.", rich_help_panel=SHADOW)]
LearningRate = Annotated[float, typer.Option(help="The optimiser's step.", rich_help_panel=SHADOW)]
OptimizerChoice = Annotated[Optimizer, typer.Option(help="Adam is with b1 = 0.5.", rich_help_panel=SHADOW)]
Width = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MOST_MODELS,
        help="Models trained side by side. [default: measured once a machine]",
        rich_help_panel=SHADOW,
    ),
]
ShadowModels = Annotated[
    int | None,
    typer.Option(
        min=19,
        max=MOST_MODELS,
        help="Shadow test: models that never saw the query set; half as many (19 or more) saw half, and all of it. "
        "[default: 39]",
        rich_help_panel=AUDIT,
    ),
]
HoldoutShadows = Annotated[
    int | None,
    typer.Option(
        min=19,
        max=MOST_MODELS,
        help="Holdout test: models, each trained on a part of the query set and of the holdout. [default: 31]",
        rich_help_panel=AUDIT,
    ),
]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="All randomness follows from it.", rich_help_panel=AUDIT)]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object instead of a table.", rich_help_panel=OUTPUT)
]
