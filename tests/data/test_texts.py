"""Records of text: what is read, what is refused by one error, and that no error quotes a text."""

import gzip
import json
import shlex
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxaudit.data import texts
from jaxaudit.data.texts import LONGEST_LINE, read_texts
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


@given(st.lists(st.fixed_dictionaries({"prompt": st.text(), "answer": st.text(), "group": st.text(max_size=9)})))
def test_what_json_wrote_is_read_again(records: list[dict[str, str]]):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder, "a.jsonl"), records)
        if not records:
            with pytest.raises(InputError, match="is empty"):
                read_texts(path)
            return
        found = read_texts(path)
    assert list(found.prompts) == [each["prompt"] for each in records]
    assert list(found.answers) == [each["answer"] for each in records]
    assert found.column("group") == [each["group"] for each in records]


GOOD = json.dumps(RECORD)
REFUSED = {
    "latin-1": (GOOD.encode() + b"\n" + '{"text": "\u00e9"}'.encode("latin-1"), "line 2 is not UTF-8"),
    "utf-16": (GOOD.encode("utf-16"), "line 1 is not UTF-8"),
    "half a surrogate": ('{"text": "\\ud800 a"}', "line 1 is not one whole"),
    "the other half": ('{"text": "\\udc00 a"}', "line 1 is not one whole"),
    "a text twice": ('{"text": "a", "text": "b"}', "line 1 has the same key twice"),
    "a group twice": ('{"group": [1, 2], "text": "a", "group": {"a": ","}}', "line 1 has the same key twice"),
    "a key twice, in two spellings": ('{"text": "a", "x": 1, "\\u0078": 2}', "line 1 has the same key twice"),
    "no object": (f"{GOOD}\n[1]", "line 2 is not one whole JSON object"),
    "an array of objects": (f"[{GOOD}]", "JSON Lines"),
    "indented": (json.dumps(RECORD, indent=1), "line 1 is not one whole"),
    "two in a line": (GOOD + GOOD, "line 1 is not one whole"),
    "cut": (GOOD[:-3], "line 1 is not one whole"),
    "NaN": ('{"text": "a", "x": NaN}', "line 1 is not one whole"),
    "no answer": ([{"prompt": SECRET}], "a 'prompt' without an 'answer'"),
    "an answer alone": ([{"answer": SECRET}], "has no 'prompt', 'question' or 'text'"),
    "text and answer": ([{"text": SECRET, "answer": SECRET}], "a 'text' and an 'answer'"),
    "two prompts": ([{**RECORD, "prompt": SECRET}], "has 'prompt' and 'question'"),
    "answers": ([{**RECORD, "answer": [SECRET]}], "'answer' is no text"),
    "null": ([{**RECORD, "answer": None}], "'answer' is no text"),
    "mixed": ([RECORD, {"text": SECRET}], "line 2 has a 'text', earlier lines a 'question'"),
    "empty": ("", "is empty"),
    "blank": (" \n\n", "is empty"),
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
    assert len(str(caught.value)) < 300 + len(str(tmp_path))


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = written(tmp_path / "a.jsonl", [RECORD] * 3)
    monkeypatch.setattr(texts, "MOST_LINES", 2)
    with pytest.raises(InputError, match="more than 2 records"):
        read_texts(path)
    monkeypatch.setattr(texts, "MAX_BYTES", 4 * 100)
    with pytest.raises(InputError, match="more than the allowed"):
        read_texts(written(path, gzip.compress(b"\n" * 10**6)))


def test_values_that_are_no_text_of_the_record_take_no_memory(tmp_path: Path):
    line = '{"text": "a", "x": [' + "[]," * (LONGEST_LINE // 4) + "[]]}"
    path = written(tmp_path / "a.jsonl", "\n".join([line] * 10))
    tracemalloc.start()
    found = read_texts(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.answers) == 10
    assert most < 20 * LONGEST_LINE


@pytest.mark.parametrize("value", [None, 1.5, [SECRET], "a" * 201, 10**300, True, {"a": 1}])
def test_a_group_is_an_integer_or_a_short_text(value: Any, tmp_path: Path):
    found = read_texts(written(tmp_path / "a.jsonl", [{**RECORD, "group": 1}, {**RECORD, "group": value}]))
    with pytest.raises(InputError, match="record 2: its 'group' is neither"):
        found.column("group")


def test_a_key_is_of_all_records_or_of_none(tmp_path: Path):
    for records in ([RECORD, {**RECORD, "group": 1}], [{**RECORD, "group": 1}, RECORD]):
        with pytest.raises(InputError, match="only some records have the key 'group'"):
            read_texts(written(tmp_path / "a.jsonl", records)).column("group")
    assert read_texts(written(tmp_path / "a.jsonl", [RECORD])).column("group") is None


MESSAGES = [{"role": "system", "content": "Short."}, {"role": "user", "content": "Who?"}]
ANSWERED = {"prompt": "Who?", "answer": "é."}
OTHER_FORMS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"messages": [*MESSAGES, {"role": "assistant", "content": "é."}]}, {**ANSWERED, "prompt": "Short.\nWho?"}),
    ({"conversations": [{"from": "human", "value": "Who?"}, {"from": "gpt", "value": "é."}]}, ANSWERED),
    ({"prompt": "Who?", "completion": "é."}, ANSWERED),
    ({"question": "Who?", "response": "é."}, {"question": "Who?", "answer": "é."}),
    ({"instruction": "Who?", "output": "é."}, ANSWERED),
    ({"instruction": "Who?", "input": "Her.", "output": "é."}, {**ANSWERED, "prompt": "Who?\nHer."}),
    ({"content": "é."}, {"text": "é."}),
    ({"input": "é.", "label": 1}, {"label": 1, "text": "é."}),
]


@pytest.mark.outer
@pytest.mark.parametrize(("line", "wanted"), OTHER_FORMS, ids=lambda each: "-".join(each))
@pytest.mark.parametrize("array", [False, True])
def test_the_line_that_a_message_shows_writes_what_is_read(
    line: dict[str, Any], wanted: dict[str, Any], array: bool, tmp_path: Path
):
    lines = [{"id": row, **line} for row in range(3)]
    if array:
        written(tmp_path / "FILE", json.dumps(lines, indent=1))
    else:
        written(tmp_path / "FILE", lines)
    for _ in range(1 + array):
        with pytest.raises(InputError) as refused:
            read_texts(tmp_path / "FILE")
        command = str(refused.value).partition(": python ")[2].partition(" > texts.jsonl")[0]
        _, code = shlex.split(command)
        made = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
        written(tmp_path / "FILE", made.stdout)
    assert [json.loads(each) for each in read_texts(tmp_path / "FILE").lines] == [
        {"id": row, **wanted} for row in range(3)
    ]
