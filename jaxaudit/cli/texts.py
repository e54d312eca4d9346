"""Reads the texts that a command line names, for every command that takes texts, and says what was guessed."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from jaxaudit.cli.progress import say
from jaxaudit.data.paths import expanded
from jaxaudit.data.texts import Texts, read_texts

if TYPE_CHECKING:
    from jaxaudit.models.language_model import LanguageModel


def read_told(name: str | Path) -> Texts:
    """The records of a file of texts; what was taken for the answer is said on stderr."""
    texts = read_texts(expanded(name))
    reading = texts.reading()
    if reading is not None:
        say(f"{texts.source}: {reading}")
    return texts


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
