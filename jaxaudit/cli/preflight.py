"""Reports all errors of a command line at once, before anything heavy is imported or any data are read.

A name may be that of a data set (`mnist`, `svhn_cropped@train`, `tfds:mnist`). Only names that must be paths are
checked here; whether such a data set exists is checked later.
"""

import dataclasses
import difflib
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from jaxaudit.cli.options import PLACES, OptionField, fields_of, refuse_without_effect
from jaxaudit.cli.parsers import ACDC, parse_acdc
from jaxaudit.errors import InputError, InputErrors

Question = tuple[Callable[..., object], tuple[Any, ...]]
"""A function that raises an `InputError` for invalid arguments, and its arguments."""

SET_NAME = re.compile(r"[\w\-]+(/[\w\-.+]+)?(:\d+\.\d+\.\d+)?", re.ASCII)
FILE_NAME = re.compile(r".*\.(npz|npy|csv|tsv|parquet|mat|gz|zip|safetensors|msgpack)", re.IGNORECASE)
LISTED = 10_000
LONGEST = 100


def refuse_bad_options(options: Any, together: Sequence[Callable[[Any], object]] = ()) -> None:
    """Checks that the options of a command are consistent and that every path they name exists."""
    groups = (getattr(options, outer.name) for outer in dataclasses.fields(options))
    of_groups = [(group.check, ()) for group in groups if hasattr(group, "check")]
    of_all = [(question, (options,)) for question in (refuse_without_effect, *together)]
    ask([*_questions(options), *of_groups, *of_all])


def ask(questions: Sequence[Question]) -> None:
    """Asks all, whatever the others say."""
    problems: dict[str, None] = {}
    for question, arguments in questions:
        try:
            question(*arguments)
        except InputErrors as errors:
            problems |= dict.fromkeys(errors.problems)
        except InputError as error:
            problems[str(error)] = None
    if len(problems) == 1:
        raise InputError(*problems)
    if problems:
        raise InputErrors(tuple(problems))


def _questions(options: Any) -> Iterator[Question]:
    fields = [field for field in fields_of(options) if field.value is not None]
    values_by_name = {field.name: field.value for field in fields}
    folder, out = values_by_name.get("data_dir"), values_by_name.get("out")
    if folder is not None:
        yield _check_folder, (folder,)
    for field in fields:
        for value in field.value if isinstance(field.value, tuple) else (field.value,):
            if field.declared.check is not None:
                yield field.declared.check, (value,)
            if field.declared.names in PLACES:
                yield _check_place, (field, value, folder)
    if "report" in values_by_name:
        from jaxaudit.runs.directory import claim_report

        yield claim_report, (values_by_name["report"], out)
    if out is not None:
        # Imported here because it takes half a second.
        from jaxaudit.runs.directory import claim

        yield claim, (out,)


def _check_place(field: OptionField, value: Any, folder: Path | None) -> None:
    path = field.declared.place(value) if field.declared.place else value
    if path is None or field.name == "data_dir":
        return
    if field.declared.names == "file":
        _check_path(field.flag, path)
    else:
        _check_data(field.flag, str(path), folder)


def _check_folder(folder: Path) -> None:
    mode = _mode(folder)
    # A missing folder is created when a set is prepared in it.
    if mode is not None and not stat.S_ISDIR(mode):
        raise InputError(f"--data-dir {folder} is not a folder; name the folder of the data sets.")


def _check_data(option: str, name: str, data_dir: Path | None) -> None:
    """Rejects a path that does not exist; `NAME[@SPLIT]` as in `jaxaudit.data.load`."""
    if name.startswith(ACDC):
        name = parse_acdc(name)[0]
    elif _mode(name) is None:
        source = name.rpartition("@")[0] if "@" in name else name
        candidates = [Path(source)] if data_dir is None else [Path(source), data_dir / source]
        existing = [path for path in candidates if _mode(path) is not None]
        a_set = source.startswith("tfds:") or (SET_NAME.fullmatch(source) and not FILE_NAME.fullmatch(source))
        if not existing and (a_set or not source.strip()):
            return
        if not existing:
            raise InputError(_missing(option, source, "" if data_dir is None else f" here or in {data_dir}"))
        name = str(existing[0])
    _check_path(option, name)


def _check_path(option: str, path: str | Path) -> None:
    mode = _mode(path)
    if mode is None:
        raise InputError(_missing(option, str(path), ""))
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise InputError(f"{option} {path} is neither a file nor a folder; name the file itself.")


def _missing(option: str, path: str, where: str) -> str:
    shown = path if len(path) <= LONGEST else f"{path[:LONGEST]}..."
    beside = list[str]()
    with suppress(OSError, ValueError), os.scandir(Path(os.path.expanduser(path)).parent) as entries:
        beside += [entry.name for entry in islice(entries, LISTED) if not entry.name.startswith(".")]
    near = difflib.get_close_matches(Path(path).name, beside, n=1, cutoff=0.8)
    advice = f"did you mean {Path(path).with_name(near[0])}?" if near else "is the path right?"
    return f"{option} {shown}: there is no such file or folder{where}; {advice}"


def _mode(path: str | Path) -> int | None:
    """The kind of file at a path; None if there is none or the path is invalid."""
    try:
        return os.stat(os.path.expanduser(path)).st_mode
    except (OSError, ValueError):
        return None
