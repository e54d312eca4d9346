"""Chats from a deal to a table of scores: by the model's own chat template, or by their contents alone."""

import json
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import csv
from support.cli_runs import jaxaudit, refused
from support.language_models import END, SIZE, save_model, write_lines, write_lora

from jaxaudit import read_texts
from jaxaudit.cli.read_sets import tell_of_groups
from jaxaudit.models import LanguageModel, token_scores
from jaxaudit.models.causal import SCORES

SECRET = "Basil of Kuwait"
TEMPLATE = (
    "{% for m in messages %}{{ '[' + m['role'] + ']' + m['content'] + eos_token + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '[assistant]' }}{% endif %}"
)


DEAL = ("--groups", "author", "--members-share", "0.4", "--holdout-share", "0.3", "--seed", "7", "--out", "deal")


def chats(count: int = 48) -> list[dict[str, Any]]:
    return [
        {
            "messages": [
                {"role": "system", "content": "Short."},
                {"role": "user", "content": f"Who {row}?"},
                {"role": "assistant", "content": f"{SECRET} {row}."},
            ],
            "author": f"a{row // 4}",
        }
        for row in range(count)
    ]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_lines("chat.jsonl", chats())
    return tmp_path


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a chat template, and one without."""
    pytest.importorskip("torch", reason="PyTorch is not installed (the torch extra)")
    pytest.importorskip("transformers", reason="transformers is not installed")
    folder = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("tuned", "base")):
        save_model(folder / name, seed=seed)
    (folder / "tuned" / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.mark.outer
@pytest.mark.parametrize("old", [False, True])
def test_a_chat_has_the_tokens_of_apply_chat_template(old: bool, here: Path, models: Path):
    folder = here / "model"
    shutil.copytree(models / "tuned", folder)
    if old:
        (folder / "chat_template.jinja").unlink()
        path = folder / "tokenizer_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": TEMPLATE}))
    theirs = import_module("transformers").AutoTokenizer.from_pretrained(folder)
    texts = read_texts(Path("chat.jsonl"))
    for record, line in zip(LanguageModel(folder).encode_texts(texts), chats(), strict=True):
        whole = theirs.apply_chat_template(line["messages"], return_dict=False)
        prompt = theirs.apply_chat_template(line["messages"][:-1], add_generation_prompt=True, return_dict=False)
        # A line break follows the token that ends the turn.
        assert list(record.tokens) == whole[:-1]
        assert (record.start, record.tokens[-1]) == (len(prompt), theirs.eos_token_id)


@pytest.mark.outer
def test_from_a_deal_to_a_table_of_scores(here: Path, models: Path):
    done = jaxaudit("deal", "chat.jsonl", *DEAL)
    assert (done.code, "the last message of the assistant is the answer" in done.err) == (0, True)
    files = [f"deal/{of}.jsonl" for of in ("query", "holdout", "members")]
    tuned, base = str(models / "tuned"), str(models / "base")
    done = jaxaudit("scores", "lm", tuned, *files, "--baseline", base, "--out", "s.csv")
    assert done.code == 0, done.err
    assert "query.jsonl: taken for the set 'query', after its name" in done.err
    assert "chats are written by the chat template of the tokenizer: tuned" in done.err
    assert "base: no chat template, so chats are read as the contents of their messages" in done.err
    assert SECRET not in done.out + done.err + Path("s.csv").read_text()
    table = csv.read_csv("s.csv").to_pydict()
    assert (len(table["set"]), len(set(table["group"]))) == (48, 12)
    assert list(dict.fromkeys(table["set"])) == ["query", "holdout", "members"]
    sets = [read_texts(Path(name)) for name in files]
    for role, folder in (("target", tuned), ("baseline", base)):
        model = LanguageModel(Path(folder))
        prompts = [f"Short.\n{line.partition('Short.')[2].strip()}\n" for texts in sets for line in texts.prompts]
        answers = [answer for texts in sets for answer in texts.answers]
        if role == "target":
            prompts = [f"[system]Short.{END}\n[user]{prompt[7:-1]}{END}\n[assistant]" for prompt in prompts]
            encoded = model.encode(prompts, [f"{answer}{END}" for answer in answers], special=False)
        else:
            encoded = model.encode(prompts, answers)
        for name, numbers in zip(SCORES, token_scores(model, encoded).values(), strict=True):
            np.testing.assert_allclose(table[f"{role}.{name}"], numbers, rtol=1e-12)
    # With a template of one's own the chat template is left out.
    done = jaxaudit("scores", "lm", tuned, *files, "--template", r"{}\n", "--out", "t.csv")
    assert (done.code, "chat template" in done.err) == (0, False)


def test_large_templates_are_refused(here: Path, models: Path):
    shutil.copytree(models / "tuned", "model")
    Path("model/chat_template.jinja").write_text("a" * (2**20 + 1))
    shutil.copy("chat.jsonl", "query.jsonl")
    words = ("scores", "lm", "model", "query.jsonl", "--out", "s.csv")
    refused(words, ("its chat template is no text of at most 1,048,576 characters",))


def test_an_adapter_is_a_target_without_merging(here: Path, models: Path):
    for rank, name in enumerate(("unlearned", "first", "other"), 2):
        write_lora(here / name, {"transformer.h.1.mlp.c_fc": (SIZE, 4 * SIZE)}, rank, r=rank)
    shutil.copy("chat.jsonl", "query.jsonl")
    base, query = str(models / "base"), ("query.jsonl",)
    roles = ("--before", "first", "--unused", "other", "--baseline", base)
    done = jaxaudit("scores", "lm", base, *query, "--adapter", "unlearned", *roles, "--out", "s.csv")
    assert done.code == 0, done.err
    assert "scored by 4 models" in done.out
    table = csv.read_csv("s.csv").to_pydict()
    texts = read_texts(Path("chat.jsonl"))
    folders = {"target": "unlearned", "before": "first", "unused": "other", "baseline": None}
    for role, adapter in folders.items():
        model = LanguageModel(Path(base), adapter=None if adapter is None else Path(adapter))
        losses = token_scores(model, model.encode_texts(texts))["loss"]
        np.testing.assert_array_equal(table[f"{role}.loss"], losses)
    assert len({table[f"{role}.loss"][0] for role in folders}) == 4
    words = ("scores", "lm", base, *query, "--adapter", "first", "--before", "first", "--out", "t.csv")
    refused(words, ("first is given",))


def test_scores_keep_the_random_numbers_of_a_deal_and_no_other_value(here: Path, models: Path):
    """Only of the files that a record beside them names: any other integer may be a patient's."""
    assert jaxaudit("deal", "chat.jsonl", *DEAL).code == 0
    files, base = [f"deal/{of}.jsonl" for of in ("query", "holdout", "members")], str(models / "base")
    numbers = [json.loads(line)["group"] for name in files for line in Path(name).read_text().splitlines()]

    def groups(out: str) -> list[int]:
        done = jaxaudit("scores", "lm", base, *files, "--out", out)
        assert done.code == 0, done.err
        return csv.read_csv(out).to_pydict()["group"]

    assert groups("home.csv") == numbers
    record = json.loads(Path("deal/deal.json").read_text())
    for out, change in (
        ("other.csv", {"query": {"sha256": "0" * 64}}),
        ("records.csv", {"by_groups": False}),
        ("broken.csv", {"query": [7]}),
    ):
        Path("deal/deal.json").write_text(json.dumps(record | change))
        assert groups(out) == [list(dict.fromkeys(numbers)).index(number) for number in numbers]
    Path("deal/deal.json").unlink()
    assert max(groups("away.csv")) < 12


def test_keys_that_may_be_groups_are_named_and_no_value_of_theirs(here: Path, capsys: pytest.CaptureFixture[str]):
    lines = [
        {**line, "index": row, "kind": "a", "tags": [SECRET], "note": f"{SECRET} {row}"}
        for row, line in enumerate(chats())
    ]
    write_lines("told.jsonl", lines)
    tell_of_groups([read_texts(Path("told.jsonl"))])
    said = capsys.readouterr().err
    assert "no record has a key 'group'" in said
    assert "for several records: author." in said
    assert "--by KEY" in said
    assert SECRET not in said
    assert "a1" not in said
    write_lines("told.jsonl", [{**line, "group": line["author"]} for line in lines])
    tell_of_groups([read_texts(Path("told.jsonl"))])
    assert capsys.readouterr().err == ""
