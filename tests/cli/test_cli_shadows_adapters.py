"""From the folder of a causal model and files of texts to a verdict by adapters, and what is refused on the way."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cli_runs import jaxaudit, linked, refused
from support.details import details_of
from support.language_models import POSITIONS, save_model, write_lines

from jaxaudit import load_bank
from jaxaudit.cli.read_sets import text_reader
from jaxaudit.cli.shared_options import ShadowNetwork
from jaxaudit.errors import InputError

pytest.importorskip("torchax", reason="torchax is not installed (the torch extra)")
pytest.importorskip("transformers", reason="transformers is not installed")

COUNT, QUERY = 60, "deal/query.jsonl"
ROLES = ("query", "holdout", "calibration", "members")
WORDS = ("ann", "bo", "cy", "di", "ed", "flo", "gus", "hal")
SETS = ("--deal", "deal")
ADAPTERS = ("--model", "base", "--recipe", "lora=2::c_attn,c_proj")
TRAIN = (
    *("shadows", "train", *SETS, *ADAPTERS, "--models", "4", "--epochs", "2", "--recipe", "learning-rate=0.02"),
    *("--recipe", "batch-size=20", "--recipe", "models-per-batch=2", "--out", "bank"),
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    save_model(folder / "base")
    (folder / "deal").mkdir()
    # Each record is in one set: a copy in another one would hide use, and is refused.
    every = np.random.default_rng(5).permutation(list(product(WORDS, repeat=4)))
    for name, records in zip(ROLES, every[: 4 * COUNT].reshape(4, COUNT, 4), strict=True):
        write_lines(
            folder / f"deal/{name}.jsonl", [{"prompt": f"{a} ", "answer": " ".join(rest)} for a, *rest in records]
        )
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return linked(made, tmp_path, monkeypatch)


@pytest.mark.outer
def test_a_bank_of_adapters_judges_a_model_by_its_table_of_scores(here: Path):
    done = jaxaudit(*TRAIN, "--drop-overlap")
    assert done.code == 0, done.err
    bank = load_bank("bank")
    said = bank.description
    assert (said.outputs, said.direction, said.records) == ("log_likelihood", "higher", 3 * COUNT)
    for part in ("model base", "lora 2::c_attn,c_proj", "source of model blake2b:"):
        assert part in said.recipe
    files = [f"deal/{role}.jsonl" for role in ("query", "holdout", "members")]
    scored = jaxaudit("scores", "lm", "base", *files, "--out", "s.csv")
    assert scored.code == 0, scored.err
    by_bank = ("ks", "--shadows", "bank", "--deal", "deal", "--json", "--target")
    judged = jaxaudit(*by_bank, "s.csv")
    assert judged.result["targets"][0]["tests"][0]["details"]["method"] == "members"
    # The same numbers, and words on a model of that name, as from a folder with a file of one column for each set.
    lines = Path("s.csv").read_text().splitlines()
    column = lines[0].split(",").index("target.loss")
    Path("own/s.csv").mkdir(parents=True)
    for role in ("query", "holdout", "members"):
        own = [f"{-float(line.split(',')[column])!r}" for line in lines[1:] if line.startswith(f"{role},")]
        Path(f"own/s.csv/{role}.csv").write_text("\n".join(["score", *own, ""]))
    again = jaxaudit(*by_bank, "own/s.csv")
    assert details_of(again.result["targets"][0]) == details_of(judged.result["targets"][0])
    # Another base model, or another template, is another bank.
    refused((*TRAIN, "--drop-overlap", "--recipe", "template=Q: {} A: "), ("bank",))
    save_model(here / "other", seed=1)
    refused((*TRAIN, "--drop-overlap", "--model", "other"), ("bank",))


REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "no rank": (("--model", "base"), "give their rank, such as --recipe lora=8"),
    "no folder": (("--model", "gpt-2-64", "--recipe", "lora=2"), "--recipe lora needs --model FOLDER"),
    "rank": (("--model", "base", "--recipe", "lora=0"), "--recipe lora=0 must be RANK[:ALPHA[:LAYERS]]"),
    "tokens": ((*ADAPTERS, "--recipe", "tokens=words"), "--recipe tokens: is not for adapters"),
    "layers": (("--model", "base", "--recipe", "lora=2::attention"), "there is no such linear layer in base"),
    "missing": (("--model", "other/", "--recipe", "lora=2"), "there is no such folder"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_options_of_adapters_that_do_not_fit_are_refused(name: str, here: Path):
    words, said = REFUSED[name]
    refused(("shadows", "train", *SETS, "--drop-overlap", "--models", "4", "--out", "bank", *words), (said,))


def test_a_template_is_part_of_every_record(here: Path):
    assert text_reader([QUERY], ShadowNetwork()) is not None
    read = [text_reader([QUERY], ShadowNetwork(template=each)) for each in (None, "{}", "Q: {} A: ")]
    usual, same, longer = (each(QUERY).inputs for each in read if each is not None)
    np.testing.assert_array_equal(usual, same)
    assert not np.array_equal(longer, usual)
    # As many tokens count, whatever stands before them.
    np.testing.assert_array_equal((longer >= 0).sum(axis=1), (usual >= 0).sum(axis=1))
    write_lines("t.jsonl", [{"text": "ann bo"}])
    with pytest.raises(InputError, match="is for prompts and questions"):
        text_reader(["t.jsonl"], ShadowNetwork(template="Q: {}"))


BAD: dict[str, tuple[list[dict[str, Any]], str]] = {
    "long": ([{"text": "ann " * POSITIONS}], f"the model has positions ({POSITIONS})"),
    "empty": ([{"prompt": "ann ", "answer": " "}], "1 of 121 records have no token that counts"),
}


@pytest.mark.parametrize("name", BAD)
def test_texts_that_a_base_model_cannot_learn_are_refused(name: str, here: Path):
    lines, said = BAD[name]
    Path("bad").mkdir()
    for role in ROLES[1:3]:
        if name == "long":
            write_lines(f"bad/{role}.jsonl", [{"text": f"{role} {place}"} for place in range(COUNT)])
        else:
            Path(f"bad/{role}.jsonl").symlink_to(here / f"deal/{role}.jsonl")
    write_lines("bad/query.jsonl", lines)
    refused(("shadows", "train", "--deal", "bad", *ADAPTERS, "--models", "4", "--out", "bank"), (said,))


def test_records_of_classes_take_no_adapters(here: Path):
    sets = ("--query", "digits@train[:900]", "--calibration", "digits@train[900:]", "--images", "8x8")
    refused(("shadows", "train", *sets, *ADAPTERS, "--out", "bank"), ("--recipe lora: is for texts",))


def test_a_folder_with_an_adapter_of_its_own_or_no_tokenizer_is_refused(here: Path):
    save_model(here / "own")
    (here / "own/adapter_config.json").write_text(json.dumps({}))
    train = ("shadows", "train", *SETS, "--drop-overlap", "--recipe", "lora=2", "--out", "bank")
    refused((*train, "--model", "own"), ("is an adapter of another model",))
    (here / "own/adapter_config.json").unlink()
    (here / "own/tokenizer.json").unlink()
    refused((*train, "--model", "own"), ("has no tokenizer.json",))
