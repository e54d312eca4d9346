"""The classifiers that `pdtp` and `attack` train, and their training table: its options, and reading it."""

from dataclasses import dataclass, fields
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxaudit.cli.groups import MOST, EstimatorParameters, RecipeFlags, ShadowNetwork, ShadowRecipe, TextNetwork
from jaxaudit.cli.options import ModelSource, fields_of, option, recipe_option, refuse_options
from jaxaudit.cli.own_code import ESTIMATOR, OF_TEXTS, OwnCode, is_of_texts, parse_own, pretrained_config
from jaxaudit.cli.parsers import TEXTS, is_texts, parse_hidden
from jaxaudit.cli.progress import say
from jaxaudit.cli.recipe import load_estimator, make_adapters, make_learner
from jaxaudit.errors import InputError, without_folders

if TYPE_CHECKING:
    import numpy as np

    from jaxaudit.data import Examples, Table
    from jaxaudit.learners import Learner
    from jaxaudit.models import ModuleFactory


@cache
def _of_tanh(hidden: tuple[int, ...], dropout: float) -> "ModuleFactory":
    import jax.numpy as jnp

    from jaxaudit.models import MLP

    return partial(MLP, hidden=hidden, activation=jnp.tanh, dropout=dropout)


def _of_table(options: "ClassifierOptions", recipe: RecipeFlags, table: "Table") -> tuple["Examples", "Learner"]:
    from jaxaudit import learners
    from jaxaudit.data import category_counts, one_hot, ordinal

    classes = len(table.class_names)
    if options.model == "nn":
        examples, factory = one_hot(table), _of_tanh(parse_hidden(options.hidden), recipe.dropout or 0.0)
        return examples, make_learner(factory, recipe, examples.inputs.shape[1:], classes, len(examples))
    if options.model == "nb":
        return ordinal(table), learners.naive_bayes(category_counts(table), classes, smoothing=options.smoothing)
    learner = load_estimator(options.model, options.parameters, classes)
    if learner is None:
        raise InputError(
            f"--model {options.model} is no estimator: name an object with fit and predict_proba, or a function "
            "without arguments that returns one."
        )
    return one_hot(table), learner


FAMILIES = {
    "nn": "neural network",
    "nb": "naive Bayes",
}
"""The families of classifiers by their value of `--model`."""


@dataclass(frozen=True)
class ClassifierOptions(EstimatorParameters, TextNetwork):
    """Which classifier, and its settings."""

    model: str = option(
        f"The classifier: {', '.join(f'{name} ({title})' for name, title in FAMILIES.items())}; {ESTIMATOR}; for texts "
        f"{OF_TEXTS} (layers and width), which nn stands for there, or the folder of a causal model (--recipe lora).",
        default="nn",
        check=lambda text: parse_classifier(text),
        names="code",
    )
    hidden: str = recipe_option("nn: sizes of the tanh layers.", default="64", check=parse_hidden)
    smoothing: float = recipe_option("nb: number added to every count.", default=1.0, minimum=1e-9, maximum=1e6)

    @property
    def source(self) -> ModelSource:
        """The origin of the models: the families and networks here, or an estimator."""
        is_code = ":" in self.model and pretrained_config(self.model) is None
        return ModelSource.ESTIMATOR if is_code else ModelSource.TRAINING


def parse_classifier(text: str) -> OwnCode | None:
    """The location of an estimator; None for a family of classifiers and for a language model."""
    if is_of_texts(text) or pretrained_config(text):
        return None
    return parse_own("--model", text, (*FAMILIES, OF_TEXTS), "an estimator", "make")


def check_texts(data: str | None, model: str, recipe: RecipeFlags) -> None:
    """Rejects a model or recipe that is not for these records."""
    texts, of_texts = data is not None and is_texts(data), is_of_texts(model) or pretrained_config(model) is not None
    if texts and model != "nn" and not of_texts:
        raise InputError(f"--model {model} is a classifier, and texts have no classes; use {OF_TEXTS}.")
    if of_texts and not texts:
        raise InputError(f"--model {model} is for texts; name a file of these ({', '.join(TEXTS)}) by --query.")
    if texts and recipe.optimizer == "sgd" and not recipe.momentum:
        raise InputError(
            "--recipe optimizer=sgd is the default for classifiers and hardly trains a language model: state yours, "
            "such as --recipe optimizer=adamw --recipe learning-rate=0.003 --epochs 15 --recipe batch-size=16."
        )


def network_of_texts(options: ClassifierOptions) -> ShadowNetwork:
    """The network that the options describe, for texts."""
    of_texts = {field.name: getattr(options, field.name) for field in fields(TextNetwork)}
    return ShadowNetwork(model=OF_TEXTS if options.model == "nn" else options.model, **of_texts)


def make_classifier(
    options: ClassifierOptions, recipe: RecipeFlags, records: "Table | Examples"
) -> tuple["Examples", "Learner"]:
    """The records in the form that their learner needs, and the learner, which the options name."""
    from jaxaudit.data import Table

    if isinstance(records, Table):
        return _of_table(options, recipe, records)
    from jaxaudit.cli.networks import make_shadow_learner

    network = network_of_texts(options)
    return records, make_shadow_learner(network, ShadowRecipe(**vars(recipe)), records, len(records))


DEFAULT_DATA = "breast-cancer"
COLUMNS_SHOWN = 40
TABLE_FILES = (".csv", ".tsv", ".txt", ".parquet", ".pq")


@dataclass(frozen=True)
class TableData:
    """The table, and how a file of your own is read."""

    data: str | None = option(
        "Your own table: CSV with a header line, or Parquet; a file of texts, .jsonl; or NAME[@SPLIT]: breast-cancer, "
        "wine, adult, location, or a set of images such as digits. [default: breast-cancer]",
        "--data",
        "--csv",
        "--table",
        "--query",
        names="data",
    )
    label: str | None = option("Of your own table: the column with the class. [default: label]", metavar="COLUMN")
    categorical: tuple[str, ...] = option(
        "Make categories of this column of numbers, such as postcodes; one of at most ten different numbers has them "
        "anyway. Repeatable.",
        default=(),
        metavar="COLUMN",
    )
    drop: tuple[str, ...] = option("Leave this column out. Repeatable.", default=(), metavar="COLUMN")
    sample: int | None = option(
        "Use this many records, drawn at random. [default: all]", minimum=3, maximum=MOST * 1000
    )

    @property
    def is_file(self) -> bool:
        """Whether the data are a file of your own table."""
        name = self.data or DEFAULT_DATA
        return Path(name.partition("@")[0]).suffix.lower() in TABLE_FILES and not is_texts(name)


def read_training_set(options: TableData, network: ShadowNetwork) -> "Table | Examples":
    """The texts that `--data` names, as sequences; else the table, see `read_table_options`."""
    from jaxaudit.cli.read_sets import text_reader

    read = text_reader([options.data or DEFAULT_DATA], network, make_adapters(network))
    if read is None:
        return read_table_options(options)
    usual = TableData(data=options.data, sample=options.sample)
    other = next((field for field in fields_of(options) if field.value != getattr(usual, field.name)), None)
    if other is not None:
        raise InputError(f"{other.flag} is for tables, and {options.data} has texts; leave it out.")
    return read(options.data or "")


def read_table_options(options: TableData) -> "Table":
    """The table that `--data` names; images and other arrays become a numeric table."""
    import numpy as np

    from jaxaudit.data import Column, Table, load, load_table
    from jaxaudit.data.resolve import table_names

    name = options.data or DEFAULT_DATA
    choice: dict[str, Any] = {field: getattr(options, field) for field in ("label", "categorical", "drop")}
    if options.is_file or name.partition("@")[0] in table_names():
        return load_table(name, **choice)
    values = {f"--{field}": value for field, value in choice.items()}
    refuse_options(values, f"for tables ({', '.join(table_names())}, or a file), and {name} is none")
    examples = load(name)
    values = np.asarray(examples.inputs, np.float32).reshape(len(examples), -1)
    columns = tuple(Column(f"input {index}") for index in range(values.shape[1]))
    return Table(values, columns, examples.labels, examples.class_names, examples.name)


def summarise_table(table: "Table | Examples", *, columns: bool) -> None:
    """Prints a summary of the table on stderr; with `columns`, one line per column with its kind."""
    from jaxaudit.data import Examples

    if isinstance(table, Examples):
        say(f"{table.name}: {len(table):,} texts of up to {table.inputs.shape[1]:,} tokens")
        return
    say(f"{table.name}: {len(table):,} records, {len(table.columns)} columns, {len(table.class_names)} classes")
    if columns:
        for column in table.columns[:COLUMNS_SHOWN]:
            say(f"  {column.name}: {f'categories, {len(column.categories)}' if column.categories else 'numbers'}")
        if len(table.columns) > COLUMNS_SHOWN:
            say(f"  and {len(table.columns) - COLUMNS_SHOWN} more columns")
    for note in table.notes:
        say(f"  note: {note}")


def table_data(whole: "Table | Examples", table: "Table | Examples", role: str) -> dict[str, Any]:
    """The provenance of the given table, and of the records of it that a run uses, called `role`."""
    from jaxaudit.data import Table

    form: dict[str, Any] = {"tokens": whole.inputs.shape[1]} if not isinstance(whole, Table) else {}
    if isinstance(whole, Table):
        names = [column.name for column in whole.columns]
        form = {"columns": names, "classes": list(whole.class_names), "notes": list(whole.notes)}
    return {
        "name": without_folders(whole.name),
        "records": len(whole),
        **form,
        "content_hash": whole.content_hash,
        f"{role}_records": len(table),
        f"{role}_content_hash": table.content_hash,
    }


def drawn(
    generator: "np.random.Generator", records: int, count: int | None, option: str, name: str
) -> "np.ndarray | None":
    """`count` distinct indices below `records`, in ascending order; None for all."""
    import numpy as np

    if count is None:
        return None
    refuse_more(records, count, option, name)
    return np.sort(generator.choice(records, count, replace=False))


def refuse_more(records: int, count: int, option: str, name: str) -> None:
    """Refuses to use more records than there are."""
    if count > records:
        raise InputError(f"{option} {count} is more than the {records:,} records of {name}; leave it out to use all.")
