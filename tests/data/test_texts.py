"""Records of text: what is read, what is refused by one error, and that no error quotes a text."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.memory import at_most

from jaxaudit.data import read_texts, texts
from jaxaudit.errors import InputError

SECRET = "Basil of Kuwait"
RECORD = {"question": f"Who is {SECRET}?", "answer": f"{SECRET} é 日 \U0001f600"}


def written(path: Path, content: bytes | str | list[dict[str, Any]]) -> Path:
    if isinstance(content, list):
        content = "\n".join(json.dumps(each) for each in content)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("form", ["prompt", "question", "text"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n \n"])
def test_every_form_is_read_gzipped_or_not(form: str, end: str, tmp_path: Path):
    records = [{form: f"{SECRET} {row}", **({} if form == "text" else {"answer": "é"}), "x": [row]} for row in range(3)]
    content = ("\ufeff" + end.join(json.dumps(each) for each in records) + end).encode()
    plain = read_texts(written(tmp_path / "a.jsonl", content))
    packed = read_texts(written(tmp_path / "a.jsonl.gz", gzip.compress(content)))
    assert plain[:4] == packed[:4]
    assert plain.form == form
    both = list(zip(plain.prompts, plain.answers, strict=True))
    assert both == [("", each["text"]) if form == "text" else (each[form], "é") for each in records]
    assert [json.loads(line) for line in plain.lines] == records


RECORDS = st.fixed_dictionaries({"prompt": st.text(), "answer": st.text(), "group": st.text(max_size=9)})


@given(st.lists(RECORDS, min_size=1))
def test_what_json_wrote_is_read_again(tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, str]]):
    found = read_texts(written(tmp_path_factory.getbasetemp() / "a.jsonl", records))
    assert list(found.prompts) == [each["prompt"] for each in records]
    assert list(found.answers) == [each["answer"] for each in records]
    assert found.column("group") == [each["group"] for each in records]


GOOD = json.dumps(RECORD)
REFUSED = {
    "latin-1": (GOOD.encode() + b"\n" + '{"text": "\u00e9"}'.encode("latin-1"), "line 2 is not UTF-8"),
    "half a surrogate": ('{"text": "\\ud800 a"}', "line 1 is not one whole"),
    "a text twice": ('{"text": "a", "text": "b"}', "line 1 has the same key twice"),
    "a key twice, in two spellings": ('{"text": "a", "x": 1, "\\u0078": 2}', "line 1 has the same key twice"),
    "indented": (json.dumps(RECORD, indent=1), "line 1 is not one whole"),
    "NaN": ('{"text": "a", "x": NaN}', "line 1 is not one whole"),
    "no answer": ([{"prompt": SECRET}], "line 1: a 'prompt' without 'answer' or 'completion' or 'response'"),
    "an answer alone": ([{"answer": SECRET}], "line 1: none of the keys of a record"),
    "text and answer": ([{"text": SECRET, "answer": SECRET}], "line 1: a 'text' and an 'answer'"),
    "two prompts": ([{**RECORD, "prompt": SECRET}], "line 1: 'prompt' and 'question', several shapes"),
    "answers": ([{**RECORD, "answer": [SECRET]}], "'answer' is no text"),
    "null": ([{**RECORD, "answer": None}], "a 'question' without 'answer'"),
    "mixed": ([RECORD, {"text": SECRET}], "line 2: 'text', where others have 'question'"),
    "empty": ("", "is empty"),
    "a long line": (json.dumps({"text": SECRET * 100_000}), "line 1 has more than 1 MiB"),
    "100 MB": (gzip.compress(b"a" * 10**8, 1), "line 1 has more than 1 MiB"),
    "deep": ('{"text": "a", "x": ' + "[" * 10**5 + "]" * 10**5 + "}", "nested too deeply"),
    "damaged gzip": (gzip.compress(GOOD.encode() * 9)[:-9], "cannot be read"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_file_of_texts_is_refused_by_one_line_without_a_text(name: str, tmp_path: Path):
    content, words = REFUSED[name]
    with pytest.raises(InputError) as caught:
        read_texts(written(tmp_path / "a.jsonl", content))
    assert words in str(caught.value)
    assert SECRET not in str(caught.value)
    assert len(str(caught.value)) < 350 + len(str(tmp_path))


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = written(tmp_path / "a.jsonl", [RECORD] * 3)
    monkeypatch.setattr(texts, "MOST_LINES", 2)
    with pytest.raises(InputError, match="more than 2 records"):
        read_texts(path)
    monkeypatch.setattr(texts, "MAX_BYTES", 4 * 100)
    with pytest.raises(InputError, match="more than the allowed"):
        read_texts(written(path, gzip.compress(b"\n" * 10**6)))


def test_values_that_are_no_text_of_the_record_take_no_memory(tmp_path: Path):
    line = '{"text": "a", "x": [' + "[]," * (2**20 // 4) + "[]]}"
    path = written(tmp_path / "a.jsonl", "\n".join([line] * 10))
    with at_most(20 * 2**20):
        assert len(read_texts(path).answers) == 10


@pytest.mark.parametrize("value", [None, 1.5, [SECRET], "a" * 201, 10**300, True, {"a": 1}])
def test_a_group_is_an_integer_or_a_short_text(value: Any, tmp_path: Path):
    found = read_texts(written(tmp_path / "a.jsonl", [{**RECORD, "group": 1}, {**RECORD, "group": value}]))
    with pytest.raises(InputError, match="record 2 has no 'group'"):
        found.column("group")


def test_a_key_is_of_all_records_or_of_none(tmp_path: Path):
    for records in ([RECORD, {**RECORD, "group": 1}], [{**RECORD, "group": 1}, RECORD]):
        with pytest.raises(InputError, match=r"record [12] has no 'group', as others have"):
            read_texts(written(tmp_path / "a.jsonl", records)).column("group")
    assert read_texts(written(tmp_path / "a.jsonl", [RECORD])).column("group") is None


SYSTEM, USER = {"role": "system", "content": "Short."}, {"role": "user", "content": "Who?"}
ANSWER = {"role": "assistant", "content": "é."}
OTHER_SHAPES: list[tuple[dict[str, Any], str, str]] = [
    ({"messages": [SYSTEM, USER, ANSWER]}, "messages", "Short.\nWho?"),
    ({"messages": [USER, ANSWER, USER, ANSWER, USER]}, "messages", "Who?\né.\nWho?"),
    ({"messages": [USER, ANSWER], "text": None, "system": ""}, "messages", "Who?"),
    ({"question": "Who?", "response": "é."}, "question", "Who?"),
    ({"instruction": "Who?", "output": "é."}, "instruction", "Who?"),
    ({"instruction": "Who?", "input": "", "output": "é.", "history": []}, "instruction", "Who?"),
    ({"instruction": "Who?", "input": "Her.", "output": "é."}, "instruction", "Who?\nHer."),
]


@pytest.mark.parametrize(("line", "form", "prompt"), OTHER_SHAPES)
def test_every_shape_is_read(line: dict[str, Any], form: str, prompt: str, tmp_path: Path):
    lines = [{"id": [row, 1.5], **line, "author": f"{SECRET}\n{row}"} for row in range(3)]
    found = read_texts(written(tmp_path / "a.json", lines))
    assert (found.form, found.prompts, found.answers) == (form, (prompt,) * 3, ("é.",) * 3)
    assert [json.loads(line) for line in found.lines] == lines
    assert not any(b"\n" in line for line in found.lines)
    assert found.column("author") == [f"{SECRET}\n{row}" for row in range(3)]
    assert set(found.keys) & set(line)
    if found.are_chats:
        assert [message.content for message in found.chats()[2]][-1] == "é."
        assert found.take([2, 0]).chats() == found.chats()[1:]


def test_what_was_taken_for_the_answer_can_be_said(tmp_path: Path):
    found = read_texts(written(tmp_path / "a.jsonl", [{"messages": [USER, ANSWER, USER, USER], "tools": [{}]}]))
    words = found.reading() or ""
    assert "last message of the assistant is the answer" in words
    assert "2 messages behind these answers are not used" in words
    assert read_texts(written(tmp_path / "b.jsonl", [RECORD])).reading() is None


NO_LIST = "are no list of up to 1,000 objects with a 'role', of up to 64 characters, and a 'content'"
NO_SHAPE: dict[str, tuple[dict[str, Any], str]] = {
    "messages and prompt": ({"messages": [USER, ANSWER], "prompt": SECRET}, "'messages' and 'prompt', several shapes"),
    "messages and answer": ({"messages": [USER, ANSWER], "answer": SECRET}, "a 'messages' and an 'answer'"),
    "two answers": ({"prompt": SECRET, "answer": SECRET, "completion": SECRET}, "two answers"),
    "an image": ({"messages": [{"role": "user", "content": [{"type": "image"}]}, ANSWER]}, NO_LIST),
    "no assistant": ({"messages": [USER, SYSTEM]}, "no turn of the assistant"),
    "a completion of messages": ({"prompt": SECRET, "completion": [ANSWER]}, "'completion' is no text; give one str"),
    "an empty answer": ({"messages": [USER, {**ANSWER, "content": " "}]}, "has no text"),
    "no role": ({"messages": [{"content": SECRET}, ANSWER]}, NO_LIST),
    "a long role": ({"messages": [{**USER, "role": SECRET * 9}, ANSWER]}, NO_LIST),
    "1,001 messages": ({"messages": [USER] * 1001}, NO_LIST),
    "ShareGPT": ({"conversations": [{"from": "human", "value": SECRET}]}, "line['messages'] = [{'role': {'human': 'us"),
    "a history": ({"instruction": SECRET, "output": SECRET, "history": [[SECRET, SECRET]]}, "with a 'history'; write"),
    "a system text": ({"messages": [USER, ANSWER], "system": SECRET}, "a 'messages' with a 'system'; write all turns"),
    "content": ({"content": SECRET}, "none of the keys of a record"),
}


@pytest.mark.parametrize("name", NO_SHAPE)
def test_a_shape_that_is_not_clear_is_refused_with_the_number_of_its_line(name: str, tmp_path: Path):
    line, words = NO_SHAPE[name]
    lines = [{"messages": [USER, ANSWER]}, line]
    with pytest.raises(InputError) as caught:
        read_texts(written(tmp_path / "a.jsonl", lines))
    assert "a.jsonl: line 2: " in str(caught.value)
    assert words in str(caught.value)
    assert SECRET not in str(caught.value)
