"""Options of the query and the calibration set, shared by `ks` and `power`. Imports nothing heavy."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from jaxaudit.cli.groups import GIVEN, MOST, Images, Network, RecipeFlags, TextNetwork, dealt_groups
from jaxaudit.cli.options import ModelSource, bank_option, option, training_option
from jaxaudit.cli.own_model import NETWORKS, OF_TEXTS, OWN, parse_judged
from jaxaudit.cli.parsers import parse_image_size, parse_names, share_check
from jaxaudit.errors import InputError

GUESS = "guess"
FIVE = (GUESS, "shorter", "longer", "momentum", "wider")
"""The smallest set of designs that kept the holdout test's error rates: see experiments/."""
DESIGNS = (*FIVE, "narrower", "adam", "augmented", "plain")
"""All designs, in the order in which models take turns among them."""
Effort = Literal["quick", "standard", "full"]
USUAL, ALL = "usual", "all"
MEANING = (
    f"{', '.join(FIVE)} (together: {USUAL}, the default), {', '.join(DESIGNS[len(FIVE) :])} (without --augment). The "
    "guess, which the other options describe, is always among them"
)
"""Text for the help of every command with designs."""


@dataclass(frozen=True)
class SetsFlags(Images):
    """Options of query and calibration set, and of how they are prepared and matched."""

    query: str | None = option(
        "The query set (the data in question): NAME[@SPLIT] or a path. [default: digits]",
        names="data",
        usual="The query set: NAME[@SPLIT] or a path.",
    )
    calibration: str | None = option(
        "The calibration set: data of the same domain without any query record. [default: printed-digits]",
        names="data",
        of=~ModelSource.ANSWERS,
        usual="The calibration set: data of the same domain.",
    )
    image_size: str | None = option(
        "Resize images to HEIGHTxWIDTH; none keeps their size. [default: 28x28; none for medical-cnn]",
        check=parse_image_size,
        of=GIVEN,
    )
    field_strength: Path | None = option(
        "CSV of patient,field_strength for acdc:FOLDER@STRENGTH. [default: FOLDER/field_strength.csv]", names="file"
    )
    drop_overlap: bool = option(
        "Drop calibration records that are in the query set or the holdout, and reference records that are in any of "
        "these; drop records that are in both query set and holdout. Their outputs are dropped, too.",
        default=False,
        of=GIVEN,
    )
    drop_unshared: bool = option("Drop calibration classes that have no query record.", default=False, of=GIVEN)


@dataclass(frozen=True)
class Held:
    """The holdout, and the groups that were dealt into query set and holdout."""

    holdout: str | None = option(
        "Records of the query set's provider that the target was not trained on. With a holdout the test is exact.",
        names="data",
        usual="Records of the same provider, in no training.",
    )
    groups: str | None = dealt_groups(
        "Group of each query record, such as its patient, if groups were dealt whole into query set and holdout: .npy, "
        ".csv, or the name of an array in the set's .npz or of a column in its .csv.",
        of=GIVEN,
    )
    holdout_groups: str | None = dealt_groups("The same for each holdout record.", of=GIVEN)


@dataclass(frozen=True)
class ShadowNetwork(TextNetwork, Network):
    """The shadow models."""

    model: str | None = training_option(
        f"The target's network: {NETWORKS}, {OF_TEXTS} for texts (layers and width), the folder of a causal model of "
        f"transformers (--lora), or {OWN}. [default: liu-cnn for images, mlp for tables, {OF_TEXTS} for texts]",
        check=parse_judged,
        names="code",
        usual="The target's network: built-in, or your own.",
    )


@dataclass(frozen=True)
class ShadowRecipe(RecipeFlags):
    """How the shadow models are trained."""

    epochs: int | None = training_option("Training epochs. [default: 15]", minimum=1, maximum=MOST)
    patience: int | None = training_option(
        "Stop early: keep the epoch with the least loss on records of a model's own that are held back, and stop after "
        "this many epochs without a better one.",
        minimum=1,
        maximum=MOST,
    )
    validation: float | None = training_option(
        "Share of a model's training records that is held back. They count as used. [default: 0.1, with --patience]",
        check=share_check("validation"),
    )

    @property
    def duration(self) -> str:
        """How long a model is trained, in words."""
        return f"{'' if self.patience is None else 'at most '}{self.epochs} epochs each"

    def check(self) -> None:
        super().check()
        if self.validation is not None and self.patience is None:
            raise InputError("--validation is of early stopping; add --patience, such as 5, or leave it out.")


def shadow_count(default: int, help: str) -> Any:
    """A number of shadow models of a test, as a field: at least 19, for a p-value of 0.05."""
    return training_option(f"{help} [default: {default}]", minimum=19, maximum=MOST)


def effort_of_plan(reduced: str) -> Any:
    """`--effort`, as a field; `reduced` are the words for what a plan leaves out, in that order."""
    return training_option(
        "How much is trained: quick takes about ten minutes on two cores of a CPU, standard about an hour, full all "
        f"that the other options ask for. {reduced} are reduced to fit, unless given. The plan depends on the shapes "
        "of the data and on the options alone: every machine trains the same.",
        default="quick",
        choices=get_args(Effort),
        usual="How much is trained: quick, standard or full.",
    )


def designs_of_shadows(help: str) -> Any:
    """`--designs`, as a field."""
    return training_option(help, default=USUAL, metavar="NAME,...", check=parse_designs)


def parse_designs(text: str) -> tuple[str, ...]:
    """The designs of a list of names, the guess first; `all` is what the usual ones were called before.

    >>> parse_designs("narrower,longer")
    ('guess', 'longer', 'narrower')
    """
    listed_names = parse_names(USUAL if text == ALL else text, (*DESIGNS, USUAL), "--designs")
    names = {GUESS, *listed_names, *(FIVE if USUAL in listed_names else ())}
    return tuple(design for design in DESIGNS if design in names)


def bank_of_shadows(help: str, usual: str) -> Any:
    """`--shadows`, as a field."""
    return bank_option(help, metavar="BANK", names="file", usual=usual)


def check_group_options(data: Any) -> None:
    """Refuses groups of one set without those of the other, and without a holdout unless coins deal them."""
    if data.holdout is None:
        if data.holdout_groups is not None:
            raise InputError("--holdout-groups needs --holdout: the set whose groups these are.")
        if data.groups is not None and not getattr(data, "coins", False):
            raise InputError("--groups needs --holdout: only the holdout test uses groups.")
    elif (data.groups is None) != (data.holdout_groups is None):
        raise InputError("--groups and --holdout-groups need each other: give the group of each record of both sets.")
    if data.groups is not None and data.query is None:
        raise InputError("--groups needs --query: the embedded sets have no groups.")
