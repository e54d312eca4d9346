"""Records of text: JSON Lines, one object a line, gzipped or not. No message quotes a text."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from jaxaudit.data.formats.parsing import open_bounded
from jaxaudit.data.memory import MAX_BYTES
from jaxaudit.errors import InputError

SETS = ("query", "holdout", "members", "reference")
FORMS = ("prompt", "question", "text")
"""The keys that tell what a line holds: a `prompt` or a `question` and its `answer`, or a `text` alone."""
LONGEST_LINE = 2**20
"""The most bytes of a line, and"""
MOST_LINES, MOST_KEYS = 1_000_000, 100
"""the most lines of a file, and keys of a line."""
SHARE = 4
"""Texts take several times the bytes of their file, so a file may unpack to 1 / `SHARE` of what an array may."""
LONGEST_NAME = 200
"""The most characters of a group, a pair or an index."""
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT, _NAME = msgspec.json.Decoder(str), msgspec.json.Decoder(str | int)
PARAPHRASED, PERTURBED = "paraphrased_answer", "perturbed_answer"
"""TOFU's keys of a paraphrase of the right answer, and of a list of wrong answers."""
MOST_WRONG = 20
"""The most wrong answers to a question."""
_WRONG = msgspec.json.Decoder(Annotated[list[str], msgspec.Meta(min_length=1, max_length=MOST_WRONG)])


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
        prompts, answers = (tuple(each[row] for row in rows) for each in (self.prompts, self.answers))
        return Texts(self.form, prompts, answers, tuple(self.lines[row] for row in rows), self.source)

    def objects(self) -> Iterator[dict[str, Any]]:
        """`object` of every line."""
        return map(self.object, range(len(self.lines)))

    def column(self, name: str) -> list[str | int] | None:
        """The value of each line at this key, such as its `group`; None if no line has it.

        Raises:
            InputError: a line alone has none, or its value is no short text and no integer.
        """
        found, values = 0, list[str | int]()
        for row, each in enumerate(self.objects(), 1):
            found += name in each
            if found not in (0, row):
                raise InputError(f"{self.source}: only some records have the key {name!r}; give it to all or to none.")
            if found:
                values.append(_named(each[name], f"{self.source}: record {row}", name))
        return values if found else None


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
        InputError: the file is missing, no regular file, damaged, empty, not UTF-8, or larger than this machine's
            memory allows; a line is longer than `LONGEST_LINE`, is no JSON object, or lacks a text; or lines differ in
            their form.
    """
    lines, prompts, answers, form = list[bytes](), list[str](), list[str](), ""
    with open_bounded(path, MAX_BYTES // SHARE) as stream:
        number = 0
        while line := stream.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                raise InputError(
                    f"{path}: line {number} has more than {LONGEST_LINE >> 20} MiB; give one JSON object a line."
                )
            line = (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).strip()
            if not line:
                continue
            if len(lines) == MOST_LINES:
                raise InputError(f"{path}: has more than {MOST_LINES:,} records; split it into smaller files.")
            where = f"{path}: line {number}"
            found = _object(line, where)
            mine = _form(found, where)
            if form not in ("", mine):
                raise InputError(f"{where} has a {mine!r}, earlier lines a {form!r}; give all lines one form.")
            form = mine
            lines.append(line)
            prompts.append("" if form == "text" else _text(found, form, where))
            answers.append(_text(found, "text" if form == "text" else "answer", where))
    if not lines:
        raise InputError(f"{path}: is empty; was it written to its end?")
    return Texts(form, tuple(prompts), tuple(answers), tuple(lines), path.name)


def other_answers(texts: Texts) -> Texts | None:
    """The other answers to each question, as TOFU's lines have them: for each record a paraphrase, then wrong answers.

    None if no line has both keys.

    Raises:
        InputError: some lines alone have them, an answer is no text, or questions have different numbers of wrong ones.

    >>> line = b'{"question": "Who?", "answer": "A.", "paraphrased_answer": "An A.", "perturbed_answer": ["B.", "C."]}'
    >>> other_answers(Texts("question", ("Who?",), ("A.",), (line,), "t")).answers
    ('An A.', 'B.', 'C.')
    """
    rows = [each for each in texts.objects() if PARAPHRASED in each and PERTURBED in each]
    if not rows or texts.form == "text":
        return None
    try:
        answers = [(_TEXT.decode(each[PARAPHRASED]), *_WRONG.decode(each[PERTURBED])) for each in rows]
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError(
            f"{texts.source}: {PARAPHRASED!r} must be a text and {PERTURBED!r} a list of at most {MOST_WRONG} texts."
        ) from error
    count = len(answers[0])
    if len(rows) < len(texts.lines) or any(len(each) != count for each in answers):
        raise InputError(
            f"{texts.source}: give all records to forget as many of {PERTURBED!r}, and a {PARAPHRASED!r}, or none."
        )
    whole = texts.take([row for row in range(len(rows)) for _ in range(count)])
    return whole._replace(answers=tuple(answer for each in answers for answer in each))


def _object(line: bytes, where: str) -> Mapping[str, msgspec.Raw]:
    try:
        found = _OBJECT.decode(line.decode())
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is not UTF-8; save the file in UTF-8.") from error
    except (msgspec.MsgspecError, RecursionError) as error:
        deep = isinstance(error, RecursionError)
        why = "is nested too deeply" if deep else "is not one whole JSON object"
        raise InputError(f"{where} {why}; write JSON Lines: one object a line, with a prompt and an answer.") from error
    if len(found) > MOST_KEYS:
        raise InputError(f"{where} has more than {MOST_KEYS} keys; keep those of a record.")
    return found


def _form(found: Mapping[str, msgspec.Raw], where: str) -> str:
    forms = [form for form in FORMS if form in found]
    if len(forms) != 1:
        what = f"has {' and '.join(map(repr, forms))}" if forms else "has no 'prompt', 'question' or 'text'"
        raise InputError(f"{where} {what}; give a 'prompt' or 'question' with its 'answer', or a 'text' alone.")
    if (forms[0] == "text") is ("answer" in found):
        what = "a 'text' and an 'answer'" if "answer" in found else f"a {forms[0]!r} without an 'answer'"
        raise InputError(f"{where} has {what}; give a 'prompt' or 'question' with its 'answer', or a 'text' alone.")
    return forms[0]


def _text(found: Mapping[str, msgspec.Raw], key: str, where: str) -> str:
    try:
        return _TEXT.decode(found[key])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError(f"{where}: its {key!r} is no text; give one string.") from error


def _named(value: msgspec.Raw, where: str, key: str) -> str | int:
    try:
        name = _NAME.decode(value)
        if len(str(name)) <= LONGEST_NAME:
            return name
    except (msgspec.MsgspecError, RecursionError, ValueError):
        pass
    raise InputError(
        f"{where}: its {key!r} is neither an integer nor a text of up to {LONGEST_NAME} characters; give one of these."
    )
