"""From the words on the command line to a training set and the learner that makes a classifier of it."""

import math
import os
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxaudit.cli.progress import say
from jaxaudit.cli.recipe import make_optimizer
from jaxaudit.cli.words import parse_hidden
from jaxaudit.data import Column, Examples, Table, binary, category_counts, coded, describe_table, load, load_table
from jaxaudit.data.tables.resolve import table_names
from jaxaudit.errors import InputError
from jaxaudit.learners import Learner, logistic_regression, naive_bayes, nearest_neighbours, network, random_trees

Options = dict[str, Any]

DEFAULT_DATA = "breast-cancer"
SMOOTHING = {"nb": 1.0, "trees": 1.0, "knn": 0.01}
COLUMNS_SHOWN = 40
TABLE_FILES = (".csv", ".tsv", ".txt", ".parquet", ".pq")
TAB = {"tab": "\t", "\\t": "\t"}
"""What a person can type for it."""


class Classifier(NamedTuple):
    """A training set, in the form its learner wants, and the learner.

    Attributes:
        examples: the training set.
        learner: what makes a classifier of it.
        bound: nats that no record can move any output by, whatever the data; None where there is no such number.
    """

    examples: Examples
    learner: Learner
    bound: float | None = None


def read_table(options: Options) -> Table:
    """The table that `--data` or `--csv` means; a set of images or other arrays becomes a table of numbers.

    Raises:
        InputError: both or neither make sense, and what reading them raises.
    """
    choice: dict[str, Any] = {name: options[name] or () for name in ("categorical", "numeric", "drop")}
    written = {name: options[name] for name in ("delimiter", "encoding", "decimal")}
    if options["csv"] is not None:
        if options["data"] is not None:
            raise InputError("--data and --csv both name the training set; give one of them.")
        written["delimiter"] = TAB.get(written["delimiter"], written["delimiter"])
        how = {**choice, **written, "missing": options["missing"], "data_dir": options["data_dir"]}
        return load_table(f"{options['csv']}", label=options["label"], **how)
    name = options["data"] or DEFAULT_DATA
    if Path(name.partition("@")[0]).suffix.lower() in TABLE_FILES:
        raise InputError(f"--data {name} is a file: did you mean --csv {name}?")
    given = [f"--{each}" for each, value in {"label": options["label"], **written}.items() if value is not None]
    given += ["--missing"] if options["missing"] != "error" else []
    if given:
        raise InputError(f"{given[0]} is for a table of your own (--csv); the sets of --data are read as they are.")
    if name.partition("@")[0] in table_names():
        return load_table(name, **choice, data_dir=options["data_dir"])
    if any(choice.values()):
        raise InputError(f"--categorical, --numeric and --drop choose columns, and {name} is no table ({_tables()}).")
    return _flattened(load(name, data_dir=options["data_dir"]))


def describe(table: Table, *, columns: bool) -> None:
    """Says on stderr what stands in the table, with `columns` a line a column: its kind, as found or chosen."""
    say(f"{table.name}: {len(table):,} records, {len(table.columns)} columns, {len(table.class_names)} classes")
    if columns:
        summaries = describe_table(table)
        for summary in summaries[:COLUMNS_SHOWN]:
            say(f"  {summary}")
        if len(summaries) > COLUMNS_SHOWN:
            say(f"  and {len(summaries) - COLUMNS_SHOWN} more columns")
    for note in table.notes:
        say(f"  note: {note}")


def make_classifier(options: Options, table: Table) -> Classifier:
    """The learner that the options mean, and the table as it wants it.

    Raises:
        InputError: an option is out of range for this table.
    """
    name, classes = str(options["learner"]), len(table.class_names)
    smoothing = SMOOTHING.get(name, 0.0) if options["smoothing"] is None else options["smoothing"]
    bound = math.log1p(1 / smoothing) if smoothing else None  # of trees and neighbours
    if name in ("nb", "trees"):
        counts = category_counts(table)
        if name == "nb":
            return Classifier(coded(table), naive_bayes(counts, classes, smoothing=smoothing))
        leaves = options["trees"] * (len(table) + 2 ** options["depth"] * classes)
        demand_memory(8 * leaves, f"{options['trees']:,} trees", "give fewer --trees or a smaller --depth")
        trees = random_trees(counts, classes, trees=options["trees"], depth=options["depth"], smoothing=smoothing)
        return Classifier(coded(table), trees, bound)
    if name == "knn":
        learner = nearest_neighbours(classes, neighbours=options["neighbours"], smoothing=smoothing)
        return Classifier(binary(table), learner, bound)
    examples = binary(table)
    inputs = examples.inputs.shape[1]
    if name == "lr":
        return Classifier(examples, logistic_regression(inputs, classes, l2=options["penalty"]))
    from jaxaudit.models import MLP

    hidden = parse_hidden(options["hidden"])
    layers = pairwise([inputs, *hidden, classes])
    # A model, its gradient, and what Adam remembers: two more.
    held = 4 * sum((before + 1) * after for before, after in layers) * (4 if options["optimizer"] == "adam" else 2)
    demand_memory(held * (options["width"] or 1), f"a network of --hidden {options['hidden']}", "give narrower layers")
    factory = partial(MLP, hidden=hidden, activation=jnp.tanh)
    optimizer = make_optimizer(options["optimizer"], options["learning_rate"])
    batch_size = min(options["batch_size"], len(examples))
    epochs = options["epochs"]
    learner = network(factory, (inputs,), classes, optimizer=optimizer, epochs=epochs, batch_size=batch_size)
    return Classifier(examples, learner)


def demand_memory(size: int, what: str, advice: str) -> None:
    """Refuses what cannot fit into the memory there is, before it is begun.

    Raises:
        InputError: when `size` bytes are more than half of the device's memory, or of the machine's on a CPU.
    """
    stats = jax.local_devices()[0].memory_stats() if jax.default_backend() != "cpu" else None
    there = (stats or {}).get("bytes_limit") or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > there / 2:
        raise InputError(
            f"{what} takes {size / 2**30:,.1f} GiB, more than half of the {there / 2**30:,.1f} GiB of memory there is; "
            f"{advice}."
        )


def _flattened(examples: Examples) -> Table:
    values = np.asarray(examples.inputs, np.float32).reshape(len(examples), -1)
    columns = tuple(Column(f"input {index}", None) for index in range(values.shape[1]))
    return Table(values, columns, examples.labels, examples.class_names, examples.name)


def _tables() -> str:
    return ", ".join(table_names())
