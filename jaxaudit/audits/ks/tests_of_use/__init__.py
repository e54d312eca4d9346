"""The tests of `ks`: one file each, and one line in `BUILT_IN`.

Each test says which models it wants, what it refuses, what it needs to be believed, what it assumes, and how it judges;
the first one asked for decides, the others stand beside it. A user's own value goes to `judge(tests=)` and through
JSON, terminal and page without a further line.

`__init__.pyi` lists the public names. Each is imported when it is first used; this file imports nothing heavy.
"""

from collections.abc import Collection

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

BUILT_IN: dict[str, tuple[str, ...]] = {
    "members": ("holdout", "members"),
    "holdout": ("holdout",),
    "deletion": ("holdout", "before"),
    "shadow": (),
    "rho": (),
}
"""The built-in tests in order, by name, which is the name of the file, too: for each the `roles` of its `TEST`, and
`before` if that needs outputs before a deletion."""


def usual_tests(possible: Collection[str], *, on_calibration: bool = False, trained: bool = True) -> tuple[str, ...]:
    """The names of the possible tests that are made if none is named, the deciding one first.

    `on_calibration` says whether the target's outputs on the calibration set are known, `trained` whether there are
    shadow models; without, the holdout test is made where there are neither members nor outputs before a deletion.

    >>> usual_tests({"holdout", "members"}), usual_tests({"holdout"}, on_calibration=True), usual_tests(())
    (('members', 'holdout'), ('holdout', 'shadow'), ('shadow',))
    >>> usual_tests({"holdout", "members"}, trained=False), usual_tests({"holdout"}, trained=False)
    (('members',), ('holdout',))
    """
    names = tuple(name for name in USUAL if name in possible)
    if not trained:
        return tuple(name for name in names if name != "holdout") or ("holdout",)
    return names if names and not on_calibration else (*names, "shadow")


USUAL = ("members", "holdout", "deletion")
"""Tests that are made without being named, where their sets and outputs are there."""
BY_MODELS = ("shadow", "rho")
"""Tests that cannot be made without models: where one is named, models are trained."""
