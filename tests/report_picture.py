"""Draws `docs/report.png`, the picture of a report in README and on the site: `python tests/report_picture.py` does.

It is the upper part of the page that `jaxaudit ks --report` writes, in a headless Chromium.
"""

import io
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from support.chromium import chromium, find

PICTURE = Path(__file__).parents[1] / "docs" / "report.png"
WIDTH, HEIGHT = 1120, 1400
COLOURS = 256


def main() -> None:
    """Makes the page and the picture of it."""
    program = find()
    assert program is not None, "there is no Chromium"
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        words = [sys.executable, "-m", "jaxaudit", "ks", "--report", str(page)]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        with chromium(program, Path(folder) / "profile") as browser:
            browser.open(page, WIDTH, HEIGHT)
            shot = browser.picture(whole=False)
    Image.open(io.BytesIO(shot)).convert("RGB").quantize(COLOURS).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
