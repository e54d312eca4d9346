"""Records of text as sequences of tokens of one length, for language models."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxaudit.data.examples import Examples
from jaxaudit.data.paths import read_small
from jaxaudit.data.texts import CHATS, Texts
from jaxaudit.data.tokenizer_files import LARGEST_TOKENIZER, Normalizers, answer_start, calling, pieces, settle
from jaxaudit.errors import InputError

TEMPLATES = {"prompt": "{}", "question": "Question: {}\nAnswer: ", "text": "", **dict.fromkeys(CHATS, "{}\n")}
"""The text before an answer, by the form of the records; that of a chat has the contents of its messages alone."""
CLASS_NAMES = ("text",)
"""Records of text have no classes: all have one label."""
MULTIPLE, POSITIONS, WORDS = 16, 1024, 4096
_WORD = re.compile(r"\w+|[^\w\s]")


class Tokens(NamedTuple):
    """A text as tokens.

    Attributes:
        numbers: of the tokens, from 0.
        ends: for each token, the number of characters of the text up to its last one.
    """

    numbers: list[int]
    ends: list[int]


@dataclass(frozen=True)
class Tokenizer:
    """How texts become tokens.

    Attributes:
        vocabulary: the number of tokens. The last one is the end of a text.
        encode: the tokens of each text, without the end.
    """

    vocabulary: int
    encode: Callable[[Sequence[str]], list[Tokens]]

    @property
    def end(self) -> int:
        """The token at the end of a text; it also stands before the first one, and fills up."""
        return self.vocabulary - 1


def _bytes(texts: Sequence[str]) -> list[Tokens]:
    token_lists = []
    for text in texts:
        letters = [letter.encode("utf-8", "surrogatepass") for letter in text]
        ends = [end for end, letter in enumerate(letters, 1) for _ in letter]
        token_lists.append(Tokens(list(b"".join(letters)), ends))
    return token_lists


BYTES = Tokenizer(257, _bytes)
"""A token a byte of UTF-8."""


def word_tokenizer(sets: Sequence[Texts], words: int = WORDS, template: str | None = None) -> Tokenizer:
    """A token a word or punctuation mark: the most frequent ones of all these records; 0 is any other.

    Frequencies are of all sets together, so the vocabulary does not show which set a record is in. The text before an
    answer counts, with its `template`, as in `sequences`.

    >>> texts = Texts("text", ("",), ("to be, or not to be",), (b"",), "t")
    >>> tokenizer = word_tokenizer([texts], 2)
    >>> tokenizer.vocabulary, tokenizer.encode(["not to be"])
    (4, [Tokens(numbers=[0, 2, 1], ends=[3, 6, 9])])
    """
    if words < 1:
        raise InputError(f"a vocabulary needs at least one word, got {words}; 4,096 is usual.")
    texts = (text for texts_of_set in sets for text in _whole(prompts_of(texts_of_set, template), texts_of_set))
    counts = Counter(word for text in texts for word in _WORD.findall(text))
    common = sorted(counts, key=lambda word: (-counts[word], word))[:words]
    return Tokenizer(len(common) + 2, partial(_words, {word: number for number, word in enumerate(common, 1)}))


def _words(numbers: dict[str, int], texts: Sequence[str]) -> list[Tokens]:
    words = [list(_WORD.finditer(text)) for text in texts]
    return [Tokens([numbers.get(match[0], 0) for match in of], [match.end() for match in of]) for of in words]


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in a `tokenizer.json`, or in the folder of a model with one; its special tokens are not added. It
    needs the package `tokenizers`.

    Guarantees: a text has one encoding. What is random, such as the dropout of merges, is for training, and is off.
    """
    try:
        library = import_module("tokenizers")
    except ImportError as error:
        raise InputError("a tokenizer.json needs the package tokenizers: pip install tokenizers.") from error
    path = path / "tokenizer.json" if path.is_dir() else path
    text = read_small(path, LARGEST_TOKENIZER)
    normalizers = Normalizers(text, str(path))
    normalizers.refuse_growth(normalizers.added)
    with calling(f"{path}: is no tokenizer that can be read", "was it saved by another version?"):
        reader = library.Tokenizer.from_buffer(text)
        reader.no_truncation()
        reader.no_padding()
        vocabulary = max(reader.get_vocab().values()) + 2
    settle(reader, str(path))
    return Tokenizer(vocabulary, partial(_read, reader, normalizers))


def _read(reader: Any, normalizers: Normalizers, texts: Sequence[str]) -> list[Tokens]:
    token_lists = []
    for piece in pieces(texts):
        normalizers.refuse_growth(piece)
        with calling("the tokenizer fails on these texts", "is it the model's own?"):
            encoded = reader.encode_batch(list(piece), add_special_tokens=False)
        token_lists += [Tokens(encoding.ids, [end for _, end in encoding.offsets]) for encoding in encoded]
    return token_lists


def sequences(
    sets: Sequence[Texts],
    tokenizer: Tokenizer = BYTES,
    *,
    positions: int = POSITIONS,
    template: str | None = None,
) -> tuple[Examples, ...]:
    """Sets of texts as `Examples` with `inputs: int32[n, length]`, all of one length, a multiple of 16.

    A record is the end token, the prompt in its template, the answer, and the end token again. A number t from 0 is a
    token that counts: one of the answer, or the end behind it. A negative number is a token that is context alone, and
    does not count: -1 - t stands for token t. So are the prompt, the first end token, and end tokens that fill up. A
    token with characters of prompt and answer, such as a blank and the first word, is the answer's.

    Args:
        sets: the records of each set; the word vocabulary and the length must be of all sets together.
        tokenizer: `BYTES`, `word_tokenizer(sets)` or `read_tokenizer(path)`.
        positions: the most tokens of a record, which the model states.
        template: the text before an answer, with `{}` for the prompt. By default the prompt as it is, and for a
            question `Question: {}`, a line break, `Answer:` and a blank. The contents of the messages of a chat have a
            line break behind each. Texts without a prompt have none.

    >>> texts = Texts("prompt", ("a",), ("bc",), (b"",), "t")
    >>> sequences([texts])[0].inputs[0, :6]
    array([-257,  -98,   98,   99,  256, -257], dtype=int32)
    """
    encoded, end = [], tokenizer.end
    for texts in sets:
        prompts = prompts_of(texts, template)
        prompts_and_tokens = zip(prompts, tokenizer.encode(_whole(prompts, texts)), strict=True)
        encoded.append(
            [
                ([end, *tokens.numbers, end], 1 + (answer_start(tokens.ends, len(prompt)) if prompt else 0))
                for prompt, tokens in prompts_and_tokens
            ]
        )
    return padded(sets, encoded, end, positions)


def padded(
    sets: Sequence[Texts],
    encoded: Sequence[Sequence[tuple[Sequence[int], int]]],
    end: int,
    positions: int | None,
) -> tuple[Examples, ...]:
    """`sequences` of records that are tokens already.

    Args:
        encoded: for each set, each record's tokens, and the index of the first one that counts, which is not 0.
        end: the token that fills up.
        positions: the most tokens of a record; None for no limit.
    """
    empty = sum(not answer.strip() for texts_of_set in sets for answer in texts_of_set.answers)
    empty = empty or sum(start >= len(tokens) for rows in encoded for tokens, start in rows)
    lengths = np.array([len(tokens) for rows in encoded for tokens, _ in rows])
    if empty:
        raise InputError(
            f"{empty:,} of {len(lengths):,} records have no token that counts; are their answers empty? Leave them out."
        )
    positions = positions or int(lengths.max()) + MULTIPLE
    longer = int((lengths > positions).sum())
    if longer:
        raise InputError(
            f"{longer:,} of {len(lengths):,} records have more tokens than the model has positions ({positions:,}), "
            f"the longest {int(lengths.max()):,}; shorten or split these records, use a tokenizer with longer tokens, "
            "or a model with more positions."
        )
    length = min(-(-int(lengths.max()) // MULTIPLE) * MULTIPLE, positions)
    examples_of_sets = []
    for rows, texts in zip(encoded, sets, strict=True):
        inputs = np.full((len(rows), length), ~end, np.int32)
        for row_inputs, (tokens, start) in zip(inputs, rows, strict=True):
            row_inputs[: len(tokens)] = tokens
            row_inputs[:start] = ~row_inputs[:start]
        examples_of_sets.append(Examples(inputs, np.zeros(len(rows), np.int32), CLASS_NAMES, texts.source))
    return tuple(examples_of_sets)


def are_texts(examples: Examples) -> bool:
    """Whether the records are sequences of tokens."""
    return examples.class_names == CLASS_NAMES and examples.inputs.dtype == np.int32


def vocabulary_of(examples: Examples) -> int | None:
    """The number of tokens of a set of `sequences`, which every record's first number tells; None of other records."""
    return -int(examples.inputs[0, 0]) if are_texts(examples) else None


def counted_tokens(examples: Examples) -> np.ndarray:
    """`int[n]`: how many tokens of each record of `sequences` count, which a mean log-likelihood is the mean over."""
    return (examples.inputs[:, 1:] >= 0).sum(axis=1)


def token_counts(examples: Examples, columns: int = 256) -> np.ndarray:
    """`float32[n, columns]`: how many tokens a record has of each remainder by `columns`, its order left out."""
    inputs = examples.inputs
    tokens = np.where(inputs < 0, ~inputs, inputs) % columns
    rows = np.repeat(np.arange(len(inputs)), inputs.shape[1])
    counts = np.bincount(rows * columns + tokens.ravel(), minlength=len(inputs) * columns)
    return counts.reshape(len(inputs), columns).astype(np.float32)


def prompts_of(texts: Texts, template: str | None = None) -> Sequence[str]:
    """The text before each answer, in its template; see `sequences`. Texts without prompts take no template."""
    if texts.form == "text":
        if template is not None:
            raise InputError(
                f"{texts.source}: `template` is for prompts and questions, and its lines have a 'text'; leave it out."
            )
        return texts.prompts
    before = TEMPLATES[texts.form] if template is None else template
    return [before.replace("{}", prompt) for prompt in texts.prompts]


def _whole(prompts: Sequence[str], texts: Texts) -> list[str]:
    return [prompt + answer for prompt, answer in zip(prompts, texts.answers, strict=True)]
