"""How many functions of the package, in how many files, commands run through that read a bank and train nothing."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.banks import QUERY, RECORDS, planned, target, train

from jaxaudit.data.bank.bank import load_bank

COUNT = """
import json, sys
from pathlib import Path
import jaxaudit
found, package = set(), str(Path(jaxaudit.__file__).parent)
def called(frame, event, _):
    code = frame.f_code
    # What is not optimised is the body of a module or of a class.
    if event == "call" and code.co_flags & 1 and code.co_name[0] != "<" and code.co_filename.startswith(package):
        found.add((code.co_filename, code.co_qualname))
sys.setprofile(called)
from jaxaudit.cli import main
try:
    main()
finally:
    sys.setprofile(None)
    heavy = sorted({"flax", "pyarrow", "scipy.stats", "torch"} & sys.modules.keys())
    print(json.dumps([len(found), len({file for file, _ in found}), heavy]), file=sys.stderr)
"""


@pytest.mark.outer
@pytest.mark.parametrize(
    ("words", "functions", "files"),
    [
        (("ks", "--target", "used_query.npy", "--holdout-target", "used_holdout.npy"), 423, 82),
        (("attack", "--attacks", "lira"), 288, 66),
    ],
)
def test_a_bank_is_read_through_so_many_functions(words: tuple[str, ...], functions: int, files: int, tmp_path: Path):
    """No more than when this was last looked at; and without the libraries of networks and of tables."""
    bank = load_bank(planned(tmp_path / "bank", 21, 0, holdout=True))
    train(bank, range(21), 6.0)
    target(bank.directory, "used", np.arange(RECORDS) < QUERY, 6.0)
    command = [sys.executable, "-c", COUNT, words[0], "--shadows", "bank", *words[1:]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    counted = json.loads(done.stderr.splitlines()[-1])
    assert counted[0] <= functions
    assert counted[1] <= files
    assert counted[2] == []
