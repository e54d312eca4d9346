"""How a CSV file is written: its encoding, what stands between its cells, and its decimal sign; given, or found."""

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from jaxaudit.data.paths import open_data
from jaxaudit.errors import InputError

FIRST_LINE = 2**20
"""Characters of the first line, at most: it alone decides how many columns a reader makes room for."""

MOST_COLUMNS = 32_768
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_SAMPLE, _LINES = 2**18, 200
_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*")
_WITH_POINT, _WITH_COMMA = (re.compile(rf"\s*[+-]?\d*\{sign}\d+([eE][+-]?\d+)?\s*") for sign in ".,")
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


class Asked(NamedTuple):
    """What a person said of how a file is written; None is to be found."""

    delimiter: str | None = None
    encoding: str | None = None
    decimal: str | None = None


class CsvFormat(NamedTuple):
    """How a file is written.

    >>> str(CsvFormat("utf-8", ";", ","))
    'semicolons between cells, decimal commas'
    """

    encoding: str = "utf-8"
    delimiter: str = ","
    decimal: str = "."

    def __str__(self) -> str:
        """What is not the usual; empty for UTF-8, commas and decimal points."""
        delimiter = DELIMITERS.get(self.delimiter, repr(self.delimiter))
        said = {
            self.encoding: self.encoding != "utf-8",
            f"{delimiter} between cells": self.delimiter != ",",
            "decimal commas": self.decimal != ".",
        }
        return ", ".join(text for text, unusual in said.items() if unusual)


USUAL = CsvFormat()


def find_format(path: Path, asked: Asked, most_columns: int) -> tuple[CsvFormat, int]:
    """How the file is written, and how many cells its first line has.

    The encoding is what the first bytes say (UTF-8 or UTF-16), else UTF-8 where all of the file is, else Windows-1252,
    which holds all letters of Latin-1. What stands between cells is the one of `DELIMITERS` that cuts (nearly) all
    lines into as many cells as the first, and most of them into numbers; commas where it is open. Decimal commas are
    taken for such where cells are not separated by commas, some cell has one and none a decimal point.

    Looks at the first `2**18` characters. Nothing is made room for before the first line is found short enough.

    Raises:
        InputError: when the file is empty, begins with a blank line or one that is too long, or what was asked for is
            impossible.
        UnicodeError: when it is no text in that encoding.
    """
    _check_asked(asked)
    encoding = _encoding(path) if asked.encoding is None else asked.encoding
    text = _beginning(path, encoding)
    first = text.partition("\n")[0].partition("\r")[0]
    if not text:
        raise InputError(f"{path}: is empty; was it written to the end?")
    if not first:
        raise InputError(f"{path}: its first line is blank; delete it.")
    if len(first) > FIRST_LINE:
        raise InputError(f"{path}: its first line has more than {FIRST_LINE:,} characters; is it a table?")
    sample = text[: max(_SAMPLE, 4 * len(first))]
    if len(sample) < len(text) or len(text) > FIRST_LINE:
        sample = sample[: sample.rfind("\n") + 1] or first
    candidates = [each for each in DELIMITERS if each in first] or [","]
    if asked.delimiter is not None:
        candidates = [asked.delimiter]
    for candidate in candidates:
        if first.count(candidate) >= most_columns:
            raise InputError(
                f"{path}: its first line has {first.count(candidate) + 1:,} columns or more, but at most "
                f"{most_columns:,} are allowed."
            )
    lines = {candidate: _cells(sample, candidate) for candidate in candidates}
    delimiter = max(candidates, key=lambda candidate: _fit(lines[candidate]))
    decimal = asked.decimal or ("," if delimiter != "," and _has_decimal_commas(lines[delimiter]) else ".")
    if not lines[delimiter]:
        raise InputError(f"{path}: its first line cannot be cut into cells; is a quotation mark not closed?")
    return CsvFormat(encoding, delimiter, decimal), len(lines[delimiter][0])


def looks_like_record(header: Sequence[str]) -> int | None:
    """The first cell that is a number and so no column's name, if any; numbers that count up from 0 or 1 are names.

    >>> looks_like_record(["age", "39", "Rome"]), looks_like_record(["label", "0", "1", "2"])
    (1, None)
    """
    places = [place for place, name in enumerate(header) if _NUMBER.fullmatch(name.replace(",", "."))]
    names = [header[place] for place in places]
    counted = any(names == [str(start + place) for place in range(len(names))] for start in (0, 1))
    return places[0] if places and not counted else None


def _check_asked(asked: Asked) -> None:
    delimiter, encoding, decimal = asked
    if delimiter is not None and (len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0'):
        raise InputError(f"what stands between cells (--delimiter) is one character, such as ';', not {delimiter!r}.")
    if decimal not in (None, ".", ","):
        raise InputError(f"the decimal sign (--decimal) is '.' or ',', not {decimal!r}.")
    try:
        " ".encode(encoding or "utf-8")
    except (LookupError, UnicodeError, ValueError) as error:
        raise InputError(
            f"no encoding of text is called {encoding!r} (--encoding); try utf-8, utf-16, latin-1 or cp1252."
        ) from error


def _encoding(path: Path) -> str:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for place, block in enumerate(_blocks(path)):
            marked = next((name for mark, name in _MARKS.items() if block.startswith(mark)), None)
            if place == 0 and marked:
                return marked
            if b"\0" in block:
                raise InputError(
                    f"{path}: cannot be read as CSV: it holds zero bytes, as no text in UTF-8 does; if it is UTF-16, "
                    "say so (--encoding utf-16-le)."
                )
            decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return "windows-1252"
    return "utf-8"


def _blocks(path: Path) -> Iterator[bytes]:
    with open_data(path) as stream:
        while block := stream.read(2**20):
            yield block


def _beginning(path: Path, encoding: str) -> str:
    encoding = "utf-8-sig" if encoding.lower() in ("utf-8", "utf8") else encoding
    with io.TextIOWrapper(open_data(path), encoding=encoding, newline="") as stream:
        return stream.read(FIRST_LINE + 1)


def _cells(text: str, delimiter: str) -> list[list[str]]:
    """The cells of the first lines that are not blank, as far as they can be cut."""
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    found: list[list[str]] = []
    with suppress(csv.Error):
        found.extend(islice((line for line in lines if line), _LINES))
    return found


def _fit(lines: list[list[str]]) -> tuple[float, float]:
    """How well a file is cut: the share of lines of the first one's width, and of cells that are numbers."""
    width = len(lines[0]) if lines else 0
    share = sum(len(line) == width for line in lines) / max(len(lines), 1)
    if width < 2 or share <= 0.5:
        return 0.0, 0.0
    cells = [cell for line in lines for cell in line]
    return share, sum(_NUMBER.fullmatch(cell.replace(",", ".")) is not None for cell in cells) / len(cells)


def _has_decimal_commas(lines: list[list[str]]) -> bool:
    cells = [cell for line in lines for cell in line]
    return any(map(_WITH_COMMA.fullmatch, cells)) and not any(map(_WITH_POINT.fullmatch, cells))
