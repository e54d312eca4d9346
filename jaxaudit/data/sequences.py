"""Records of text as sequences of tokens of one length, and tokenizers that a stranger saved.

`tokenizers` is written in Rust: a rule of a `tokenizer.json` that makes texts longer can take all memory, where nothing
is raised, and a regular expression that backtracks too long is a panic, which is no `Exception`.
"""

import base64
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from jaxaudit.data.examples import Examples
from jaxaudit.data.formats.parsing import parsing
from jaxaudit.data.paths import read_small
from jaxaudit.data.texts import CHATS, Texts
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

    Frequencies are of all sets together, so the vocabulary does not show which set a record is in. Prompts count, too.

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


def _read(reader: Any, normalizers: "Normalizers", texts: Sequence[str]) -> list[Tokens]:
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
    token that counts: one of the answer, or the end behind it. A negative number, -1 - t, is token t as context alone:
    of the prompt, the first end, and ends that fill up. A token with characters of prompt and answer is the answer's.

    Args:
        sets: the records of each set; the word vocabulary and the length must be of all sets together.
        tokenizer: `BYTES`, `word_tokenizer(sets)` or `read_tokenizer(path)`.
        positions: the most tokens of a record, which the model states.
        template: the text before an answer, with `{}` for the prompt. By default the prompt as it is, and for a
            question `Question: {}`, a line break, `Answer:` and a blank. Messages of a chat end in a line break.

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


def token_counts(examples: Examples) -> np.ndarray:
    """`float32[n, 256]`: how many tokens a record has of each remainder by 256, its order left out."""
    inputs, columns = examples.inputs, 256
    tokens = np.where(inputs < 0, ~inputs, inputs) % columns
    rows = np.repeat(np.arange(len(inputs)), inputs.shape[1])
    counts = np.bincount(rows * columns + tokens.ravel(), minlength=len(inputs) * columns)
    return counts.reshape(len(inputs), columns).astype(np.float32)


def prompts_of(texts: Texts, template: str | None) -> Sequence[str]:
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


LARGEST_TOKENIZER = 256 << 20
MOST_GROWTH = 64
"""How many times longer the rules of a decoder may make a text."""
MOST_INSERTED = 64
"""The most characters that a rule may put in place of others: those of models put one."""
MOST_ADDED = 8
"""The most tokens that a tokenizer may add to a text: those of models add three."""
MOST_OF_ITS_OWN, LARGEST_NUMBER = 2**14, 2**24
"""The most tokens beside those of the model, each sought in every text; and a number that no token reaches, up to which
the library lists all that are missing.
"""
PROCESSORS = ("ByteLevel", "BertProcessing", "RobertaProcessing", "TemplateProcessing")
"""The rules that may stand behind the cut into tokens; all but the first add tokens, and one may."""
PIECE = 1 << 14
"""The characters of texts that are encoded at a time, unless one text has more."""
LONGEST = 1 << 26
"""The most bytes that all rules may possibly make of the texts of a piece."""
_GROWTHS = {"NFC": 3, "NFD": 4, "NFKC": 11, "NFKD": 11, "BertNormalizer": 11, "Lowercase": 2, "ByteLevel": 2}
"""How many times longer a rule makes a text at most, in bytes of UTF-8; others do not, or add a blank a token."""
_INSERTED = {"Replace": "content", "Prepend": "prepend", "Precompiled": "precompiled_charsmap"}


Number = Annotated[int, msgspec.Meta(ge=0, lt=LARGEST_NUMBER)]


class _Model(msgspec.Struct):
    vocab: dict[str, Number] | list[Any] | None = None


class _Added(msgspec.Struct):
    id: Number
    content: str


class _Saved(msgspec.Struct):
    normalizer: Any = None
    decoder: Any = None
    added_tokens: Annotated[list[_Added], msgspec.Meta(max_length=MOST_OF_ITS_OWN)] | None = None
    post_processor: Any = None
    model: _Model | None = None


class Normalizers:
    """The rules that change a text before it is cut into tokens: the most that they multiply its bytes by."""

    def __init__(self, saved: bytes | str, source: str) -> None:
        """Reads them from a `tokenizer.json`; refuses far too many added tokens, a far too large number of one, and a
        rule that makes any text long or writes it more or less than once.
        """
        with parsing(f"{source}: is no tokenizer that can be read", "was it written to its end?"):
            entries = msgspec.json.decode(saved, type=_Saved)
        self._source = source
        kinds = (entries.normalizer, "normalizers"), (entries.decoder, "decoders")
        self._growth, decoding = (math.prod(_growth(rule, source) for rule in _rules(*kind)) for kind in kinds)
        if decoding > MOST_GROWTH:
            raise self._too_long()
        self.added = tuple(token.content for token in entries.added_tokens or ())
        processors = _rules(entries.post_processor, "processors")
        if not all(map(_writes_once, processors)) or sum(rule["type"] != PROCESSORS[0] for rule in processors) > 1:
            raise another_tokenizer(source, "its post_processor does not write each text once beside a few tokens")

    def refuse_growth(self, texts: Iterable[str]) -> None:
        """Refuses texts that may become too long."""
        if self._growth * sum(len(_utf8(text)) for text in texts) > LONGEST:
            raise self._too_long()

    def _too_long(self) -> InputError:
        return another_tokenizer(self._source, "its rules (normalizer or decoder) make texts many times longer")


def another_tokenizer(source: str, trouble: str) -> InputError:
    return InputError(f"{source}: {trouble}; is it the tokenizer that the model was trained with?")


@contextmanager
def calling(complaint: str, advice: str) -> Iterator[None]:
    """`parsing` for the package `tokenizers`, which itself writes panics to standard error and notes to the output."""
    with parsing(complaint, advice), _dropped(sys.stdout, 1), _dropped(sys.stderr, 2):
        yield


def pieces(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """The texts in their order, as many at a time as have `PIECE` characters together, at least one."""
    first = size = 0
    for row, text in enumerate(texts):
        if row > first and size + len(text) > PIECE:
            yield texts[first:row]
            first, size = row, 0
        size += len(text)
    if first < len(texts):
        yield texts[first:]


def settle(tokenizer: Any, source: str) -> tuple[str, ...]:
    """Turns off what is random in a `tokenizers.Tokenizer`, as in a model that is not being trained; says what. One
    that stays random, or adds more than `MOST_ADDED` tokens to a text, is refused.
    """
    model, changed = tokenizer.model, []
    for name in ("dropout", "alpha", "nbest_size"):
        if getattr(model, name, None):
            with parsing(f"{source}: cuts texts at random ({name})", f"delete {name} there"):
                setattr(model, name, None)
            if getattr(tokenizer.model, name, None):
                raise InputError(f"{source}: cuts texts at random ({name}); delete {name} there.")
            changed.append(f"{source}: {name} is for training and was turned off: a text has one encoding here")
    added = tokenizer.num_special_tokens_to_add(False)
    if added > MOST_ADDED:
        raise another_tokenizer(source, f"adds {added:,} tokens to a text, more than {MOST_ADDED}")
    return tuple(changed)


def answer_start(ends: Sequence[int], prompt: int) -> int:
    """The index of the first token of the answer, behind so many characters of the prompt; a token with characters of
    both is the answer's. `ends`: the number of characters up to the end of each token; 0 for a special one.
    """
    first = next((place for place, end in enumerate(ends) if end > prompt), None)
    if first is None:
        return max((place for place, end in enumerate(ends) if end), default=-1) + 1
    return first


def _writes_once(rule: Mapping[str, Any]) -> bool:
    """Whether a rule behind the cut writes a text once: each copy would be scored."""
    if rule.get("type") != "TemplateProcessing":
        return rule.get("type") in PROCESSORS
    parts = rule.get("single")
    return isinstance(parts, list) and sum("SpecialToken" not in part for part in parts) == 1


def _rules(entry: Any, name: str) -> list[Mapping[str, Any]]:
    """The rules of an entry, which may be sequences of others."""
    waiting, rules = [entry], list[Mapping[str, Any]]()
    while waiting:
        rule = waiting.pop()
        if not isinstance(rule, Mapping):
            continue
        inner = rule.get(name)
        if isinstance(inner, list):
            waiting.extend(reversed(inner))
        # The type decides what a rule is, whatever else it has.
        if rule.get("type") != "Sequence":
            rules.append(rule)
    return rules


def _growth(rule: Mapping[str, Any], source: str) -> int:
    """The most that a rule multiplies the bytes of a text by."""
    kind = rule.get("type")
    inserted, pattern = rule.get(_INSERTED.get(str(kind), "")), rule.get("pattern")
    if not isinstance(inserted, str):
        return _GROWTHS.get(str(kind), 1)
    size = _longest_of_map(inserted) if kind == "Precompiled" else len(_utf8(inserted))
    if size > MOST_INSERTED:
        raise another_tokenizer(source, f"has a rule that inserts {size:,} bytes, more than {MOST_INSERTED}")
    replaced = pattern.get("String") if isinstance(pattern, Mapping) else None
    if kind == "Replace" and isinstance(replaced, str) and replaced:
        return max(1, -(-size // len(_utf8(replaced))))
    # A regular expression may match the empty text, before each character.
    return 1 + size


def _longest_of_map(charsmap: str) -> int:
    """The most bytes that a SentencePiece map (its size, a trie, texts that end in NUL) puts for a character."""
    data = b""
    with suppress(ValueError):
        data = base64.b64decode(charsmap)
    return max(map(len, data[4 + int.from_bytes(data[:4], "little") :].split(b"\0")))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def strings_of(node: Any) -> Iterator[str]:
    """The texts in a JSON document, at any depth, and the names of entries."""
    waiting = [node]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            waiting.extend((*value, *value.values()))
        elif isinstance(value, list):
            waiting.extend(value)


@contextmanager
def _dropped(stream: Any, number: int) -> Iterator[None]:
    """Drops what any language writes meanwhile to the file of this number, which is behind this stream."""
    try:
        stream.flush()
        usual = os.dup(number)
    except (OSError, ValueError, AttributeError):  # there is none
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, number)
        yield
    finally:
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
        os.dup2(usual, number)
        os.close(usual)
        os.close(nowhere)
