"""All that is wrong with the words of a command, said at once, before anything heavy is imported and any data read.

A name may be a data set's (`mnist`, `svhn_cropped@train`, `tfds:mnist`): only what can be nothing but a path is looked
for, and whether such a set exists is found out later.
"""

import difflib
import os
import re
import stat
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from jaxaudit.cli import report_option
from jaxaudit.cli.ks.method import settle_method
from jaxaudit.cli.own_model import parse_model
from jaxaudit.cli.progress import say
from jaxaudit.cli.repeat import Options
from jaxaudit.cli.words import (
    ACDC,
    SHARES,
    check_learning_rate,
    check_pair,
    check_share,
    check_weights,
    parse_acdc,
    parse_hidden,
    parse_image_size,
    parse_reference,
    parse_target_data,
)
from jaxaudit.errors import InputError, InputErrors

Question = tuple[Callable[..., object], tuple[Any, ...]]
"""A function that raises an `InputError` where something is wrong with its arguments, and these."""

DATA = ("query", "calibration", "holdout", "data", "test_data")
"""Options that take a data set's name or a path, and"""
FILES = ("target", "holdout_target", "field_strength", "csv", "params")
"""those that take paths, one or several."""
PARSED: dict[str, Callable[[Any], object]] = {
    "image_size": parse_image_size,
    "hidden": parse_hidden,
    "learning_rate": check_learning_rate,
    "model": parse_model,
}
SET_NAME = re.compile(r"[\w\-]+(/[\w\-.+]+)?(:\d+\.\d+\.\d+)?", re.ASCII)
FILE_NAME = re.compile(r".*\.(npz|npy|csv|tsv|parquet|mat|gz|zip|safetensors|msgpack)", re.IGNORECASE)
LISTED = 10_000
LONGEST = 100


def check(options: Options) -> None:
    """Nothing where the options of a command make sense by themselves and every path they name is there.

    Options that a command does not have, or that were not given, are not asked about.

    Raises:
        InputError: what is wrong; several things at once are an `InputErrors`.
    """
    given = {name: value for name, value in options.items() if value is not None and value != []}
    problems: dict[str, None] = {}
    for question, arguments in _questions(options, given):
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


def say_what_is_simulated(options: Options) -> None:
    """Says that targets will be simulated, to a person with data but none of a target's outputs."""
    if options["query"] is not None and not options["target"] and not options["target_data"]:
        say("No --target was given: three targets of known truth are simulated instead.")


def _questions(options: Options, given: Options) -> Iterator[Question]:
    for name, parse in PARSED.items():
        if name in given:
            yield parse, (given[name],)
    for name in SHARES:
        if name in given:
            yield check_share, (name, given[name])
    if "calibration" in options:
        yield check_pair, (options,)
    if "params" in options:
        yield check_weights, (options,)
    if "holdout_target" in options:
        yield settle_method, ({**options, **{name: options[name] or [] for name in ("target", "holdout_target")}},)
    folder = given.get("data_dir")
    if folder is not None:
        yield _check_folder, (folder,)
    for name in DATA:
        if name in given:
            yield _check_data, (name, given[name], folder)
    for text in given.get("target_data", ()):
        yield lambda text: _check_data("target_data", parse_target_data(text)[0], folder), (text,)
    for name in FILES:
        for path in given[name] if isinstance(given.get(name), list) else [given.get(name)]:
            if path is not None:
                yield _check_path, (name, path)
    for text in given.get("reference", ()):
        yield lambda text: _check_path("reference", parse_reference(text)[1]), (text,)
    yield report_option.claim, (given.get("report"), given.get("out"))
    if "out" in given:
        yield _claim, (given["out"],)


def _claim(out: Path) -> None:
    # Imported here because it takes half a second.
    from jaxaudit.runs.directory import claim

    claim(out)


def _check_folder(folder: Path) -> None:
    mode = _mode(folder)
    # One that is not there yet is made when a set is prepared in it.
    if mode is not None and not stat.S_ISDIR(mode):
        raise InputError(f"--data-dir {folder} is no folder; name the folder in which data sets lie.")


def _check_data(option: str, name: str, data_dir: Path | None) -> None:
    """Refuses a path to data that is none; `NAME[@SPLIT]` as in `jaxaudit.data.load`."""
    if name.startswith(ACDC):
        name = parse_acdc(name)[0]
    elif _mode(name) is None:
        source = name.rpartition("@")[0] if "@" in name else name
        places = [Path(source)] if data_dir is None else [Path(source), data_dir / source]
        found = [place for place in places if _mode(place) is not None]
        if not found and (not source.strip() or _may_be_a_set(source)):
            return
        if not found:
            raise InputError(_missing(option, source, "" if data_dir is None else f" here or in {data_dir}"))
        name = str(found[0])
    _check_path(option, name)


def _may_be_a_set(source: str) -> bool:
    return source.startswith("tfds:") or (SET_NAME.fullmatch(source) is not None and not FILE_NAME.fullmatch(source))


def _check_path(option: str, path: str | Path | None) -> None:
    if path is None:
        return
    mode = _mode(path)
    if mode is None:
        raise InputError(_missing(option, str(path), ""))
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise InputError(f"{_flag(option)} {path} is neither a file nor a folder; name the file itself.")


def _missing(option: str, path: str, where: str) -> str:
    shown = path if len(path) <= LONGEST else f"{path[:LONGEST]}..."
    near = difflib.get_close_matches(Path(path).name, _beside(path), n=1, cutoff=0.8)
    advice = f"did you mean {Path(path).with_name(near[0])}?" if near else "is the path right?"
    return f"{_flag(option)} {shown}: there is no such file or folder{where}; {advice}"


def _beside(path: str) -> list[str]:
    """The names in the folder where the path should be, as far as it can be read."""
    try:
        with os.scandir(_expanded(path).parent) as entries:
            return [entry.name for entry in islice(entries, LISTED) if not entry.name.startswith(".")]
    except (OSError, ValueError):
        return []


def _mode(path: str | Path) -> int | None:
    """What kind of thing lies there; None where there is none, or none can be called so."""
    try:
        return os.stat(_expanded(path)).st_mode
    except (OSError, ValueError):
        return None


def _expanded(path: str | Path) -> Path:
    return Path(os.path.expanduser(path))


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"
