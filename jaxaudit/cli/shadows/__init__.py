"""`jaxaudit shadows`: its commands, and their options. Imports nothing heavy, so that `--help` is instant."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jaxaudit.cli.harness import Command
from jaxaudit.cli.options import BANK, DATA, MODEL, PLAIN, ModelSource, option, refuse_options
from jaxaudit.cli.own_code import ESTIMATOR, NETWORKS, OF_TEXTS, OWN, parse_judged
from jaxaudit.cli.parsers import is_of_sklearn
from jaxaudit.cli.shared_options import (
    MOST,
    DealtFlags,
    SetsFlags,
    ShadowNetwork,
    estimator_parameters,
    random_seed,
)
from jaxaudit.errors import InputError

Way = Literal["lower", "higher"]
OUTPUTS: dict[str, tuple[Literal["logits", "probabilities", "log_likelihood", "score"], Way | None]] = {
    "logits": ("logits", None),
    "probabilities": ("probabilities", None),
    "log-likelihood": ("log_likelihood", "higher"),
    "loss": ("log_likelihood", "lower"),
    "lower-score": ("score", "lower"),
    "higher-score": ("score", "higher"),
}
"""By the value of `--outputs`, what a bank calls it, and which numbers records have that a model was trained on."""


@dataclass(frozen=True)
class BankOptions(DealtFlags, SetsFlags):
    """The records of a bank, the number of its models, and where it is written."""

    drop_overlap: bool = option(
        DATA, "Use no record that occurs twice; its columns stay, and no model is trained on it.", default=False
    )
    id: str | None = option(
        DATA,
        "The column or array with your own name of each record: no input; kept in the bank, and written into the list "
        "and the records.csv of `attack`.",
        metavar="COLUMN",
    )
    coins: bool = option(
        DATA,
        "Deal each record to each model by a fair coin, with --groups each group: for attacks.",
        default=False,
    )
    bank: Path | None = option(
        PLAIN,
        "Write the bank into this new directory, or add models to it.",
        "--out",
        metavar="BANK",
        decides=False,
    )
    models: int | None = option(
        BANK,
        "Number of shadow models; more of them keep those of an existing bank. [default: 40 with a holdout, else 77]",
        minimum=1,
        maximum=MOST,
    )
    seed: int = random_seed(BANK)


@dataclass(frozen=True)
class PlanOptions(BankOptions):
    """All options of `jaxaudit shadows plan`."""

    holdout: str | None = option(
        DATA,
        "With --outputs of one number for each record: the number of records of the holdout, such as 400, or a .npy "
        "file of as many rows. Other sets come with --deal.",
        names="data",
    )
    outputs: Literal["logits", "probabilities", "log-likelihood", "loss", "lower-score", "higher-score"] = option(
        BANK,
        "What your script saves: logits or probabilities of every class; or one number for each record, such as a "
        "language model's: its log-likelihood in nats (mean over tokens), its loss (the same with the other sign), or "
        "a score of any unit that is lower or higher for records that a model was trained on. --query, --holdout and "
        "--calibration may then be numbers of records, such as 400, or .npy files of as many rows.",
        default="logits",
    )

    @property
    def one_number_a_record(self) -> bool:
        """Whether outputs are one number for each record, of records without classes."""
        return self.outputs not in ("logits", "probabilities")


@dataclass(frozen=True)
class TrainOptions(BankOptions, ShadowNetwork):
    """All options of `jaxaudit shadows train`."""

    model: str | None = option(
        MODEL,
        f"The target's network: {NETWORKS}, {OF_TEXTS} for texts (layers and width), the folder of a causal model of "
        f"transformers (--recipe lora), or {OWN}; or {ESTIMATOR}. [default: liu-cnn for images, mlp for tables, "
        f"{OF_TEXTS} for texts]",
        check=parse_judged,
        names="code",
        of=ModelSource.TRAINING | ModelSource.ESTIMATOR,
    )
    parameters: tuple[str, ...] = estimator_parameters()

    @property
    def source(self) -> ModelSource:
        """The origin of the models: networks of the options, or an estimator of scikit-learn. Whether your own code is
        a network or an estimator is known when it is loaded.
        """
        return ModelSource.ESTIMATOR if is_of_sklearn(self.model) else ModelSource.TRAINING


@dataclass(frozen=True)
class AddOptions:
    """All options of `jaxaudit shadows add`."""

    bank: Path = option(PLAIN, "Directory of the bank.", default=..., argument=True)
    files: tuple[Path, ...] = option(
        PLAIN,
        "Outputs on all records of the bank: .npz, .npy, .csv or .parquet.",
        default=...,
        argument=True,
        metavar="FILE",
    )
    model: int | None = option(
        PLAIN, "Number of the model that made FILE. [default: missing models in order]", minimum=0, maximum=MOST
    )


@dataclass(frozen=True)
class ShowOptions:
    """All options of `jaxaudit shadows show`."""

    bank: Path = option(PLAIN, "Directory of the bank.", default=..., argument=True)
    as_json: bool = option(PLAIN, "Print one JSON object.", "--json", default=False, decides=False)


@dataclass(frozen=True)
class ImportOptions:
    """All options of `jaxaudit shadows import`."""

    directory: Path = option(
        PLAIN,
        "Directory of tensorflow/privacy's LiRA, or of lira-pytorch.",
        default=...,
        argument=True,
        metavar="DIR",
    )
    out: Path = option(PLAIN, "Write the bank into this new directory.", default=..., metavar="BANK", decides=False)
    query_rows: Path | None = option(
        PLAIN, "The query set: numbers of records. [default: all but the holdout]", metavar="FILE.npy"
    )
    holdout_rows: Path | None = option(PLAIN, "The holdout, in the same way.", metavar="FILE.npy")
    labels: Path | None = option(
        PLAIN, "Classes of all records, from 0. [default: y_train.npy, if it is there]", metavar="FILE.npy"
    )


def _check_sets(options: BankOptions) -> None:
    query = options.query or options.deal
    for flag, value in (("--deal or --query, the data in question", query), ("--out, the directory", options.bank)):
        if value is None:
            raise InputError(f"{flag}, is missing.")


def _check_holdout(options: PlanOptions) -> None:
    if not options.one_number_a_record:
        refuse_options({"--holdout": options.holdout}, "is a number of records; a set of records is one of --deal")


def _check_model(options: AddOptions) -> None:
    if len(options.files) > 1 and options.model is not None:
        refuse_options({"--model": True}, f"names one model, but {len(options.files)} files were given")


PLAN = Command(
    "shadows plan",
    PlanOptions,
    "shadows.plan:write_planned_bank",
    """Deals the training sets of shadow models that your own script trains.

    Writes bank.json, labels.npy, membership.npy (a row per model, a column per record: the query set, the holdout, the
    calibration set) and seeds.npy. Your script trains model m on the records where row m is true, and saves its outputs
    on all records as outputs/00000.npy and so on. Repeated with more --models, it keeps those that are there.

    Examples:

    `jaxaudit shadows plan --deal deal --calibration c.npz --models 40 --out bank`

    `jaxaudit shadows plan --query q.npz --calibration c.npz --outputs probabilities --out bank`

    `jaxaudit shadows plan --query 400 --holdout 400 --outputs lower-score --out bank`
    """,
    (_check_sets, _check_holdout),
    first=("deal", "query", "bank"),
    compiles=False,
)
TRAIN = Command(
    "shadows train",
    TrainOptions,
    "shadows.train:prepare",
    """Trains shadow models and keeps their outputs, for any number of later audits.

    Models are trained many at once. Each one's outputs are written when its batch is done, so a stopped command
    continues where it was, and with more --models it keeps those that are there.

    The recipe of the models is --model, --epochs and the settings of --recipe:

    {recipe}

    Of texts, JSON Lines with prompt and answer, question and answer, or text, small language models are trained from
    nothing; a model's number of a record is the mean log-likelihood of its answer's tokens.

    Examples:

    `jaxaudit shadows train --deal deal --calibration c.npz --model mlp --epochs 40 --out bank`

    `jaxaudit shadows train --deal deal --model net.py:Net --models 128 --out bank`

    `jaxaudit shadows train --query q.csv --coins --model sklearn.ensemble:RandomForestClassifier --recipe
    n_estimators=100 --out bank` (--recipe has the parameters of the estimator)

    `jaxaudit shadows train --deal texts --model gpt-2-64 --recipe tokens=words --out bank`
    """,
    (_check_sets,),
    first=("deal", "query", "bank"),
)
ADD = Command(
    "shadows add",
    AddOptions,
    "shadows.add:add",
    """Adds outputs of shadow models to a bank.

    Refuses outputs of other records, classes or kind, outputs that another model has already, and outputs that fit the
    training records of another model overwhelmingly better (right outputs are refused at most once in 100 times). Says
    so where outputs cannot show which model they are of, as those of models that hardly remember their records. Files
    that are in the bank already are skipped, so the command can be repeated.

    Examples:

    `jaxaudit shadows add bank outputs_00.csv outputs_01.csv`

    `jaxaudit shadows add bank rerun.npy --model 7`
    """,
    (_check_model,),
    compiles=False,
)
SHOW = Command(
    "shadows show",
    ShowOptions,
    "shadows.add:show_bank",
    """Shows what is in a bank, which tests it allows, and what is missing.

    Examples:

    `jaxaudit shadows show bank`

    `jaxaudit shadows show bank --json`
    """,
    compiles=False,
)
IMPORT = Command(
    "shadows import",
    ImportOptions,
    "shadows.add:make_bank",
    """Makes a bank of the shadow models that another tool left.

    Reads the directory of tensorflow/privacy's mi_lira_2021 or of lira-pytorch (keep.npy and logits of every
    experiment; with --labels where there is no y_train.npy). All train on random records of one pool: rows that you
    choose at random, or a target's training records, are the query set, others the holdout, and the rest becomes the
    calibration set. A file of rows has numbers of records, or a boolean for each. Nothing there is changed.

    Examples:

    `jaxaudit shadows import exp/cifar10 --query-rows query.npy --holdout-rows holdout.npy --out bank`

    `jaxaudit shadows import demo_cifar10 --labels y_train.npy --out bank`
    """,
    compiles=False,
)
SHADOWS = (PLAN, TRAIN, ADD, SHOW, IMPORT)
