"""Puts the answer of an audit into a model card: its metadata first, its section between two marks.

    python model_card.py RUN README.md

RUN is a directory that an audit wrote with `--out`. What an earlier run left in the card is replaced. A card with a
`model-index` of its own is refused: how the two are joined, only you know.
"""

import re
import subprocess
import sys
from pathlib import Path

BEGIN, END = "<!-- jaxaudit -->", "<!-- /jaxaudit -->"


def main(run: str, card: Path) -> None:
    """Writes the card anew."""
    made = subprocess.run(
        [sys.executable, "-m", "jaxaudit", "report", run, "--card"],
        check=True,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    _, index, section = made.stdout.split("---\n", 2)
    text = card.read_text(encoding="utf-8") if card.exists() else ""
    metadata, body = "", text
    if found := re.match(r"---\n(.*?\n|)---\n", text, re.DOTALL):
        metadata, body = found[1], text[found.end() :]
    # What an earlier run left goes.
    metadata = re.sub(rf"# {BEGIN}\n.*?# {END}\n", "", metadata, flags=re.DOTALL)
    if re.search(r"^model-index:", metadata, re.MULTILINE):
        sys.exit(f"{card} has a model-index of its own; join the two by hand.")
    body = re.sub(rf"{BEGIN}\n.*?{END}\n", "", body, flags=re.DOTALL).rstrip("\n")
    marked = f"# {BEGIN}\n{index}# {END}\n"
    parts = [f"---\n{metadata}{marked}---\n", f"{body}\n\n" if body else "\n", f"{BEGIN}\n{section.strip()}\n{END}\n"]
    card.write_text("".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
