"""What is installed, by what this package says it needs. Imports nothing heavy."""

from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from typing import NamedTuple

from packaging.requirements import Requirement

NAME = "jaxaudit"


class Package(NamedTuple):
    """A package that is needed.

    Attributes:
        name: its name in the index.
        needs: the versions that do.
        version: the installed one; None without.
        fits: whether it is one of those.
    """

    name: str
    needs: str
    version: str | None
    fits: bool


class Extra(NamedTuple):
    """An extra of this package, and the packages that it adds."""

    name: str
    packages: tuple[Package, ...]

    @property
    def ready(self) -> bool:
        """Whether all of them are there."""
        return all(package.fits for package in self.packages)


def packages() -> tuple[Package, ...]:
    """What a plain installation needs; empty where this package itself is not installed."""
    return tuple(_found(each) for each in _requirements() if each.marker is None or each.marker.evaluate({"extra": ""}))


def extras() -> tuple[Extra, ...]:
    """The extras, with what each adds on this system."""
    try:
        names = metadata(NAME).get_all("Provides-Extra") or []
    except PackageNotFoundError:
        names = []
    asked = list(_requirements())
    return tuple(Extra(name, tuple(map(_found, _added_by(name, asked)))) for name in names)


def _requirements() -> Iterator[Requirement]:
    try:
        texts = requires(NAME) or []
    except PackageNotFoundError:
        texts = []
    return map(Requirement, texts)


def _found(asked: Requirement) -> Package:
    try:
        there = version(asked.name)
    except PackageNotFoundError:
        there = None
    fits = there is not None and asked.specifier.contains(there, prereleases=True)
    named = asked.name + (f"[{','.join(sorted(asked.extras))}]" if asked.extras else "")
    return Package(named, str(asked.specifier), there, fits and not _lacks(asked))


def _lacks(asked: Requirement) -> bool:
    """Whether a package of the extras asked of another one is missing."""
    if not asked.extras:
        return False
    try:
        theirs = [Requirement(text) for text in requires(asked.name) or []]
    except PackageNotFoundError:
        return True
    return any(_found(each).version is None for extra in asked.extras for each in _added_by(extra, theirs))


def _added_by(extra: str, asked: Iterable[Requirement]) -> Iterator[Requirement]:
    """What an extra asks for that a plain installation does not, on this system."""
    for each in asked:
        added = each.marker is not None and each.marker.evaluate({"extra": extra})
        if added and not (each.marker and each.marker.evaluate({"extra": ""})):
            yield each
