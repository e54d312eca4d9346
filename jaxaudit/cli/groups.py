"""Groups of options that commands share, so that a flag means the same everywhere. Imports nothing heavy."""

from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from jaxaudit.cli.options import EVERY_SOURCE, ModelSource, option, training_option
from jaxaudit.cli.own_model import own_code, parse_model
from jaxaudit.cli.parsers import (
    groups_place,
    is_table,
    parse_cluster,
    parse_hidden,
    parse_image_size,
    parse_template,
    parse_tokens,
    share_check,
)
from jaxaudit.errors import InputError

DATA, MODEL, TRAINING, AUDIT, OUTPUT = "Data", "Model", "Training", "Audit", "Output"
MOST = 1_000_000
"""The largest count that options accept: no machine can do more, so a larger number is a typing error."""
TRAINED = ModelSource.TRAINING | ModelSource.LEARNER
GIVEN = ~ModelSource.BANK
"""Sources of models for options that have an effect if models are trained, or if sets are not those of a bank."""
DONE = "Exit status: 0: done. 1: a failure of the program. 2: an option or its data cannot be used."
JUDGED = (
    "Exit status: 0: done, whatever the verdict. 1: a failure of the program. 2: an option or its data cannot be used. "
    "3: a verdict that --fail-on names."
)
"""The end of the help of every command, and of commands with verdicts."""


@dataclass(frozen=True)
class DataFolder:
    """Where data sets are stored."""

    data_dir: Path | None = option(
        "Folder of data sets and of their original files.", variable="JAXAUDIT_DATA", names="data"
    )


@dataclass(frozen=True)
class Columns(DataFolder):
    """Where data sets are stored, and what the columns of a table are."""

    label: str | None = option(
        "Of a CSV or Parquet file: the column with the label. [default: the one named label, labels, class, target or "
        "y, else the last]",
        metavar="COLUMN",
    )
    drop: tuple[str, ...] = option(
        "Of a CSV or Parquet file: leave this column out. Repeatable.", default=(), metavar="COLUMN"
    )

    def check(self) -> None:
        """Refuses names of columns where no set can have any."""
        if self.label is None and not self.drop:
            return
        sets = [getattr(self, field.name) for field in fields(self) if field.metadata["declared"].names == "data"]
        names = [source.rpartition("@")[0] or source for source in sets if isinstance(source, str)]
        if not any(is_table(name) for name in names):
            flag = "--drop" if self.label is None else "--label"
            raise InputError(f"{flag} is of the columns of a CSV or Parquet file, and no set is one; leave it out.")


@dataclass(frozen=True)
class Images(Columns):
    """How images are prepared."""

    image_size: str | None = option(
        "Resize images to HEIGHTxWIDTH; none keeps their size.", default="none", check=parse_image_size, of=GIVEN
    )
    gray: bool = option("Convert images to grayscale.", "--gray/--color", default=True, of=GIVEN)


@dataclass(frozen=True)
class Network:
    """A network, built-in or your own."""

    model: str | None = training_option(
        "The network.", check=parse_model, names="code", usual="The network: a built-in one, or your own."
    )
    hidden: str | None = training_option("Sizes of mlp's hidden layers. [default: 512,256,128]", check=parse_hidden)


@dataclass(frozen=True)
class TextNetwork:
    """A network of texts."""

    tokens: str | None = option(
        "How texts become tokens: bytes, words (the 4,096 most frequent ones of all sets), or words:NUMBER. "
        "[default: bytes; the model's own with --lora]",
        check=parse_tokens,
        of=TRAINED,
    )
    template: str | None = option(
        "Text before an answer: {} is the prompt or question, \\n a line break. [default: a prompt as it is; a "
        "question as 'Question: {}\\nAnswer: '; a chat by the chat template of the tokenizer, with --lora, or else the "
        "contents of its messages, a line break behind each]",
        check=parse_template,
        of=TRAINED,
    )
    lora: int | None = training_option(
        "--model is the folder of a causal model of transformers and its tokenizer, which is frozen; train adapters of "
        "this rank on its linear layers (LoRA).",
        minimum=1,
        maximum=4096,
        metavar="RANK",
    )
    lora_alpha: float | None = training_option(
        "Scale of the adapters, times their rank. [default: twice the rank]", minimum=1e-6, maximum=1e6
    )
    lora_layers: str | None = training_option(
        "The linear layers that have adapters, by their names or the ends of these. [default: all but the output "
        "layer]",
        metavar="NAME,...",
    )


@dataclass(frozen=True)
class Machines:
    """Options of who trains. They affect no number, unless devices are mixed."""

    workers: int | None = option(
        "Train by this many processes of this machine, one per GPU or sharing its cores; with --cluster, workers of "
        "the cluster. [default: this process; with --cluster, one per GPU, or per core]",
        minimum=1,
        maximum=MOST,
        decides=False,
        of=TRAINED,
    )
    cluster: str | None = option(
        "Train on a Ray cluster: ray (that of RAY_ADDRESS, else a Ray of this machine) or ray://HOST:PORT.",
        metavar="ray|ray://HOST:PORT",
        check=parse_cluster,
        decides=False,
        of=TRAINED,
    )
    mixed_devices: bool = option(
        "Accept workers with other devices or versions of JAX, which round differently; the result says so.",
        default=False,
        of=TRAINED,
    )
    dry_run: bool = option(
        "Print what the run would take (training is begun, and timed), and stop.",
        default=False,
        decides=False,
        of=TRAINED,
        usual="Print what the run would take, and stop.",
    )

    @property
    def spread(self) -> bool:
        """Whether other processes train."""
        return self.workers is not None or self.cluster is not None


@dataclass(frozen=True)
class RecipeFlags(Machines):
    """How a network is trained."""

    epochs: int | None = training_option("Training epochs.", minimum=1, maximum=MOST, usual="Training epochs.")
    batch_size: int = training_option("Batch size.", default=64, minimum=1, maximum=MOST)
    learning_rate: float = training_option("Learning rate.", default=1e-3, check=share_check("learning_rate"))
    optimizer: str = training_option(
        "Optimizer: adam (b1 = 0.5), adamw, sgd, or your own function of the learning rate that returns an Optax "
        "transformation, as package.module:function or file.py:function.",
        default="adam",
        check=partial(own_code, "--optimizer"),
        names="code",
    )
    momentum: float | None = training_option("sgd: momentum.", minimum=0, maximum=0.999999)
    weight_decay: float | None = training_option(
        "Weight decay as in PyTorch: decoupled for adamw, an L2 penalty for adam and sgd. [default: 0; 0.01 for adamw]",
        minimum=0,
        maximum=1e3,
    )
    clip_norm: float | None = training_option(
        "Clip each step's gradient to this norm, before the optimizer.", minimum=1e-9, maximum=1e9
    )
    schedule: str = training_option(
        "Learning rate by epoch; step: a tenth after 1/2 and 3/4 of the epochs.",
        default="constant",
        choices=("constant", "cosine", "linear", "step"),
    )
    warmup: int | None = training_option(
        "Epochs in which the learning rate rises to its value. [default: 0]", minimum=0, maximum=MOST
    )
    label_smoothing: float | None = training_option(
        "Label smoothing, as in PyTorch. [default: 0]", minimum=0, maximum=0.999999
    )
    dropout: float | None = training_option(
        "Share of hidden units that a built-in network drops. [default: 0]", minimum=0, maximum=0.999999
    )
    augment: tuple[str, ...] = training_option(
        "Change images at random in every step: flip, crop, cutout, noise, or your own function(key, inputs) as "
        "package.module:function or file.py:function. Repeatable, applied in this order.",
        default=(),
        metavar="NAME",
        check=partial(own_code, "--augment"),
        names="code",
    )
    precision: str | None = training_option(
        "bfloat16: train in mixed precision, parameters and loss in float32. [default: float32]",
        choices=("float32", "bfloat16"),
    )
    models_per_batch: int | None = option(
        "Models per batch. [default: by shapes in ks, power and shadows; else measured once a machine]",
        minimum=1,
        maximum=MOST,
        of=TRAINED,
    )

    def check(self) -> None:
        """Rejects options that contradict one another."""
        if self.mixed_devices and not self.spread:
            raise InputError("--mixed-devices is of workers; add --cluster or --workers, or leave it out.")
        is_own = own_code("--optimizer", self.optimizer) is not None
        if self.momentum and self.optimizer != "sgd":
            has = "sets its own" if is_own else "has its own (b1)"
            raise InputError(f"--momentum is of sgd, and {self.optimizer} {has}; leave it out, or use --optimizer sgd.")
        if self.weight_decay is not None and is_own:
            raise InputError(
                f"--weight-decay is of adam, adamw and sgd, and {self.optimizer} sets its own; leave it out."
            )
        if self.warmup and self.epochs is not None and self.warmup >= self.epochs:
            raise InputError(
                f"--warmup {self.warmup} takes all of --epochs {self.epochs}; give fewer epochs of warm-up."
            )


@dataclass(frozen=True)
class Seeded:
    """The random seed."""

    seed: int = option("Random seed. The same seed gives the same numbers.", default=7, minimum=0, maximum=2**32 - 1)


@dataclass(frozen=True)
class Level(Seeded):
    """The random seed, and the confidence level of the intervals."""

    level: float = option("Confidence level of the intervals.", default=0.95, check=share_check("level"))


@dataclass(frozen=True)
class Output:
    """Options of what is printed and written; a command with verdicts adds `fail_on`, see `failing`."""

    as_json: bool = option(
        "Print one JSON object instead of a table.",
        "--json",
        default=False,
        decides=False,
        usual="Print one JSON object instead of a table.",
    )
    details: bool = option(
        "Print all tables, checks and numbers, not the verdicts alone.",
        default=False,
        decides=False,
        usual="Print all tables, checks and numbers.",
    )
    out: Path | None = option(
        "Also write result and arrays into this new directory.",
        decides=False,
        usual="Also write the result into this new directory.",
    )
    report: Path | None = option(
        "Also write the result as one HTML page that works offline.",
        metavar="FILE.html",
        decides=False,
        usual="Also write the result as one HTML page.",
    )


@dataclass(frozen=True)
class ListOutput(Output):
    """Options of output, and the number of records that a terminal lists."""

    top: int = option("Number of records to list.", default=10, minimum=0, maximum=MOST, decides=False)


def dealt_groups(help: str, of: ModelSource = EVERY_SOURCE, usual: str = "") -> Any:
    """A field for the groups of records: a file, or a name within the set's own file."""
    return option(help, metavar="FILE|KEY", names="file", place=groups_place, of=of, usual=usual)


def failing(*verdicts: str) -> Any:
    """A field for `--fail-on`, whose choices are the command's verdicts."""
    help = "Exit with status 3 on this verdict. Repeatable."
    return option(
        help, default=(), choices=tuple(verdict.replace(" ", "-") for verdict in verdicts), decides=False, usual=help
    )
