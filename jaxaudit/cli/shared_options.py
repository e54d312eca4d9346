"""Options that commands share, which their own inherit: a flag means the same everywhere. Imports nothing heavy."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jaxaudit.cli.options import (
    AUDIT,
    DATA,
    MODEL,
    OUTPUT,
    TRAINING,
    ModelSource,
    bank_option,
    fields_of,
    option,
    recipe_option,
    refuse_options,
    training_option,
)
from jaxaudit.cli.own_code import NETWORKS, OF_TEXTS, OWN, parse_judged, parse_model
from jaxaudit.cli.parsers import (
    MOST,
    groups_place,
    is_table,
    parse_hidden,
    parse_images,
    parse_lora,
    parse_template,
    parse_tokens,
    parse_workers,
    share_check,
)
from jaxaudit.data.formats import OF_SETS
from jaxaudit.errors import InputError

if TYPE_CHECKING:
    from jaxaudit.data.deals import NamedSets

TRAINED_HERE = ModelSource.TRAINING | ModelSource.BAYES | ModelSource.ESTIMATOR
GIVEN = ~ModelSource.BANK
"""Sources of models for options that have an effect if models are trained, or if sets are not those of a bank."""
DONE = "Exit status: 0: done. 1: a failure of the program. 2: an option or its data cannot be used."
JUDGED = (
    "Exit status: 0: done, whatever the verdict. 1: a failure of the program. 2: an option or its data cannot be used. "
    "3: a verdict that --fail-on names."
)
"""The end of the help of every command, and of commands with verdicts."""


@dataclass(frozen=True)
class Columns:
    """What the columns of a table are."""

    label: str | None = option(
        DATA,
        "Of a CSV or Parquet file: the column with the label. [default: label]",
        metavar="COLUMN",
    )
    drop: tuple[str, ...] = option(
        DATA, "Of a CSV or Parquet file: leave this column out. Repeatable.", default=(), metavar="COLUMN"
    )

    def check(self) -> None:
        """Refuses names of columns where no set can have any."""
        if (self.label is None and not self.drop) or getattr(self, "deal", None) is not None:
            return
        sets = [field.value for field in fields_of(self) if field.declared.names == "data"]
        self.refuse_without_table(source for source in sets if isinstance(source, str))

    def refuse_without_table(self, sets: Iterable[str]) -> None:
        """Refuses names of columns if none of these sets has any."""
        if not any(map(is_table, sets)):
            values = {"--label": self.label, "--drop": self.drop}
            refuse_options(values, "is of the columns of a CSV or Parquet file, and no set is one")


@dataclass(frozen=True)
class Images(Columns):
    """How images are prepared."""

    images: str | None = option(
        DATA,
        "Resize images to HEIGHTxWIDTH and make them gray; none keeps their size, and ,color their colors. [default of "
        "ks and power: 28x28]",
        default="none",
        metavar="SIZE[,color]",
        check=parse_images,
        of=GIVEN,
    )


@dataclass(frozen=True)
class Network:
    """A network, built-in or your own."""

    model: str | None = training_option(MODEL, "The network.", check=parse_model, names="code")
    hidden: str | None = recipe_option(
        MODEL, "Sizes of mlp's hidden layers. [default: 512,256,128]", check=parse_hidden
    )


def estimator_parameters() -> Any:
    """A field for the parameters of an estimator of scikit-learn, which are its recipe."""
    return option(
        MODEL,
        "Of an estimator of scikit-learn NAME is one of its parameters.",
        "--recipe",
        default=(),
        metavar="NAME=VALUE",
        of=ModelSource.ESTIMATOR,
    )


Optimizer = Literal["adam", "adamw", "sgd"]


@dataclass(frozen=True)
class RecipeFlags:
    """How a network is trained, and by whom."""

    epochs: int | None = training_option(
        TRAINING, "Training epochs. [default of shadow models: 15]", minimum=1, maximum=MOST
    )
    batch_size: int = recipe_option(TRAINING, "Batch size.", default=64, minimum=1, maximum=MOST)
    learning_rate: float = recipe_option(TRAINING, "Learning rate.", default=1e-3, check=share_check("learning_rate"))
    optimizer: Optimizer = recipe_option(TRAINING, "Optimizer; adam has b1 = 0.5.", default="adam")
    momentum: float | None = recipe_option(TRAINING, "sgd: momentum.", minimum=0, maximum=0.999999)
    weight_decay: float | None = recipe_option(
        TRAINING,
        "Weight decay as in PyTorch: decoupled for adamw, an L2 penalty for adam and sgd. [default: 0; 0.01 for adamw]",
        minimum=0,
        maximum=1e3,
    )
    clip_norm: float | None = recipe_option(
        TRAINING, "Clip each step's gradient to this norm, before the optimizer.", minimum=1e-9, maximum=1e9
    )
    schedule: Literal["constant", "cosine", "linear", "step"] = recipe_option(
        TRAINING, "Learning rate by epoch; step: a tenth after 1/2 and 3/4 of the epochs.", default="constant"
    )
    warmup: int | None = recipe_option(
        TRAINING, "Epochs in which the learning rate rises to its value. [default: 0]", minimum=0, maximum=MOST
    )
    label_smoothing: float | None = recipe_option(
        TRAINING, "Label smoothing, as in PyTorch. [default: 0]", minimum=0, maximum=0.999999
    )
    dropout: float | None = recipe_option(
        TRAINING, "Share of hidden units that a built-in network drops. [default: 0]", minimum=0, maximum=0.999999
    )
    augment: tuple[Literal["flip", "crop"], ...] = recipe_option(
        TRAINING, "Change images at random in every step. Repeatable, applied in this order.", default=()
    )
    precision: Literal["float32", "bfloat16"] | None = recipe_option(
        TRAINING, "bfloat16: train in mixed precision, parameters and loss in float32. [default: float32]"
    )
    models_per_batch: int | None = recipe_option(
        TRAINING,
        "Models per batch. [default: by the shapes of what is trained]",
        minimum=1,
        maximum=MOST,
        of=ModelSource.TRAINING | ModelSource.BAYES,
    )
    # Affects no number.
    workers: str | None = option(
        TRAINING,
        "Who trains: a number of processes of this machine, one per GPU or sharing its cores; ray, a Ray cluster (that "
        "of RAY_ADDRESS, else a Ray of this machine), or ray://HOST:PORT, one worker per GPU or per core; 4@ray, or "
        "4@ray://HOST:PORT, so many workers of the cluster. [default: this process]",
        metavar="N|[N@]ray[://HOST:PORT]",
        check=parse_workers,
        decides=False,
        of=TRAINED_HERE,
    )

    def check(self) -> None:
        """Rejects options that contradict one another."""
        if self.optimizer != "sgd":
            refuse_options({"--recipe momentum": self.momentum}, f"--recipe optimizer={self.optimizer} has its own")
        if self.warmup and self.epochs is not None and self.warmup >= self.epochs:
            raise InputError(
                f"--recipe warmup={self.warmup} takes all of --epochs {self.epochs}; give fewer epochs of warm-up."
            )


@dataclass(frozen=True)
class ShadowNetwork(Network, RecipeFlags):
    """Shadow models, and how they are trained."""

    model: str | None = training_option(
        MODEL,
        f"The target's network: {NETWORKS}, {OF_TEXTS} for texts (layers and width), the folder of a causal model of "
        f"transformers (--recipe lora), or {OWN}. [default: liu-cnn for images, mlp for tables, {OF_TEXTS} for texts]",
        check=parse_judged,
        names="code",
    )
    tokens: str | None = recipe_option(
        MODEL,
        "How texts become tokens: bytes, words (the 4,096 most frequent ones of all sets), or words:NUMBER. "
        "[default: bytes; the model's own with --recipe lora]",
        check=parse_tokens,
    )
    template: str | None = recipe_option(
        MODEL,
        "Text before an answer: {} is the prompt or question, \\n a line break. [default: a prompt as it is; a "
        "question as 'Question: {}\\nAnswer: '; a chat by the chat template of the tokenizer, with lora, or else the "
        "contents of its messages, a line break behind each]",
        check=parse_template,
    )
    lora: str | None = recipe_option(
        MODEL,
        "--model is the folder of a causal model of transformers and its tokenizer, which is frozen; train adapters of "
        "this rank on its linear layers (LoRA), such as 8, 8:16 or 8:16:q_proj,v_proj. ALPHA is their scale, times the "
        "rank [default: twice the rank]; LAYERS are the layers that have adapters, by their names or the ends of these "
        "[default: all but the output layer].",
        metavar="RANK[:ALPHA[:LAYERS]]",
        check=parse_lora,
    )


def random_seed(panel: str) -> Any:
    """A field for the random seed."""
    return option(panel, "Random seed. The same seed gives the same numbers.", default=7, minimum=0, maximum=2**32 - 1)


@dataclass(frozen=True)
class Seeded:
    """The random seed."""

    seed: int = random_seed(AUDIT)


@dataclass(frozen=True)
class Output:
    """What is printed and written; a command with verdicts has an option `fail_on` beside it, see `failing`."""

    as_json: bool = option(
        OUTPUT,
        "Print one JSON object instead of a table.",
        "--json",
        default=False,
        decides=False,
    )
    details: bool = option(
        OUTPUT,
        "Print all tables, checks and numbers, not the verdicts alone.",
        default=False,
        decides=False,
    )
    out: Path | None = option(
        OUTPUT,
        "Also write result and arrays into this new directory.",
        decides=False,
    )
    report: Path | None = option(
        OUTPUT,
        "Also write the result as one HTML page that works offline.",
        metavar="FILE.html",
        decides=False,
    )


def dealt_groups(panel: str, help: str, **declared: Any) -> Any:
    """A field for the groups of records: a file, or a name within the set's own file."""
    return option(panel, help, metavar="FILE|KEY", names="file", place=groups_place, **declared)


def failing() -> Any:
    """A field for `--fail-on`, whose kind has the command's verdicts."""
    return option(OUTPUT, "Exit with status 3 on this verdict. Repeatable.", default=(), decides=False)


Effort = Literal["quick", "full"]


@dataclass(frozen=True)
class SetsFlags(Images):
    """Options of query and calibration set, and of how they are prepared and matched."""

    query: str | None = option(
        DATA,
        "The query set (the data in question): NAME[@SPLIT] or a path. [default of ks and power: digits]",
        names="data",
    )
    calibration: str | None = option(
        DATA,
        "The calibration set: data of the same domain without any record of another set; `ks` and `power` leave such "
        "records out of it.",
        names="data",
        of=~ModelSource.ANSWERS,
    )


@dataclass(frozen=True)
class DealtFlags:
    """The sets of a deal, and the groups that were dealt whole."""

    deal: Path | None = option(
        DATA,
        "Folder of the sets, as `jaxaudit deal` writes it, or any with query.* and, of the same form, holdout.* "
        "(records of the same provider that nobody trained on), members.* (that the target did use) and calibration.*: "
        f"{', '.join(OF_SETS[:-1])} or {OF_SETS[-1]}.",
        metavar="FOLDER",
        names="file",
    )
    groups: str | None = dealt_groups(
        DATA,
        "The array, column or key with the group of each record, such as its patient, in the files of all sets, if "
        "groups were dealt whole. [default: group, where a deal wrote it]",
    )


def effort_of_plan(reduced: str) -> Any:
    """`--effort`, as a field; `reduced` are the words for what a plan leaves out, in that order."""
    return training_option(
        AUDIT,
        "How much is trained: quick takes about five minutes on two cores of a CPU, full all that the other options "
        f"ask for. {reduced} are reduced to fit, unless given. The plan depends on the shapes of the data and on the "
        "options alone: every machine trains the same.",
        default="quick",
    )


def bank_of_shadows(help: str) -> Any:
    """`--shadows`, as a field."""
    return bank_option(AUDIT, help, metavar="BANK", names="file")


def named_sets(options: SetsFlags) -> "NamedSets":
    """The sets that the options name; none may be missing but a query set that the command has an embedded one for."""
    # Imported here because NumPy takes a tenth of a second.
    from jaxaudit.data.deals import NamedSets, open_folder
    from jaxaudit.data.examples import Role, Sets
    from jaxaudit.data.paths import exists

    held, deal = getattr(options, "holdout", None), getattr(options, "deal", None)
    # Of a folder that is not there the check of all paths says so.
    if not (deal and exists(deal)):
        return NamedSets(Sets(query=options.query, calibration=options.calibration, holdout=held), options.label)
    folder = open_folder(deal)
    options.refuse_without_table((*folder.names.values(), options.calibration or ""))
    twice = {
        "--query": options.query,
        "--holdout": held,
        "--calibration": Role.CALIBRATION in folder.names and options.calibration,
    }
    refuse_options(twice, f"{deal} of --deal has that set")
    if None not in (options.label, folder.label) and options.label != folder.label:
        raise InputError(
            f"--label {options.label}: the deal in {deal} has the label in {folder.label!r}; leave it out."
        )
    return NamedSets(folder.names | Sets(calibration=options.calibration), options.label or folder.label, folder.key)
