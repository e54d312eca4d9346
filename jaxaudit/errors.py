"""Errors that a user can cause, and paths in a form that may be shared."""

import importlib
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import ge, gt, le, lt
from typing import Any

LONGEST_MESSAGE = 1_000
_CUT = " ... "


class InputError(ValueError):
    """An input that cannot be used: a file, a name, a shape, an option.

    The message is one line: what is wrong, the likely cause, what to do. The command line prints it and exits with
    status 2; every other exception is a failure of the program (status 1). Names in it may come from untrusted files:
    control characters are escaped, and a message longer than `LONGEST_MESSAGE` characters is cut in the middle.
    """

    def __init__(self, message: str) -> None:
        super().__init__(_shortened(visible(message)))


class InputErrors(InputError):
    """Several input errors at once; `problems` has the message of each, one line."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(" ".join(problems))
        self.problems = tuple(problems)


class MissingSplit(InputError):
    """A readable data set has no split of this name."""


def check_ranges(interval: str, advice: str = "", /, **numbers: Any) -> None:
    """Refuses (`InputError`) numbers, or arrays with a number, outside an interval; None is a number left out.

    `[-inf, inf]` refuses NaN alone, and `(-inf, inf)` what is not finite. The advice says what to do.

    >>> check_ranges("(0, 1)", level=0.95, share=None)
    >>> check_ranges("[1, inf)", epochs=10, seeds=0)
    Traceback (most recent call last):
    jaxaudit.errors.InputError: `seeds` must be at least 1; got 0.
    >>> check_ranges("[-inf, inf]", odds=[0.5, float("nan")])
    Traceback (most recent call last):
    jaxaudit.errors.InputError: `odds` must be a number; got nan, as 1 of 2 numbers: did training diverge?
    """
    low, high = map(float, interval[1:-1].split(","))
    above, below = (gt if interval[0] == "(" else ge), (lt if interval[-1] == ")" else le)
    for name, number in numbers.items():
        if number is None:
            continue
        if isinstance(number, int | float):
            values = [number]
            wrong = [] if above(number, low) and below(number, high) else values
        else:
            # Options are checked before NumPy is imported.
            import numpy as np

            values = np.ravel(number)
            wrong = values[~(above(values, low) & below(values, high))]
        if len(wrong):
            first, ends = float(wrong[0]), []
            if low > -math.inf:
                ends.append(f"{'above' if above is gt else 'at least'} {low:,.12g}")
            if high < math.inf:
                ends.append(f"{'below' if below is lt else 'at most'} {high:,.12g}")
            if not ends or math.isinf(first):
                ends.append("a number" if math.isnan(first) else "finite")
            count = f", as {len(wrong):,} of {len(values):,} numbers" if len(values) > 1 else ""
            usual = "." if math.isfinite(first) or len(values) == 1 else ": did training diverge?"
            cause = f": {advice}." if advice and math.isfinite(first) else usual
            raise InputError(f"`{name}` must be {' and '.join(ends)}; got {first:,.12g}{count}{cause}")


def check_shapes(shape: tuple[int, ...], **arrays: Any) -> None:
    """Refuses (`InputError`) arrays of another shape; None is an array left out.

    >>> check_shapes((3,), labels=[0, 1, 0], groups=[1, 1])
    Traceback (most recent call last):
    jaxaudit.errors.InputError: `groups` has shape (2,) but must have (3,): is it of the same records, in order?
    """
    import numpy as np

    for name, array in arrays.items():
        if array is not None and np.shape(array) != shape:
            raise InputError(
                f"`{name}` has shape {np.shape(array)} but must have {shape}: is it of the same records, in order?"
            )


def check_among(names: Iterable[str], **choices: str) -> None:
    """Refuses (`InputError`) a name that is none of `names`.

    >>> check_among(("flip", "crop"), change="flop")
    Traceback (most recent call last):
    jaxaudit.errors.InputError: `change` must be one of flip, crop; got 'flop'.
    """
    for parameter, name in choices.items():
        if name not in names:
            raise InputError(f"`{parameter}` must be one of {', '.join(names)}; got {name!r}.")


def refuse_wrong(subject: str, *troubles: tuple[str, Any]) -> None:
    """Refuses (`InputError`) by the first of these messages, behind `subject`, beside which something wrong stands.

    >>> refuse_wrong("a.npy: ", ("is empty.", False), ("has NaN.", True))
    Traceback (most recent call last):
    jaxaudit.errors.InputError: a.npy: has NaN.
    """
    for trouble, wrong in troubles:
        if wrong:
            raise InputError(f"{subject}{trouble}")


def check_distinct(**lists: Sequence[Any]) -> None:
    """Refuses (`InputError`) a list of nothing, or with something twice.

    >>> check_distinct(attacks=["base", "rmia", "base"])
    Traceback (most recent call last):
    jaxaudit.errors.InputError: `attacks` must have at least one, each once; got 'base' twice.
    """
    for parameter, values in lists.items():
        twice = [value for value, count in Counter(values).items() if count > 1]
        if twice or not len(values):
            trouble = f"{twice[0]!r} twice" if twice else "none"
            raise InputError(f"`{parameter}` must have at least one, each once; got {trouble}.")


@contextmanager
def writing(subject: object, advice: str) -> Iterator[None]:
    """Within this context an `OSError` becomes an `InputError`: `subject` cannot be written."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{subject} cannot be written ({error.strerror or error}); {advice}") from error


def imported(module: str, need: str, install: str) -> Any:
    """An optional module; an `InputError` says what needs it and how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"{need} needs {module}, which could not be imported ({error.name or error}): {install}."
        ) from error


def visible(text: str) -> str:
    r"""`text` on one line, with every control character escaped: a raw name could rewrite the terminal.

    >>> print(visible("evil\x1b[31m\nname"))
    evil\x1b[31m\nname
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def few(names: Iterable[object], most: int = 5) -> str:
    """The first of these names, and how many more there are.

    >>> few("abc", 2)
    'a, b and 1 more'
    """
    listed = [str(name) for name in names]
    return ", ".join(listed[:most]) + (f" and {len(listed) - most:,} more" if len(listed) > most else "")


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
    """A path, or an option that ends in one, without the folders above the current one, which name users and projects.

    >>> without_folders("/somewhere/else/q.npz@train[:100]"), without_folders("mine:~/q.npz")
    ('q.npz@train[:100]', 'mine:q.npz')
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
