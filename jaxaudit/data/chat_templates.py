"""Chats as the texts that a model was tuned on, by the chat template of its tokenizer.

A template is another party's program in Jinja's language, and is rendered in a process of its own
(`data/chat_child.py`), whose memory, time and output are bounded. The answer is found by a mark behind it: a template
may write the answer's words elsewhere, too.
"""

import json
import secrets
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxaudit.data import chat_child
from jaxaudit.data.text_shapes import Message
from jaxaudit.errors import InputError

LONGEST_TEMPLATE = 2**20
"""Characters of a chat template; the longest of known models have some ten thousand."""
MEMORY, TIMES = 2**30, 16
"""Bytes that the process may have beside `TIMES` those of its request."""
SECONDS, CHATS_A_SECOND = 20, 200
WAITED = 10
"""Times as long as it may compute the process may take, on a busy machine."""
LONGER, EACH = 8, 2**16
"""Times the bytes of the request that the texts may have, and bytes for each chat beside them."""


class RenderedChat(NamedTuple):
    """A chat as a text in two parts.

    Attributes:
        prompt: the text up to the first character of the answer that is no blank.
        answer: the answer, and what the template puts behind it, such as the token that ends a turn, without blanks.
    """

    prompt: str
    answer: str


def render_chats(
    template: str, chats: Sequence[Sequence[Message]], tokens: Mapping[str, str], source: str
) -> list[RenderedChat]:
    """Renders chats, whose last message is the answer, in a process of its own.

    Args:
        template: of a tokenizer.
        chats: the messages of each.
        tokens: the tokenizer's special tokens by their names, such as `bos_token`, which templates write.
        source: the tokenizer's folder, for messages.

    Raises:
        InputError: the template is no program that Jinja accepts, refuses a chat, does not write each answer as it is,
            or takes too much memory or time. The message quotes no chat.
    """
    request = render_request(template, chats, tokens)
    sent = json.dumps(request).encode()
    most = LONGER * len(sent) + EACH * len(chats)
    seconds = SECONDS + len(chats) // CHATS_A_SECOND
    bounds = MEMORY + TIMES * len(sent), seconds, most
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
    return split_chats(request, map(json.loads, child.stdout.splitlines()), source)


def render_request(template: str, chats: Sequence[Sequence[Message]], tokens: Mapping[str, str]) -> dict[str, Any]:
    """What `chat_child.rendered_chats` is asked."""
    return {
        "template": template,
        "variables": dict(tokens),
        "chats": [[message._asdict() for message in chat] for chat in chats],
        "mark": f"<{secrets.token_hex(16)}>",
    }


def split_chats(request: Mapping[str, Any], answers: Iterable[Mapping[str, str]], source: str) -> list[RenderedChat]:
    """The prompt and the answer of each chat, of what `chat_child.rendered_chats` yields for this request."""
    rendered = list[RenderedChat]()
    for number, (chat, texts) in enumerate(zip(request["chats"], answers, strict=True), 1):
        if "failed" in texts:
            raise _refused(source, texts["failed"])
        if "refused" in texts:
            # A template may quote the chat; words that stand in the template are its own.
            reason = texts["refused"] if texts["refused"] in request["template"] else ""
            raise _refused(source, f"it refuses record {number:,}{f' ({reason[:200]})' if reason else ''}")
        # Blanks around an answer are kept by some templates, and by others not.
        answer, (before, mark, _) = chat[-1]["content"].lstrip(), texts["marked"].partition(request["mark"])
        prompt, whole = before.removesuffix(answer), texts["whole"]
        if prompt == before or not mark or not whole.startswith(prompt + answer.rstrip()):
            raise _refused(source, f"it does not write the answer of record {number:,} as it is")
        rendered.append(RenderedChat(prompt, whole[len(prompt) :].rstrip()))
    return rendered


def _refused(source: str, trouble: str) -> InputError:
    return InputError(
        f"{source}: its chat template cannot be used: {trouble}. Is it the model's own? `template` says another text "
        "before each answer, and leaves the chat template out."
    )
