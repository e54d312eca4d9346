"""A page read as a browser would, strictly."""

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "hr", "img", "input"}
ALLOWED = {
    *("html", "head", "meta", "title", "link", "style", "body", "header", "main", "footer", "section", "article"),
    *("div", "p", "span", "strong", "b", "i", "h1", "h2", "h3", "h4", "ul", "li", "dl", "dt", "dd", "cite", "pre"),
    *("code", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "figure", "figcaption"),
    *("svg", "g", "defs", "path", "use", "text", "tspan", "clippath", "rect", "desc"),
}


class Parsed(HTMLParser):
    """Elements, texts and ids of a page; what is not closed, or closed in the wrong order, fails."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.after_code = False
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] == "style":
            return
        in_prose = self.open[-1] == "code" and "pre" not in self.open
        shown = f"`{data}`" if in_prose else data
        if self.texts and (in_prose or self.after_code):
            self.texts[-1] += shown
        else:
            self.texts.append(shown)
        self.after_code = in_prose

    @property
    def text(self) -> str:
        """All of its text; code within a sentence is between backticks, as in a terminal."""
        return " ".join(" ".join(self.texts).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of every element of this kind."""
        return [attributes for name, attributes in self.elements if name == tag]
