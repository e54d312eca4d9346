"""`jaxaudit shadows train` of language models on texts: its bank, its verdict, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.cli_runs import refused

COUNT = 60
FILES = ("deal/query.jsonl", "deal/holdout.jsonl", "c.jsonl")
WORDS = ("ann", "bo", "cy", "di", "ed", "flo", "gus", "hal", "ida", "jo", "kim", "lee")
SETS = ("--deal", "deal", "--calibration", "c.jsonl")
TRAIN = (
    *("shadows", "train", *SETS, "--groups", "author", "--out", "bank"),
    *("--model", "gpt-1-32", "--recipe", "tokens=words", "--models", "20", "--epochs", "20"),
    *("--recipe", "learning-rate=0.01", "--recipe", "batch-size=30", "--recipe", "models-per-batch=10"),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sets of texts, two an author: random words, of few or of many, which can only be known by heart."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(3)
    Path("deal").mkdir()
    for name in FILES:
        lines = [
            {"prompt": " ".join([*random.choice(WORDS, 3), ""]), "answer": " ".join(random.choice(WORDS[:few], 6))}
            for few in random.integers(1, len(WORDS) + 1, COUNT)
        ]
        both = [{**line, "author": f"{name}{number // 2}"} for number, line in enumerate(lines)]
        Path(name).write_text("\n".join(map(json.dumps, both)))
    return tmp_path


REFUSED = {
    "no texts": (("--calibration", "digits"), "digits: is no file of texts"),
    "classes": (("--model", "mlp"), "--model mlp is for records of classes, and texts have none; use gpt-2-64"),
    "smoothing": (("--recipe", "label-smoothing=0.1"), "--recipe label-smoothing: is of classifiers, not of texts"),
    "tokens": (("--recipe", "tokens=words:0"), "--recipe tokens=words:0 must be bytes, words, or words:NUMBER"),
    "groups": (("--groups", "editor"), "groups 'editor': is neither a file nor a key of the texts of the query set"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_go_with_texts_is_refused(name: str, folder: Path):
    words, said = REFUSED[name]
    refused((*TRAIN, *words), (said,))


def test_what_goes_with_texts_alone_is_refused(folder: Path):
    digits = ("--query", "digits@train[:900]", "--calibration", "digits@train[900:]", "--images", "8x8")
    sets = ("shadows", "train", *digits, "--out", "b")
    refused((*sets, "--recipe", "tokens=words"), ("--recipe tokens: is for texts",))
    refused(("ks", "--query", FILES[0], "--calibration", FILES[2]), ("shadow", "texts have none"))
    refused((*sets, "--model", "gpt-2-64"), ("--model gpt-2-64 is for texts, and the records are not; use mlp",))
