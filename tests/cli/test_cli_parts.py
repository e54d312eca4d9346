"""The command line's small parts: progress, what is remembered of speeds, words turned into values."""

import json
import os
import sys
import time
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

from jaxaudit.cli import progress, tuning
from jaxaudit.cli.ks.inputs import name_apart
from jaxaudit.cli.parsers import (
    SHARES,
    parse_hidden,
    parse_image_size,
    parse_target_data,
    share_check,
)
from jaxaudit.cli.progress import progress_on_stderr, say
from jaxaudit.cli.tuning import recall_models_per_batch as recall
from jaxaudit.cli.tuning import remember_models_per_batch as remember
from jaxaudit.data.outputs.outputs import load_outputs
from jaxaudit.errors import InputError
from jaxaudit.runs.provenance import describe_machine


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still unless moved."""
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_nothing_is_estimated_before_steps_were_timed(clock: list[float], capsys: pytest.CaptureFixture[str]):
    """Compiling for a minute says nothing of the steps; nor do chunks that were kept from before."""
    with progress_on_stderr("training", "comparing") as show:
        for now, done in ((0, 0), (60, 0), (61, 500), (95, 500), (130, 600), (165, 700), (200, 1000), (201, 1000)):
            clock[0] = 1000.0 + now
            show(done, 1000)
    assert capsys.readouterr().err.splitlines() == [
        "training: 0% after 60 s, compiling",
        "training: 50% after 95 s, timing the first steps",
        "training: 60% after 2 min, about 5 min left",
        "training: 70% after 3 min, about 3 min left",
        "training: 100% after 3 min",
        "comparing",
    ]
    clock[0] = 2000.0
    with progress_on_stderr("measuring", shorter="--measured-records N") as show:
        for now, done in ((0, 0), (20, 1), (21, 2), (22, 3), (23, 4), (24, 5), (29, 6)):
            clock[0] = 2000.0 + now
            show(done, 1001)
    (line,) = capsys.readouterr().err.splitlines()
    assert "17 min" in line
    assert "--measured-records N" in line


def test_a_terminal_gets_a_bar_that_goes_away(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress_on_stderr("training") as show:
        show(0, 10)
        show(25, 10)
        time.sleep(0.2)
    assert "training" in terminal.getvalue()
    assert "100%" in terminal.getvalue()
    assert "250%" not in terminal.getvalue()
    assert capsys.readouterr().out == ""


def test_what_is_said_is_one_line(capsys: pytest.CaptureFixture[str]):
    say("a\nb\x1b[31m")
    assert capsys.readouterr() == ("", "a\\nb\\x1b[31m\n")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JAXAUDIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


WORK = {"command": "ks", "model": "mlp", "epochs": 15, "record": (12,), "seed": 7, "models_per_batch": None}


def test_models_per_batch_are_remembered_for_their_work(cache: Path, monkeypatch: pytest.MonkeyPatch):
    assert recall(WORK) is None
    remember(WORK, 16)
    remember({**WORK, "hidden": "9"}, 8)
    assert recall({**WORK, "hidden": "9"}) == 8
    # More models, records or epochs of the same design do not change it, and so no number.
    more = {"seed": 8, "epochs": 16, "sample": 301, "replicates": 9, "tests": "all", "targets": 4}
    assert recall(WORK) == recall({**WORK, **more}) == 16
    assert recall({**WORK, "record": (13,)}) is None
    assert recall({**WORK, "command": "power"}) is None
    assert os.listdir(cache) == ["widths.json"]
    # What another machine measured is none of ours.
    monkeypatch.setattr(tuning, "machine_facts", lambda: {"device": "gpu: other"})
    assert recall(WORK) is None


def test_a_damaged_memory_is_no_memory(cache: Path):
    cache.mkdir()
    for text in ("", "{", "[1]", "null", "\xff", "[" * 100_000, '{"a": "b"}'):
        (cache / "widths.json").write_text(text, encoding="latin-1")
        assert recall(WORK) is None
    remember(WORK, 4)
    assert recall(WORK) == 4
    known = json.loads((cache / "widths.json").read_text())
    for damaged in (0, -1, "16", 1.5, None, True):
        (cache / "widths.json").write_text(json.dumps(dict.fromkeys(known, damaged)))
        assert recall(WORK) is None


def test_a_cache_that_cannot_be_written_is_no_failure(cache: Path, monkeypatch: pytest.MonkeyPatch):
    cache.write_text("a file in the way")
    remember(WORK, 4)
    assert recall(WORK) is None
    cache.unlink()

    def full(*_: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr("os.replace", full)
    remember(WORK, 4)
    assert os.listdir(cache) == []


def test_image_sizes_and_hidden_layers():
    for text, size in (("28x28", (28, 28)), ("7X9", (7, 9)), ("none", None), ("١x2", (1, 2))):
        assert parse_image_size(text) == size
    for text in ("", "28", "x", "28x", "x28", "0x28", "-1x2", "1.5x2", "28x28x1", "²x2", "None"):
        with pytest.raises(InputError, match=r"^--image-size .*28x28"):
            parse_image_size(text)
    assert (parse_hidden("512,256,128"), parse_hidden(" 16 , "), parse_hidden("")) == ((512, 256, 128), (16,), ())
    for text in ("12,0", "12,many", "-1", "65537", "1e3"):
        with pytest.raises(InputError, match=rf"^--hidden {text}"):
            parse_hidden(text)


def test_target_data():
    for text, parts in {
        "mnist": ("mnist", 1.0),
        "mnist:0.1": ("mnist", 0.1),
        "mnist:1e-3": ("mnist", 0.001),
        "mnist:3.0.1:0.5": ("mnist:3.0.1", 0.5),
        "tfds:mnist@train[:10%]": ("tfds:mnist@train[:10%]", 1.0),
        "mnist@train[:10]:0.5": ("mnist@train[:10]", 0.5),
        "C:\\data\\set.npz": ("C:\\data\\set.npz", 1.0),
        ":0.5": (":0.5", 1.0),
        "0.5": ("0.5", 1.0),
    }.items():
        assert parse_target_data(text) == parts
    for fraction in ("0", "-0.1", "1.0001", "nan", "inf", "2"):
        with pytest.raises(InputError, match=rf"^--target-data a:{fraction}\b"):
            parse_target_data(f"a:{fraction}")


@pytest.mark.parametrize("name", SHARES)
def test_shares_and_factors(name: str):
    check = share_check(name)
    unbounded = name.startswith("ssd") or name.endswith(("rate", "alpha", "o_beta", "coefficient"))
    for right in (0.95, 10.0) if unbounded else (0.95,):
        check(right)
    for wrong in (-0.1, *(() if unbounded else (1.1,)), float("nan"), float("inf")):
        with pytest.raises(InputError, match=rf"^--{name.replace('_', '-')} .*{wrong:g}"):
            check(wrong)


def test_targets_of_one_name_stay_apart(tmp_path: Path):
    np.save(tmp_path / "o.npy", np.array([[0.9, 0.1], [0.3, 0.7]]))
    outputs = [load_outputs(tmp_path / "o.npy", ("a", "b"), 2)] * 3
    paths = [Path("/a/o.npy"), Path("/b/o.npy"), Path("c/o.npy")]
    assert [each.name for each in name_apart(outputs, paths)] == ["o.npy (1)", "o.npy (2)", "c/o.npy"]


def test_only_settings_that_decide_a_number_are_told(monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in os.environ if name.startswith(("JAX_", "XLA_", "CUDA_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("JAX_DEFAULT_MATMUL_PRECISION", "highest")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/home/someone")
    monkeypatch.setenv("JAX_LOGGING_LEVEL", "INFO")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1234")
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/home/someone --xla_cpu_enable_fast_math=false")
    told = describe_machine()["environment"]
    assert told == {"JAX_DEFAULT_MATMUL_PRECISION": "highest", "XLA_FLAGS": "--xla_cpu_enable_fast_math=false"}
