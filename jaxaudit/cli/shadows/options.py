"""The options of `jaxaudit shadows`. Imports nothing heavy, so that `--help` is instant."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from jaxaudit.cli.groups import DATA, MODEL, MOST, TRAINING, Seeded
from jaxaudit.cli.ks.named_tests import parse_tests
from jaxaudit.cli.options import ModelSource, group, option
from jaxaudit.cli.own_model import own_code
from jaxaudit.cli.own_options import parse_field
from jaxaudit.cli.parsers import parse_image_size
from jaxaudit.cli.sets import MEANING, Held, SetsFlags, ShadowNetwork, ShadowRecipe, designs_of_shadows
from jaxaudit.errors import InputError

BANK = "Bank"
LONGEST_RECIPE = 10_000
OF_SCORES = ("score", "log-likelihood")
"""Outputs of one number for each record, of records without classes."""


@dataclass(frozen=True)
class BankData(Held, SetsFlags):
    """Options of the sets whose records shadow models are trained on."""

    query: str | None = option(
        "The query set (the data in question): NAME[@SPLIT] or a path.",
        names="data",
        usual="The query set: NAME[@SPLIT] or a path.",
    )
    calibration: str | None = option(
        "The calibration set: data of the same domain without any query record. Each model is trained on two thirds of "
        "it, with --coins on about half.",
        names="data",
        usual="The calibration set: data of the same domain.",
    )
    image_size: str | None = option(
        "Resize images to HEIGHTxWIDTH before records are compared; none keeps their size.",
        default="none",
        check=parse_image_size,
    )
    drop_overlap: bool = option(
        "Use no record that occurs twice; its columns stay, and no model is trained on it.", default=False
    )
    drop_unshared: bool = option("Do not use calibration records of classes without a query record.", default=False)
    coins: bool = option(
        "Deal each record to each model by a fair coin, with --groups each group: for attacks, and for a bound on "
        "epsilon (attack --delta).",
        default=False,
    )


@dataclass(frozen=True)
class BankModels(Seeded):
    """Options of which models a bank has."""

    models: int | None = option(
        "Number of shadow models; more of them keep those of an existing bank. [default: 40 with a holdout, else 77]",
        minimum=1,
        maximum=MOST,
        usual="Number of shadow models.",
    )
    tests: str | None = option(
        "Your own tests, as package.module:Test or file.py:Test: plan the models of the kinds that they define, too, "
        "beside --models. Those of built-in tests need no name.",
        metavar="NAME,...",
        check=lambda text: parse_tests(text, ()),
        names="codes",
    )
    test_option: tuple[str, ...] = option(
        "Set an option of a test of --tests: its name, a field, and a value, such as sureness.models=39. Repeatable.",
        default=(),
        metavar="NAME.FIELD=VALUE",
        check=partial(parse_field, "--test-option"),
    )


@dataclass(frozen=True)
class PlannedModels(BankModels):
    """Options of the planned models, and of what their files of outputs contain."""

    outputs: Literal["logits", "probabilities", "score", "log-likelihood"] = option(
        "What your script saves: logits or probabilities of every class, or one number for each record, such as a "
        "language model's: a score of any unit, or the log-likelihood in nats (mean over tokens). --query, --holdout "
        "and --calibration are then numbers of records, such as 400, or .npy files of as many rows.",
        default="logits",
        choices=("logits", "probabilities", "score", "log-likelihood"),
        usual="What your script saves, such as logits.",
    )
    direction: Literal["lower", "higher"] | None = option(
        "Which numbers records have that a model was trained on: lower, as losses are, or higher. Needed with "
        "--outputs score and log-likelihood.",
        choices=("lower", "higher"),
    )
    views: int = option(
        "Views of each record, such as augmentations, in every file of outputs.", default=1, minimum=1, maximum=10_000
    )
    designs: str | None = option(
        "Designs (network and training recipe) that models take turns in, by names of your own; see designs.npy.",
        metavar="NAME,...",
        check=lambda text: parse_own_designs(text),
    )
    recipe: str | None = option(
        "How the models are trained, in your words.",
        check=lambda text: check_recipe(text),
        usual="How the models are trained, in your words.",
    )


@dataclass(frozen=True)
class PlanOptions:
    """All options of `jaxaudit shadows plan`."""

    data: BankData = group(DATA, BankData())
    models: PlannedModels = group(BANK, PlannedModels())
    bank: Path | None = option(
        "Write the bank into this new directory, or add models to it.",
        "--out",
        metavar="BANK",
        decides=False,
        usual="Directory of the bank.",
    )


@dataclass(frozen=True)
class TrainedModels(BankModels):
    """Options of the models that the command trains."""

    designs: str = designs_of_shadows(f"Designs that the models take turns in: {MEANING}.")


@dataclass(frozen=True)
class BankNetwork(ShadowNetwork):
    """Options of the network of a bank's models, or of their learner."""

    learner: str | None = option(
        "Your own learner in place of a network and its training: a value with fit(key, inputs, labels, weights) and "
        "log_probs(params, inputs) as pure JAX functions, as package.module:learner or file.py:learner.",
        check=partial(own_code, "--learner"),
        names="code",
        usual="Your own learner in place of a network.",
    )


@dataclass(frozen=True)
class TrainOptions:
    """All options of `jaxaudit shadows train`."""

    data: BankData = group(DATA, BankData())
    models: TrainedModels = group(BANK, TrainedModels())
    model: BankNetwork = group(MODEL, BankNetwork())
    recipe: ShadowRecipe = group(TRAINING, ShadowRecipe())
    bank: Path | None = option(
        "Write the bank into this new directory, or add models to it.",
        "--out",
        metavar="BANK",
        decides=False,
        usual="Directory of the bank.",
    )

    @property
    def source(self) -> ModelSource:
        """The origin of the models: networks of the options, or your own learner."""
        return ModelSource.TRAINING if self.model.learner is None else ModelSource.LEARNER


@dataclass(frozen=True)
class AddOptions:
    """All options of `jaxaudit shadows add`."""

    bank: Path = option("Directory of the bank.", default=..., argument=True, usual="Directory of the bank.")
    files: tuple[Path, ...] = option(
        "Outputs on all records of the bank: .npz, .npy, .csv or .parquet.", default=..., argument=True, metavar="FILE"
    )
    model: int | None = option(
        "Number of the model that made FILE. [default: missing models in order]", minimum=0, maximum=MOST
    )


@dataclass(frozen=True)
class ShowOptions:
    """All options of `jaxaudit shadows show`."""

    bank: Path = option("Directory of the bank.", default=..., argument=True, usual="Directory of the bank.")
    as_json: bool = option("Print one JSON object.", "--json", default=False, decides=False)


@dataclass(frozen=True)
class ImportOptions:
    """All options of `jaxaudit shadows import`."""

    directory: Path = option(
        "Directory of tensorflow/privacy's LiRA, of lira-pytorch, or of Privacy Meter.",
        default=...,
        argument=True,
        metavar="DIR",
    )
    out: Path = option("Write the bank into this new directory.", default=..., metavar="BANK", decides=False)
    query_rows: Path | None = option(
        "The query set: numbers of records. [default: all but the holdout]", metavar="FILE.npy"
    )
    holdout_rows: Path | None = option("The holdout, in the same way.", metavar="FILE.npy")
    labels: Path | None = option(
        "Classes of all records, from 0. [default: y_train.npy, if it is there]", metavar="FILE.npy"
    )
    recipe: str | None = option(
        "How the models were trained. [default: as their files say]",
        check=lambda text: check_recipe(text),
        usual="How the models are trained, in your words.",
    )


def parse_own_designs(text: str) -> tuple[str, ...]:
    """Names separated by commas.

    >>> parse_own_designs("resnet, wide resnet")
    ('resnet', 'wide resnet')
    """
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise InputError("--designs must be different names, separated by commas, such as resnet,wide.")
    return names


def check_recipe(text: str) -> None:
    """Rejects a description that is too long."""
    if len(text) > LONGEST_RECIPE:
        raise InputError(f"--recipe has {len(text)} characters; give at most {LONGEST_RECIPE}.")
