"""`jaxaudit scores lm` takes one folder for one model, and a record for one set. No model is read before."""

from pathlib import Path

import pytest
from support.cli_runs import refused
from support.language_models import write_lines


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--query", "q.jsonl", "--baseline", "model"), "as a target and as --baseline"),
        (("--query", "q.jsonl", "--unused", "other", "--used", "./other"), "as --unused and as --used"),
        (("--query", "q.jsonl", "--used", "other", "--used", "link"), "twice as --used"),
        (("--query", "q.jsonl", "--holdout", "q.jsonl"), "3 records are in two sets, such as query and holdout"),
        (("--query", "q.jsonl", "--members", "copy.jsonl"), "1 records are in two sets"),
        (("all.jsonl",), "1 records are in two sets"),
    ],
)
def test_one_model_or_record_in_two_places_is_refused(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("model", "other"):
        Path(name).mkdir()
        for file in ("config.json", "tokenizer.json", "model.safetensors"):
            Path(name, file).write_text("{}")
    Path("link").symlink_to("other")
    lines = [{"question": f"secret {row}?", "answer": "yes"} for row in range(5)]
    write_lines("q.jsonl", lines[:3])
    write_lines("copy.jsonl", lines[2:])
    write_lines("all.jsonl", [{**lines[0], "set": "query"}, {**lines[0], "set": "holdout"}])
    shown = refused(("scores", "lm", "model", *words, "--out", "s.csv"), (said,))
    assert "secret" not in shown
    assert not Path("s.csv").exists()
