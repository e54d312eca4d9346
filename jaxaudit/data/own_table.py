"""One's own table: a CSV or Parquet file with a header, a label, and columns of numbers or words.

One reader for all commands: it gives `Examples`, whose columns are numbers, or a `Table`, which has categories, too.
What is not written so is refused, with the line of pandas that writes it so. No message contains a cell. Rows are
written again (`SourceRows`) with the text of every cell, or the types of a Parquet file: numbers lose the names that a
pipeline reads by. Other columns are left out: a number of the row would tell its place."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Int, Shaped

from jaxaudit.data.examples import Examples
from jaxaudit.data.formats import Reading
from jaxaudit.data.formats.parquet_file import (
    has_dealt_groups,
    index_names,
    is_parquet,
    read_text_table,
    typed_columns,
)
from jaxaudit.data.formats.text_table import (
    NAMELESS,
    TextTable,
    are_among,
    decimal_points,
    float_cells,
    trimmed,
    truth_cells,
    whole,
    write_table,
)
from jaxaudit.data.labels import COLUMN, as_number, counting, encode_labels
from jaxaudit.data.selection import choose_splits
from jaxaudit.data.table import MISSING, WIDTH, Column, Table, check_choice, codes_of_words
from jaxaudit.errors import InputError, refuse_wrong

LABEL = "label"
FEW = 10
"""In a `Table`, a column of at most this many different numbers has categories."""
MOST_CLASSES = 1_000
LARGEST_WHOLE = 2.0**53
"""From here on, a floating-point number may stand for several whole ones."""
_SUSPECT_ROWS = 20
"""In a column of at most this many whole numbers, all may be distinct by chance."""
MISSING_TEXTS = ("", "na", "nan", "<na>")


@dataclass(frozen=True, eq=False)
class OwnTable:
    """The columns of a file that are inputs, as text; labels as `encode_labels` has them; and what is to be said.

    `names` are all columns of the file, but those that were left out by their names.
    """

    text: TextTable
    label: str
    labels: Int[np.ndarray, " n"]
    class_names: tuple[str, ...]
    notes: tuple[str, ...]
    names: frozenset[str]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, in the order of the file."""
        return tuple(name for name in self.text.header if name != self.label)

    def examples(self, *, exact: bool = False, gaps: bool = False) -> Examples:
        """The records with all inputs as numbers, `float32[n, inputs]`; true and false are 1 and 0.

        A column of words becomes `WIDTH` columns of numbers that follow from each word alone, so equal words are equal
        in every file, and different words are about equally far apart. With `exact`, inputs are `float64`, and whole
        numbers that a `float64` would round are refused. With `gaps`, an empty cell among numbers is NaN.
        """
        text, kind = self.text, np.float64 if exact else np.float32
        titles, columns, words_of = list[str](), list[np.ndarray](), dict[str, tuple[str, ...]]()
        with_gaps, advice = list[str](), "write numbers throughout, or words"
        empty = f", or, with pandas, empty cells: frame.replace('?', float('nan')).{_writing(text.source)}, of a sign ?"
        advice += empty if gaps else ""
        for name in self.inputs:
            cells = text.column(name)
            words_of[name], numbers = (), _plain_numbers(cells, text.decimal, gaps)
            if numbers is None:
                words = read_cells(cells, text.decimal)
                if not words.is_number.any() and not words.missing.all():
                    distinct = zip(words.texts.to_pylist(), words.missing, strict=True)
                    words_of[name] = tuple("" if gone else word for word, gone in distinct)
                    columns += [*codes_of_words(words_of[name])[words.codes].T.astype(kind)]
                    titles += [f"{name} ({place})" for place in range(WIDTH)]
                    continue
                numbers = self._numbers(words, name, advice, gaps)
            with_gaps += [name] if np.isnan(numbers).any() else []
            self._refuse_row_numbers(numbers, name)
            if exact and (np.abs(numbers) >= LARGEST_WHOLE).any() and whole(cells):
                raise InputError(
                    f"{text.source}: column {name!r} has whole numbers of 2^53 or more, of which some would become "
                    "others; is it an identifier? Then leave it out (`drop`)."
                )
            with np.errstate(over="ignore"):
                # The shortest text of a number of 32 bits is one of 64 bits only nearly.
                columns.append(numbers.astype(text.floats.get(name, np.float64)).astype(kind))
            titles.append(name)
        twice = next((title for title in titles if titles.count(title) > 1), None)
        if twice is not None:
            raise InputError(
                f"{text.source}: column {twice!r} is named as a part of a column of words is; give it another name."
            )
        inputs, facts = np.stack(columns, axis=1), {"words": words_of, "gaps": tuple(with_gaps)}
        return Examples(inputs, self.labels, self.class_names, text.source, self.notes, tuple(titles), **facts)

    def table(self, categorical: Sequence[str] = ()) -> Table:
        """The records with columns of numbers and columns of categories.

        A column of more than 10 different numbers has numbers, unless it is in `categorical`. Any other has categories:
        the distinct texts, in ascending order (of numbers if all are numbers), and `MISSING` as the last one if a cell
        is missing. A constant column is kept. Classes are those that have a record.
        """
        text = self.text
        present, labels = np.unique(self.labels, return_inverse=True)
        if not 2 <= len(present) <= MOST_CLASSES:
            raise InputError(
                f"{text.source}: the label column {self.label!r} has {len(present):,} different values, and a "
                f"classifier needs 2 to {MOST_CLASSES:,} classes; name another label (`label`), or write numbers as "
                "ranges (such as <=50K and >50K)."
            )
        columns, arrays = list[Column](), list[np.ndarray]()
        for name in self.inputs:
            numbers = None if name in categorical else self._many_numbers(name)
            if numbers is None:
                categories, values = as_categories(read_cells(text.column(name), text.decimal))
            else:
                self._refuse_row_numbers(numbers, name)
                categories, values = (), numbers
            columns.append(Column(name, categories))
            arrays.append(values)
        kind = np.float64 if not all(column.categories for column in columns) else np.float32
        values = np.stack(arrays, axis=1, dtype=kind, casting="unsafe")
        names = tuple(self.class_names[index] for index in present)
        return Table(values, tuple(columns), labels, names, text.source, self.notes)

    def _many_numbers(self, name: str) -> np.ndarray | None:
        """The cells of a column of more than `FEW` different numbers; None of others. Words among them are refused."""
        column, decimal = self.text.column(name), self.text.decimal
        numbers = float_cells(column, decimal)
        if numbers is not None and np.isfinite(numbers).all():
            # The first rows usually decide, and checking all takes longer than reading them.
            few = all(len(np.unique(part)) <= FEW for part in (numbers[:1000], numbers))
            return None if few else numbers
        cells = read_cells(column, decimal)
        if len(np.unique(cells.numbers[cells.is_number])) <= FEW:
            return None
        return self._numbers(cells, name, "or make categories of the column (`categorical`)")

    def _numbers(self, cells: "ColumnCells", name: str, advice: str, gaps: bool = False) -> np.ndarray:
        """`float64[n]`: the cells of a column of numbers, NaN for `gaps`; `advice` is on words in it."""
        source, rows = self.text.source, len(cells.codes)
        fill = f"frame.dropna(subset=[{name!r}]).{_writing(source)} leaves such rows out"
        for wrong, trouble, remedy in (
            (~cells.missing & ~cells.is_number, "holds words", f"correct it, {advice}"),
            (cells.missing & (not gaps), "is empty", f"fill it, or, with pandas, {fill}"),
            (cells.is_number & ~np.isfinite(cells.numbers), "is not finite", "correct it"),
        ):
            if wrong.any():
                raise InputError(
                    f"{source}: row {cells.row(wrong)}, column {name!r} {trouble}, in a column of numbers "
                    f"({int(wrong[cells.codes].sum()):,} of {rows:,} rows); {remedy}; or leave the column out (`drop`)."
                )
        return cells.numbers[cells.codes]

    def _refuse_row_numbers(self, numbers: np.ndarray, name: str) -> None:
        if np.isfinite(numbers).sum() > _SUSPECT_ROWS and counting(numbers):
            raise InputError(
                f"{self.text.source}: column {name!r} counts the rows, and a model would learn a record's place by it; "
                "leave it out (`drop`)."
            )


def read_own_table(
    path: Path,
    *,
    label: str | None = None,
    drop: Sequence[str] = (),
    groups: Sequence[str] = (),
    categorical: Sequence[str] = (),
) -> OwnTable:
    """The inputs and the label of a CSV file with a header line, or of a Parquet file.

    All columns are inputs but the label (words or whole numbers, by default under `label`), those of `drop`, those of
    `groups`, which a file may lack, and a column `group` that `deal` wrote; those of `categorical` must be there. Every
    column has a name of its own. Blanks around a cell are ignored; one that is empty, `NA`, `NaN` or `<NA>` is missing.
    Messages count rows from 1 below the header.
    """
    source, label, left_out = path.name, label or LABEL, (*drop, *groups)
    text = read_text_table(path, lambda name: name not in left_out)
    names = text.header
    refuse_wrong(
        f"{path}: ",
        ("there are no rows below the header line. Is the file empty?", not text.rows),
        (
            f"no column is named {label!r}, as the label must be; name the label (`label`), or, with pandas, write "
            f"frame.rename(columns={{'COLUMN': {label!r}}}).{_writing(source)}.",
            label not in names,
        ),
    )
    not_inputs = [*drop, *(name for name in groups if name in names)]
    check_choice(names, source, label=[label], categorical=categorical, drop=not_inputs)
    text, needed = text.without(left_out), (label, *categorical)
    notes = [f"it is read as {text.note}"] if text.note else []
    if COLUMN not in needed and has_dealt_groups(text):
        text = text.without([COLUMN])
        notes.append(f"column {COLUMN!r} has the groups that `jaxaudit deal` wrote and is left out")
    if {*text.header} == {label}:
        raise InputError(f"{path}: there is no column other than the label and those left out; add inputs.")
    notes += _identifiers(text, needed)
    index = index_names(path) if is_parquet(path) else []
    for place, name in enumerate(text.header):
        for trouble, wrong in (
            (f"two columns are named {name!r}", text.header.count(name) > 1),
            ("a column has no name", NAMELESS.fullmatch(name)),
            (f"column {name!r} is an index of pandas", name in index and name not in needed),
        ):
            if wrong:
                raise InputError(
                    f"{source}: {trouble} (column {place + 1} of inputs and label); name each column once, and write "
                    f"no index: frame.{_writing(source)} in pandas; or leave it out (`drop`)."
                )
    labels = read_cells(text.column(label), text.decimal)
    if labels.missing.any():
        raise InputError(
            f"{source}: row {labels.row(labels.missing)} has no label (column {label!r} is empty); with pandas, "
            f"frame.dropna(subset=[{label!r}]).{_writing(source)} leaves such rows out."
        )
    texts = labels.texts.to_numpy(zero_copy_only=False).astype(str)[labels.codes]
    codes, class_names = encode_labels(texts, None, f"{source}, column {label!r}")
    return OwnTable(text, label, codes, class_names, tuple(notes), frozenset({*names} - {*left_out}))


def _plain_numbers(cells: pa.ChunkedArray, decimal: str, gaps: bool) -> np.ndarray | None:
    """A column of nothing but finite numbers, or of true and false, with `gaps` as NaN; None of another."""
    numbers = float_cells(cells, decimal)
    if numbers is None:
        numbers = truth_cells(cells, gaps)
        if gaps and numbers is not None and np.isfinite(numbers).any():
            return numbers
    return None if numbers is None or not np.isfinite(numbers).all() else numbers


def read_labelled(path: Path, how: Reading) -> Examples:
    """The records of such a file, which has one split."""
    choose_splits([""], how.split, path.name)
    table = read_own_table(path, label=how.label, drop=how.drop, groups=how.groups)
    return table.examples(exact=how.exact, gaps=how.gaps)


class ColumnCells(NamedTuple):
    """A column's cells, every distinct text once: `codes` are the places of rows among these. `missing` is true of
    texts such as `NA`, `is_number` of numbers, and `numbers` are NaN of other texts.
    """

    codes: np.ndarray
    texts: pa.StringArray
    missing: np.ndarray
    numbers: np.ndarray
    is_number: np.ndarray

    def row(self, chosen: np.ndarray) -> int:
        """The first row, counted from 1, whose text is among the chosen ones."""
        return int(np.argmax(chosen[self.codes])) + 1


def read_cells(column: pa.ChunkedArray, decimal: str) -> ColumnCells:
    """The cells of a column of text; blanks around a value are ignored."""
    encoded = trimmed(column).combine_chunks().dictionary_encode()
    texts = encoded.dictionary
    missing = _array(are_among(texts, MISSING_TEXTS))
    numbers, is_number = np.full(len(texts), np.nan), np.zeros(len(texts), bool)
    present_texts = decimal_points(texts.filter(pa.array(~missing)), decimal)
    try:
        numbers[~missing] = _array(pc.cast(present_texts, pa.float64()))
        is_number[~missing] = True
    except pa.ArrowInvalid:
        for index, text in zip(np.flatnonzero(~missing).tolist(), present_texts.to_pylist(), strict=True):
            with suppress(ValueError):
                numbers[index], is_number[index] = as_number(text), True
    return ColumnCells(_array(encoded.indices), texts, missing, numbers, is_number)


def as_categories(cells: ColumnCells) -> tuple[tuple[str, ...], np.ndarray]:
    """The categories in ascending order (numerical if all are numbers), and the index of each record's category."""
    indices = np.flatnonzero(~cells.missing)
    texts = cells.texts.take(pa.array(indices)).to_pylist()
    keys = list(zip(cells.numbers[indices].tolist(), texts, strict=True)) if cells.is_number[indices].all() else texts
    order = sorted(range(len(indices)), key=keys.__getitem__)
    rank = np.full(len(cells.missing), len(order))
    rank[indices[order]] = np.arange(len(order))
    categories = [texts[index] for index in order]
    if MISSING in categories:
        rank[cells.missing] = categories.index(MISSING)
    elif cells.missing.any():
        categories.append(MISSING)
    return tuple(categories), rank[cells.codes]


def _identifiers(text: TextTable, left_alone: Sequence[str]) -> list[str]:
    """A note on each input, but for `left_alone`, in which most texts or all whole numbers differ: perhaps names."""
    notes = list[str]()
    for name, cells in zip(text.header, text.columns, strict=True):
        distinct = len(cells.unique()) if name not in left_alone and text.rows > _SUSPECT_ROWS else 0
        if 2 * distinct <= text.rows:
            continue
        numbers = float_cells(cells, text.decimal)
        if numbers is None:
            texts = read_cells(cells, text.decimal)
            if (texts.is_number | texts.missing).all():
                numbers, distinct = texts.numbers[texts.codes], int(texts.is_number.sum())
                numbers = numbers[~texts.missing[texts.codes]]
        if numbers is None or (distinct == len(numbers) and bool((numbers == np.rint(numbers)).all())):
            notes.append(
                f"column {name!r} has another value in most records and is read as an input; an identifier? Then "
                "leave it out (`drop`)"
            )
    return notes


def _writing(source: str) -> str:
    """How pandas writes a file of this name."""
    return f"{'to_parquet' if source.lower().endswith('.parquet') else 'to_csv'}({source!r}, index=False)"


def _array(values: pa.Array) -> np.ndarray:
    return values.to_numpy(zero_copy_only=False)


@dataclass(frozen=True, eq=False)
class SourceRows:
    """The rows of a file, of which some can be written: `cells` of inputs and label, of a CSV file as text. An
    empty `delimiter` says that the file is Parquet; `names` are all columns but those of `drop` and `groups`.
    """

    cells: pa.Table
    inputs: tuple[str, ...]
    label: str
    delimiter: str
    names: frozenset[str]

    @property
    def suffix(self) -> str:
        """The ending of the names of files with such rows."""
        return ".csv" if self.delimiter else ".parquet"

    def part(self, rows: Int[np.ndarray, " some"], groups: Int[np.ndarray, " some"] | None) -> pa.Table:
        """These rows, with a first column `group` where there are groups."""
        part = self.cells.take(pa.array(rows))
        return part if groups is None else part.add_column(0, COLUMN, pa.array(groups))

    def challenge(self, rows: Int[np.ndarray, " some"], title: str, names: Shaped[np.ndarray, " some"]) -> pa.Table:
        """The inputs in these rows, and in front of them a column of this title with a name for each row."""
        if title in self.inputs:
            raise InputError(
                f"the table has a column {title!r}, which a challenge has for the names of its rows: rename it."
            )
        return self.cells.select(self.inputs).take(pa.array(rows)).add_column(0, title, pa.array(names))

    def write(self, table: pa.Table, file: IO[bytes]) -> None:
        """Writes a table that `part` or `challenge` gave, in the form of the source."""
        write_table(table, file, self.delimiter)


def source_rows(path: Path, *, label: str | None, drop: Sequence[str], groups: Sequence[str]) -> SourceRows:
    """The rows of a CSV or Parquet file, with the options with which it was read (`read_own_table`)."""
    table = read_own_table(path, label=label, drop=drop, groups=groups)
    header, delimiter = table.text.header, "" if is_parquet(path) else table.text.delimiter
    cells = pa.table(table.text.columns, header) if delimiter else typed_columns(path, header)
    return SourceRows(cells, table.inputs, table.label, delimiter, table.names)


def refuse_read_otherwise(path: Path, examples: Examples, label: str | None) -> None:
    """Refuses a file of rows that a reader does not read as these examples, which are the same rows of the source."""
    part = read_own_table(path, label=label).examples(gaps=True)
    if (
        part.titles != examples.titles
        or part.class_names != examples.class_names
        or not np.array_equal(part.labels, examples.labels)
        or not np.array_equal(part.record_hashes, examples.record_hashes)
    ):
        raise InputError(
            f"{path.name}: the rows would not be read again as in the source; save the records as .npz, or as a .csv "
            "with points and commas."
        )
