"""Scripts of `support/` in processes of their own."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent


def environment(**more: str) -> dict[str, str]:
    """This process's, in which the tests and the package are found."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]), **more}


def script(name: str, *words: object) -> list[str]:
    """The command that runs it."""
    return [sys.executable, str(TESTS / "support" / name), *map(str, words)]


def printed(name: str, *words: object, **more: str) -> str:
    """What it prints; it must succeed."""
    done = subprocess.run(script(name, *words), env=environment(**more), capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return done.stdout


def of_each(workers: Any, function: Callable[[], Any], count: int) -> set[Any]:
    """What each of so many workers answers, which no two answer alike."""
    answers: set[Any] = set()
    for _ in range(30):
        answers |= {future.result() for future in [workers.submit(_slowly, function) for _ in range(count)]}
        if len(answers) >= count:
            break
    return answers


def _slowly(function: Callable[[], Any]) -> Any:
    time.sleep(1)
    return function()
