"""How annotations of the package are checked in tests: by beartype, but not anew for every closure."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import jaxtyping
from beartype import beartype

MOST = 20
"""How often a function or class within a function is checked: in the first definitions of a process. Each check is two
programs that are written and compiled; for closures made at every call that took half of some tests' time."""


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """`beartype(function)`, made when it is first called: most functions that a process imports never are."""
    made: Callable[..., Any] | None = None

    def check(*args: Any, **kwargs: Any) -> Any:
        nonlocal made
        if made is None:
            made = beartype(function)
        return made(*args, **kwargs)

    return check


def _first_definitions(*, typechecker: Callable[..., Any]) -> Callable[[Any], Any]:
    """`jaxtyping.jaxtyped`, as the package's modules are made to use it: by keyword."""
    decorate = _jaxtyped(typechecker=typechecker)

    def decorated(each: Any) -> Any:
        name = getattr(each, "__qualname__", "")
        if "<locals>" in name:
            place = each.__module__, name, getattr(getattr(each, "__code__", None), "co_firstlineno", 0)
            _definitions[place] += 1
            if _definitions[place] > MOST:
                return each
        return decorate(each)

    return decorated


_definitions = Counter[tuple[str, str, int]]()
_jaxtyped = jaxtyping.jaxtyped
jaxtyping.jaxtyped = _first_definitions
