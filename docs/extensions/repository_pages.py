"""Pages of the repository that are pages of the site, too: the design, the change log, the evidence.

They are copied beside the other pages, with what they link to. Links of the other pages lead to the files themselves,
which also works where only the files are shown; here they are led to the copies.
"""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
COPIES = "repository"
PATTERNS = (
    "[!R]*.md",
    "bench/README.md",
    "experiments/*.md",
    "experiments/results/*.md",
    "experiments/results/*.png",
)
LINK = re.compile(r"(?P<up>\]\((?:\.\./)+)(?P<path>(?:[A-Z_]+\.md|bench/README\.md|experiments/[\w/.-]+\.md)[#)])")


def setup(app: Any) -> dict[str, bool]:
    app.connect("builder-inited", _copy)
    app.connect("source-read", _lead_here)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _copy(app: Any) -> None:
    wanted = {}
    for pattern in PATTERNS:
        for path in ROOT.glob(pattern):
            wanted[Path(app.srcdir) / COPIES / path.relative_to(ROOT)] = path.read_bytes()
    for old in (Path(app.srcdir) / COPIES).rglob("*.*"):
        if old not in wanted:
            old.unlink()
    for copy, content in wanted.items():
        # What did not change keeps its time, so its page is not built again.
        if not copy.exists() or copy.read_bytes() != content:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)


def _lead_here(app: Any, page: str, source: list[str]) -> None:
    depth = "../" * page.count("/")
    if page.startswith(f"{COPIES}/"):
        source[0] = source[0].replace("](docs/", f"]({depth}")
    else:
        source[0] = LINK.sub(lambda found: f"]({depth}{COPIES}/{found['path']}", source[0])
