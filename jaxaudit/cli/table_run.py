"""What a run on a table is, and what repeats it: the same for every command that audits a classifier."""

import datetime
import time
from typing import Any

from jaxaudit.cli.repeat import Options, command_line, plain
from jaxaudit.data import Table
from jaxaudit.runs.provenance import describe_machine


def settled(options: Options) -> Options:
    """The options that decide a number; where the data lie does not."""
    return {name: value for name, value in plain(options).items() if name not in ("data_dir", "csv", "data")}


def table_provenance(
    command: str, options: Options, whole: Table, table: Table, role: str, started: float
) -> dict[str, Any]:
    """What must be known to repeat a run that began at `started`.

    Args:
        command: the sub-command.
        options: its options, as they were settled.
        whole: the table that was given.
        table: the records of it that the run is about.
        role: what they are, for the names of their facts.
        started: seconds since the epoch.
    """
    return {
        **describe_machine(),
        "command": command_line(command, options),
        "seed": options["seed"],
        "options": plain(options),
        "data": {
            "name": whole.name,
            "records": len(whole),
            "columns": [column.name for column in whole.columns],
            "classes": list(whole.class_names),
            "notes": list(whole.notes),
            "content_hash": whole.content_hash,
            f"{role}_records": len(table),
            f"{role}_content_hash": table.content_hash,
        },
        "started": datetime.datetime.fromtimestamp(started, datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(time.time() - started, 1),
    }
