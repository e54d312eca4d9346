"""The documentation site: every public name stands on it, and nothing on it leads nowhere.

The pages that Sphinx built are read where they lie: `.ci/run` builds them, with warnings as errors, and runs this file.
"""

import json
import re
import runpy
from html.parser import HTMLParser
from inspect import isclass, isfunction
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from jinja2 import Template

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
    from jaxaudit.metrics import efficacy as _function
    from jaxaudit.metrics import pdtp, profile, used_share
    from jaxaudit.metrics.efficacy import efficacy
    from jaxaudit.metrics.pdtp import BINS
    from jaxaudit.metrics.shares import profile as of_profile
    from jaxaudit.metrics.shares import used_shares

    assert BINS
    assert callable(used_shares)
    assert profile is of_profile
    assert _function is efficacy
    assert all(callable(one) for one in (pdtp, profile, used_share))
    for package in (jaxaudit, kernels, metrics):
        assert [name for name in package.__all__ if getattr(package, name) is None] == []


def test_docstrings_become_markup():
    lines = """One line of `train_shadows`, `first` and `x | y`; |x| (Liu & Tsaftaris 2020), *not* 2 * 3:

    literal | text

| file | holds |
|---|---|
| `.npy` | numbers |

Args:
    first: what it is.

>>> 1 | 2
3""".splitlines()

    def known(first: int) -> None: ...

    EXTENSION["_docstring"](None, "function", "known", known, None, lines)
    assert (
        "\n".join(lines)
        == r"""One line of :py:obj:`train_shadows <jaxaudit.train_shadows>`, ``first`` and ``x | y``; \|x\| """
        r"""(:ref:`Liu & Tsaftaris 2020 <liu2020>`), *not* 2 \* 3::

    literal | text

.. list-table::
   :header-rows: 1

   * - file
     - holds
   * - ``.npy``
     - numbers

Args:
    first: what it is.

>>> 1 | 2
3"""
    )


def test_signatures_are_those_of_the_source():
    of = EXTENSION["_signature"]
    args, back = of(None, "function", "ks_distance", jaxaudit.ks_distance, None, "()", None)
    assert "Float[" in args
    assert "'n']" in args
    assert back
    args, _ = of(None, "function", "holdout_test", metrics.holdout_test, None, "()", None)
    assert "level: float=0.95" in args
    fields, _ = of(None, "class", "Part", jaxaudit.Part, None, "()", None)
    assert fields.startswith("(examples: Examples")
    for name in ("HoldoutTest", "MembersTest", "ShadowTest"):
        fields, _ = of(None, "class", name, getattr(jaxaudit, name), None, "()", None)
        assert "stated: float = 0.25" in fields
    assert of(None, "class", "Learner", learners.Learner, None, "()", None) == ("", None)


def test_pages_can_be_edited_where_the_repository_is_known():
    edit_links = runpy.run_path(str(DOCS / "extensions" / "edit_links.py"))["edit_links"]
    assert edit_links({}) == ({}, {})
    options, context = edit_links({"Repository": "https://github.com/owner/name/"})
    assert options["use_edit_page_button"]
    template = Template(context["edit_page_url_template"])
    for page, path in (("how_to/index.md", "docs/how_to/index.md"), ("repository/DESIGN.md", "DESIGN.md")):
        assert template.render(file_name=page) == f"https://github.com/owner/name/edit/main/{path}"


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


@built
@pytest.mark.outer
def test_options_have_anchors(site: dict[Path, Page]):
    assert {"holdout", "members", "options-data", "seed"} <= site[BUILT / "command_line" / "ks.html"].names


@built
@pytest.mark.outer
def test_search_knows_pages_and_functions():
    text = (BUILT / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    titles = " ".join(index["alltitles"])
    for page in ("Start here", "Test a claimed deletion", "What PDTP is not", "How often is it wrong?"):
        assert page in titles
    for section in ("Add an attack of your own", "GPU: cuda"):
        assert section in titles
    assert {"holdout", "epsilon", "patient"} <= {*index["terms"], *index["titleterms"]}
    functions = {name for _, _, _, _, name in index["objects"]["jaxaudit"]}
    assert {"train_shadows", "load_bank", "HoldoutTest"} <= functions
