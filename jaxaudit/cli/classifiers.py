"""The classifiers that `pdtp` and `attack` train, and their training table: its options, and reading it."""

from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxaudit.cli.options import DATA, MODEL, ModelSource, Options, again, option, recipe_option, refuse_options
from jaxaudit.cli.own_code import ESTIMATOR, parse_own
from jaxaudit.cli.parsers import is_texts, parse_hidden
from jaxaudit.cli.progress import say
from jaxaudit.cli.recipe import load_estimator, make_learner
from jaxaudit.cli.shared_options import MOST, Optimizer, RecipeFlags, estimator_parameters
from jaxaudit.errors import InputError, without_folders

if TYPE_CHECKING:
    import numpy as np

    from jaxaudit.data import Examples, Table
    from jaxaudit.learners import Learner
    from jaxaudit.models import ModuleFactory


FAMILIES = {
    "nn": "neural network",
    "nb": "naive Bayes",
}
"""The families of classifiers by their value of `--model`."""


@dataclass(frozen=True)
class ClassifierOptions(RecipeFlags):
    """Which classifier, its settings, and how a network of tables is trained."""

    model: str = option(
        MODEL,
        f"The classifier: {', '.join(f'{name} ({title})' for name, title in FAMILIES.items())}; {ESTIMATOR}.",
        default="nn",
        check=lambda text: parse_own(text, (*FAMILIES,), "an estimator", "make"),
        names="code",
    )
    hidden: str = recipe_option(MODEL, "nn: sizes of the tanh layers.", default="64", check=parse_hidden)
    smoothing: float = recipe_option(
        MODEL, "nb: number added to every count.", default=1.0, minimum=1e-9, maximum=1e6, of=ModelSource.BAYES
    )
    parameters: tuple[str, ...] = estimator_parameters()
    epochs: int | None = again(RecipeFlags, "epochs", 100)
    batch_size: int = again(RecipeFlags, "batch_size", 32)
    learning_rate: float = again(RecipeFlags, "learning_rate", 0.01)
    optimizer: Optimizer = again(RecipeFlags, "optimizer", "sgd")

    @property
    def source(self) -> ModelSource:
        """The origin of the models: a family here, or an estimator."""
        return {"nn": ModelSource.TRAINING, "nb": ModelSource.BAYES}.get(self.model, ModelSource.ESTIMATOR)


TABLE_MODELS = 16
"""Networks of tables are small: `pdtp` on two cores of a CPU takes .65 as long with 16 at once as with 4."""


def make_classifier(options: Options, table: "Table") -> tuple[Options, "Examples", "Learner"]:
    """The records in the form that their learner needs, and the learner, which the options name.

    The options are returned with the number of models per batch.
    """
    # Imported here because they take seconds.
    from jaxaudit import learners
    from jaxaudit.data import Examples, category_counts, one_hot, ordinal
    from jaxaudit.ensemble import count_step, usual_models_per_batch
    from jaxaudit.ensemble.train import whole_fits_per_batch
    from jaxaudit.learners.estimator import has_encoder

    model, classes, number = options.model, len(table.class_names), options.models_per_batch
    if model == "nn":
        examples, factory = one_hot(table), _of_tanh(parse_hidden(options.hidden), options.dropout or 0.0)
        learner = make_learner(factory, options, examples.inputs.shape[1:], classes, len(examples))
        cost = count_step(learner, examples.inputs, examples.labels)
        number = number or usual_models_per_batch(learner, cost, TABLE_MODELS)
    elif model == "nb":
        examples = ordinal(table)
        learner = learners.naive_bayes(category_counts(table), classes, smoothing=options.smoothing)
    else:
        examples, learner = one_hot(table), load_estimator(model, options.parameters, classes)
        if learner is None:
            raise InputError(
                f"--model {model} is no estimator: name an object with fit and predict_proba, or a function "
                "without arguments that returns one."
            )
        if has_encoder(learner.prototype):
            learner = replace(learner, columns=table.columns)
            examples = Examples(table.values, table.labels, table.class_names, table.name)
    return replace(options, models_per_batch=number or whole_fits_per_batch(learner)), examples, learner


@cache
def _of_tanh(hidden: tuple[int, ...], dropout: float) -> "ModuleFactory":
    import jax.numpy as jnp

    from jaxaudit.models import MLP

    return partial(MLP, hidden=hidden, activation=jnp.tanh, dropout=dropout)


DEFAULT_DATA = "breast-cancer"
COLUMNS_SHOWN = 40
TABLE_FILES = (".csv", ".tsv", ".txt", ".parquet", ".pq")


@dataclass(frozen=True)
class TableData:
    """The table, and how a file of your own is read."""

    data: str | None = option(
        DATA,
        "Your own table: CSV with a header line, or Parquet; or NAME[@SPLIT]: breast-cancer, wine, or a set of images "
        "such as digits. [default: breast-cancer]",
        names="data",
    )
    label: str | None = option(DATA, "Of your own table: the column with the class. [default: label]", metavar="COLUMN")
    categorical: tuple[str, ...] = option(
        DATA,
        "Make categories of this column of numbers, such as postcodes; one of at most ten different numbers has them "
        "anyway. Repeatable.",
        default=(),
        metavar="COLUMN",
    )
    drop: tuple[str, ...] = option(DATA, "Leave this column out. Repeatable.", default=(), metavar="COLUMN")
    sample: int | None = option(
        DATA, "Use this many records, drawn at random. [default: all]", minimum=3, maximum=MOST * 1000
    )

    @property
    def is_file(self) -> bool:
        """Whether the data are a file of your own table."""
        return Path((self.data or DEFAULT_DATA).partition("@")[0]).suffix.lower() in TABLE_FILES

    def check(self) -> None:
        """Refuses texts, which have no classes."""
        if is_texts(self.data):
            raise InputError(
                f"--data {self.data}: texts are attacked by a bank: `jaxaudit shadows train --query FILE --coins --out "
                "bank` trains language models on them, and `jaxaudit attack --shadows bank` attacks every text, or "
                "every author."
            )


def read_table_options(options: TableData) -> "Table":
    """The table that `--data` names; images and other arrays become a numeric table. Says on stderr what it is."""
    import numpy as np

    from jaxaudit.data import Column, Table, load, load_table
    from jaxaudit.data.files import TABLE_NAMES

    name = options.data or DEFAULT_DATA
    choice: dict[str, Any] = {field: getattr(options, field) for field in ("label", "categorical", "drop")}
    if options.is_file or name.partition("@")[0] in TABLE_NAMES:
        table = load_table(name, **choice)
    else:
        values = {f"--{field}": value for field, value in choice.items()}
        refuse_options(values, f"for tables ({', '.join(TABLE_NAMES)}, or a file), and {name} is none")
        examples = load(name)
        values = np.asarray(examples.inputs, np.float32).reshape(len(examples), -1)
        columns = tuple(Column(f"input {index}") for index in range(values.shape[1]))
        table = Table(values, columns, examples.labels, examples.class_names, examples.name)
    say(f"{table.name}: {len(table):,} records, {len(table.columns)} columns, {len(table.class_names)} classes")
    if options.is_file:
        for column in table.columns[:COLUMNS_SHOWN]:
            say(f"  {column.name}: {f'categories, {len(column.categories)}' if column.categories else 'numbers'}")
        if len(table.columns) > COLUMNS_SHOWN:
            say(f"  and {len(table.columns) - COLUMNS_SHOWN} more columns")
    for note in table.notes:
        say(f"  note: {note}")
    return table


def table_data(whole: "Table", table: "Table", role: str) -> dict[str, Any]:
    """The provenance of the given table, and of the records of it that a run uses, called `role`."""
    return {
        "name": without_folders(whole.name),
        "records": len(whole),
        "columns": [column.name for column in whole.columns],
        "classes": list(whole.class_names),
        "notes": list(whole.notes),
        "content_hash": whole.content_hash,
        f"{role}_records": len(table),
        f"{role}_content_hash": table.content_hash,
    }


def drawn(generator: "np.random.Generator", records: int, count: int | None, option: str, name: str) -> "np.ndarray":
    """`count` distinct indices below `records`, in ascending order; all of them for None."""
    import numpy as np

    if count is None:
        return np.arange(records)
    if count > records:
        raise InputError(f"{option} {count} is more than the {records:,} records of {name}; leave it out to use all.")
    return np.sort(generator.choice(records, count, replace=False))
