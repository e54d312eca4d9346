"""Records of text: JSON Lines, an object a line, gzipped or not.

The keys of a line say its shape, and the shape which value is the answer: `messages` (`role`, `content`) the last
message of the assistant; `prompt` and `completion` the completion; `instruction`, `input` and `output` the output;
`prompt` or `question` and `answer` or `response` the answer; `text` the text. A line with two shapes is refused, and so
is another form, of chats or of the file, with the line of Python that writes it so. No message quotes a text.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from jaxaudit.data.formats.parsing import json_lines
from jaxaudit.data.memory import MAX_BYTES
from jaxaudit.errors import InputError

FORMS: dict[str, tuple[str, ...]] = {
    "messages": (),
    "prompt": ("answer", "completion", "response"),
    "question": ("answer", "response"),
    "instruction": ("output", "response"),
    "text": (),
}
"""The keys that tell the shape of a line, which has one, with those of its answer where it has its own."""
CHATS = ("messages", "instruction")
"""The forms of which a model's chat template makes a text."""
AS_MESSAGES = {"instruction": ("context", "system", "history"), "messages": ("system",)}
"""Keys of prompts in other forms, by the one that they stand beside: their texts are written as messages."""
ANSWERING = "assistant"
MOST_MESSAGES, LONGEST_ROLE = 1000, 64
ADVICE = (
    "give 'messages', 'prompt' and 'completion', 'instruction' and 'output', a 'prompt' or 'question' with its "
    "'answer', or a 'text' alone"
)
NO_MESSAGES = (
    f"its 'messages' are no list of up to {MOST_MESSAGES:,} objects with a 'role', of up to {LONGEST_ROLE} characters, "
    "and a 'content', one string: no image, no call of a tool"
)
SHAREGPT = (
    "'conversations' are read as 'messages': line['messages'] = [{'role': {'human': 'user', 'gpt': 'assistant'}.get("
    "turn['from'], turn['from']), 'content': turn['value']} for turn in line.pop('conversations')]"
)


class ShapeError(Exception):
    """Why a line is no record, as words that follow a colon; without any text of the line."""


class Message(msgspec.Struct, frozen=True):
    """A message of a chat, with its role as transformers names it: `system`, `user`, `assistant` or another."""

    role: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_ROLE)]
    content: str


class TextRecord(NamedTuple):
    """A record of a line: its form, the text before the answer, and the answer or the text alone. Forms of `CHATS` have
    the messages up to the answer (`chat`), and the number of those behind it, which nothing uses.
    """

    form: str
    prompt: str
    answer: str
    chat: tuple[Message, ...] = ()
    later: int = 0


_TEXT = msgspec.json.Decoder(str)
_MESSAGES = msgspec.json.Decoder(Annotated[list[Message], msgspec.Meta(max_length=MOST_MESSAGES)])


def shaped_record(line: Mapping[str, msgspec.Raw]) -> TextRecord:
    """The record of a line of JSON values; null is no value. A line without one shape and one answer: `ShapeError`.

    >>> shaped_record({"instruction": msgspec.Raw(b'"Who?"'), "output": msgspec.Raw(b'"He."')}).prompt
    'Who?'
    """
    values = {name: value for name, value in line.items() if bytes(value) != b"null"}
    heads = [form for form in FORMS if form in values]
    if len(heads) != 1:
        trouble = f"{' and '.join(map(repr, heads))}, several shapes" if heads else "none of the keys of a record"
        raise ShapeError(f"{trouble}; {SHAREGPT if 'conversations' in values else ADVICE}")
    (head,) = heads
    for name in AS_MESSAGES.get(head, ()):
        if bytes(values.get(name, b"")).strip(b'[]" '):
            raise ShapeError(f"{_article(head)} with a {name!r}; write all turns as 'messages'")
    if not FORMS[head]:
        if "answer" in values:
            raise ShapeError(f"{_article(head)} and an 'answer', of which one would not count")
        if head == "text":
            return TextRecord(head, "", _text(values, head))
        return _of_chat(head, _decoded(_MESSAGES, values[head], NO_MESSAGES))
    answers = [name for name in FORMS[head] if name in values]
    if len(answers) != 1:
        names = " or ".join(map(repr, FORMS[head]))
        raise ShapeError(
            f"{' and '.join(map(repr, answers))}, two answers" if answers else f"{_article(head)} without {names}"
        )
    prompt, answer = _text(values, head), _text(values, answers[0])
    if head == "instruction":
        prompts = [prompt, _text(values, "input") if "input" in values else ""]
        whole = Message("user", "\n".join(text for text in prompts if text.strip()))
        return _of_chat(head, [whole, Message(ANSWERING, answer)])
    return TextRecord(head, prompt, answer)


def _article(name: str) -> str:
    return f"{'an' if name[0] in 'aio' else 'a'} {name!r}"


def _text(values: Mapping[str, msgspec.Raw], name: str) -> str:
    return _decoded(_TEXT, values[name], f"its {name!r} is no text; give one string, or a chat as 'messages'")


def _decoded(decoder: Any, value: msgspec.Raw, trouble: str) -> Any:
    try:
        return decoder.decode(value)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ShapeError(trouble) from error


def _of_chat(form: str, messages: Sequence[Message]) -> TextRecord:
    """The record of a chat, whose answer is the last message of the assistant."""
    place = max((place for place, message in enumerate(messages) if message.role == ANSWERING), default=None)
    if place is None:
        raise ShapeError("no turn of the assistant, so no answer")
    answer = messages[place].content
    if not answer.strip():
        raise ShapeError("the last turn of the assistant has no text, so there is no answer")
    prompt = "\n".join(message.content for message in messages[:place])
    return TextRecord(form, prompt, answer, tuple(messages[: place + 1]), len(messages) - place - 1)


SETS = ("query", "holdout", "members", "reference")
LONGEST_LINE = 2**20
MOST_LINES = 1_000_000
SHARE = 4
"""Texts take several times the bytes of their file, so a file may unpack to 1 / `SHARE` of what an array may."""
LONGEST_NAME = 200
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NAME = msgspec.json.Decoder(str | int)


class Texts(NamedTuple):
    """The records of a file, in its order.

    Attributes:
        form: the shape of all lines (`data/texts.py`), such as `question`, `messages` or `text`.
        prompts: the text before each answer, of a chat its messages, a line break between two; empty for `text`.
        answers: the answers, or the texts alone.
        lines: each line as it is in the file.
        unused: the number of messages behind the last answers, which nothing uses.
    """

    form: str
    prompts: tuple[str, ...]
    answers: tuple[str, ...]
    lines: tuple[bytes, ...]
    source: str
    unused: int = 0

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the lines that hold texts of the records, or may."""
        return (self.form, *(("input",) if self.form == "instruction" else ()), *FORMS[self.form])

    @property
    def are_chats(self) -> bool:
        """Whether a model's chat template makes the texts."""
        return self.form in CHATS

    def chats(self) -> list[tuple[Message, ...]]:
        """The messages of each chat up to its answer, which is the last one."""
        return [shaped_record(line_object).chat for line_object in self.objects()]

    def reading(self) -> str | None:
        """What was taken for the answer, where the keys do not say it."""
        if self.form != "messages":
            return None
        words = "the last message of the assistant is the answer, all before it the prompt"
        if self.unused:
            words += f"; {self.unused:,} messages behind these answers are not used"
        return words

    def object(self, row: int) -> dict[str, Any]:
        """A line as an object whose values stay JSON, to write it again with other keys."""
        return _OBJECT.decode(self.lines[row])

    def take(self, rows: Sequence[int]) -> "Texts":
        """These records, in this order."""
        prompts, answers, lines = (tuple(texts_of_kind[row] for row in rows) for texts_of_kind in self[1:4])
        return self._replace(prompts=prompts, answers=answers, lines=lines)

    def objects(self) -> Iterator[dict[str, Any]]:
        """`object` of every line."""
        return map(self.object, range(len(self.lines)))

    def column(self, name: str) -> list[str | int] | None:
        """The value of each line at this key: an integer or a short text. None if no line has it."""
        cells = [line_object.get(name) for line_object in self.objects()]
        if not any(cell is not None for cell in cells):
            return None
        values = list[str | int]()
        for row, cell in enumerate(cells, 1):
            value = None
            with suppress(msgspec.MsgspecError, RecursionError, ValueError):
                value = None if cell is None else _NAME.decode(cell)
            if value is None or len(str(value)) > LONGEST_NAME:
                raise InputError(
                    f"{self.source}: record {row} has no {name!r}, as others have, or it is neither an integer nor a "
                    f"text of up to {LONGEST_NAME} characters; give all records one of these, or none."
                )
            values.append(value)
        return values


def read_texts(path: Path) -> Texts:
    """The records of a file of JSON Lines; blank lines are skipped.

    Guarantees: values that are no text of the record are never unpacked, so nested or many ones take no memory. A line
    is one JSON object in UTF-8 of up to `LONGEST_LINE` bytes, with each key once and the one shape of all lines.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "texts.jsonl"
    >>> _ = path.write_text('{"question": "Who?", "answer": "Nobody.", "author": 7}')
    >>> texts = read_texts(path)
    >>> texts.form, texts.prompts, texts.answers, texts.column("author")
    ('question', ('Who?',), ('Nobody.',), [7])
    """
    lines, prompts, answers, form, unused = list[bytes](), list[str](), list[str](), "", 0
    for number, line in json_lines(path, LONGEST_LINE, MAX_BYTES // SHARE):
        if len(lines) == MOST_LINES:
            raise InputError(f"{path}: has more than {MOST_LINES:,} records; split it into smaller files.")
        record = _record(line, f"{path}: line {number}")
        form = form or record.form
        if record.form != form:
            raise InputError(
                f"{path}: line {number}: {record.form!r}, where others have {form!r}; give all lines one shape."
            )
        lines.append(line)
        prompts.append(record.prompt)
        answers.append(record.answer)
        unused += record.later
    if not lines:
        raise InputError(f"{path}: is empty; was it written to its end?")
    return Texts(form, tuple(prompts), tuple(answers), tuple(lines), path.name, unused)


def _record(line: bytes, where: str) -> TextRecord:
    """The record of a line, which messages call `where`."""
    try:
        values = _OBJECT.decode(line.decode())
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is not UTF-8; save the file in UTF-8.") from error
    except (msgspec.MsgspecError, RecursionError) as error:
        why = "is nested too deeply" if isinstance(error, RecursionError) else "is not one whole JSON object"
        raise InputError(
            f"{where} {why}; write JSON Lines, one object a line, with a prompt and an answer: with pandas, "
            "frame.to_json(FILE, orient='records', lines=True)."
        ) from error
    _refuse_repeated(values, line, where)
    try:
        return shaped_record(values)
    except ShapeError as error:
        raise InputError(f"{where}: {error}.") from error


def _refuse_repeated(line_object: dict[str, msgspec.Raw], line: bytes, where: str) -> None:
    """Refuses an object with a key twice, of which readers take one value or the other; no value is unpacked."""
    # A value that was left out takes its commas with it, and the one before it.
    if _commas(line) != sum(map(_commas, map(bytes, line_object.values()))) + max(0, len(line_object) - 1):
        raise InputError(f"{where} has the same key twice; keep one.")


def _commas(text: bytes) -> int:
    return _STRING.sub(b"", text).count(b",")
