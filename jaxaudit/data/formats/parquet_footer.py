"""The number of values in each column of a Parquet file, read from its footer.

pyarrow gives this number per column chunk, but for a damaged file the call ends the process (version 26: an uncaught
C++ exception). The footer is a Thrift struct in the compact protocol:
https://github.com/apache/parquet-format and thrift-compact-protocol.md of Apache Thrift.
"""

from io import BufferedIOBase
from typing import Any, NamedTuple

MAGIC = b"PAR1"
LONGEST = 1 << 22
DEEPEST = 32
_ROW_GROUPS, _COLUMNS, _META, _VALUES, _UNPACKED = 4, 1, 3, 5, 6
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _, _, _STRUCT = range(1, 13)


class Declared(NamedTuple):
    """The footer's entries for one column, summed over all row groups: the number of its values, empty ones included
    (for lists, of all lists together), and the size of its decompressed, still encoded pages.
    """

    values: int
    unpacked_bytes: int


def declared_columns(stream: BufferedIOBase) -> list[Declared]:
    """Each column of the file, in order; the stream is left anywhere.

    Raises:
        ValueError: where the footer is damaged.
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
        sums = [
            Declared(sum(meta[_VALUES] for meta in column), sum(meta[_UNPACKED] for meta in column))
            for column in zip(*metas, strict=True)
        ]
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("its footer is damaged") from error
    if any(min(meta[_VALUES], meta[_UNPACKED]) < 0 for column in metas for meta in column):
        raise ValueError("its footer counts backwards")
    return sums


class _Reader:
    """Reads values of the compact protocol one after another; raises IndexError at the end of the bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        found = shift = 0
        while shift < 64:
            byte = self.byte()
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return found
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
