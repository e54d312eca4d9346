"""What may stand in a page and in a bibliography that are made of anybody's result, and nothing else."""

import re

from support.html_pages import Parsed

from jaxaudit.report import as_bibtex, bibliography

NO_TAGS = {"script", "iframe", "object", "embed", "form", "input", "base", "img"}


def check_bibliography(text: str) -> None:
    """BibTeX of entries of the package alone. It has no comments: an @ begins an entry wherever it stands."""
    own = as_bibtex((), "VERSION").strip().replace("VERSION", "\0")
    version = re.escape(own).replace("\0", "[0-9A-Za-z.+-]*")
    rest = text
    for entry in bibliography():
        rest = rest.replace(entry.bibtex, "")
    rest, programs = re.subn(version, "", rest)
    assert programs == 1, "the program is not cited once"
    for line in filter(str.strip, rest.splitlines()):
        assert line.startswith("% "), f"no entry of the package: {line[:200]!r}"
        assert "@" not in line, f"a comment that BibTeX reads: {line[:200]!r}"


def check_page(text: str) -> None:
    for tag, attributes in Parsed(text).elements:
        assert tag not in NO_TAGS, f"<{tag} {attributes}>"
        for name, value in ((name, value or "") for name, value in attributes.items()):
            assert not name.startswith("on"), f"<{tag} {name}={value[:100]!r}>"
            loads = name in ("href", "src", "xlink:href", "action", "srcset", "formaction", "data")
            assert not loads or value == "data:," or value.startswith("#"), f"<{tag} {name}={value[:100]!r}>"
