"""The documentation site: every public name stands on it, and nothing on it leads nowhere.

The pages that Sphinx built are read where they lie: `.ci/run` builds them, with warnings as errors, and runs this file.
"""

import re
import runpy
from html.parser import HTMLParser
from inspect import isclass, isfunction
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

import jaxaudit
from jaxaudit import attacks, kernels, learners, metrics, models, unlearning

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
BUILT = DOCS / "_build" / "html"
EXTENSION: dict[str, Any] = runpy.run_path(str(DOCS / "extensions" / "docstrings.py"))
PAGES = sorted(
    path for path in (ROOT / "README.md", *DOCS.rglob("*.md")) if not {"_build", "repository"} & set(path.parts)
)

built = pytest.mark.skipif(not BUILT.exists(), reason="the site is not built")


def documented() -> list[str]:
    """What the API pages ask autodoc for, by its public path."""
    found = []
    for page in sorted((DOCS / "api").glob("*.rst")):
        room = ""
        for line in page.read_text(encoding="utf-8").splitlines():
            if module := re.match(r"\.\. py:currentmodule:: (\S+)", line):
                room = f"{module[1]}."
            elif name := re.match(r"\.\. auto(?:function|class|exception|data):: (\S+)", line):
                found.append(name[1] if name[1].startswith("jaxaudit.") else room + name[1])
    return found


def test_every_public_name_is_documented_once():
    shown = documented()
    assert len(set(shown)) == len(shown)
    named = {path for path in EXTENSION["known_as"]().values() if not path.endswith("__version__")}
    assert named <= set(shown)
    # Nothing of the page is gone from the package.
    assert named == {name for name in shown if name.rpartition(".")[0] in EXTENSION["ROOMS"]}


def test_public_names_have_a_docstring():
    for package in (jaxaudit, attacks, kernels, learners, metrics, models, unlearning):
        assert package.__name__ in EXTENSION["ROOMS"]
        public = {name: getattr(package, name) for name in package.__all__}
        assert [name for name, one in public.items() if (isfunction(one) or isclass(one)) and not one.__doc__] == []


def test_names_are_functions_whichever_module_was_imported_first():
    from jaxaudit.metrics import efficacy as of_room
    from jaxaudit.metrics.efficacy import efficacy

    assert of_room is efficacy
    for package in (kernels, metrics):
        assert all(callable(getattr(package, name)) for name in package.__all__)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_to_files_of_the_repository_lead_somewhere(page: Path):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"[a-z]+:|#", link)]
    included = re.findall(r"\{literalinclude\} (\S+)", page.read_text(encoding="utf-8"))
    gone = [link for link in (*links, *included) if not (page.parent / link.partition("#")[0]).exists()]
    assert gone == []


class Page(HTMLParser):
    """The links of a page, what they can point to, and what is missing for who cannot see it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = set()
        self.images: list[dict[str, str | None]] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.names |= {value for name in ("id", "name") if (value := found.get(name))}
        for name in ("href", "src"):
            if (link := found.get(name)) and not re.match(r"[a-z]+:|//", link):
                self.links.append(link)
        if tag == "img":
            self.images.append(found)


@pytest.fixture(scope="module")
def site() -> dict[Path, Page]:
    return {path: Page(path) for path in BUILT.rglob("*.html") if "_static" not in path.parts}


@built
@pytest.mark.outer
def test_every_link_within_the_site_leads_somewhere_and_every_picture_has_a_text(site: dict[Path, Page]):
    gone = []
    for path, page in site.items():
        for link in set(page.links):
            place, _, name = unquote(link).partition("#")
            target = (path.parent / place.partition("?")[0]).resolve() if place else path.resolve()
            target = target / "index.html" if target.is_dir() else target
            known = site[target].names if target in site else None
            if not target.exists() or (name and known is not None and name not in known):
                gone.append(f"{path.relative_to(BUILT)}: {link}")
    assert gone == []
    images = [(path, one) for path, page in site.items() for one in page.images]
    assert [f"{path.relative_to(BUILT)}: {one.get('src')}" for path, one in images if not one.get("alt")] == []
