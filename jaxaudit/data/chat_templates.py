"""Chats as the texts that a model was tuned on, by the chat template of its tokenizer.

A template is rendered in a process of its own (`chat_child.py`). Two processes must write the same: addresses of
objects, which a template can read, differ between them.
"""

import json
import secrets
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from jaxaudit.data import chat_child
from jaxaudit.data.texts import Message
from jaxaudit.errors import InputError

LONGEST_TEMPLATE = 2**20
"""Characters of a chat template; the longest of known models have some ten thousand."""
MEMORY, TIMES = 2**29, 16
"""Bytes that the process may have beside `TIMES` those of its request."""
SECONDS, CHATS_A_SECOND = 20, 200
WAITED = 10
"""Times as long as it may compute the process may take, on a busy machine."""
MOST_WRITTEN = 2**26
"""Bytes that a template may write beside the contents, for all chats together."""


def render_chats(
    template: str, chats: Sequence[Sequence[Message]], tokens: Mapping[str, str], source: str
) -> list[tuple[str, str]]:
    """Renders chats, whose last message is the answer, in a process of its own, with the tokenizer's special `tokens`
    by name. Each comes in two parts: up to the answer's first character but blanks, and the rest without blanks at its
    end. A template is refused that does not write each answer as it is, once and last, writes chats of one shape in
    different ways, or takes too much memory or time. No message quotes a chat or the template.
    """
    request = {
        "template": template,
        "variables": dict(tokens),
        "chats": [[msgspec.structs.asdict(message) for message in chat] for chat in chats],
        "mark": secrets.token_hex(16),
    }
    sent = json.dumps(request).encode()
    seconds = SECONDS + len(chats) // CHATS_A_SECOND
    bounds = MEMORY + TIMES * len(sent), seconds, MOST_WRITTEN + len(sent)
    written = list[bytes]()
    for _ in range(2):
        try:
            child = subprocess.run(
                [sys.executable, "-P", str(Path(chat_child.__file__)), *map(str, bounds)],
                input=sent,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=WAITED * seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise _refused(source, "it takes too much time") from error
        if child.returncode:
            raise _refused(source, "it takes too much memory or time")
        written.append(child.stdout)
    if written[0] != written.pop():
        raise _refused(source, "it writes another text at each call")
    answers = [json.loads(line) for line in written.pop().splitlines()]
    for answer in answers:
        if "failed" in answer:
            raise _refused(source, answer["failed"])
    return [(answer["prompt"], answer["answer"]) for answer in answers]


def _refused(source: str, trouble: str) -> InputError:
    return InputError(
        f"{source}: its chat template cannot be used: {trouble}. Is it the model's own? `template` says another text "
        "before each answer, and leaves the chat template out."
    )
