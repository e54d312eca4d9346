"""Messages through a pipe: eight bytes hold a message's length and precede it. Imports nothing heavy."""

import struct
from typing import IO

HEAD = struct.Struct("<Q")


def write_frame(pipe: IO[bytes], content: bytes) -> None:
    """Writes one message."""
    pipe.write(HEAD.pack(len(content)))
    pipe.write(content)
    pipe.flush()


def read_frame(pipe: IO[bytes]) -> bytes | None:
    """Reads the next message; None if the pipe was closed, even within a message."""
    head = pipe.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    (size,) = HEAD.unpack(head)
    content = pipe.read(size)
    return content if len(content) == size else None
