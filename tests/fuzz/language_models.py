"""Readers of folders for `scores lm`: a causal model, its tokenizer and chat template, an adapter, and texts."""

import hashlib
import json
import math
import random
import shutil
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from pyarrow import csv
from support.language_models import LAYERS, save_model, write_lines, write_lora

from fuzz.asked_of_models import ADAPTER, MODEL, OWN_CODE
from fuzz.commands import command, swept
from fuzz.readers import SECRET, Reader
from jaxaudit.data import chat_templates
from jaxaudit.data.paths import read_small
from jaxaudit.errors import InputError

SETS, RECORDS = ("query", "holdout"), 6
TOLERANCE = 1e-4
CHAT = "{% for m in messages %}<{{ m.role }}> {{ m.content }}{{ eos_token if m.role == 'assistant' }}\n{% endfor %}"
OPTIONS: tuple[tuple[str, ...], ...] = (
    (),
    (),
    ("--answer-start", "prompt-tokens"),
    ("--recipe", "template=Q {} A "),
    ("--recipe", "precision=bfloat16"),
    ("--no-words",),
)


def model(folder: Path) -> None:
    save_model(folder / MODEL)
    (folder / MODEL / "modeling_own.py").write_text(OWN_CODE)
    questions(folder)


def questions(folder: Path) -> None:
    """A file of questions for each set, with groups, and what says that they were dealt."""
    for name in SETS:
        lines = [
            {"question": f"{SECRET} {name} {row}?", "answer": f"A {row} {name}", "group": f"{name} {row // 2}"}
            for row in range(RECORDS)
        ]
        write_lines(folder / f"{name}.jsonl", lines)
    sides = {name: {"sha256": hashlib.sha256((folder / f"{name}.jsonl").read_bytes()).hexdigest()} for name in SETS}
    (folder / "deal.json").write_text(json.dumps(sides))


def chats(folder: Path) -> None:
    save_model(folder / MODEL)
    (folder / MODEL / "chat_template.jinja").write_text(CHAT)
    for name in SETS:
        turns = [("user", f"{SECRET} {name}?"), ("assistant", "A "), ("user", "More?"), ("assistant", f"{name} is ")]
        lines = [
            {"messages": [{"role": role, "content": f"{text}{row}"} for role, text in turns]} for row in range(RECORDS)
        ]
        write_lines(folder / f"{name}.jsonl", lines)


def adapted(folder: Path) -> None:
    model(folder)
    write_lora(folder / ADAPTER, LAYERS["gpt2"])


def scored(folder: Path, words: tuple[str, ...], target: str = MODEL) -> dict[str, list[Any]]:
    """The table of scores: finite numbers, and no text of a record."""
    sets = [word for name in SETS for word in (f"--{name}", f"{name}.jsonl")]
    with swept(folder), mock.patch.object(chat_templates, "SECONDS", 1):
        ran = command(folder, ("scores", "lm", target, *sets, *words, "--out", "new.csv"))
        table = (folder / "new.csv").read_bytes()
        assert SECRET not in ran.out + ran.err, "the text of a record was printed"
        assert SECRET.encode() not in table, "the table has the text of a record"
        columns = csv.read_csv(folder / "new.csv").to_pydict()
    losses = columns["target.loss"]
    assert losses
    assert all(math.isfinite(loss) and loss > -TOLERANCE for loss in losses), f"losses {losses[:3]}"
    assert {*columns["set"]} <= {*SETS}
    return columns


def read_model(folder: Path, choose: random.Random) -> object:
    return scored(folder, choose.choice(OPTIONS))["set"]


def read_adapter(folder: Path, choose: random.Random) -> object:
    return scored(folder, ("--adapter", ADAPTER, *choose.choice(OPTIONS[:3])))["set"]


def read_questions(folder: Path, choose: random.Random) -> object:
    """Damaged texts, and a model that is whole: scores that can be recomputed are right."""
    # Beside the input, where nothing looks for what a case leaves.
    whole = folder.parent / "whole"
    if not whole.exists():
        save_model(folder.parent / "whole-draft")
        shutil.move(folder.parent / "whole-draft", whole)
    before = content_of(folder)
    columns = scored(folder, choose.choice(((), ("--no-words",))), str(whole))
    # What changed while it was read has no one right answer.
    for name, content in before.items() if before == content_of(folder) else ():
        losses = np.array([loss for of, loss in zip(columns["set"], columns["target.loss"], strict=True) if of == name])
        for line in content.split(b"\n"):
            expected = loss_of_line(line, whole)
            assert expected is None or np.abs(losses - expected).min() < TOLERANCE, f"no score of {expected}"
    return len(columns["set"])


def content_of(folder: Path) -> dict[str, bytes]:
    """The bytes of the file of each set, as far as there are files of a usual size."""
    contents: dict[str, bytes] = {}
    for name in SETS:
        with suppress(InputError):
            contents[name] = read_small(folder / f"{name}.jsonl", 2**16)
    return contents


_whole: list[Any] = []


def loss_of_line(line: bytes, folder: Path) -> float | None:
    """The loss of an answer by the plain formula; None of a line that is not as the usual ones, or has no token."""
    try:
        record = json.loads(line)
        question, answer = record["question"], record["answer"]
        f"{question}{answer}".encode()
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    torch: Any = import_module("torch")
    transformers: Any = import_module("transformers")
    if not _whole:
        transformers.utils.logging.disable_progress_bar()
        module = transformers.GPT2LMHeadModel.from_pretrained(folder)
        _whole.extend((module.eval(), transformers.AutoTokenizer.from_pretrained(folder)))
    module, tokenizer = _whole
    before = f"Question: {question}\nAnswer: "
    cut = tokenizer(before + answer, return_offsets_mapping=True)
    tokens, ends = cut["input_ids"], [end for _, end in cut["offset_mapping"]]
    first = next((place for place, end in enumerate(ends) if end > len(before)), len(tokens))
    tokens += [] if tokens[-1:] == [tokenizer.eos_token_id] else [tokenizer.eos_token_id]
    if len(tokens) == max(first, 1):
        return None
    with torch.inference_mode():
        log_p = module(torch.tensor([tokens])).logits[0].log_softmax(-1)
    return -float(np.mean([log_p[place - 1, tokens[place]] for place in range(max(first, 1), len(tokens))]))


READERS = (
    [
        Reader("lm-model", model, read_model, 3, writes=True),
        Reader("lm-adapter", adapted, read_adapter, 3, writes=True),
        Reader("lm-chats", chats, read_model, 3, writes=True),
        Reader("lm-questions", questions, read_questions, 3, writes=True),
    ]
    if find_spec("transformers")
    else []
)
