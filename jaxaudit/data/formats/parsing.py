"""Runs third-party parsers with output suppressed and input bounded; any exception becomes an `InputError`."""

import io
import json
import logging
import re
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from gzip import GzipFile
from pathlib import Path
from typing import Any

import msgspec

from jaxaudit.data.memory import refuse_larger
from jaxaudit.data.paths import open_data
from jaxaudit.errors import InputError

LONGEST_REASON = 160
# Arrow's messages quote the row or the cell: for a CSV file only these parts are passed on,
_OF_CSV = re.compile(
    r"In CSV column #\d+|Row #\d+|Expected \d+ columns, got \d+|CSV conversion error to \w+|Empty CSV file|"
    r"Column '\w+' in include_columns does not exist"
)
# and for a cast only what precedes the cell.
_CELLS = re.compile(
    r"(invalid (?:value|literal)|Failed to parse string|Integer value|could not convert string)\b.*", re.DOTALL
)


@contextmanager
def quietly() -> Iterator[None]:
    """Suppresses warnings and logging; for a loop with many calls of `parsing`."""
    disabled = logging.root.manager.disable
    logs = disabled < logging.CRITICAL  # not within another: to change it is slow
    if logs:
        logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if logs:
            logging.disable(disabled)


@contextmanager
def parsing(complaint: str, advice: str) -> Iterator[None]:
    """Within this a parser reads untrusted data, quietly; any exception is an InputError, "WHAT (REASON); ADVICE".

    Damaged bytes can make parsers raise anything, so this context should contain little but calls of parsers.
    """
    try:
        with quietly():
            yield
    except BaseException as error:
        # A panic of a parser written in Rust is no Exception.
        caught = isinstance(error, Exception) or type(error).__name__ == "PanicException"
        if not caught or isinstance(error, InputError):
            raise
        if isinstance(error, MemoryError):
            raise InputError(f"{complaint} (not enough memory); split it into smaller files.") from error
        raise InputError(f"{complaint} ({reason_of(error)}); {advice}") from error


def reason_of(error: BaseException) -> str:
    """An exception's first line, shortened, without cells that parsers of tables quote; its type if it has no message.

    >>> reason_of(ValueError("CSV parse error: Row #2: Expected 2 columns, got 3: Smith,1,HIV"))
    'Row #2: Expected 2 columns, got 3'
    """
    text = _CELLS.sub(r"\1", str(error).strip())
    if "CSV" in text:
        reason = ": ".join(match[0] for match in _OF_CSV.finditer(text))
        return reason or "it is damaged, or a quotation mark is not closed"
    line = (text.splitlines() or [type(error).__name__])[0]
    return line if len(line) <= LONGEST_REASON else line[: LONGEST_REASON - 3] + "..."


@contextmanager
def open_bounded(path: Path, max_bytes: int) -> Iterator[io.BufferedIOBase]:
    """The bytes of a regular file, unpacked if they begin as gzip's do; no more than `max_bytes`."""
    try:
        with open_data(path) as file:
            packed = file.peek(2)[:2] == b"\x1f\x8b"
            source: io.BufferedIOBase = GzipFile(fileobj=file) if packed else file
            with io.BufferedReader(_Bounded(source, max_bytes, path), 2**20) as stream:
                yield stream
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error}); was the download interrupted?") from error


def json_lines(path: Path, longest: int, max_bytes: int) -> Iterator[tuple[int, bytes]]:
    """The lines of a file of JSON Lines, gzipped or not, with their numbers from 1; blank ones are left out."""
    with open_bounded(path, max_bytes) as stream:
        for number, line in enumerate(iter(lambda: stream.readline(longest + 1), b""), 1):
            if len(line) > longest:
                raise InputError(
                    f"{path}: line {number} has more than {longest >> 20} MiB; give one JSON object a line."
                )
            line = (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).strip()
            if line:
                yield number, line


def decoded_once(text: bytes, kind: Any) -> Any:
    """JSON as a value of this type, in which no object has a key twice; raises what msgspec and `refuse_repeated_keys`
    raise.
    """
    refuse_repeated_keys(text)
    return msgspec.json.decode(text, type=kind)


def refuse_repeated_keys(text: str | bytes) -> None:
    """Refuses JSON in which an object has a key twice: readers take the last value, others the first.

    Raises:
        ValueError: there is such an object, or `text` is no JSON. `RecursionError`: it is nested too deeply.

    >>> refuse_repeated_keys('{"a": 1, "b": {"a": 2}}')
    """
    _UNIQUE.decode(text if isinstance(text, str) else text.decode("utf-8", "surrogatepass"))


def _unique(pairs: list[tuple[str, object]]) -> None:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("an object has the same key twice")


def _nothing(_: str) -> None:
    """In place of a number, which is not computed."""


_UNIQUE = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_nothing, parse_float=_nothing, parse_constant=_nothing)


class _Bounded(io.RawIOBase):
    def __init__(self, source: io.BufferedIOBase, max_bytes: int, path: Path) -> None:
        self.source, self.max_bytes, self.path, self.place = source, max_bytes, path, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview | bytearray, /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        data = self.source.read(len(buffer))
        self.place += len(data)
        refuse_larger(self.path, self.place, self.max_bytes)
        buffer[: len(data)] = data
        return len(data)


_PICKLE = "pickle", "pickle.load(open('FILE', 'rb'))"
_TORCH = "torch", "torch.load('FILE', map_location='cpu', weights_only=True).detach()"
PICKLES = {".pkl": _PICKLE, ".pickle": _PICKLE, ".p": _PICKLE, ".joblib": ("joblib", "joblib.load('FILE')")}
PICKLES |= dict.fromkeys((".pt", ".pth", ".bin", ".ckpt"), _TORCH)
"""Suffixes of files that are pickles, or mostly are, with the library and the call that a message shows."""


def refuse_pickle(path: Path) -> None:
    """Rejects a pickle, with a line of code that converts it."""
    if path.suffix.lower() in PICKLES:
        library, call = PICKLES[path.suffix.lower()]
        raise InputError(
            f"{path}: files that end in {path.suffix} are mostly pickles, which can run code, so they are never read "
            "here. If you trust who wrote it, convert it in the environment that did: "
            f"python -c \"import numpy, {library}; numpy.save('FILE.npy', numpy.asarray({call}))\""
        )
