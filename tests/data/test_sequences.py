"""Texts as sequences of tokens, and tokenizers that a stranger saved."""

import base64
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.sequences import ANSWERS, PROMPTS, TEXTS

from jaxaudit import sequences
from jaxaudit.data import (
    BYTES,
    Normalizers,
    Texts,
    Tokenizer,
    Tokens,
    answer_start,
    pieces,
    read_tokenizer,
    word_tokenizer,
)
from jaxaudit.errors import InputError


def decoded(record: np.ndarray) -> tuple[bytes, bytes]:
    """The bytes that are context, and those that count."""
    context, counted = ~record[record < 0], record[record >= 0]
    return bytes(context[context < 256].tolist()), bytes(counted[counted < 256].tolist())


def test_the_answer_and_the_end_count_and_nothing_else_does():
    (found,) = sequences([TEXTS])
    assert (found.inputs.dtype, found.name, found.class_names) == (np.int32, "small", ("text",))
    assert found.inputs.shape == (6, 64)
    for record, prompt, answer in zip(found.inputs, PROMPTS, ANSWERS, strict=True):
        assert decoded(record) == (f"Question: {prompt}\nAnswer: ".encode(), answer.encode())
        counted = np.flatnonzero(record >= 0)
        assert (np.diff(counted) == 1).all()
        assert record[counted[-1]] == 256
        assert (record[counted[-1] + 1 :] == -257).all()
        assert record[0] == -257
    (bare,) = sequences([TEXTS], template="{} ")
    assert decoded(bare.inputs[2]) == (b"Why? ", b"Nobody knows.")


def test_texts_alone_count_whole_and_sets_have_one_length():
    alone = Texts("text", ("", ""), ("é", "x" * 40), (b"", b""), "alone")
    whole, other = sequences([alone, TEXTS._replace(form="prompt")])
    assert whole.inputs.shape[1] == other.inputs.shape[1] == 48
    assert whole.inputs[0, :4].tolist() == [-257, 0xC3, 0xA9, 256]
    assert decoded(other.inputs[0]) == (b"Who is Ann?", b"A cook.")


def test_words_are_the_most_frequent_of_all_sets_whatever_their_order():
    other = TEXTS._replace(prompts=PROMPTS[::-1], answers=("Rome",) * 6)
    both, swapped = (word_tokenizer(sets, 9) for sets in ([TEXTS, other], [other, TEXTS]))
    text = ["Rome ? zebra : Question"]
    assert both.encode(text) == swapped.encode(text)
    assert both.vocabulary == 11
    assert both.encode(["zebra"]) == [Tokens([0], [5])]
    assert both.encode(text)[0].numbers.count(0) == 1
    found = sequences([TEXTS, other], both)[0].inputs
    assert found.shape == (6, 32)
    assert set(np.where(found < 0, ~found, found).ravel()) <= set(range(11))
    with pytest.raises(InputError, match="at least one word"):
        word_tokenizer([TEXTS], 0)


def test_records_that_are_too_long_are_counted_and_never_shown():
    with pytest.raises(
        InputError, match=r"^5 of 6 records have more tokens than .* positions \(36\), the longest 53;"
    ) as raised:
        sequences([TEXTS], positions=36)
    assert "Rome" not in str(raised.value)
    assert sequences([TEXTS], positions=53)[0].inputs.shape == (6, 53)


def test_a_tokenizer_of_a_folder(tmp_path: Path):
    tokenizers = pytest.importorskip("tokenizers")
    words = {"[UNK]": 0, "Why": 1, "?": 2, "Nobody": 3, "knows": 4, ".": 7}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.enable_truncation(2)
    made.enable_padding(length=9)
    made.save(str(tmp_path / "tokenizer.json"))
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        found = read_tokenizer(path)
        assert (found.vocabulary, found.end) == (9, 8)
        assert found.encode(["Why? Nobody knows."]) == [Tokens([1, 2, 3, 4, 7], [3, 4, 11, 17, 18])]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"secret": 1}))
    with pytest.raises(InputError, match="is no tokenizer that can be read"):
        read_tokenizer(tmp_path)
    with pytest.raises(InputError, match="No such file"):
        read_tokenizer(tmp_path / "none.json")


def test_bytes_know_every_text():
    assert isinstance(BYTES, Tokenizer)
    assert BYTES.encode(["", "a\ud800"]) == [Tokens([], []), Tokens([ord("a"), 0xED, 0xA0, 0x80], [1, 2, 2, 2])]


def test_a_word_of_prompt_and_answer_is_the_answers():
    texts = Texts("prompt", ("who", "who "), ("knows it", "knows it"), (b"", b""), "joined")
    tokenizer = word_tokenizer([texts], 9)
    joined, apart = sequences([texts], tokenizer)[0].inputs
    both, who = (tokenizer.encode([text])[0].numbers for text in ("whoknows it", "who"))
    assert joined[:4].tolist() == [~tokenizer.end, *both, tokenizer.end]
    assert apart[:2].tolist() == [~tokenizer.end, ~who[0]]


def test_the_first_word_counts_where_a_tokenizer_joins_it_with_the_blank_before_it(tmp_path: Path):
    tokenizers = pytest.importorskip("tokenizers")
    words = {"[UNK]": 0, "Why": 1, "?": 2, " nobody": 3, ".": 4}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(r" ?\w+|\S"), "isolated")
    made.save(str(tmp_path / "tokenizer.json"))
    texts = Texts("prompt", ("Why? ",), ("nobody.",), (b"",), "joined")
    (found,) = sequences([texts], read_tokenizer(tmp_path))
    assert found.inputs[0, :6].tolist() == [~5, ~1, ~2, 3, 4, 5]


tokenizers: Any = pytest.importorskip("tokenizers")

LETTERS = {"a": 0, "b": 1, "ab": 2, "abab": 3, "▁": 4}
MERGES = [("a", "b"), ("ab", "ab")]


def replace(content: str, **pattern: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def saved(folder: Path, dropout: float | None = None, **entries: Any) -> Path:
    """A tokenizer of pairs of letters with these entries."""
    path = folder / "tokenizer.json"
    made = tokenizers.Tokenizer(tokenizers.models.BPE(LETTERS, MERGES, dropout=dropout))
    path.write_text(json.dumps({**json.loads(made.to_str()), **entries}))
    return path


def test_dropout_of_merges_is_off(tmp_path: Path):
    path = saved(tmp_path, 0.5)
    raw = tokenizers.Tokenizer.from_file(str(path))
    assert len({tuple(raw.encode("abab" * 9).ids) for _ in range(9)}) > 1
    found = read_tokenizer(path)
    assert all(found.encode(["abab"]) == [Tokens([3], [4])] for _ in range(20))


def test_a_panic_is_an_error_of_the_input_and_writes_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    regex = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    found = read_tokenizer(saved(tmp_path, pre_tokenizer=regex))
    with pytest.raises(InputError, match="the tokenizer fails on these texts"):
        found.encode(["a" * 60 + "b"] * 4)
    assert capfd.readouterr() == ("", "")
    assert found.encode(["ab"]) == [Tokens([2], [2])]


GROWING = {
    "twice as long, again and again": [replace("aa", String="a")] * 40,
    "by a regular expression": [replace("aa", Regex="a")] * 40,
    "by two rules in turn": [replace("bb", String="a"), replace("aa", String="b")] * 20,
    "by a prefix for each": [{"type": "Sequence", "normalizers": [replace("aaa", String="a")] * 30}],
    "bytes as letters": [{"type": "ByteLevel"}] * 40,
}


@pytest.mark.parametrize("name", GROWING)
def test_texts_do_not_grow_without_bound(name: str, tmp_path: Path):
    path = saved(tmp_path, normalizer={"type": "Sequence", "normalizers": GROWING[name]})
    found = read_tokenizer(path)
    with pytest.raises(InputError, match="many times longer"):
        found.encode(["é" if "bytes" in name else "a"])


def test_the_rules_of_models_pass(tmp_path: Path):
    usual = [
        *({"type": "Replace", "pattern": {"String": each}, "content": '"'} for each in ("``", "''")),
        *({"type": kind} for kind in ("NFKD", "StripAccents", "Lowercase")),
        {"type": "Prepend", "prepend": "▁"},
        replace("▁", String=" "),
        replace("▁", Regex=" {2,}"),
    ]
    found = read_tokenizer(saved(tmp_path, normalizer={"type": "Sequence", "normalizers": usual}))
    assert found.encode(["ab AB"])[0].numbers == [4, 2, 4, 2]
    decoder = {"type": "Sequence", "decoders": [replace(" ", String="▁"), {"type": "ByteFallback"}, {"type": "Fuse"}]}
    assert read_tokenizer(saved(tmp_path, decoder=decoder)).encode(["ab"]) == [Tokens([2], [2])]


@pytest.mark.parametrize(
    "entries",
    [
        {"normalizer": replace("b" * 1000, String="a")},
        {"normalizer": {"type": "Prepend", "prepend": "b" * 1000}},
        {"decoder": {"type": "Sequence", "decoders": [replace("aa", String="a")] * 40}},
    ],
)
def test_rules_that_make_any_text_long_are_refused_at_once(entries: dict[str, Any], tmp_path: Path):
    with pytest.raises(InputError, match="is it the tokenizer that the model was trained with"):
        read_tokenizer(saved(tmp_path, **entries))
    with pytest.raises(InputError, match="is no tokenizer"):
        Normalizers(b"[1", "t")


TEXT, TOKEN = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "b", "type_id": 0}}
TWICE = {"type": "TemplateProcessing", "single": [TEXT, TEXT], "pair": [TEXT], "special_tokens": {}}
SPECIAL = {"b": {"id": "b", "ids": [1], "tokens": ["b"]}}
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def added(*numbers: int) -> list[dict[str, Any]]:
    whether = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return [{"id": number, "content": f"<{number}>", **whether} for number in numbers]


@pytest.mark.parametrize(
    "entries",
    [
        {"post_processor": TWICE},
        {"post_processor": {**TWICE, "single": [TOKEN], "special_tokens": SPECIAL}},
        {"post_processor": {**TWICE, "single": "$A $A"}},
        {"post_processor": {**TWICE, "processors": []}},
        {"post_processor": {name: entry for name, entry in TWICE.items() if name != "type"}},
        {"post_processor": {"type": "Sequence", "processors": [{"type": "Sequence", "processors": [TWICE]}]}},
        {"post_processor": {"type": "Sequence", "processors": [{**TWICE, "single": [TEXT]}] * 2}},
        {"post_processor": {**TWICE, "single": [TEXT, *[TOKEN] * 9], "special_tokens": SPECIAL}},
        {"post_processor": {"type": "Other"}},
        {"model": {"type": "BPE", "vocab": {**LETTERS, "c": 2**31}, "merges": []}},
        {"model": {"type": "BPE", "vocab": {**LETTERS, "c": -1}, "merges": []}},
        {"added_tokens": added(2**31)},
        {"added_tokens": added(*range(5, 20_000))},
    ],
)
def test_rules_that_write_a_text_twice_and_numbers_without_end_are_refused(entries: dict[str, Any], tmp_path: Path):
    with pytest.raises(InputError, match=r"is it the tokenizer that the model was trained with|is no tokenizer"):
        read_tokenizer(saved(tmp_path, **entries))


def test_rules_that_write_a_text_once_pass(tmp_path: Path):
    once = {**TWICE, "single": [TOKEN, TEXT, TOKEN], "special_tokens": SPECIAL}
    roberta = {"type": "RobertaProcessing", "sep": ["b", 1], "cls": ["a", 0], "trim_offsets": True}
    for processor in (once, {"type": "Sequence", "processors": [LEVEL, once]}, roberta | {"add_prefix_space": False}):
        found = read_tokenizer(saved(tmp_path, post_processor=processor, added_tokens=added(*range(5, 9))))
        assert found.encode(["ab"]) == [Tokens([2], [2])]
        assert found.vocabulary == 10


@pytest.mark.parametrize(("size", "refused"), [(33, False), (100, True)])
def test_maps_of_characters_are_read_for_the_longest_text_they_insert(size: int, refused: bool):
    charsmap = base64.b64encode((4).to_bytes(4, "little") + b"trie" + b"a\0" + b"b" * size + b"\0").decode()
    entries = {"normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap}}
    with pytest.raises(InputError, match="inserts 100 bytes") if refused else nullcontext():
        Normalizers(json.dumps(entries), "t").refuse_growth(["a" * 100])


def test_texts_are_encoded_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    texts = ["ab" * (row % 5) for row in range(40)]
    found = read_tokenizer(saved(tmp_path))
    whole = found.encode(texts)
    monkeypatch.setattr("jaxaudit.data.sequences.PIECE", 7)
    cut = list(pieces(texts))
    assert [text for piece in cut for text in piece] == texts
    assert all(len(piece) == 1 or sum(map(len, piece)) <= 7 for piece in cut)
    assert found.encode(texts) == whole
    assert list(pieces([])) == []


def test_an_answer_without_tokens_begins_behind_the_prompt():
    assert answer_start([0, 2, 4, 0, 0], 4) == 3
    assert answer_start([], 0) == 0
