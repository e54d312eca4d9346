"""The options that say which table and which learner: the same for every command that audits a classifier."""

import enum
from pathlib import Path
from typing import Annotated

import typer

MOST = 1_000_000
"""Of whatever is counted: what lies above is a slip, and would be found out after the work."""

DATA, CLASSIFIER, AUDIT, OUTPUT = "Data", "Classifier", "Audit", "Output"


class LearnerName(enum.StrEnum):
    """The paper's learners."""

    nn = "nn"
    nb = "nb"
    lr = "lr"
    trees = "trees"
    knn = "knn"


class Missing(enum.StrEnum):
    """What becomes of missing numbers."""

    error = "error"
    drop = "drop"
    mean = "mean"
    category = "category"


class Optimizer(enum.StrEnum):
    """How the network is trained."""

    adam = "adam"
    sgd = "sgd"


Data = Annotated[
    str | None,
    typer.Option(
        help="NAME[@SPLIT]: breast-cancer, wine, adult, location, purchase, acs, or a set of images such as digits. "
        "[default: breast-cancer]",
        rich_help_panel=DATA,
    ),
]
Csv = Annotated[
    Path | None,
    typer.Option(
        "--csv",
        "--table",
        help="Your own table: CSV with a line of column names, or Parquet.",
        rich_help_panel=DATA,
    ),
]
Label = Annotated[str | None, typer.Option(help="The column of --csv to classify by.", rich_help_panel=DATA)]
Categorical = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Take this column's values as categories. Repeatable.", rich_help_panel=DATA),
]
Numeric = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Take this column's values as numbers. Repeatable.", rich_help_panel=DATA),
]
Drop = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN", help="Leave this column out. Repeatable.", rich_help_panel=DATA)
]
MissingNumbers = Annotated[
    Missing,
    typer.Option(
        "--missing",
        help="Missing numbers of --csv: refuse them, drop their records, take the column's mean, or that and a "
        "category column that says where.",
        rich_help_panel=DATA,
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(help="What stands between the cells of --csv; tab is a word. [default: found]", rich_help_panel=DATA),
]
Encoding = Annotated[
    str | None,
    typer.Option(help="Of --csv: utf-8, utf-16, cp1252, ... [default: found]", rich_help_panel=DATA),
]
Decimal = Annotated[
    str | None, typer.Option(help="The decimal sign of --csv: . or , [default: found]", rich_help_panel=DATA)
]
DataDir = Annotated[
    Path | None,
    typer.Option(envvar="JAXAUDIT_DATA", help="Where data sets and their original files lie.", rich_help_panel=DATA),
]
Learner = Annotated[
    LearnerName,
    typer.Option(
        help="Neural network, naive Bayes, logistic regression, random decision trees, or nearest neighbours.",
        rich_help_panel=CLASSIFIER,
    ),
]
Hidden = Annotated[str, typer.Option(help="nn: widths of the tanh layers.", rich_help_panel=CLASSIFIER)]
Epochs = Annotated[
    int, typer.Option(min=1, max=MOST, help="nn: walks through the training data.", rich_help_panel=CLASSIFIER)
]
BatchSize = Annotated[int, typer.Option(min=1, max=MOST, help="nn: records a step.", rich_help_panel=CLASSIFIER)]
LearningRate = Annotated[float, typer.Option(help="nn: the optimiser's step.", rich_help_panel=CLASSIFIER)]
OptimizerName = Annotated[
    Optimizer, typer.Option("--optimizer", help="nn: Adam is with b1 = 0.5.", rich_help_panel=CLASSIFIER)
]
Smoothing = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1e6,
        help="nb, trees, knn: added to every count. [default: 1; 0.01 for knn]",
        rich_help_panel=CLASSIFIER,
    ),
]
Penalty = Annotated[
    float,
    typer.Option(
        min=1e-9, max=1e9, help="lr: half the weight of the squared coefficients, 1 / C.", rich_help_panel=CLASSIFIER
    ),
]
Trees = Annotated[int, typer.Option(min=1, max=MOST, help="trees: how many.", rich_help_panel=CLASSIFIER)]
Depth = Annotated[int, typer.Option(min=1, max=20, help="trees: splits from root to leaf.", rich_help_panel=CLASSIFIER)]
Neighbours = Annotated[int, typer.Option(min=1, max=MOST, help="knn: how many are asked.", rich_help_panel=CLASSIFIER)]
Width = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MOST,
        help="Models trained side by side. [default: measured once a machine]",
        rich_help_panel=CLASSIFIER,
    ),
]
Bins = Annotated[
    int,
    typer.Option(
        min=0, max=MOST, help="Bins outputs are put into before they are compared; 0: none.", rich_help_panel=AUDIT
    ),
]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="All randomness follows from it.", rich_help_panel=AUDIT)]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object instead of a table.", rich_help_panel=OUTPUT)
]
Out = Annotated[
    Path | None, typer.Option(help="Also write result and arrays into this new directory.", rich_help_panel=OUTPUT)
]
