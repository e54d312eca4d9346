"""Commands of the package, run in this process."""

import json
import unicodedata
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from unittest import mock

from support.cli_runs import Done, jaxaudit

from jaxaudit.errors import InputError

MADE = "../made/"
"""Where what is written goes: nothing is left there where a command is refused."""


def command(folder: Path, words: Sequence[str]) -> Done:
    """Runs `jaxaudit WORDS` in a folder.

    Raises:
        InputError: it ended with status 2, with its last line.
        AssertionError: it ended in another way than commands do, or printed what none may print.
    """
    # The program's own arguments cannot hold a zero byte.
    with mock.patch.dict("os.environ", JAXAUDIT_DEBUG="1"), chdir(folder):
        done = jaxaudit(*(word.replace("\0", "") for word in words))
    last = done.err.rstrip("\n").rpartition("\n")[2]
    if done.code == 2 and last.startswith("Error: "):
        raise InputError(last)
    assert done.code in (0, 2, 3), f"status {done.code}: {done.err[-500:]}"
    assert "Traceback" not in done.err, done.err[-500:]
    if done.code != 2:  # where options are wrong their words are shown as they were typed
        # What would move a terminal's cursor or turn its text round.
        kinds = {each: unicodedata.category(each) for each in {*done.out, *done.err} - {"\n"}}
        wrong = [each for each, kind in kinds.items() if kind in ("Cc", "Cs", "Zl", "Zp") or each == "\u202e"]
        assert not wrong, f"printed {wrong}: {done.out[-300:]!r}"
        if "--json" in words:
            json.loads(done.out, parse_constant=_refuse)
    return done


def _refuse(constant: str) -> None:
    raise AssertionError(f"printed {constant}, which is no JSON")
