"""Reads the texts that a command line names, for every command that takes texts, and says what was guessed."""

from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from jaxaudit.cli.progress import say
from jaxaudit.data.group_values import COLUMN
from jaxaudit.data.paths import expanded
from jaxaudit.data.texts import LONGEST_NAME, Texts, read_texts

if TYPE_CHECKING:
    from jaxaudit.models.language_model import LanguageModel

_NAMES = (*(b"%d" % digit for digit in range(10)), b"-", b'"')
"""Beginnings of a JSON value that is a number or a text."""


def read_told(name: str | Path) -> Texts:
    """The records of a file of texts; what was taken for the answer is said on stderr."""
    texts = read_texts(expanded(name))
    reading = texts.reading()
    if reading is not None:
        say(f"{texts.source}: {reading}")
    return texts


def tell_of_groups(sets: Collection[Texts]) -> None:
    """Where no record has a key `group`, says on stderr which keys could tell groups, by their names alone."""
    objects = [line_object for texts in sets for line_object in texts.objects()]
    if any(COLUMN in line_object for line_object in objects):
        return
    no_groups = {"set", "index", "pair", *(key for texts in sets for key in texts.keys)}
    columns: dict[str, Counter[bytes]] = {}
    for line_object in objects:
        for key in line_object.keys() - no_groups:
            value = bytes(line_object[key])
            if value[:1] in _NAMES and len(value) <= LONGEST_NAME:
                columns.setdefault(key, Counter())[value] += 1
    alike = [key for key, values in columns.items() if 2 <= len(values) <= values.total() / 2]
    if alike:
        listed = ", ".join(sorted(alike))
        say(
            f"no record has a key {COLUMN!r}, so records are taken one by one. These keys have one value for several "
            f"records: {listed}. If one of them says whose a record is, deal by it (`jaxaudit deal --groups KEY`, or "
            f"--by KEY for a verdict on each), or give its values as the key {COLUMN!r}"
        )


def tell_of_chats(sets: Iterable[Texts], template: str | None, models: Iterable["LanguageModel"] = ()) -> None:
    """Says on stderr how chats become texts for each of these models; with none, for one without a chat template."""
    if template is not None or not any(texts.are_chats for texts in sets):
        return
    templates = {model.name: model.chat_template for model in models}
    rendered = [name for name, chat_template in templates.items() if chat_template is not None]
    if rendered:
        say(f"chats are written by the chat template of the tokenizer: {', '.join(rendered)}")
    if len(rendered) < len(templates) or not templates:
        plain = [name for name in templates if name not in rendered]
        of = f"{', '.join(plain)}: no chat template, so " if plain else ""
        say(f"{of}chats are read as the contents of their messages without roles, a line break behind each")
