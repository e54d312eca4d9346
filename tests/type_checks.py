"""How annotations of the package are checked in tests: by beartype, but for functions within functions."""

from collections.abc import Callable
from typing import Any

import jaxtyping
from beartype import beartype


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """`beartype(function)`, made when it is first called: most functions that a process imports never are."""
    made: Callable[..., Any] | None = None

    def check(*args: Any, **kwargs: Any) -> Any:
        nonlocal made
        if made is None:
            made = beartype(function)
        return made(*args, **kwargs)

    return check


def _of_modules(*, typechecker: Callable[..., Any]) -> Callable[[Any], Any]:
    """`jaxtyping.jaxtyped`, as the package's modules are made to use it: by keyword.

    What is defined within a function is left as it is. Each check is two programs that are written and compiled; for
    closures made at every call that took half of some tests' time. To check the first of them only, a test's outcome
    would depend on what ran before it.
    """
    decorate = _jaxtyped(typechecker=typechecker)
    return lambda each: each if "<locals>" in getattr(each, "__qualname__", "") else decorate(each)


_jaxtyped = jaxtyping.jaxtyped
jaxtyping.jaxtyped = _of_modules
