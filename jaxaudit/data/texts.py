"""Records of text: JSON Lines, one object a line, gzipped or not. No message quotes a text."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from jaxaudit.data.formats.parsing import json_lines
from jaxaudit.data.memory import MAX_BYTES
from jaxaudit.errors import InputError

SETS = ("query", "holdout", "members", "reference")
FORMS = ("prompt", "question", "text")
"""The keys that tell what a line holds: a `prompt` or a `question` and its `answer`, or a `text` alone."""
LONGEST_LINE = 2**20
MOST_LINES = 1_000_000
SHARE = 4
"""Texts take several times the bytes of their file, so a file may unpack to 1 / `SHARE` of what an array may."""
LONGEST_NAME = 200
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT, _NAME = msgspec.json.Decoder(str), msgspec.json.Decoder(str | int)
PARAPHRASED, PERTURBED = "paraphrased_answer", "perturbed_answer"
"""TOFU's keys of a paraphrase of the right answer, and of a list of wrong answers."""
MOST_WRONG = 20
_WRONG = msgspec.json.Decoder(Annotated[list[str], msgspec.Meta(min_length=1, max_length=MOST_WRONG)])


class _Line(msgspec.Struct):
    """The texts of a line; its other values are not unpacked."""

    prompt: str | msgspec.UnsetType = msgspec.UNSET
    question: str | msgspec.UnsetType = msgspec.UNSET
    text: str | msgspec.UnsetType = msgspec.UNSET
    answer: str | msgspec.UnsetType = msgspec.UNSET


_LINE = msgspec.json.Decoder(_Line)
CHATS = {
    "messages": (
        "dict(r, prompt='\\n'.join(m['content'] for m in r['messages'][:-1]), answer=r.pop('messages')[-1]['content'])"
    ),
    "conversations": (
        "dict(r, prompt='\\n'.join(m['value'] for m in r['conversations'][:-1]), "
        "answer=r.pop('conversations')[-1]['value'])"
    ),
    "completion": "dict(r, answer=r.pop('completion'))",
    "response": "dict(r, answer=r.pop('response'))",
    "instruction": (
        "dict(r, prompt=(r.pop('instruction') + '\\n' + r.pop('input', '')).strip(), answer=r.pop('output'))"
    ),
    "content": "dict(r, text=r.pop('content'))",
    "input": "dict(r, text=r.pop('input'))",
}
"""Keys of other forms of texts, and what makes a line `r` of them one that is read here; the first that fits counts."""


class Texts(NamedTuple):
    """The records of a file, in its order.

    Attributes:
        form: `prompt`, `question` or `text`, the same for all.
        prompts: the text before each answer; empty where the form is `text`.
        answers: the answers, or the texts alone.
        lines: each line as it is in the file.
        source: the file's name, for messages.
    """

    form: str
    prompts: tuple[str, ...]
    answers: tuple[str, ...]
    lines: tuple[bytes, ...]
    source: str

    def object(self, row: int) -> dict[str, Any]:
        """A line as an object whose values stay JSON, to write it again with other keys."""
        return _OBJECT.decode(self.lines[row])

    def take(self, rows: Sequence[int]) -> "Texts":
        """These records, in this order."""
        prompts, answers, lines = (tuple(texts_of_kind[row] for row in rows) for texts_of_kind in self[1:4])
        return Texts(self.form, prompts, answers, lines, self.source)  # pyright: ignore[reportArgumentType]

    def objects(self) -> Iterator[dict[str, Any]]:
        """`object` of every line."""
        return map(self.object, range(len(self.lines)))

    def column(self, name: str) -> list[str | int] | None:
        """The value of each line at this key, such as its `group`: an integer or a short text. None if no
        line has it.
        """
        occurrences, values = 0, list[str | int]()
        for row, line_object in enumerate(self.objects(), 1):
            occurrences += name in line_object
            if occurrences not in (0, row):
                raise InputError(f"{self.source}: only some records have the key {name!r}; give it to all or to none.")
            if occurrences:
                value = None
                with suppress(msgspec.MsgspecError, RecursionError, ValueError):
                    value = _NAME.decode(line_object[name])
                if value is None or len(str(value)) > LONGEST_NAME:
                    raise InputError(
                        f"{self.source}: record {row}: its {name!r} is neither an integer nor a text of up to "
                        f"{LONGEST_NAME} characters; give one of these."
                    )
                values.append(value)
        return values if occurrences else None


def read_texts(path: Path) -> Texts:
    """The records of a file of JSON Lines; blank lines are skipped.

    Guarantees: values that are no text of the record are never unpacked, so nested or very many ones take no memory.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "texts.jsonl"
    >>> _ = path.write_text('{"question": "Who?", "answer": "Nobody.", "author": 7}')
    >>> texts = read_texts(path)
    >>> texts.form, texts.prompts, texts.answers, texts.column("author")
    ('question', ('Who?',), ('Nobody.',), [7])

    Raises:
        InputError: the file is damaged, empty, not UTF-8, or larger than this machine's memory allows; a line is
            longer than `LONGEST_LINE`, is no JSON object, has a key twice, or lacks a text; or lines differ in
            their form.
    """
    lines, prompts, answers, form = list[bytes](), list[str](), list[str](), ""
    for number, line in json_lines(path, LONGEST_LINE, MAX_BYTES // SHARE):
        if len(lines) == MOST_LINES:
            raise InputError(f"{path}: has more than {MOST_LINES:,} records; split it into smaller files.")
        where = f"{path}: line {number}"
        line_object = _object(line, where)
        line_form = _form(line_object, line, where)
        if form not in ("", line_form):
            raise InputError(f"{where} has a {line_form!r}, earlier lines a {form!r}; give all lines one form.")
        form = line_form
        lines.append(line)
        prompts.append("" if form == "text" else getattr(line_object, form))
        answers.append(getattr(line_object, "text" if form == "text" else "answer"))
    if not lines:
        raise InputError(f"{path}: is empty; was it written to its end?")
    return Texts(form, tuple(prompts), tuple(answers), tuple(lines), path.name)


def other_answers(texts: Texts) -> Texts | None:
    """The other answers to each question, as TOFU's lines have them: for each record a paraphrase, then wrong answers.

    None if no line has both keys; else all must, with equally many wrong answers.

    >>> line = b'{"question": "Who?", "answer": "A.", "paraphrased_answer": "An A.", "perturbed_answer": ["B.", "C."]}'
    >>> other_answers(Texts("question", ("Who?",), ("A.",), (line,), "t")).answers
    ('An A.', 'B.', 'C.')
    """
    rows = [line_object for line_object in texts.objects() if PARAPHRASED in line_object and PERTURBED in line_object]
    if not rows or texts.form == "text":
        return None
    try:
        answers = [(_TEXT.decode(row[PARAPHRASED]), *_WRONG.decode(row[PERTURBED])) for row in rows]
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError(
            f"{texts.source}: {PARAPHRASED!r} must be a text and {PERTURBED!r} a list of at most {MOST_WRONG} texts."
        ) from error
    count = len(answers[0])
    if len(rows) < len(texts.lines) or any(len(answers_of_text) != count for answers_of_text in answers):
        raise InputError(
            f"{texts.source}: give all records to forget as many of {PERTURBED!r}, and a {PARAPHRASED!r}, or none."
        )
    whole = texts.take([row for row in range(len(rows)) for _ in range(count)])
    return whole._replace(answers=tuple(answer for answers_of_text in answers for answer in answers_of_text))


def _object(line: bytes, where: str) -> _Line:
    try:
        line_object = _LINE.decode(line.decode())
        _refuse_repeated(line, where)
        return line_object
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is not UTF-8; save the file in UTF-8.") from error
    except (msgspec.MsgspecError, RecursionError) as error:
        key = re.search(r"\$\.(\w+)`$", str(error))
        if key and isinstance(error, msgspec.ValidationError):
            raise InputError(f"{where}: its {key[1]!r} is no text; give one string.") from error
        if line.startswith(b"[") and where.endswith(" line 1"):
            advice = _converted("r", "json.load({})")
            raise InputError(f"{where} begins a JSON array, and JSON Lines have one object a line. {advice}") from error
        why = "is nested too deeply" if isinstance(error, RecursionError) else "is not one whole JSON object"
        raise InputError(f"{where} {why}; write JSON Lines: one object a line, with a prompt and an answer.") from error


def _refuse_repeated(line: bytes, where: str) -> None:
    """Refuses an object with a key twice, of which readers take one value or the other; no value is unpacked."""
    values = _OBJECT.decode(line).values()
    # A value that was left out takes its commas with it, and the one before it.
    if _commas(line) != sum(map(_commas, map(bytes, values))) + max(0, len(values) - 1):
        raise InputError(f"{where} has the same key twice; keep one.")


def _commas(text: bytes) -> int:
    return _STRING.sub(b"", text).count(b",")


def _form(line_object: _Line, line: bytes, where: str) -> str:
    forms = [form for form in FORMS if getattr(line_object, form) is not msgspec.UNSET]
    answered = line_object.answer is not msgspec.UNSET
    if len(forms) == 1 and (forms[0] == "text") is not answered:
        return forms[0]
    trouble = f"has {' and '.join(map(repr, forms))}" if forms else "has no 'prompt', 'question' or 'text'"
    if len(forms) == 1:
        trouble = "has a 'text' and an 'answer'" if answered else f"has a {forms[0]!r} without an 'answer'"
    advice = f"{where} {trouble}; give a 'prompt' or 'question' with its 'answer', or a 'text' alone."
    other = next((key for key in CHATS if key in _OBJECT.decode(line)), None)
    if other is not None and not answered and "text" not in forms:
        advice += f" It has {other!r}, as other tools write. {_converted(CHATS[other], 'map(json.loads, {})')}"
    raise InputError(advice)


def _converted(expression: str, read: str) -> str:
    """Advice for an error: a shell command that converts a file of other objects to `texts.jsonl`."""
    rows = read.format("open('FILE', encoding='utf-8')")
    how = ", where the target, too, has line breaks between what precedes an answer" if "\\n" in expression else ""
    return (
        f"This writes texts.jsonl{how}: "
        f'python -c "import json; [print(json.dumps({expression})) for r in {rows}]" > texts.jsonl'
    )
