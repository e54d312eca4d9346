"""What an installation must do, tried with nothing but the standard library: `python smoke.py` in an empty folder."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path


def run(*words: str) -> str:
    """What `jaxaudit WORDS` prints."""
    done = subprocess.run([sys.executable, "-m", "jaxaudit", *words], capture_output=True, text=True, timeout=600)
    if done.returncode:
        sys.exit(f"jaxaudit {' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
    print(f"jaxaudit {' '.join(words)}: {len(done.stdout):,} characters")
    return done.stdout


def main() -> None:
    """Every door that needs a file of the package, once."""
    import jaxaudit

    place = Path(jaxaudit.__file__).parent
    assert "site-packages" in place.parts, f"jaxaudit is that of {place}, not an installed one"
    assert run("--version").split() == ["jaxaudit", version("jaxaudit")]
    assert "ks" in run("--help")
    assert json.loads(run("doctor", "--json"))["problems"] == []
    run("pdtp", "--data", "wine", "--model", "nb", "--out", "of tables", "--report", "page.html")
    quick = ("--epochs", "1", "--seeds", "2", "--per-class", "20", "--nonmembers", "0", "--methods", "retraining")
    run("unlearn", *quick, "--recipe", "hidden=8", "--out", "of images")
    verdict = json.loads(Path("of tables", "result.json").read_text(encoding="utf-8"))["finding"]["verdict"]
    assert verdict in Path("page.html").read_text(encoding="utf-8")
    assert "@" in run("cite", "of tables", "of images")
    run("report", "of images", "--out", "images.html")


if __name__ == "__main__":
    main()
