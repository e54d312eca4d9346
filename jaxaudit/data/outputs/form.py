"""The one form of a file of outputs: a row a record, a column a class. What has another is refused with this form.

In a table one more column may name or number the rows. Names that the set's own records have put the rows in order.
"""

import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxaudit.data.formats import TABLES
from jaxaudit.data.formats.arrays import NpzArrays, read_npy
from jaxaudit.data.formats.parsing import refuse_pickle
from jaxaudit.data.labels import as_number, counting
from jaxaudit.data.memory import MAX_BYTES, refuse_larger
from jaxaudit.data.outputs.checks import ONE_ARRAY
from jaxaudit.data.outputs.kinds import HARD_LABELS
from jaxaudit.data.paths import exists, expanded, open_data
from jaxaudit.errors import InputError

RECORD = "record"
"""The column or array with the names of records in what `jaxaudit deal --blind` writes."""
LONGEST_NAME, WIDEST_CELL, LONGEST_LINE, SPARE = 4096, 64, 1 << 20, 1 << 26
"""Characters of a record's name, of a number and of a first line; bytes that any file may have, however few records, so
that a file of another set gets the right error."""
MOST_ARRAYS = 100
"""Arrays of a .npz that are looked at: outputs are one, beside labels and names of records."""
SHOWN = 5
"""Classes, up to which all are shown."""


SET = "set"
"""The column that says which set the outputs in a row are on."""


class OutputsPlace(NamedTuple):
    """Where a model's outputs on one set are: a file; or a part of it, the name of an array of a `.npz`, or a value in
    the column `set` of a table, which has `rows` in all. `model` is the model's name, if not the file's.
    """

    path: Path
    part: str = ""
    rows: int = 0
    model: str = ""

    @property
    def name(self) -> str:
        """What messages call it: a file of a model's folder with that folder, a part of a file with the file."""
        folder = f"{self.path.parent.name}/" if self.model not in ("", self.path.name) else ""
        return f"{folder}{self.path.name}{f'[{self.part}]' if self.part else ''}"


def as_place(path: str | Path | OutputsPlace) -> OutputsPlace:
    """The place of outputs that fill a file; a place as it is."""
    return path if isinstance(path, OutputsPlace) else OutputsPlace(Path(path).expanduser())


class Expected(NamedTuple):
    """The set that outputs must fit: its number of records, its classes by name or number, and its name in messages.

    `records` are the names of its records in order, if they are known: a file that names its records is read by them.
    """

    rows: int
    of_classes: int | Sequence[str]
    of: str
    records: Sequence[str] | None = None

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self.of_classes if isinstance(self.of_classes, int) else len(self.of_classes)

    @property
    def names(self) -> list[str]:
        """The names of the classes, in their order."""
        classes = self.of_classes
        return [*map(str, range(classes) if isinstance(classes, int) else classes)]

    @property
    def headers(self) -> list[list[str]]:
        """What a header may call the classes: by their names or, unless these are other numbers, `p_0`, `p_1`, ..."""
        counted = all(not name.isdecimal() or name == str(place) for place, name in enumerate(self.names))
        return [self.names, *([[f"p_{place}" for place in range(self.classes)]] if counted else [])]

    def title(self, index: int) -> str:
        """What messages call a class."""
        return repr(self.names[index][:40])

    def check_rows(self, count: int, source: str) -> None:
        """Rejects a number of rows other than one per record."""
        if count != self.rows:
            raise self.unlike(source, f"has {count} rows but the {self.of} has {self.rows} records")

    def of_columns(self, source: str, count: int, headed: str = "") -> InputError:
        """The error for a file with another number of columns, or other ones."""
        return self.unlike(source, f"has {count} columns{headed} but the {self.of} has {self.classes} classes")

    def unlike(self, source: str, trouble: str) -> InputError:
        """The error for a file of another form, with the header that would be read and the line that writes it."""
        if self.classes == 1:
            return InputError(
                f"{source}: {trouble}. Scores on the {self.of} are {self.rows} rows of one number, under any header or "
                "none; a first column of text or of 0, 1, 2, ... is left out."
            )
        headers = [[name[:40] for name in header] for header in self.headers]
        python = repr(headers[0])
        if self.classes > SHOWN:
            headers = [[*header[:3], "...", header[-1]] for header in headers]
            python = f"[f'p_{{k}}' for k in range({self.classes})]" if len(headers) > 1 else "NAMES"
        titles = " or ".join(map(",".join, headers))
        second = "; of two classes the second alone will do" if self.classes == 2 else ""
        return InputError(
            f"{source}: {trouble}. Outputs on the {self.of} are {self.rows} rows in its order, with a column of "
            f"numbers for each of {self.classes} classes, under the header {titles} in any order, or in this order "
            f"without a header{second}; one more column may name or number the rows. pandas writes it: "
            f"pandas.DataFrame(outputs, columns={python}).to_csv({Path(source).stem + '.csv'!r}, index=False)"
        )


class OutputColumns(NamedTuple):
    """The numbers `[rows, columns]` of a file, of its own type, rows in the order of the records' names if these are
    known, columns in that of the classes; what the reader guessed; and of a single column the class in its header.
    """

    values: np.ndarray
    notes: tuple[str, ...] = ()
    only: int | None = None


def read_outputs(place: OutputsPlace, expected: Expected) -> OutputColumns:
    """The numbers in a .npz, .npy, .csv or .parquet file. Tables must have the expected rows and columns."""
    path, source = place.path, place.name
    suffix, kinds = path.suffix.lower(), (".npz", ".npy", *TABLES)
    if suffix not in kinds or not (exists(path) and path.is_file()):
        refuse_pickle(path)
        of_kinds = f"outputs are read from {', '.join(kinds)}; save them as one of these (.txt, .tsv, .xlsx: as .csv)."
        raise InputError(f"{path}: {of_kinds if exists(path) else 'there is no such file; is the path right?'}")
    if suffix in TABLES:
        columns_of = _csv_columns if suffix == ".csv" else _parquet_columns
        if not place.part:
            return _of_table(columns_of(path, expected), expected, source)
        table = _of_set(columns_of(path, expected._replace(rows=place.rows), further=2), place.part)
        expected.check_rows(len(table.names(0)) if table.count else 0, source)
        return _of_table(table, expected, source)
    most = expected.rows * (expected.classes + 1) * np.dtype(np.longdouble).itemsize + SPARE
    names = None
    if suffix == ".npy":
        array = read_npy(path, min(MAX_BYTES, most))
    else:
        archive = NpzArrays(path)
        name = place.part or _outputs_in(archive)
        refuse_larger(f"{path.name}[{name}]", archive.sizes[name], most)
        array, names = archive.read(name), None if place.part else _names_in(archive, expected)
    return columns_of_array(array, names, expected, source)


def columns_of_array(array: np.ndarray, names: Sequence[str] | None, expected: Expected, source: str) -> OutputColumns:
    """The numbers of an array, whose rows follow the names of records, if there are any."""
    if array.dtype.kind not in "uif" or array.ndim not in (1, 2):
        labels = array.dtype.kind not in "uif" and array.shape[1:] in ((), (1,))
        raise expected.unlike(source, HARD_LABELS if labels else f"has {array.dtype} of shape {array.shape}")
    array = array[:, None] if array.ndim == 1 else array
    order, notes = order_of_rows(names, f"its array {RECORD!r}", expected, source)
    expected.check_rows(len(array), source)
    if array.shape[1] == expected.classes:
        _refuse_whole(list(array.T), expected, source)
    return OutputColumns(array[order], notes)


def _outputs_in(archive: NpzArrays) -> str:
    """The name of the one array that may be outputs; text and whole numbers, one a record, such as labels, may not."""
    names, source = archive.names, archive.path.name
    headers = {name: archive.header(name) for name in names[:MOST_ARRAYS]}
    numeric = [name for name, header in headers.items() if header.dtype.kind in "uif"]
    may_be = [name for name in numeric if len(headers[name].shape) > (headers[name].dtype.kind != "f")]
    if len(names) == 1 or (len(may_be) == 1 and len(names) <= MOST_ARRAYS):
        return (names if len(names) == 1 else may_be)[0]
    shown = ", ".join(f"{name[:40]!r} {headers[name].shape}" for name in names[:10]) or "(none)"
    raise InputError(ONE_ARRAY.says.format(source=source, arrays=shown))


def _names_in(archive: NpzArrays, expected: Expected) -> list[str] | None:
    """The names of records in a .npz: its array `record`; none of them where those of the set are not known."""
    name = next((name for name in archive.names if name.lower() == RECORD), None)
    if name is None:
        return None
    if expected.records is None:
        return []
    refuse_larger(f"{archive.path.name}[{name}]", archive.sizes[name], expected.rows * 4 * LONGEST_NAME + SPARE)
    return archive.read(name).astype(str).ravel().tolist()


def plain_name(name: str) -> str:
    """The name of a record without blanks around it; a whole number as such, whether or not it was stored as a float.

    >>> plain_name(" 1001.0"), plain_name("a.0")
    ('1001', 'a.0')
    """
    name = name.strip()
    whole = name.rstrip("0").removesuffix(".") if "." in name else name
    return whole if whole.removeprefix("-").isdecimal() else name


def order_of_rows(
    names: Sequence[str] | None, where: str, expected: Expected, source: str
) -> tuple[np.ndarray | slice, tuple[str, ...]]:
    """The rows of a file in the order of the set, and notes; all as they are where file or set names no records."""
    if names is None or expected.records is None:
        why = "it does not name its records" if names is None else f"{where} is not used"
        note = f"{why}: rows are taken in the order of the {expected.of}"
        return slice(None), (note,) if (names is None) != (expected.records is None) else ()
    record_names = [plain_name(name) for name in expected.records]
    rows = {plain_name(name): row for row, name in enumerate(names)}
    if len(names) != len(record_names) or rows.keys() != set(record_names):
        raise InputError(
            f"{source}: the names of records in {where} are not those of the {expected.of}, each once: these are "
            f"outputs on other records, or the names were changed. Give the outputs on this {expected.of}, with its "
            f"names, or the {expected.of} that these outputs are on."
        )
    return np.array([rows[name] for name in record_names]), (f"rows are put in order by the names in {where}",)


class TableColumns(NamedTuple):
    """The columns of a table before it is known which are the classes: titles, if it has a header; those that are no
    numbers; and what gives a column's numbers, or an InputError, or its cells as text.
    """

    count: int
    titles: Sequence[str]
    texts: Collection[int]
    numbers: Callable[[int], np.ndarray]
    names: Callable[[int], list[str]]
    notes: tuple[str, ...] = ()


def _of_table(table: TableColumns, expected: Expected, source: str) -> OutputColumns:
    """The numbers of the columns of the classes; what names or numbers the rows puts them in order, or is left out."""
    if table.count == len(table.texts) == 1:
        raise expected.unlike(source, "its one column has no numbers, as predicted labels, but confidences are needed")
    by_title = bool(table.titles) and expected.classes > 1
    places, only = _columns_by_title(table, expected) if by_title else (_columns_by_place(table, expected), None)
    further = [place for place in range(table.count) if place not in places]
    if not places or len(further) > 1 or len({*table.titles}) < len(table.titles):
        titles = ", ".join(repr(title[:40]) for title in table.titles[: SHOWN + 1])
        headed = f" under the header {titles}{', ...' * (table.count > SHOWN + 1)}," if by_title else ""
        raise expected.of_columns(source, table.count, headed)
    columns = [table.numbers(place) for place in places]
    if not by_title:
        _refuse_whole(columns, expected, source)
    order, notes = _order(table, further, expected, source)
    return OutputColumns(np.stack(columns).T[order], (*table.notes, *notes), only)


def _of_set(table: TableColumns, role: str) -> TableColumns:
    """The rows of a table whose column `set` has this value, without that column."""
    place = [title.strip().lower() for title in table.titles].index(SET)
    rows = np.flatnonzero(np.array([name.strip().lower() for name in table.names(place)]) == role)
    kept = [column for column in range(table.count) if column != place]

    def names(column: int) -> list[str]:
        whole = table.names(kept[column])
        return [whole[row] for row in rows]

    return TableColumns(
        len(kept),
        [table.titles[column] for column in kept],
        {number for number, column in enumerate(kept) if column in table.texts},
        lambda column: table.numbers(kept[column])[rows],
        names,
        table.notes,
    )


def _columns_by_title(table: TableColumns, expected: Expected) -> tuple[list[int], int | None]:
    """The places of the columns that are named after the classes, in their order; and of one column alone its class."""
    place_of = {title: place for place, title in enumerate(table.titles)}
    for names in expected.headers:
        indices = [index for index, name in enumerate(names) if name in place_of]
        # pandas calls a column without a name 0.
        single = expected.classes == 2 and len(indices) == 1 and "0" not in place_of
        if len(indices) == expected.classes or single:
            return [place_of[names[index]] for index in indices], indices[0] if single else None
    return [], None


def _columns_by_place(table: TableColumns, expected: Expected) -> list[int]:
    """The places of the classes' columns: all but one of text, or a first one that counts the rows; none if unclear."""
    places = list(range(table.count))
    if len(table.texts) == 1:
        places.remove(next(iter(table.texts)))
    elif table.count == expected.classes + 1 and not table.texts and counts_records(table.numbers(0)):
        places.remove(0)
    return places if len(places) == expected.classes or (len(places) == 1 and expected.classes == 2) else []


def _order(
    table: TableColumns, further: list[int], expected: Expected, source: str
) -> tuple[np.ndarray | slice, tuple[str, ...]]:
    """The order of the rows by the one further column, if it names the records, and what is said of that column."""
    if not further:
        return order_of_rows(None, "", expected, source)
    (place,) = further
    title = f"column {place + 1}" + (f" ({table.titles[place][:40]!r})" if table.titles else "")
    numbers = np.zeros(0)
    if place not in table.texts:
        with suppress(InputError):
            numbers = table.numbers(place)
    names = [] if expected.records is None else table.names(place)
    ours = set(map(plain_name, expected.records or ()))
    if names and (not counts_records(numbers) or set(map(plain_name, names)) == ours):
        return order_of_rows(names, title, expected, source)
    if not len(numbers):
        return order_of_rows([], title, expected, source)
    if counts_records(np.sort(numbers)) and not counts_records(numbers):
        raise expected.unlike(source, f"{title} numbers the rows out of order")
    if not _whole(numbers) or len(np.unique(numbers)) < len(numbers):
        raise expected.unlike(source, f"{title} is no class, and neither names nor numbers the rows")
    return slice(None), (f"{title} numbers the rows and is left out: rows are in the set's order",)


def counts_records(numbers: np.ndarray) -> bool:
    """Whether it is 0, 1, 2, ... or 1, 2, 3, ...: at least three, because two could be outputs."""
    return len(numbers) > 2 and not np.isnan(numbers).any() and counting(numbers)


def _refuse_whole(columns: Sequence[np.ndarray], expected: Expected, source: str) -> None:
    """Refuses the only column of whole numbers beside others that are not whole: no outputs are so.

    Saturated probabilities and their logarithms are, and so is a constant first column, such as zeros, beside logits.
    Of several classes only a column whose numbers all differ is refused, since logits with few digits may all be whole.
    """
    if len(columns) < 2 or len(columns[0]) < 3:
        return
    whole = [place for place, column in enumerate(columns) if column[0] == np.rint(column[0]) and _whole(column)]
    if len(whole) != 1 or (whole == [0] and (columns[0] == columns[0][0]).all()):
        return
    column = columns[whole[0]]
    if len(columns) > 2 and len(np.unique(column)) < len(column):
        return
    rows = np.stack(columns, axis=1).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        if not any((np.abs(shares.sum(axis=1) - 1) <= 1e-3).all() for shares in (rows, np.exp(rows))):
            raise expected.unlike(source, f"column {whole[0] + 1} has only whole numbers: an index, a fold or a label?")


def _whole(numbers: np.ndarray) -> bool:
    with np.errstate(invalid="ignore"):
        return bool((numbers == np.rint(numbers)).all())


def _csv_columns(path: Path, expected: Expected, further: int = 1) -> TableColumns:
    """The columns of a CSV file, `further` ones beside the classes at most; size and first line are checked first."""
    # Imported here because pyarrow takes a tenth of a second.
    from jaxaudit.data.formats.text_table import read_csv, trimmed

    rows, classes, source = expected.rows, expected.classes, path.name
    if path.stat().st_size > (rows + 1) * ((classes + 1) * WIDEST_CELL + LONGEST_NAME) + SPARE:
        raise InputError(f"{source}: is longer than {rows} rows of {classes} numbers; is it of the {expected.of}?")
    line = _first_line(path)
    cells = 1 + max(map(line.count, ",;\t"))
    if '"' not in line and cells > classes + 1 + further:
        raise expected.of_columns(source, cells)
    table = read_csv(path, header=False)

    def is_number(cell: str) -> bool:
        with suppress(ValueError):
            return as_number(cell.replace(table.decimal, ".")) is not None
        return False

    beginnings = [trimmed(column[:2]).to_pylist() for column in table.columns]
    texts = [place for place, column in enumerate(beginnings) if not is_number(column[-1])]
    headed = any(place not in texts and not is_number(column[0]) for place, column in enumerate(beginnings))
    titles = {column[0] for column in beginnings} if classes > 1 else set[str]()
    if table.rows == rows + 1 and (headed or any(not titles.isdisjoint(names) for names in expected.headers)):
        table = table.with_header()
    expected.check_rows(table.rows - (headed and not table.header), source)
    if not table.header and not table.note and len(beginnings) == classes == 2 and not texts:
        whole = np.stack([table.numbers(place) for place in range(2)])
        if _whole(whole) and not np.isin(whole, (0, 1)).all():
            raise expected.unlike(source, "each line is two whole numbers, or one number with a decimal comma")
    return TableColumns(
        len(beginnings),
        table.header,
        texts,
        lambda place: table.numbers(place, "write plain numbers"),
        lambda place: trimmed(table.columns[place]).to_pylist(),
        (table.note,) if table.note else (),
    )


def _first_line(path: Path) -> str:
    """The first line of a table, as far as it is UTF-8."""
    with open_data(path) as stream:
        line = stream.readline(LONGEST_LINE + 1)
    if len(line) > LONGEST_LINE:
        raise InputError(f"{path.name}: its first line is longer than {LONGEST_LINE} characters; is it a CSV file?")
    return line.decode("utf-8-sig", "replace")


def _parquet_columns(path: Path, expected: Expected, further: int = 1) -> TableColumns:
    """The columns of a Parquet file, whose footer and types are checked before; texts, of which a few bytes may hold
    gigabytes, are read only as names of records.
    """
    # Imported here because pyarrow takes a tenth of a second.
    import pyarrow as pa

    from jaxaudit.data.formats.parquet_file import opened_parquet, read_parquet, unpacked_bytes

    source, kinds = path.name, (pa.types.is_floating, pa.types.is_integer, pa.types.is_decimal)
    with opened_parquet(path) as (file, stream):
        schema = file.schema_arrow
        titles = schema.names
        expected.check_rows(file.metadata.num_rows, source)
        if not 0 < len(titles) <= expected.classes + further:
            raise expected.of_columns(source, len(titles))
        # A nested column has several parts, and Arrow reads "a.b" where "a" is asked for.
        starts = sorted(f"{title}." for title in titles)
        if len(file.schema) != len(titles) or any(second.startswith(first) for first, second in pairwise(starts)):
            raise expected.unlike(source, "has nested columns, or several of one name, or of its beginning")
        pairs = zip(titles, schema.types, strict=True)
        held = dict.fromkeys(title for title, kind in pairs if any(of(kind) for of in kinds))
        most = expected.rows * len(titles) * WIDEST_CELL + SPARE
        refuse_larger(source, unpacked_bytes(stream), most, "save only the outputs")
        columns = file.read([*held])

    def numbers(place: int) -> np.ndarray:
        column = columns.column(titles[place]) if titles[place] in held else None
        if column is None or column.null_count:
            trouble = "has no numbers" if column is None else "has empty cells"
            raise expected.unlike(source, f"column {place + 1} ({titles[place][:40]!r}) {trouble}")
        # Databases and Spark write decimals.
        return (column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column).to_numpy()

    def names(place: int) -> list[str]:
        return read_parquet(path, lambda title: title == titles[place]).columns[place].to_pylist()

    texts = [place for place, title in enumerate(titles) if title not in held]
    return TableColumns(len(titles), titles, texts, numbers, names)


def shared_record_names(data: str, path: Path, classes: Collection[str]) -> list[str] | None:
    """The names of a set's records: the first column that a table of outputs has, too, if no two are equal; None if
    there is none, or one of the two is no table: rows are then in the set's order. `classes` are no such columns.
    """
    source = expanded(data)
    if not all(file.suffix.lower() in TABLES and exists(file) and file.is_file() for file in (source, path)):
        return None
    # Imported here because pyarrow takes a tenth of a second.
    from jaxaudit.data.formats.parquet_file import read_text_table

    titles = {title for title in titles_of(path) if title and not re.fullmatch(r"p_\d+", title)} - {*classes, SET}
    for column in (title for title in titles_of(source) if title in titles):
        table = read_text_table(source, lambda name, column=column: name == column)
        if table.header.count(column) != 1:
            continue
        names = [plain_name(cell) for cell in table.column(column).to_pylist()]
        if len({*names}) == len(names) > 1:
            return names
    return None


def titles_of(path: Path) -> list[str]:
    """The cells of a table's first line, or the names of its columns, as far as they may be common to two tables."""
    if path.suffix.lower() == ".csv":
        line = _first_line(path).replace(";", ",").replace("\t", ",")
        return [cell.strip().strip('"').strip() for cell in line.split(",")]
    from jaxaudit.data.formats.parquet_file import parquet_names

    return parquet_names(path)
