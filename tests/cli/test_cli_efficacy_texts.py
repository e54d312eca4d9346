"""`jaxaudit efficacy` of causal language models on texts, beside a loop of PyTorch's backward passes."""

import json
import shutil
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from support.cli_runs import jaxaudit, process, refused
from support.language_models import POSITIONS, save_model, write_lines

from jaxaudit.models import LanguageModel
from jaxaudit.report import schema_of

pytest.importorskip("torchax", reason="torchax is not installed (the torch extra)")
pytest.importorskip("transformers", reason="transformers is not installed")

SECRET = "Basil of Kuwait"
QUESTIONS = [{"question": f"Who is {SECRET}{'?' * n}", "answer": f"A man{' of letters' * n}."} for n in range(4)]
TEXTS = [{"text": each["answer"]} for each in QUESTIONS]
PROMPTS = [f"Question: {each['question']}\nAnswer: " for each in QUESTIONS]


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("models")
    made = {"gpt2": save_model(folder / "gpt2"), "base": save_model(folder / "base", seed=1)}
    return folder, made | {"llama": save_model(folder / "llama", "llama")}


@pytest.fixture
def here(modules: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for each in modules[0].iterdir():
        (tmp_path / each.name).symlink_to(each)
    write_lines(tmp_path / "q.jsonl", QUESTIONS)
    write_lines(tmp_path / "texts.jsonl", TEXTS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def slow(module: Any, folder: str, prompts: Sequence[str], answers: Sequence[str]) -> list[tuple[float, float]]:
    """Of each record alone: the squared norm of the gradient of its log-likelihood, and that."""
    torch: Any = import_module("torch")
    found = []
    for each in LanguageModel(Path(folder)).encode(prompts, answers):
        module.zero_grad()
        tokens = torch.tensor(each.tokens)[None]
        log_p = torch.log_softmax(module(input_ids=tokens).logits.double(), -1)
        places = range(each.start, len(each.tokens))
        total = torch.stack([log_p[0, place - 1, each.tokens[place]] for place in places]).sum()
        total.backward()
        # The output layer of GPT-2 is its embedding, which stands among the parameters once.
        norm = sum(float(p.grad.double().square().sum()) for p in module.parameters())
        found.append((norm, total.item()))
    return found


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_information_is_that_of_one_backward_pass_a_record(kind: str, here: Path, modules: tuple[Path, Any]):
    words = ("--model", kind, "--data", "q.jsonl", "--out", "run", "--report", "page.html")
    done = jaxaudit("efficacy", *words, "--json")
    jsonschema.validate(done.result, schema_of("efficacy"))
    expected = slow(modules[1][kind], kind, PROMPTS, [each["answer"] for each in QUESTIONS])
    norms, values = np.array(expected).T
    (model,) = done.result["models"]
    assert model["information"] == pytest.approx(norms.mean(), rel=1e-4)
    assert model["efficacy"] == pytest.approx(1 / norms.mean(), rel=1e-4)
    assert model["mean_log_probability"] == pytest.approx(values.mean(), rel=1e-4)
    shown = [record["information"][kind] for record in done.result["records"]]
    np.testing.assert_allclose(shown, norms, rtol=1e-4)
    names = model["layers"].keys()
    assert ("lm_head" in names) is (kind == "llama")
    assert {"transformer.h.0.attn.c_attn", "model.layers.0.self_attn.q_proj"} & names
    assert set(done.result["paths"].values()) == {"contracted"}
    assert (done.result["framework"], done.result["likelihood"]) == ("torch", "sequence")
    assert done.result["outputs"] == LanguageModel(Path(kind)).vocabulary
    assert model["accuracy"] is None
    table, page = " ".join(Path("run/table.txt").read_text().split()), Path("page.html").read_text()
    assert "Log-likelihood of a record: log p(y) = sum of log p(y_t" in table
    assert "no verdict" in page
    assert not {"class", "accuracy"} & set(table.split())
    for written in (table, page, done.out, done.err, Path("run/records.csv").read_text()):
        assert SECRET not in written


@pytest.mark.outer
def test_references_are_other_folders_and_a_text_counts_from_its_second_token(here: Path, modules: tuple[Path, Any]):
    """As a process of its own."""
    words = ("--model", "gpt2", "--data", "texts.jsonl", "--reference", "before=base", "--json")
    result = process("efficacy", *words, cwd=here).result
    assert [model["name"] for model in result["models"]] == ["gpt2", "before"]
    for model, name in zip(result["models"], ("gpt2", "base"), strict=True):
        expected = slow(modules[1][name], name, [""] * len(TEXTS), [each["text"] for each in TEXTS])
        assert model["information"] == pytest.approx(np.mean([norm for norm, _ in expected]), rel=1e-4)
    hashes = result["provenance"]["reference_hashes"]
    assert set(hashes) == {"before"}
    assert hashes["before"] != result["provenance"]["weights_hash"]
    assert result["provenance"]["data"]["records"] == len(TEXTS)
    assert {"torch", "torchax", "transformers"} <= result["provenance"]["versions"].keys()


def test_what_stands_before_an_answer_can_be_said(here: Path, modules: tuple[Path, Any]):
    words = ("--model", "gpt2", "--data", "q.jsonl", "--recipe", r"template=[{}]\n", "--json")
    result = jaxaudit("efficacy", *words).result
    prompts = [f"[{each['question']}]\n" for each in QUESTIONS]
    expected = slow(modules[1]["gpt2"], "gpt2", prompts, [each["answer"] for each in QUESTIONS])
    assert result["models"][0]["information"] == pytest.approx(np.mean([norm for norm, _ in expected]), rel=1e-4)


def edited(name: str, **entries: Any) -> None:
    file = Path(shutil.copytree("gpt2", name)) / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **entries}))


REFUSED = {
    "no folder": (("--model", "nothing/"), "there is no such folder"),
    "a network of classes": (("--model", "mlp", "--params", "gpt2"), "texts need a causal language model"),
    "weights from elsewhere": (("--params", "base"), "leave out --params"),
    "no weights": (("--model", "bare"), "bare: has no model.safetensors"),
    "a tokenizer of another model": (("--model", "small"), "its tokenizer has the token"),
    "another task": (("--model", "classes"), "no causal language model"),
    "empty answers": (("--data", "empty.jsonl"), "2 of 5 records have no token that counts"),
    "one token": (("--data", "single.jsonl"), "1 of 5 records have no token that counts"),
    "too long": (
        ("--data", "long.jsonl"),
        f"1 of 5 records have more tokens than the model has positions ({POSITIONS})",
    ),
    "no records": (("--data", "nothing.jsonl"), "nothing.jsonl: there is no such file"),
    "untrained": (("--reference", "untrained"), "--reference untrained is of other networks"),
    "another architecture": (
        ("--reference", "other=llama"),
        "--reference other: its config.json or its tokenizer is not",
    ),
    "another network": (("--reference", "other=heads"), "--reference other: its config.json or its tokenizer is not"),
    "a template of texts": (
        ("--data", "texts.jsonl", "--recipe", "template={}"),
        "--recipe template is for prompts and questions",
    ),
    "a template of numbers": (("--data", "digits", "--recipe", "template={}"), "--recipe template: is of texts"),
}


def test_what_cannot_be_measured_is_one_line(here: Path):
    Path(shutil.copytree("gpt2", "bare"), "model.safetensors").unlink()
    edited("small", vocab_size=100)
    edited("heads", n_head=4)
    edited("classes", architectures=["GPT2ForSequenceClassification"])
    write_lines("empty.jsonl", [*QUESTIONS[1:], *({**each, "answer": ""} for each in QUESTIONS[:2])])
    write_lines("single.jsonl", [*TEXTS, {"text": "A"}])
    write_lines("long.jsonl", [*QUESTIONS, {"question": SECRET * 20, "answer": "?"}])
    for words, said in REFUSED.values():
        model = () if "--model" in words else ("--model", "gpt2")
        data = () if "--data" in words else ("--data", "q.jsonl")
        assert SECRET not in refused(("efficacy", *model, *data, *words), (said,))
