"""The command line's small parts: progress, remembered widths, words turned into values."""

import json
import os
import sys
import time
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from jaxaudit.cli.repeat import command_line, plain
from jaxaudit.cli.widths import recall_width, remember_width

from jaxaudit.audits.pool import Part
from jaxaudit.cli import progress, widths
from jaxaudit.cli.ks.inputs import default_targets, match, name_apart, simulate
from jaxaudit.cli.progress import progress_on_stderr, say
from jaxaudit.cli.words import check_shares, parse_image_size, parse_target_data
from jaxaudit.data import Examples
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


def test_a_log_gets_a_line_every_half_minute(clock: list[float], capsys: pytest.CaptureFixture[str]):
    with progress_on_stderr("training") as show:
        for second in range(91):
            clock[0] = 1000.0 + second
            show(second, 60)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "training: 50% after 30 s, about 30 s left",
        "training: 100% after 60 s",
        "training: 100% after 90 s",
    ]


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


def test_a_run_of_under_half_a_minute_logs_nothing(clock: list[float], capsys: pytest.CaptureFixture[str]):
    with progress_on_stderr("training") as show:
        clock[0] += 29.9
        show(1, 2)
    assert capsys.readouterr() == ("", "")


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


WORK = {"model": "mlp", "epochs": 15, "query": (300, 12), "seed": 7, "width": None}


def test_a_width_is_remembered_for_its_work(cache: Path):
    assert recall_width(WORK) is None
    remember_width(WORK, 16)
    remember_width({**WORK, "hidden": "9"}, 8)
    assert recall_width({**WORK, "hidden": "9"}) == 8
    # More models, records or epochs of the same design change no width, and so no number.
    more = {"seed": 8, "epochs": 16, "query": (301, 12), "replicates": 9, "method": "all", "targets": 4}
    assert recall_width(WORK) == recall_width({**WORK, **more}) == 16
    assert recall_width({**WORK, "query": (300, 13)}) is None
    assert os.listdir(cache) == ["widths.json"]


def test_a_width_of_another_machine_is_none_of_ours(cache: Path, monkeypatch: pytest.MonkeyPatch):
    remember_width(WORK, 16)
    monkeypatch.setattr(widths, "machine_facts", lambda: {"device": "gpu: other"})
    assert recall_width(WORK) is None


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "\xff", "[" * 100_000, '{"a": "b"}'])
def test_a_damaged_memory_is_no_memory(cache: Path, text: str):
    cache.mkdir()
    (cache / "widths.json").write_text(text, encoding="latin-1")
    assert recall_width(WORK) is None
    remember_width(WORK, 4)
    assert recall_width(WORK) == 4


@pytest.mark.parametrize("value", [0, -1, "16", 1.5, None, True])
def test_a_width_that_is_none(cache: Path, value: object):
    remember_width(WORK, 4)
    known = json.loads((cache / "widths.json").read_text())
    (cache / "widths.json").write_text(json.dumps(dict.fromkeys(known, value)))
    assert recall_width(WORK) is None


def test_a_cache_that_cannot_be_written_is_no_failure(cache: Path, monkeypatch: pytest.MonkeyPatch):
    cache.write_text("a file in the way")
    remember_width(WORK, 4)
    assert recall_width(WORK) is None
    cache.unlink()

    def full(*_: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr("os.replace", full)
    remember_width(WORK, 4)
    assert os.listdir(cache) == []


@pytest.mark.parametrize(("text", "size"), [("28x28", (28, 28)), ("7X9", (7, 9)), ("none", None), ("١x2", (1, 2))])
def test_image_sizes(text: str, size: tuple[int, int] | None):
    assert parse_image_size(text) == size


@pytest.mark.parametrize("text", ["", "28", "x", "28x", "x28", "-1x2", "1.5x2", "28x28x1", "²x2", "None"])
def test_image_sizes_that_are_none(text: str):
    with pytest.raises(InputError, match=r"^--image-size .* must be HEIGHTxWIDTH, such as 28x28, or none to keep"):
        parse_image_size(text)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("mnist", ("mnist", 1.0)),
        ("mnist:0.1", ("mnist", 0.1)),
        ("mnist:1e-3", ("mnist", 0.001)),
        ("mnist:3.0.1:0.5", ("mnist:3.0.1", 0.5)),
        ("tfds:mnist@train[:10%]", ("tfds:mnist@train[:10%]", 1.0)),
        ("mnist@train[:10]:0.5", ("mnist@train[:10]", 0.5)),
        ("C:\\data\\set.npz", ("C:\\data\\set.npz", 1.0)),
        (":0.5", (":0.5", 1.0)),
        ("0.5", ("0.5", 1.0)),
    ],
)
def test_target_data(text: str, parts: tuple[str, float]):
    assert parse_target_data(text) == parts


@pytest.mark.parametrize("fraction", ["0", "-0.1", "1.0001", "nan", "inf", "2"])
def test_fractions_out_of_range(fraction: str):
    with pytest.raises(InputError, match=rf"^--target-data a:{fraction}: the fraction must be above 0 and at most 1"):
        parse_target_data(f"a:{fraction}")


SHARES = {"subsample": 1.0, "level": 0.95, "min_accuracy": 0.0}


@pytest.mark.parametrize("name", SHARES)
def test_shares(name: str):
    check_shares(SHARES)
    for wrong in (-0.1, 1.1, float("nan"), float("inf")):
        with pytest.raises(InputError, match=rf"^--{name.replace('_', '-')} must be .*, got {wrong:g}\.$"):
            check_shares({**SHARES, name: wrong})


def some(name: str, seed: int, count: int = 6) -> Examples:
    inputs = np.random.default_rng(seed).normal(size=(count, 2)).astype(np.float32)
    return Examples(inputs, np.arange(count) % 2, ("no", "yes"), name)


def test_simulated_targets_are_named_after_their_parts():
    parts = [Part(some("a", 1), 1.0), Part(some("b", 2), 0.125), Part(some("c", 3), 0.0001)]
    assert simulate(parts).name == "a + 12.5% of b + 0.01% of c"
    assert [target.name for target in default_targets(some("q", 1), some("c", 2))] == [
        "67% of c + q",
        "67% of c",
        "67% of c + 50% of q",
    ]


def test_matching_leaves_the_calibration_set_without_query_records(capsys: pytest.CaptureFixture[str]):
    query, calibration = some("q", 1), some("c", 2)
    assert match(query, calibration, drop_shared=False, drop_classes=False).content_hash == calibration.content_hash
    both = Examples(np.concatenate([calibration.inputs, query.inputs[:2]]), np.arange(8) % 2, ("no", "yes"), "c")
    with pytest.raises(InputError, match=r"^2 of the 8 records of c also occur in q .*--drop-overlap"):
        match(query, both, drop_shared=False, drop_classes=False)
    assert len(match(query, both, drop_shared=True, drop_classes=False)) == 6
    assert capsys.readouterr().err == "2 query records are also in the calibration set; they were dropped from it\n"
    assert len(match(query, calibration, drop_shared=True, drop_classes=False)) == 6
    assert capsys.readouterr().err == ""


def test_what_is_handed_on_names_no_folder_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    here = str(tmp_path)
    options = {
        "query": f"{here}/data/q.npz@train[:10]",
        "target": [Path(f"{here}/a.csv"), Path("/elsewhere/secret/b.csv")],
        "target_data": ["/elsewhere/secret/c.npz:0.5"],
        "reference": [f"retrained={here}/r.safetensors", "untrained"],
        "data_dir": Path("/elsewhere/secret/sets"),
        "hidden": "512,256",
    }
    assert plain(options) == {
        "query": "data/q.npz@train[:10]",
        "target": ["a.csv", "b.csv"],
        "target_data": ["c.npz:0.5"],
        "reference": ["retrained=r.safetensors", "untrained"],
        "data_dir": "sets",
        "hidden": "512,256",
    }
    words = command_line("ks", options)
    assert words[:4] == ["jaxaudit", "ks", "--query", "data/q.npz@train[:10]"]
    assert not [word for word in words if here in word or "secret" in word]


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
