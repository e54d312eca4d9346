"""How annotations of the package are checked in tests: by beartype, in the first calls of a function in each test.

Of functions that are called thousands of times, checks took more than a third of all time. Calls are counted anew in
each test, so that no outcome depends on what ran before it.
"""

from collections.abc import Callable
from functools import wraps
from inspect import isfunction
from typing import Any

import jaxtyping
from beartype import beartype

MOST_CALLS = 30
"""Calls of a function that are checked in each test."""
_test = [0]


def begin_test() -> None:
    """Calls are counted anew."""
    _test[0] += 1


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """`beartype(function)`, made when it is first called: most functions that a process imports never are."""
    made: Callable[..., Any] | None = None

    def check(*args: Any, **kwargs: Any) -> Any:
        nonlocal made
        if made is None:
            made = beartype(function)
        return made(*args, **kwargs)

    return check


def _first_calls(function: Callable[..., Any], strict: Callable[..., Any]) -> Callable[..., Any]:
    """`strict` in the first calls of a test, and then `function`."""
    test, calls = 0, 0

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal test, calls
        if test != _test[0]:
            test, calls = _test[0], 0
        calls += 1
        return (strict if calls <= MOST_CALLS else function)(*args, **kwargs)

    return call


def _of_modules(*, typechecker: Callable[..., Any]) -> Callable[[Any], Any]:
    """`jaxtyping.jaxtyped`, as the package's modules are made to use it: by keyword.

    What is defined within a function is left as it is. Each check is two programs that are written and compiled; for
    closures made at every call that took half of some tests' time.
    """
    decorate = _jaxtyped(typechecker=typechecker)

    def of(value: Any) -> Any:
        if "<locals>" in getattr(value, "__qualname__", ""):
            return value
        return _first_calls(value, decorate(value)) if isfunction(value) else decorate(value)

    return of


_jaxtyped = jaxtyping.jaxtyped
jaxtyping.jaxtyped = _of_modules
