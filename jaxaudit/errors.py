"""Errors that a user can cause, and paths in a form that may be shared."""

import os
import re
from collections.abc import Sequence

LONGEST_MESSAGE = 1_000
_CUT = " ... "


class InputError(ValueError):
    """An input that cannot be used: a file, a name, a shape, an option.

    The message is one line: what is wrong, the likely cause, what to do. The command line prints it and exits with
    status 2; every other exception is a failure of the program (status 1).

    Names in it may come from untrusted files: line breaks and control characters are escaped, and a message longer than
    `LONGEST_MESSAGE` characters is cut in the middle, so that no name hides what is wrong or what to do.
    """

    def __init__(self, message: str) -> None:
        super().__init__(_shortened(visible(message)))


class InputErrors(InputError):
    """Several input errors at once.

    Attributes:
        problems: the message of each, one line.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(" ".join(problems))
        self.problems = tuple(problems)


class MissingSplit(InputError):
    """A readable data set has no split of this name."""


def visible(text: str) -> str:
    r"""`text` on one line, with every control character escaped.

    Names come from files, columns and folders. Printed raw, an escape sequence could recolour or rewrite the terminal,
    and a line break could imitate a line of this program.

    >>> print(visible("evil\x1b[31m\nname"))
    evil\x1b[31m\nname
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def first_line(error: BaseException) -> str:
    r"""The type of an error, and the first line of its message if it has one.

    >>> first_line(ValueError("no\nnumber")), first_line(KeyError())
    ('ValueError: no', 'KeyError')
    """
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _shortened(text: str) -> str:
    half = (LONGEST_MESSAGE - len(_CUT)) // 2
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:half]}{_CUT}{text[-half:]}"


_FOLDERS = re.compile(r"(?P<before>[^/\\~]*[:=])??(?P<path>(?:[~/\\]|[A-Za-z]:[/\\]).*)", re.DOTALL)


def without_folders(text: str) -> str:
    """A path, or an option that ends in one, without the folders above the current one.

    A path from the root or a home folder reveals names of users and projects. Below the working directory it becomes
    relative; elsewhere only its last part is kept. Other text, and relative paths, are not changed.

    >>> without_folders("/somewhere/else/q.npz@train[:100]"), without_folders("acdc:~/ACDC@3.0")
    ('q.npz@train[:100]', 'acdc:ACDC@3.0')
    >>> without_folders("retrained=/runs/a.safetensors"), without_folders("../q.npz"), without_folders("mnist:0.5")
    ('retrained=a.safetensors', '../q.npz', 'mnist:0.5')
    """
    match = _FOLDERS.fullmatch(text)
    if match is None:
        return text
    path = os.path.expanduser(match["path"])
    try:
        below = os.path.relpath(path, os.getcwd()) if os.path.isabs(path) else os.pardir
    except (OSError, ValueError):  # the working directory is gone, or on another drive
        below = os.pardir
    name = re.split(r"[/\\]", match["path"].rstrip("/\\"))[-1] or match["path"]
    return (match["before"] or "") + (name if below.split(os.sep)[0] == os.pardir else below)
