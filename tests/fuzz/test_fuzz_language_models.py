"""A few hundred cases of `scores lm`: folders of models and adapters, chat templates and texts."""

import subprocess
import sys

import pytest
from support.processes import environment

pytest.importorskip("transformers", reason="transformers is not installed")
pytestmark = pytest.mark.outer

CASES = 160


def test_what_is_given_to_a_language_model_is_scored_or_refused():
    words = ("--cases", str(CASES), "--seed", "12", "--reader", "lm-model,lm-adapter,lm-chats,lm-questions")
    done = subprocess.run(
        [sys.executable, "-m", "fuzz", *words], env=environment(), capture_output=True, text=True, timeout=550
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{CASES} cases of 4 readers" in done.stdout
