"""What a Parquet file unpacks to, read from its footer and from the headers of its pages.

pyarrow gives the footer's numbers per column chunk, but for a damaged file the call ends the process (version 26: an
uncaught C++ exception). And a footer may say less than pages hold: a page is unpacked to the size in its own header, up
to 2 GiB of which a few kilobytes may be made. Footer and headers are Thrift structs in the compact protocol:
https://github.com/apache/parquet-format and thrift-compact-protocol.md of Apache Thrift.
"""

from collections.abc import Iterator
from io import BufferedIOBase
from typing import Any

MAGIC = b"PAR1"
LONGEST = 1 << 22
DEEPEST = 32
MOST_PAGES = 1_000_000
HEADERS = 1 << 10, 1 << 16, 1 << 22
"""Bytes in which the header of a page is sought: few have long texts as statistics."""
_ROW_GROUPS, _COLUMNS, _META, _VALUES, _UNPACKED, _PACKED, _DATA, _DICTIONARY = 4, 1, 3, 5, 6, 7, 9, 11
_PAGE_UNPACKED, _PAGE_PACKED = 2, 3
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _, _, _STRUCT = range(1, 13)
_SIZES = {_TRUE: 1, _FALSE: 1, _BYTE: 1, _DOUBLE: 8}


def unpacked_bytes(stream: BufferedIOBase) -> int:
    """The size of all decompressed, still encoded pages, by the footer or by their own headers, whichever is more.

    The stream is left anywhere.

    Raises:
        ValueError: where the footer or the header of a page is damaged, or there are more than `MOST_PAGES` pages.
    """
    end = stream.seek(0, 2)
    stream.seek(max(0, end - 8))
    tail = stream.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length > min(end - 8, LONGEST):
        raise ValueError("it has no footer")
    stream.seek(end - 8 - length)
    try:
        groups = _Reader(stream.read(length)).value(_STRUCT).get(_ROW_GROUPS, [])
        metas = [column[_META] for group in groups for column in group[_COLUMNS]]
        in_pages = 0
        for pages, size in enumerate((size for meta in metas for size in _page_sizes(stream, meta, end)), 1):
            in_pages += size
            if pages > MOST_PAGES:
                raise ValueError(f"it has more than {MOST_PAGES:,} pages")
        return max(in_pages, sum(_size(meta[_UNPACKED]) for meta in metas))
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("its footer or a page is damaged") from error


def _size(number: int) -> int:
    if number < 0:
        raise ValueError("it states a size below 0")
    return number


def _page_sizes(stream: BufferedIOBase, meta: dict[int, Any], end: int) -> Iterator[int]:
    """What the pages of a column chunk unpack to; they are found as Arrow finds them."""
    start, dictionary = meta[_DATA], meta.get(_DICTIONARY, 0)
    place = dictionary if 0 < dictionary < start else start
    # Without values nothing is read.
    last = min(place + meta[_PACKED], end) if _size(meta[_VALUES]) else 0
    while 0 <= place < last:
        stream.seek(place)
        data = b""
        for size in HEADERS:
            data += stream.read(size - len(data))
            reader = _Reader(data)
            try:
                page = reader.value(_STRUCT)
                break
            except IndexError:
                if len(data) < size or size == HEADERS[-1]:
                    raise
        yield _size(page[_PAGE_UNPACKED])
        place += reader.at + _size(page[_PAGE_PACKED])


class _Reader:
    """Reads values of the compact protocol one after another; raises IndexError at the end of the bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def taken(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise IndexError
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self) -> int:
        number = 0
        for shift in range(0, 64, 7):
            (byte,) = self.taken(1)
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise ValueError("its footer has too large a number")

    def signed(self) -> int:
        number = self.number()
        return number >> 1 ^ -(number & 1)

    def value(self, kind: int, depth: int = 0) -> Any:
        """A number, a list, or a struct by the numbers of its fields; texts and fractions say nothing on sizes."""
        if depth > DEEPEST:
            raise ValueError("its footer is nested too deeply")
        if kind in (_I16, _I32, _I64):
            return self.signed()
        if kind == _STRUCT:
            fields, number = dict[int, Any](), 0
            while head := self.taken(1)[0]:
                number = number + (head >> 4) if head >> 4 else self.signed()
                # Of a field that is true or false the kind is the value.
                fields[number] = None if head & 15 in (_TRUE, _FALSE) else self.value(head & 15, depth + 1)
            return fields
        if kind == _LIST:
            (head,) = self.taken(1)
            size = self.number() if head >> 4 == 15 else head >> 4
            # Each has a byte at least.
            if size > len(self.data) - self.at:
                raise IndexError
            return [self.value(head & 15, depth + 1) for _ in range(size)]
        if kind != _BINARY and kind not in _SIZES:  # Parquet has neither sets nor maps
            raise ValueError("its footer is invalid")
        return self.taken(self.number() if kind == _BINARY else _SIZES[kind])
