"""Installed packages compared with this package's requirements. Imports nothing heavy."""

from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from typing import NamedTuple

from packaging.requirements import Requirement

NAME = "jaxaudit"


class Package(NamedTuple):
    """A required package.

    Attributes:
        name: its name in the package index.
        needs: the accepted versions.
        version: the installed version; None if missing.
        fits: whether the installed version is accepted.
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
        """Whether all packages of the extra are installed."""
        return all(package.fits for package in self.packages)


def packages() -> tuple[Package, ...]:
    """The requirements of a plain installation; empty if this package itself is not installed."""
    return tuple(_found(each) for each in _requirements() if each.marker is None or each.marker.evaluate({"extra": ""}))


def extras() -> tuple[Extra, ...]:
    """The extras, with the packages that each adds on this system."""
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
    """Whether a package is missing that a requirement adds by its own extras."""
    if not asked.extras:
        return False
    try:
        theirs = [Requirement(text) for text in requires(asked.name) or []]
    except PackageNotFoundError:
        return True
    return any(_found(each).version is None for extra in asked.extras for each in _added_by(extra, theirs))


def _added_by(extra: str, asked: Iterable[Requirement]) -> Iterator[Requirement]:
    """The requirements of an extra beyond a plain installation, on this system."""
    for each in asked:
        added = each.marker is not None and each.marker.evaluate({"extra": extra})
        if added and not (each.marker and each.marker.evaluate({"extra": ""})):
            yield each
