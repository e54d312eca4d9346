"""`jaxaudit unlearn --outputs` from its words to what it prints, writes and refuses."""

import json
import zipfile
from pathlib import Path

import jax
import jsonschema
import numpy as np
import pytest
from support.cli_runs import jaxaudit, refused
from support.html_pages import Parsed

import jaxaudit as ja
from jaxaudit.json_types import to_builtins
from jaxaudit.report import schema_of

LABELS = np.arange(30) % 3
WORDS = ("unlearn", "--outputs", "sure=sure.npz", "--outputs", "retrained=retrained.npz", "--labels", "labels.npy")


def write(name: str, models: int, own: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    forget = (random.normal(size=(models, 30, 3)) + own * (np.arange(3) == LABELS[:, None])).astype(np.float32)
    np.savez(f"{name}.npz", forget=forget)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write("retrained", 16, 0.0, 1)
    write("sure", 8, 8.0, 2)
    write("alike", 8, 0.0, 3)
    write("three", 3, 8.0, 4)
    np.save("labels.npy", LABELS)
    return tmp_path


def test_the_numbers_are_those_of_the_function_and_the_run_is_read_again():
    done = jaxaudit(*WORDS, "--outputs", "alike=alike.npz", "--outputs", "original=sure.npz", "--out", "run", "--json")
    result = done.result
    jsonschema.validate(result, schema_of("unlearn_outputs"))
    assert json.loads(Path("run/result.json").read_text()) == result
    sides = {name: dict(np.load(f"{name}.npz")) for name in ("sure", "alike", "retrained")}
    retrained = sides.pop("retrained")
    audit = ja.score_unlearning(jax.random.key(7), sides, retrained, LABELS, original=sides["sure"])
    assert result["methods"] == json.loads(json.dumps(to_builtins(audit.result)["methods"]))
    assert result["provenance"]["data"]["sure"]["models"] == 8
    assert any("8 models on a side give wide intervals" in line for line in result["shortfalls"])
    assert jaxaudit(*WORDS, "--fail-on", "distinguishable").code == 3
    assert "retrained again" in Path("run/table.txt").read_text()
    assert jaxaudit("report", "run", "--out", "page.html").code == 0
    papers = jaxaudit("cite", "run").out
    assert "hayes2024inexact" in papers
    assert "triantafillou2024" in papers
    assert "sure ✕ distinguishable" in " ".join(Parsed(Path("page.html").read_text()).text.split())


def test_what_cannot_be_used_is_refused_before_work():
    Path("model.pt").write_bytes(b"PK")
    for words, said in (
        ((*WORDS, "--outputs", "sure=alike.npz"), ("two methods have the name sure",)),
        ((*WORDS, "--outputs", "retrained=alike.npz"), ("two methods have the name retrained",)),
        ((*WORDS, "--outputs", "Original=alike.npz"), ("cannot be named",)),
        ((WORDS[0], *WORDS[3:]), ("no method",)),
        ((*WORDS, "--outputs", "alike.npz"), ("must be METHOD=FILE.npz",)),
        (WORDS[:5], ("--outputs needs --labels",)),
        ((*WORDS[:3], *WORDS[5:]), ("--outputs needs retrained=FILE.npz",)),
        ((*WORDS, "--seeds", "8"), ("--seeds: no effect with --outputs",)),
        (("unlearn", "--labels", "labels.npy"), ("--labels: ", "--outputs")),
        ((*WORDS, "--outputs", "gone=gone.npz"), ("gone.npz: there is no such file",)),
        ((*WORDS, "--outputs", "torch=model.pt"), ("mostly pickles",)),
        ((*WORDS, "--outputs", "labels=labels.npy"), ("read from .npz files",)),
        ((*WORDS, "--outputs", "far=/dev/zero"), ("neither a file nor a folder",)),
        ((*WORDS[:-1], "gone.npy"), ("gone.npy",)),
        ((*WORDS[:-1], "sure.npz"), ("sure.npz",)),
    ):
        refused(words, said)


def test_files_of_another_party_are_read_with_care():
    np.savez("objects.npz", forget=np.array([{}], object), allow_pickle=True)
    refused((*WORDS, "--outputs", "objects=objects.npz"), ("pickled objects",))
    Path("text.npz").write_text("no archive")
    refused((*WORDS, "--outputs", "text=text.npz"), ("not a readable .npz file",))
    Path("cut.npz").write_bytes(Path("sure.npz").read_bytes()[:-300])
    refused((*WORDS, "--outputs", "cut=cut.npz"), ("cut.npz",))
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (100000000, 100000, 10), }"
    header = header.ljust(117) + b"\n"
    with zipfile.ZipFile("huge.npz", "w") as archive:
        archive.writestr("forget.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    refused((*WORDS, "--outputs", "huge=huge.npz"), ("cut short",))
    np.savez("nan.npz", forget=np.full((8, 30, 3), np.nan))
    refused((*WORDS, "--outputs", "nan=nan.npz"), ("nan[forget], model 0", "NaN"))
