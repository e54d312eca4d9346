"""Texts as sequences of tokens: what counts, how long they are, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.sequences import ANSWERS, PROMPTS, TEXTS

from jaxaudit import sequences
from jaxaudit.data import BYTES, Texts, Tokenizer, Tokens, read_tokenizer, word_tokenizer
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
