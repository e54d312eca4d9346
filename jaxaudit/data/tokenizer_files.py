"""Tokenizers that a stranger saved: no text may grow without bound, no encoding is random, no panic ends the program.

The package `tokenizers` is written in Rust. A rule of a `tokenizer.json` that makes texts longer can take all memory,
where nothing is raised, and a regular expression that backtracks too long is a panic, which is no `Exception`.
"""

import base64
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Annotated, Any

import msgspec

from jaxaudit.data.formats.parsing import parsing
from jaxaudit.errors import InputError

LARGEST_TOKENIZER = 256 << 20
MOST_GROWTH = 64
"""How many times longer a tokenizer may make a text without being tried on it first."""
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
PIECE = 1 << 20
"""The characters of texts that are encoded at a time, unless one text has more."""
TIMES_LONGER = 8
"""How many times longer all rules may make the texts of a piece in fact, beyond one more piece."""
LONGEST = 64 * PIECE
"""The most bytes that a rule may possibly make of a text."""
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
    """The rules that change a text before it is cut into tokens, each with the most that it multiplies bytes by."""

    def __init__(self, saved: bytes | str, source: str) -> None:
        """Reads them from a `tokenizer.json`; refuses far too many added tokens, a far too large number of one, and a
        rule that makes any text long or writes it more or less than once.
        """
        with parsing(f"{source}: is no tokenizer that can be read", "was it written to its end?"):
            entries = msgspec.json.decode(saved, type=_Saved)
        self._source = source
        self._steps = [(_growth(step, source), step) for step in _rules(entries.normalizer, "normalizers")]
        decoders = _product(_growth(step, source) for step in _rules(entries.decoder, "decoders"))
        if decoders > MOST_GROWTH:
            raise self._too_long()
        self.added = tuple(token.content for token in entries.added_tokens or ())
        processors = _rules(entries.post_processor, "processors")
        if not all(map(_writes_once, processors)) or sum(rule["type"] != PROCESSORS[0] for rule in processors) > 1:
            raise another_tokenizer(source, "its post_processor does not write each text once beside a few tokens")

    def refuse_growth(self, texts: Iterable[str]) -> None:
        """Refuses texts that become too long; they are changed a rule at a time, if all rules together could do so."""
        if _product(growth for growth, _ in self._steps) <= MOST_GROWTH:
            return
        rules = [(growth, _as_function(step)) for growth, step in self._steps]
        texts, total = list(texts), 0
        most = TIMES_LONGER * sum(map(len, texts)) + PIECE
        for text in texts:
            longest = 0
            for growth, change in rules:
                if growth * len(_utf8(text)) > LONGEST:
                    raise self._too_long()
                with calling(f"{self._source}: its normalizer fails on these texts", "is it the model's own?"):
                    text = change(text)
                longest = max(longest, len(text))
                if total + longest > most:
                    raise self._too_long()
            total += longest

    def _too_long(self) -> InputError:
        return another_tokenizer(self._source, "its rules (normalizer or decoder) make texts many times longer")


def another_tokenizer(source: str, trouble: str) -> InputError:
    return InputError(f"{source}: {trouble}; is it the tokenizer that the model was trained with?")


@contextmanager
def calling(complaint: str, advice: str) -> Iterator[None]:
    """`parsing` for the package `tokenizers`, which itself writes panics to standard error and notes to the output."""
    with parsing(complaint, advice), _silent():
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
    """The most bytes that a SentencePiece map (a trie behind its size, then texts that end in NUL) puts for a
    character.
    """
    data = b""
    with suppress(ValueError):
        data = base64.b64decode(charsmap)
    return max(map(len, data[4 + int.from_bytes(data[:4], "little") :].split(b"\0")))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _product(growths: Iterable[int]) -> int:
    product = 1
    for growth in growths:
        product *= growth
    return product


def _as_function(step: Mapping[str, Any]) -> Callable[[str], str]:
    model = {"type": "WordLevel", "vocab": {}, "unk_token": ""}
    with calling("this normalizer cannot be read", "was the tokenizer saved by another version?"):
        whole = json.dumps({"version": "1.0", "added_tokens": [], "normalizer": step, "model": model})
        return import_module("tokenizers").Tokenizer.from_str(whole).normalizer.normalize_str


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
def _silent() -> Iterator[None]:
    """Drops what any language writes to standard output and standard error meanwhile."""
    with _dropped(sys.stdout, 1), _dropped(sys.stderr, 2):
        yield


@contextmanager
def _dropped(stream: Any, number: int) -> Iterator[None]:
    """Drops what is written to the file of this number, which is behind this stream."""
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
