"""What each column of a Parquet file unpacks to, read from its footer and from the headers of its pages.

pyarrow gives the footer's numbers per column chunk, but for a damaged file the call ends the process (version 26: an
uncaught C++ exception). And a footer may say less than pages hold: a page is unpacked to the size in its own header.
Footer and headers are Thrift structs in the compact protocol: https://github.com/apache/parquet-format and
thrift-compact-protocol.md of Apache Thrift.
"""

from collections.abc import Iterator
from io import BufferedIOBase
from typing import Any, NamedTuple

MAGIC = b"PAR1"
LONGEST = 1 << 22
DEEPEST = 32
MOST_PAGES = 1_000_000
HEADERS = 1 << 10, 1 << 16, 1 << 22
"""Bytes in which the header of a page is sought: few have long texts as statistics."""
_ROW_GROUPS, _COLUMNS, _META, _VALUES, _UNPACKED, _PACKED, _DATA, _DICTIONARY = 4, 1, 3, 5, 6, 7, 9, 11
_PAGE_UNPACKED, _PAGE_PACKED, _DATA_PAGE, _DATA_PAGE_2 = 2, 3, 5, 8
_ENCODING = {_DATA_PAGE: 2, _DATA_PAGE_2: 4}
_COUNT, _DELTA_LENGTHS, _DELTAS = 1, 6, 7
"""The number of a page's values; `DELTA_LENGTH_BYTE_ARRAY`, and `DELTA_BYTE_ARRAY`, which stores the number of
characters that a text shares with the one before, and the rest. Arrow makes a dictionary of neither.
"""
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _, _, _STRUCT = range(1, 13)


class DeclaredColumn(NamedTuple):
    """What one column holds in all row groups, by the footer or by its pages, whichever is more.

    Attributes:
        values: the number of its values, empty ones included (for lists, of all lists together).
        plain: whether a page has texts of which Arrow makes no dictionary.
        unpacked_bytes: the size of its decompressed, still encoded pages.
        delta_bytes: if a page has texts that are stored as differences, the size of the largest page, which each text
            may be as long as; else 0.
    """

    values: int
    unpacked_bytes: int
    plain: bool = False
    delta_bytes: int = 0


def declared_columns(stream: BufferedIOBase) -> list[DeclaredColumn]:
    """Each column of the file, in order; the stream is left anywhere.

    Raises:
        ValueError: where the footer or the header of a page is damaged, or there are more than `MOST_PAGES` pages.
    """
    end = stream.seek(0, 2)
    if end < 12:
        raise ValueError("it is too short")
    stream.seek(end - 8)
    tail = stream.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length > min(end - 8, LONGEST):
        raise ValueError("it has no footer")
    stream.seek(end - 8 - length)
    try:
        groups = _Reader(stream.read(length)).struct(0).get(_ROW_GROUPS, [])
        metas = [[column[_META] for column in group[_COLUMNS]] for group in groups]
        columns = list(zip(*metas, strict=True))
        if any(min(meta[_VALUES], meta[_UNPACKED]) < 0 for column in columns for meta in column):
            raise ValueError("its footer counts backwards")
        pages, all_columns = 0, list[DeclaredColumn]()
        for column in columns:
            values, unpacked, largest, encodings = 0, 0, 0, set[int | None]()
            for page in (page for meta in column for page in _pages(stream, meta, end)):
                pages += 1
                if pages > MOST_PAGES:
                    raise ValueError(f"it has more than {MOST_PAGES:,} pages")
                unpacked, largest = unpacked + page[_PAGE_UNPACKED], max(largest, page[_PAGE_UNPACKED])
                for header, field in ((page[kind], field) for kind, field in _ENCODING.items() if kind in page):
                    values, encodings = values + max(0, header[_COUNT]), {*encodings, header.get(field)}
            values = max(values, sum(meta[_VALUES] for meta in column))
            unpacked = max(unpacked, sum(meta[_UNPACKED] for meta in column))
            plain, deltas = bool(encodings & {_DELTA_LENGTHS, _DELTAS}), _DELTAS in encodings
            all_columns.append(DeclaredColumn(values, unpacked, plain, largest * deltas))
        return all_columns
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("its footer or a page is damaged") from error


def _pages(stream: BufferedIOBase, meta: dict[int, Any], end: int) -> Iterator[dict[int, Any]]:
    """The headers of the pages of a column chunk; they are found as Arrow finds them."""
    start, dictionary = meta[_DATA], meta.get(_DICTIONARY, 0)
    place = dictionary if 0 < dictionary < start else start
    # Without values nothing is read.
    last = min(place + meta[_PACKED], end) if meta[_VALUES] else 0
    while 0 <= place < last:
        stream.seek(place)
        data = b""
        for size in HEADERS:
            data += stream.read(size - len(data))
            reader = _Reader(data)
            try:
                page = reader.struct(0)
                break
            except IndexError:
                if len(data) < size or size == HEADERS[-1]:
                    raise
        if min(page[_PAGE_UNPACKED], page[_PAGE_PACKED]) < 0:
            raise ValueError("a page has a size below 0")
        yield page
        place += reader.at + page[_PAGE_PACKED]


class _Reader:
    """Reads values of the compact protocol one after another; raises IndexError at the end of the bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        number = shift = 0
        while shift < 64:
            byte = self.byte()
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number
        raise ValueError("its footer has too large a number")

    def signed(self) -> int:
        number = self.number()
        return number >> 1 ^ -(number & 1)

    def within(self, size: int) -> int:
        """A number of bytes, or of elements of at least a byte, if that many remain."""
        if size > len(self.data) - self.at:
            raise IndexError
        return size

    def struct(self, depth: int) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while (head := self.byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self.signed()
            kind = head & 15
            fields[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self.value(kind, depth)
        return fields

    def value(self, kind: int, depth: int) -> Any:
        if depth > DEEPEST:
            raise ValueError("its footer is nested too deeply")
        if kind in (_TRUE, _FALSE, _BYTE):
            return self.byte()
        if kind in (_I16, _I32, _I64):
            return self.signed()
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind == _LIST:
            head = self.byte()
            size = self.number() if head >> 4 == 15 else head >> 4
            return [self.value(head & 15, depth + 1) for _ in range(self.within(size))]
        if kind not in (_DOUBLE, _BINARY):  # Parquet has neither sets nor maps
            raise ValueError("its footer is invalid")
        # Texts and fractions carry no information on sizes.
        size = 8 if kind == _DOUBLE else self.number()
        self.at += self.within(size)
        return None
