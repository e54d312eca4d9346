"""Messages through a pipe: eight bytes that say how long each is, then it. Imports nothing heavy."""

import struct
from typing import IO

HEAD = struct.Struct("<Q")


def write_frame(pipe: IO[bytes], content: bytes) -> None:
    """Writes a message."""
    pipe.write(HEAD.pack(len(content)))
    pipe.write(content)
    pipe.flush()


def read_frame(pipe: IO[bytes]) -> bytes | None:
    """The next message; None where the pipe was closed, in the midst of one, too."""
    head = pipe.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    (size,) = HEAD.unpack(head)
    content = pipe.read(size)
    return content if len(content) == size else None
