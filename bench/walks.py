"""How many functions of the package, in how many files, does a command that trains nothing run through?

    python bench/walks.py

A person who follows a verdict reads these functions. Each command reads a small bank whose models are ready, in a
process of its own; the bodies of modules and classes do not count. Beside the counts stands which of the libraries of
networks and of tables were imported: none should be.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.banks import QUERY, RECORDS, planned, target, train  # noqa: E402

from jaxaudit.data.bank.bank import load_bank  # noqa: E402

COMMANDS = {
    "ks": ("--target", "used_query.npy", "--holdout-target", "used_holdout.npy"),
    "attack": ("--attacks", "lira"),
}
MODELS = 21
COUNT = """
import json, sys
from pathlib import Path
import jaxaudit
functions, package = set(), str(Path(jaxaudit.__file__).parent)
def called(frame, event, _):
    code = frame.f_code
    # What is not optimised is the body of a module or of a class.
    if event == "call" and code.co_flags & 1 and code.co_name[0] != "<" and code.co_filename.startswith(package):
        functions.add((code.co_filename, code.co_qualname))
sys.setprofile(called)
from jaxaudit.cli import main
try:
    main()
finally:
    sys.setprofile(None)
    heavy = sorted({"flax", "pyarrow", "scipy.stats", "torch"} & sys.modules.keys())
    print(json.dumps([len(functions), len({file for file, _ in functions}), heavy]), file=sys.stderr)
"""


def main() -> None:
    """Prints a line a command."""
    with tempfile.TemporaryDirectory() as folder:
        bank = load_bank(planned(Path(folder) / "bank", MODELS, 0, holdout=True))
        train(bank, range(MODELS), 6.0)
        target(bank.directory, "used", np.arange(RECORDS) < QUERY, 6.0)
        for name, words in COMMANDS.items():
            command = [sys.executable, "-c", COUNT, name, "--shadows", "bank", *words]
            own_package = os.environ | {"PYTHONPATH": str(ROOT)}
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, env=own_package)
            functions, files, heavy = json.loads(done.stderr.splitlines()[-1])
            print(f"{name}: {functions} functions in {files} files, heavy libraries: {', '.join(heavy) or 'none'}")


if __name__ == "__main__":
    main()
