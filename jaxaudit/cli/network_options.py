"""The options that say which images or tables, and which network: the same for every command on weights."""

import enum
from pathlib import Path
from typing import Annotated

import typer

DATA, NETWORK, AUDIT, OUTPUT = "Data", "Network", "Audit", "Output"


class Optimizer(enum.StrEnum):
    """How the network is trained."""

    adam = "adam"
    sgd = "sgd"


DataDir = Annotated[
    Path | None,
    typer.Option(envvar="JAXAUDIT_DATA", help="Where data sets and their original files lie.", rich_help_panel=DATA),
]
ImageSize = Annotated[
    str,
    typer.Option(help="Resize images to HEIGHTxWIDTH; none keeps their size.", rich_help_panel=DATA),
]
Gray = Annotated[bool, typer.Option("--gray/--color", help="Make images gray.", rich_help_panel=DATA)]
Hidden = Annotated[str, typer.Option(help="Widths of mlp's hidden layers.", rich_help_panel=NETWORK)]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="All randomness follows from it.", rich_help_panel=AUDIT)]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object instead of a table.", rich_help_panel=OUTPUT)
]
