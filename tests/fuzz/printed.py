"""What may stand in a page, in Markdown and in a bibliography that are made of anybody's result, and nothing else."""

import re

from markdown_it import MarkdownIt
from support.html_pages import Parsed

from jaxaudit.report import as_bibtex, bibliography

PLAIN = {"inline", "text", "strong_open", "strong_close", "code_inline", "softbreak", "hardbreak", "text_special"}
PLAIN |= {f"{kind}_{end}" for kind in ("heading", "paragraph", "bullet_list", "list_item") for end in ("open", "close")}
PLAIN |= {f"{kind}_{end}" for kind in ("table", "thead", "tbody", "tr", "th", "td") for end in ("open", "close")}
AUTOMATIC_LINK = re.compile(r"(https?|ftp)://|\bwww\.", re.IGNORECASE)
"""What GitHub makes a link of without any mark."""
NO_TAGS = {"script", "iframe", "object", "embed", "form", "input", "base", "img"}


def check_markdown(text: str, runs: int = 1) -> None:
    """Markdown of paragraphs, lists and tables alone with a heading a run: no tag, link or picture."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for token in (each for block in tokens for each in (block, *(block.children or ()))):
        assert token.type in PLAIN, f"{token.type}: {token.content[:200]!r}"
        assert token.type != "bullet_list_open" or not token.level, "a list in a list"
        if token.type == "inline":
            # GitHub looks for links before it takes escapes away.
            found = AUTOMATIC_LINK.search(re.sub("`[^`]*`", "", token.content))
            assert not found, f"a link: {token.content[:200]!r}"
    titles = [tokens[place + 1].content for place, token in enumerate(tokens) if token.type == "heading_open"]
    assert len(titles) == runs, f"headings {titles}"


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
