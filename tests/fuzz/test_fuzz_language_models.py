"""A hundred cases of `scores lm`: folders of models, and texts."""

import pytest

from fuzz.test_fuzz import fuzz

pytest.importorskip("transformers", reason="transformers is not installed")
pytestmark = pytest.mark.outer


def test_what_is_given_to_a_language_model_is_scored_or_refused():
    done = fuzz("--cases", "100", "--seed", "12", "--reader", "lm-model")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "100 cases of 1 readers" in done.stdout
