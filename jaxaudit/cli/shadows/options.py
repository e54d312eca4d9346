"""`jaxaudit shadows plan` and `shadows train`: their options. Imports nothing heavy, so that `--help` is instant."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jaxaudit.cli.groups import DATA, MODEL, MOST, TRAINING, Seeded
from jaxaudit.cli.options import fields_of, group, option
from jaxaudit.cli.own_model import parse_learner
from jaxaudit.cli.sets import MEANING, USUAL, Held, Sets, ShadowNetwork, ShadowRecipe
from jaxaudit.cli.sets import parse_designs as parse_known
from jaxaudit.cli.words import parse_image_size
from jaxaudit.errors import InputError

BANK = "Bank"
LONGEST_RECIPE = 10_000


@dataclass(frozen=True)
class BankData(Held, Sets):
    """The sets whose records shadow models are trained on."""

    query: str | None = option(None, "The query set (the data in question): NAME[@SPLIT] or a path.", names="data")
    calibration: str | None = option(
        None,
        "The calibration set: data of the same domain without any query record. Each model is trained on two thirds of "
        "it, with --coins on about half.",
        names="data",
    )
    image_size: str | None = option(
        "none",
        "Resize images to HEIGHTxWIDTH before records are compared; none keeps their size.",
        check=parse_image_size,
    )
    drop_overlap: bool = option(
        False, "Use no record that occurs twice; its columns stay, and no model is trained on it."
    )
    drop_unshared: bool = option(False, "Do not use calibration records of classes without a query record.")
    coins: bool = option(
        False, "Deal each record to each model by a fair coin: for a bound on epsilon (attack --delta)."
    )


@dataclass(frozen=True)
class BankModels(Seeded):
    """The models, and what their files of outputs contain."""

    models: int | None = option(
        None,
        "Number of shadow models; more of them keep those of an existing bank. [default: 40 with a holdout, else 77]",
        minimum=1,
        maximum=MOST,
    )
    outputs: Literal["logits", "probabilities"] = option(
        "logits", "What your script saves.", choices=("logits", "probabilities")
    )
    views: int = option(
        1, "Views of each record, such as augmentations, in every file of outputs.", minimum=1, maximum=10_000
    )
    designs: str | None = option(
        None,
        "Designs (network and training recipe) that models take turns in, by names of your own; see designs.npy.",
        metavar="NAME,...",
        check=lambda text: parse_designs(text),
    )
    recipe: str | None = option(
        None, "How the models are trained, in your words.", check=lambda text: check_recipe(text)
    )


@dataclass(frozen=True)
class BankPlace:
    """Where the bank is."""

    bank: Path | None = option(
        None, "Write the bank into this new directory, or add models to it.", "--out", metavar="BANK", decides=False
    )


@dataclass(frozen=True)
class PlanOptions:
    """All options of `jaxaudit shadows plan`."""

    data: BankData = group(DATA, BankData())
    models: BankModels = group(BANK, BankModels())
    place: BankPlace = group(BANK, BankPlace())


@dataclass(frozen=True)
class TrainedModels(Seeded):
    """The models that are trained here."""

    models: int | None = option(
        None,
        "Number of shadow models; more of them keep those of an existing bank. [default: 40 with a holdout, else 77]",
        minimum=1,
        maximum=MOST,
    )
    recipe: tuple[str, ...] = option(
        (),
        f"Recipes (designs) that models take turns in: {MEANING}. Repeatable.",
        metavar="NAME",
        check=lambda text: parse_known(text, "--recipe"),
    )

    @property
    def designs(self) -> str:
        """The names of `--recipe` between commas."""
        return ",".join(self.recipe) or USUAL


@dataclass(frozen=True)
class BankNetwork(ShadowNetwork):
    """The network of the models of a bank, or their learner."""

    learner: str | None = option(
        None,
        "Your own learner in place of a network and its training: a value with fit(key, inputs, labels, weights) and "
        "log_probs(params, inputs) as pure JAX functions, as package.module:learner or file.py:learner.",
        check=parse_learner,
    )


@dataclass(frozen=True)
class TrainOptions:
    """All options of `jaxaudit shadows train`."""

    data: BankData = group(DATA, BankData())
    models: TrainedModels = group(BANK, TrainedModels())
    model: BankNetwork = group(MODEL, BankNetwork())
    recipe: ShadowRecipe = group(TRAINING, ShadowRecipe())
    place: BankPlace = group(BANK, BankPlace())


def parse_designs(text: str) -> tuple[str, ...]:
    """Names between commas.

    Raises:
        InputError: one is empty or given twice.

    >>> parse_designs("resnet, wide resnet")
    ('resnet', 'wide resnet')
    """
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise InputError("--designs must be different names, separated by commas, such as resnet,wide.")
    return names


def check_recipe(text: str) -> None:
    """Refuses a text that is no description."""
    if len(text) > LONGEST_RECIPE:
        raise InputError(f"--recipe has {len(text)} characters; give at most {LONGEST_RECIPE}.")


def used_options(options: TrainOptions) -> frozenset[str] | None:
    """The names of the options that mean something with a learner of one's own; None without one: all."""
    if options.model.learner is None:
        return None
    fields = [
        field.name for field in fields_of(options) if field.panel not in (MODEL, TRAINING) or not field.declared.decides
    ]
    return frozenset({*fields, "learner", "models_per_batch"} - {"recipe"})
