"""The shapes in which tools write a record of text: its keys, and which of their values is the answer.

| keys of a line | who writes so | answer |
|---|---|---|
| `messages`: objects with `role` and `content` | OpenAI, transformers, TRL | the last message of the assistant |
| `conversations`: objects with `from` and `value` | ShareGPT | the same, of `gpt` |
| `prompt` and `completion`, two texts or two lists of messages | TRL | the completion |
| `instruction`, `input` and `output` | Alpaca | the output |
| `prompt` or `question`, and `answer` or `response` | this package, TOFU | the answer |
| `text` | this package | the text |

Nothing is guessed between two shapes: a line with two of them is refused. No message quotes a text.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

LISTS = "prompt of messages"
"""The form of lines whose prompt and completion are lists of messages."""
ANSWERS = {
    "prompt": ("answer", "completion", "response"),
    "question": ("answer", "response"),
    "instruction": ("output", "response"),
}
"""The keys of an answer, by the key of what precedes it."""
MORE = {"instruction": ("input", "context", "system"), "messages": ("system",), "conversations": ("system",)}
"""Further keys whose texts belong to the prompt."""
HEADS: dict[str, tuple[str, ...]] = {"messages": (), "conversations": (), **ANSWERS}
"""The keys of records that have an answer, with those of the answer where it has its own."""
FORMS = (*HEADS, "text")
"""The keys that tell the shape of a line; a line has one."""
CHATS = ("messages", "conversations", LISTS, "instruction")
"""The forms of which a model's chat template makes a text."""
NOT_RENDERED = ("tools", "functions")
"""Keys that some trainers write into the text before a chat."""
ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "assistant": "assistant",
    "system": "system",
    "tool": "tool",
    "observation": "tool",
}
"""The roles of transformers, by the names of ShareGPT's `from`."""
ANSWERING = "assistant"
MOST_MESSAGES, LONGEST_ROLE = 1000, 64
ADVICE = (
    "give 'messages', 'conversations', 'prompt' and 'completion', 'instruction' and 'output', a 'prompt' or 'question' "
    "with its 'answer', or a 'text' alone"
)


class ShapeError(Exception):
    """Why a line is no record, as words that follow a colon; without any text of the line."""


class Message(NamedTuple):
    """A message of a chat, with its role as transformers names it: `system`, `user`, `assistant` or another."""

    role: str
    content: str


class TextRecord(NamedTuple):
    """A record of a line.

    Attributes:
        form: `FORMS` or `LISTS`.
        prompt: the text before the answer; the messages' contents with line breaks between them.
        answer: the answer, or the text alone.
        chat: the messages up to the answer, which is the last one; empty where the form is not of `CHATS`.
        later: the number of messages behind the answer, which nothing uses.
    """

    form: str
    prompt: str
    answer: str
    chat: tuple[Message, ...] = ()
    later: int = 0


class _Part(msgspec.Struct):
    type: str
    text: str | None = None


class _Turn(msgspec.Struct):
    role: str | None = None
    content: str | list[_Part] | None = None
    sender: str | None = msgspec.field(default=None, name="from")
    value: str | None = None


_TEXT = msgspec.json.Decoder(str)
_TURNS = msgspec.json.Decoder(list[_Turn])


def keys_of_form(form: str) -> tuple[str, ...]:
    """The keys of a line that hold texts of the record, or may."""
    head = "prompt" if form == LISTS else form
    return (head, *MORE.get(head, ()), *ANSWERS.get(head, ()))


def shaped_record(line: Mapping[str, msgspec.Raw]) -> TextRecord:
    """The record of a line, whose values are still JSON; a value of null counts as none.

    >>> shaped_record({"instruction": msgspec.Raw(b'"Who?"'), "output": msgspec.Raw(b'"He."')}).prompt
    'Who?'

    Raises:
        ShapeError: the line has no shape, two shapes, no answer, or something else than a text in its place.
    """
    values = {name: value for name, value in line.items() if bytes(value) != b"null"}
    heads = [form for form in FORMS if form in values]
    if len(heads) != 1:
        trouble = f"{' and '.join(map(repr, heads))}, several shapes" if heads else _no_shape(values)
        raise ShapeError(f"{trouble}; {ADVICE}")
    (head,) = heads
    if head not in ANSWERS:
        if "answer" in values:
            raise ShapeError(f"{_article(head)} and an 'answer', of which one would not count")
        if head == "text":
            return TextRecord(head, "", _text(values, head))
        return _of_chat(head, [*_system(values), *_messages(values, head)])
    answers = [name for name in ANSWERS[head] if name in values]
    if len(answers) != 1:
        names = " or ".join(map(repr, ANSWERS[head]))
        raise ShapeError(
            f"{' and '.join(map(repr, answers))}, two answers" if answers else f"{_article(head)} without {names}"
        )
    if head == "prompt" and bytes(values[head]).startswith(b"["):
        prompt, answer = _messages(values, head), _messages(values, answers[0])
        if ANSWERING not in (message.role for message in answer):
            raise ShapeError("no turn of the assistant in the completion, so no answer")
        return _of_chat(LISTS, [*prompt, *answer])
    if head == "instruction":
        if bytes(values.get("history", b"")).strip(b"[] "):
            raise ShapeError("an 'instruction' with a 'history'; write the turns as 'messages'")
        inputs = [name for name in ("input", "context") if name in values]
        user = [_text(values, name) for name in (head, *inputs)]
        whole = Message("user", "\n".join(text for text in user if text.strip()))
        return _of_chat(head, [*_system(values), whole, Message(ANSWERING, _text(values, answers[0]))])
    return TextRecord(head, _text(values, head), _text(values, answers[0]))


def _no_shape(values: Mapping[str, msgspec.Raw]) -> str:
    other = next((name for name in ("content", "input") if name in values), None)
    return "none of the keys of a record" + (f"; if {other!r} is its text, name it 'text'" if other else "")


def _article(name: str) -> str:
    return f"{'an' if name[0] in 'aio' else 'a'} {name!r}"


def _text(values: Mapping[str, msgspec.Raw], name: str) -> str:
    try:
        return _TEXT.decode(values[name])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ShapeError(f"its {name!r} is no text; give one string") from error


def _system(values: Mapping[str, msgspec.Raw]) -> list[Message]:
    text = _text(values, "system") if "system" in values else ""
    return [Message("system", text)] if text.strip() else []


def _messages(values: Mapping[str, msgspec.Raw], name: str) -> list[Message]:
    try:
        turns = _TURNS.decode(values[name])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ShapeError(f"its {name!r} is no list of messages, objects with 'role' and 'content' of text") from error
    if len(turns) > MOST_MESSAGES:
        raise ShapeError(f"its {name!r} has more than {MOST_MESSAGES:,} messages")
    return [_message(turn, name) for turn in turns]


def _message(turn: _Turn, name: str) -> Message:
    role, content = turn.role, turn.content
    if (role is None) is (turn.sender is None):
        raise ShapeError(f"its {name!r} has a message without a 'role' (or 'from'), or with both")
    if role is None:
        role, content = ROLES.get(str(turn.sender).lower()), turn.value
        if role is None:
            raise ShapeError(f"its {name!r} has a 'from' that is none of {', '.join(ROLES)}")
    if isinstance(content, list):
        if any(part.type != "text" for part in content):
            raise ShapeError(f"its {name!r} has a message with a part that is no text, such as an image")
        content = "".join(part.text or "" for part in content)
    if content is None:
        raise ShapeError(f"its {name!r} has a message without text, such as a call of a tool")
    if not role or len(role) > LONGEST_ROLE:
        raise ShapeError(f"its {name!r} has a 'role' that is empty or longer than {LONGEST_ROLE} characters")
    return Message(role, content)


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
