"""Runs third-party parsers on untrusted bytes: without output, and every exception becomes an `InputError`."""

import logging
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from jaxaudit.errors import InputError

Item = TypeVar("Item")
LONGEST_REASON = 160
# What Arrow says of a table holds the row or the cell itself: of a CSV file only these parts are passed on,
_OF_CSV = re.compile(
    r"In CSV column #\d+|Row #\d+|Expected \d+ columns, got \d+|CSV conversion error to \w+|Empty CSV file|"
    r"Column '\w+' in include_columns does not exist"
)
# and of a cast what stands before the cell.
_CELLS = re.compile(r"(invalid value|Failed to parse string|Integer value)\b.*", re.DOTALL)


@contextmanager
def quietly() -> Iterator[None]:
    """Suppresses warnings and logging; for a loop of many `parsing`."""
    disabled = logging.root.manager.disable
    if disabled >= logging.CRITICAL:  # as it is within another: to change it is slow
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
        return
    logging.disable(logging.CRITICAL)
    try:
        with quietly():
            yield
    finally:
        logging.disable(disabled)


@contextmanager
def parsing(what: str, advice: str) -> Iterator[None]:
    """The context in which a parser reads untrusted data; suppresses stderr, warnings and logging.

    Damaged bytes can make parsers raise any exception. So only calls of parsers belong in this context, and none of
    this package's own work.

    Args:
        what: "PATH: is not a readable ... file".
        advice: what to do, a sentence after the reason.

    Raises:
        InputError: "WHAT (REASON); ADVICE" for any exception but an InputError, which is let through.
    """
    try:
        with quietly():
            yield
    except InputError:
        raise
    except MemoryError as error:
        raise InputError(f"{what} (not enough memory); split it into smaller files.") from error
    except Exception as error:
        raise InputError(f"{what} ({reason_of(error)}); {advice}") from error


def parsed(parse: Callable[[], Iterator[Item]], what: str, advice: str) -> Iterator[Item]:
    """What a parser gives piece by piece, with only the parser's own work within `parsing`.

    Raises:
        InputError: as `parsing`.
    """
    with parsing(what, advice):
        items = iter(parse())
        item = next(items, None)
    while item is not None:
        yield item
        with parsing(what, advice):
            item = next(items, None)


def reason_of(error: BaseException) -> str:
    """An exception's first line, bounded, without the cells that parsers of tables quote; its type where it says none.

    >>> reason_of(ValueError("CSV parse error: Row #2: Expected 2 columns, got 3: Smith,1,HIV"))
    'Row #2: Expected 2 columns, got 3'
    """
    text = _CELLS.sub(r"\1", str(error).strip())
    if "CSV" in text:
        found = ": ".join(match[0] for match in _OF_CSV.finditer(text))
        return found or "it is damaged, or a quotation mark is not closed"
    line = (text.splitlines() or [type(error).__name__])[0]
    return line if len(line) <= LONGEST_REASON else line[: LONGEST_REASON - 3] + "..."
