"""The training table of a classifier: its options, and reading it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxaudit.cli.groups import MOST, DataFolder
from jaxaudit.cli.options import fields_of, option
from jaxaudit.cli.progress import say
from jaxaudit.cli.recipe import make_adapters
from jaxaudit.cli.sets import ShadowNetwork
from jaxaudit.errors import InputError, without_folders

if TYPE_CHECKING:
    import numpy as np

    from jaxaudit.data import Examples, Table

DEFAULT_DATA = "breast-cancer"
COLUMNS_SHOWN = 40
TABLE_FILES = (".csv", ".tsv", ".txt", ".parquet", ".pq")
TAB = {"tab": "\t", "\\t": "\t"}
"""Names of the tab character for `--delimiter`."""


@dataclass(frozen=True)
class TableData(DataFolder):
    """The table, and how a file of your own is read."""

    data: str | None = option(
        "NAME[@SPLIT]: breast-cancer, wine, adult, location, purchase, acs, or a set of images such as digits; or a "
        "file of texts, .jsonl. [default: breast-cancer]",
        "--data",
        "--query",
        names="data",
        usual="NAME[@SPLIT] of a known set, or a path to texts.",
    )
    csv: Path | None = option(
        "Your own table: CSV with a header line, or Parquet.",
        "--csv",
        "--table",
        names="file",
        usual="Your own table: CSV with a header, or Parquet.",
    )
    label: str | None = option("The column of --csv with the class.", usual="The column of --csv with the class.")
    categorical: tuple[str, ...] = option("Treat this column as categorical. Repeatable.", default=(), metavar="COLUMN")
    numeric: tuple[str, ...] = option("Treat this column as numeric. Repeatable.", default=(), metavar="COLUMN")
    drop: tuple[str, ...] = option("Leave this column out. Repeatable.", default=(), metavar="COLUMN")
    missing: str = option(
        "Missing numbers of --csv: refuse them, drop their records, use the column's mean, or use it and add a "
        "category column that marks them.",
        default="error",
        choices=("error", "drop", "mean", "category"),
    )
    delimiter: str | None = option("Delimiter of --csv, such as ; or tab. [default: detected]")
    encoding: str | None = option("Encoding of --csv: utf-8, utf-16, cp1252, ... [default: detected]")
    decimal: str | None = option("Decimal sign of --csv: . or , [default: detected]")
    sample: int | None = option(
        "Use this many records, drawn at random. [default: all]", minimum=3, maximum=MOST * 1000
    )


def read_training_set(options: TableData, network: ShadowNetwork) -> "Table | Examples":
    """The texts that `--data` names, as sequences; else the table, see `read_table_options`."""
    from jaxaudit.cli.read_sets import text_reader

    names = [f"{options.csv or options.data or DEFAULT_DATA}"]
    read = text_reader(names, network, make_adapters(network))
    if read is None or options.csv is not None:
        return read_table_options(options)
    usual = TableData(data=options.data, data_dir=options.data_dir, sample=options.sample)
    other = next((field for field in fields_of(options) if field.value != getattr(usual, field.name)), None)
    if other is not None:
        raise InputError(f"{other.flag} is for tables, and {options.data} has texts; leave it out.")
    return read(options.data or "")


def read_table_options(options: TableData) -> "Table":
    """The table that `--data` or `--csv` names; images and other arrays become a numeric table."""
    import numpy as np

    from jaxaudit.data import Column, Table, load, load_table
    from jaxaudit.data.tables.resolve import table_names

    choice: dict[str, Any] = {name: getattr(options, name) for name in ("categorical", "numeric", "drop")}
    written = {name: getattr(options, name) for name in ("delimiter", "encoding", "decimal")}
    if options.csv is not None:
        if options.data is not None:
            raise InputError("--data and --csv both name the training set; give one of them.")
        written["delimiter"] = TAB.get(written["delimiter"], written["delimiter"])
        how = {**choice, **written, "missing": options.missing, "data_dir": options.data_dir}
        return load_table(f"{options.csv}", label=options.label, **how)
    name = options.data or DEFAULT_DATA
    if Path(name.partition("@")[0]).suffix.lower() in TABLE_FILES:
        raise InputError(f"--data {name} is a file: did you mean --csv {name}?")
    flags_given = [f"--{name}" for name, value in {"label": options.label, **written}.items() if value is not None]
    flags_given += ["--missing"] if options.missing != "error" else []
    if flags_given:
        raise InputError(f"{flags_given[0]} applies only to --csv; the data sets of --data are read as they are.")
    if name.partition("@")[0] in table_names():
        return load_table(name, **choice, data_dir=options.data_dir)
    if any(choice.values()):
        tables = ", ".join(table_names())
        raise InputError(f"--categorical, --numeric and --drop choose columns, but {name} is not a table ({tables}).")
    examples = load(name, data_dir=options.data_dir)
    values = np.asarray(examples.inputs, np.float32).reshape(len(examples), -1)
    columns = tuple(Column(f"input {index}") for index in range(values.shape[1]))
    return Table(values, columns, examples.labels, examples.class_names, examples.name)


def summarise_table(table: "Table | Examples", *, columns: bool) -> None:
    """Prints a summary of the table on stderr; with `columns`, one line per column with its kind."""
    from jaxaudit.data import Examples, describe_table

    if isinstance(table, Examples):
        say(f"{table.name}: {len(table):,} texts of up to {table.inputs.shape[1]:,} tokens")
        return
    say(f"{table.name}: {len(table):,} records, {len(table.columns)} columns, {len(table.class_names)} classes")
    if columns:
        summaries = describe_table(table)
        for summary in summaries[:COLUMNS_SHOWN]:
            say(f"  {summary}")
        if len(summaries) > COLUMNS_SHOWN:
            say(f"  and {len(summaries) - COLUMNS_SHOWN} more columns")
    for note in table.notes:
        say(f"  note: {note}")


def in_file(records: "Table | Examples", indices: "np.ndarray") -> "np.ndarray":
    """Indices in the file of these records; of texts none was dropped."""
    from jaxaudit.data import Table

    return records.in_file(indices) if isinstance(records, Table) else indices


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
        **_as_a_set(whole),
        f"{role}_records": len(table),
        f"{role}_content_hash": table.content_hash,
    }


def _as_a_set(table: "Table | Examples") -> dict[str, str]:
    """The hash of the same records as a set of a bank, if they are texts or rows of numbers."""
    import numpy as np

    from jaxaudit.data import Examples

    if isinstance(table, Examples):
        return {"records_content_hash": table.content_hash}
    if any(column.categories for column in table.columns):
        return {}
    with np.errstate(over="ignore"):
        values = np.asarray(table.values, np.float32)
    if not np.isfinite(values).all():
        return {}
    return {"records_content_hash": Examples(values, table.labels, table.class_names, table.name).content_hash}


def drawn(
    generator: "np.random.Generator", records: int, count: int | None, option: str, name: str
) -> "np.ndarray | None":
    """`count` distinct indices below `records`, in ascending order; None for all."""
    import numpy as np

    if count is None:
        return None
    if count > records:
        raise InputError(f"{option} {count} is more than the {records:,} records of {name}; leave it out to use all.")
    return np.sort(generator.choice(records, count, replace=False))
