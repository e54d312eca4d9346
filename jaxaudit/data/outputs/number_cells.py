"""Numbers as tables of other countries and tools write them: decimal commas, percent signs, blanks between numbers."""

import csv
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from jaxaudit.data.formats.text_table import NUMBER, TextTable, trimmed
from jaxaudit.data.outputs.expected import Expected
from jaxaudit.errors import InputError

_WITH_COMMA = re.compile(r'"?([+-]?\d+)(?:,(\d+))?(?:[eE][+-]?\d+)?"?')
_PERCENT = r"(\d)\s*%$"
_OTHER = ("nan", "inf", "-inf", "NaN", "Inf", "-Inf")
LARGEST_SCALE = 255
"""The largest number of a probability on a scale of whole numbers: percentages end at 100, 8-bit ones here."""
_MOST_DIGITS = 15
"""More digits than a whole number in a table of outputs has."""


def separated_by_blanks(text: str) -> tuple[str, str] | None:
    """A table whose numbers are separated by blanks, as `np.savetxt` and R's `write.table` write it, with semicolons in
    their place, and a note; None if the text is no such table.

    A header may be a comment (`# a b`), or have one name fewer than there are columns, for the names of the rows.
    """
    first, second = [*islice((line for line in text.splitlines() if line.strip()), 2), "", ""][:2]
    if any(sign in first + second for sign in ";|\t") or not any(map(_blank_row, (first, second))):
        return None
    lines = (line.strip().removeprefix("#").strip() for line in text.splitlines() if line.strip())
    rows = list(csv.reader(lines, delimiter=" ", skipinitialspace=True))
    if len(rows) > 1 and len(rows[0]) == len(rows[1]) - 1 and not _blank_row(first):
        rows[0].insert(0, "")
    return "\n".join(";".join(row) for row in rows) + "\n", "blanks between numbers"


def with_points(text: str, expected: Expected, source: str) -> tuple[str, str] | None:
    """A table with one number on each line, whose decimal commas become points, and a note that says so.

    None if `text` is no such table, or has no comma. A comma may separate two columns of whole numbers instead: the
    text is not taken for such a table if the first column never repeats a number, or if all numbers are 0 or 1. Numbers
    from 0 to 1 of three decimals or more are no two columns: `0,3512` is no class with a percentage.
    `expected` and `source` name the set and the file in the message.

    Raises:
        InputError: it cannot be told whether commas are decimal commas or separate two columns of whole numbers.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    titled = _WITH_COMMA.fullmatch(lines[0]) is None
    if titled and ("," in lines[0] or len(lines) < 2):
        return None
    numbers: list[re.Match[str]] = []
    for line in lines[titled:]:
        number = _WITH_COMMA.fullmatch(line)
        if number is None:
            return None
        numbers.append(number)
    commas = [number for number in numbers if number[2] is not None]
    if not commas:
        return None
    # Two columns of whole numbers have a comma in every line, no quotation marks around it, and no 0 before digits.
    if titled or len(commas) < len(numbers) or any(map(_is_fraction, commas)) or _are_shares(commas):
        return text.replace(",", "."), "decimal commas"
    first, second = ([int(number[place]) for number in commas] for place in (1, 2))
    if len(set(first)) == len(first) > 2 or set(first + second) <= {0, 1}:
        return None  # names or numbers of records, or one of two classes
    raise InputError(
        f"{source}: every line is either two whole numbers or one number with a decimal comma, so the outputs on the "
        f"{expected.of} are not clear; write decimal points, and votes or percentages of two classes as shares (0.37, "
        "0.63)."
    )


def _are_shares(numbers: Sequence[re.Match[str]]) -> bool:
    """Whether all are from 0 to 1, not all the same, and some have decimals that are no percentage or 8-bit number."""
    shares = all(int(number[1]) == 0 or (int(number[1]) == 1 and int(number[2]) == 0) for number in numbers)
    decimals = {int(number[2]) for number in numbers}
    return shares and len(decimals) > 1 and max(decimals) > LARGEST_SCALE


def _is_fraction(number: re.Match[str]) -> bool:
    digits = number[2]
    return number[0][0] == '"' or (digits[0] == "0" and len(digits) > 1) or len(digits) > _MOST_DIGITS


def plain_numbers(table: TextTable) -> TextTable:
    """The table with hundredths for cells in percent, and known to have decimal commas if cells between commas do."""
    cells = [trimmed(column) for column in table.columns]
    if table.decimal == "." and _any(cells, r"^[+-]?\d+,\d") and not _any(cells, r"^[+-]?\d*\.\d"):
        table = replace(table, decimal=",", note="decimal commas")
    hundredths = [_hundredths(column) for column in cells]
    if any(cell_percent is not None for cell_percent in hundredths):
        columns = [old if new is None else new for old, new in zip(table.columns, hundredths, strict=True)]
        note = ", ".join(filter(None, (table.note, "percent signs (100% is read as 1)")))
        table = replace(table, columns=columns, note=note)
    return table


def _hundredths(cells: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """A column of which every cell, but perhaps a name in the first, ends with a percent sign; None if it is none."""
    signed = _matched(cells, _PERCENT)
    if (
        not len(cells)
        or not pc.call_function("all", [signed[1:]]).as_py()
        or not pc.call_function("any", [signed]).as_py()
    ):
        return None
    if not signed[0].as_py() and NUMBER.fullmatch(cells[0].as_py().replace(",", ".")):
        return None
    return pc.call_function("replace_substring_regex", [cells], pc.ReplaceSubstringOptions(_PERCENT, r"\1e-2"))


def _matched(cells: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    return pc.call_function("match_substring_regex", [cells], pc.MatchSubstringOptions(pattern))


def _any(columns: Sequence[pa.ChunkedArray], pattern: str) -> bool:
    return any(pc.call_function("any", [_matched(column, pattern)]).as_py() for column in columns)


def _blank_row(line: str) -> bool:
    """Whether a line is several numbers separated by blanks, of which the first may be a quoted name."""
    cells = line.split()
    numbers = cells[1:] if cells and cells[0].startswith('"') else cells
    return len(cells) > 1 and all(
        cell.count(",") <= 1 and not cell.endswith(",") and (NUMBER.fullmatch(cell.replace(",", ".")) or cell in _OTHER)
        for cell in numbers
    )
