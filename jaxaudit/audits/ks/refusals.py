"""Refuses outputs that no target has on these sets: of another shape, copied from another set, or out of order."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from jaxaudit.data.examples import Examples
from jaxaudit.data.outputs.outputs import Outputs
from jaxaudit.data.overlap import are_copies
from jaxaudit.errors import InputError
from jaxaudit.metrics.output_order import counted, described, listed, moved_columns


def refuse_shape(file: Outputs, records: int, classes: int, name: str) -> None:
    """Rejects outputs on another number of records or classes than the named set has."""
    if file.probabilities.shape != (records, 2 if file.own_class else classes):
        raise InputError(
            f"{file.name} has outputs of shape {file.probabilities.shape}, but the {name} has {records} records "
            f"and {classes} classes: give one row per record, in the {name}'s order."
        )


def refuse_absent(file: Outputs, examples: Examples, of: str) -> None:
    """Rejects a table without a column for a class that the set has records of."""
    for index in np.intersect1d(file.absent, examples.labels):
        raise InputError(
            f"{file.name}: has no column for the class {examples.class_names[index][:40]!r}, of which the {of} has "
            f"{int((examples.labels == index).sum())} records; give one column per class. If the model does not know "
            "it, as after a deletion of all its records, give it a column of zeros."
        )


def refuse_copied_outputs(outputs: Mapping[str, Outputs]) -> None:
    """Rejects the outputs on one set as those on another set; `outputs` are by the name of the set."""
    for (first, file), (second, other_file) in combinations(outputs.items(), 2):
        if are_copies(file.probabilities, other_file.probabilities):
            raise InputError(
                f"{other_file.name}: has the same rows as {file.name}, and they are of different records: the outputs "
                f"on the {first} seem to be given as those on the {second}, too. Give for each set the outputs on it."
            )


def refuse_order(files: Sequence[tuple[Outputs, Examples, str]]) -> None:
    """Rejects a target whose columns fit the labels far better in another order of classes.

    All files of the target are tested together, and each file by itself.
    """
    tables = [counted(file.probabilities, examples.labels) for file, examples, _ in files]
    if not tables or len(tables[0]) < 2:
        return
    first_moved = moved_columns([sum(tables[1:], tables[0]), *tables] if len(tables) > 1 else tables)
    if first_moved is None:
        return
    alone = [file for file, table in zip(files, tables, strict=True) if moved_columns([table]) is not None]
    which, moved = first_moved
    blamed = alone if len(alone) == 1 else files if which == 0 else files[which - 1 : which]
    name, names = ", ".join(dict.fromkeys(file.name for file, *_ in blamed)), files[0][1].class_names
    go_on = "allow an unrelated target (`allow_unrelated`)"
    if blamed[0][0].reading and all(file.values.shape[1] == 1 for file, *_ in blamed):
        better = "if its one column is of the other class than that which it is read as"
        otherwise = "head the column with the name of its class, in a .csv or .parquet, or give a column for each class"
    else:
        better = f"with {described(moved, names)}"
        otherwise = (
            f"put the columns in the order of the classes ({listed([class_name[:40] for class_name in names])}), or "
            "give a table whose header names them"
        )
    if len(files) > 1 and blamed == [files[0]] and files[0][2] == "query set":
        raise InputError(
            f"{name}: on the query set, and on no other set, the labels are met far better {better}. If the query set "
            f"was over-forgotten, as after a deletion that went too far, {go_on}. If this file differs from the "
            f"others, {otherwise}."
        )
    raise InputError(
        f"{name}: the columns seem to be in another order than the classes. The labels are met far better {better}: "
        f"{otherwise}. If the model really takes these classes for others, as after a deletion that went too far, "
        f"{go_on}."
    )
