"""The process that renders chats by a model's chat template, which is another party's program. It is run as a file.

Jinja's sandbox keeps a template from files and from Python, not from memory and time: `{{ "a" * 10**10 }}` is a lawful
template. So templates run here, in a process whose memory and time the system bounds, and which has nothing but Jinja,
in the environment of `transformers` without its clock and chance (today is `DATE`), one request on its input, and its
output. Every chat must come out as the rendered shape (roles, blanks around contents, tags of thoughts) with its
contents in the places of placeholders: no record is written in another way than others of its shape.
"""

import json
import re
import sys
from collections.abc import Iterator
from datetime import date
from typing import Any

from jinja2 import TemplateError
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

DATE = date(2024, 7, 26)
"""The date that templates without a clock state since Llama 3.1."""
THOUGHT = re.compile(r"(</?think>)")


class _Generation(Extension):
    """`{% generation %}` marks what the assistant says, for training; what is within is rendered."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _PlainNamespace(Namespace):
    """A namespace without names of Python's own."""

    def __setitem__(self, name: str, value: object) -> None:
        if name.startswith("_"):
            raise SecurityError("a name that begins with an underscore")
        super().__setitem__(name, value)


def _namespace(**values: object) -> Namespace:
    space = _PlainNamespace()
    for name, value in values.items():
        space[name] = value
    return space


def _raise(message: object) -> None:
    raise TemplateError


def _as_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def rendered_chats(request: dict[str, Any]) -> Iterator[dict[str, str]]:
    """The chats of a request by its template, each as `prompt` (up to the last message's first character that is no
    blank) and `answer` (the rest without blanks at its end); or, at last, `failed`, a reason of this module. `mark`:
    letters and digits that stand in no chat and not in the template.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _as_json
    del environment.filters["random"], environment.globals["lipsum"]
    environment.globals |= {"raise_exception": _raise, "namespace": _namespace, "dict": lambda **values: dict(**values)}
    if "strftime_now is defined" not in request["template"]:
        environment.globals["strftime_now"] = DATE.strftime
    variables = {**request["variables"], "tools": None, "documents": None, "add_generation_prompt": False}
    number, shapes, mark = 0, dict[str, str](), re.compile(request["mark"] + r"\d{8}")
    try:
        template = environment.from_string(request["template"])
        for number, chat in enumerate(request["chats"], 1):
            shape, contents = _shape(chat, request["mark"])
            if (name := json.dumps(shape)) not in shapes:
                shapes[name] = template.render(messages=shape, **variables)
            before, content, behind = shapes[name].partition(shape[-1]["content"].strip())
            marks = mark.findall(shapes[name])
            parts = before, content + behind
            prompt, answer = (mark.sub(lambda place, of=contents: of[place[0]], part) for part in parts)
            whole, is_once = template.render(messages=chat, **variables), len(marks) == len(set(marks))
            if not (content and is_once) or mark.search(behind) or whole.rstrip() != (prompt + answer).rstrip():
                yield {"failed": f"it does not write the answer of record {number:,} once, last and as it is"}
                return
            yield {"prompt": prompt, "answer": answer.rstrip()}
    except MemoryError:
        yield {"failed": "it takes too much memory"}
    except Exception:
        # What a template says may quote any chat.
        yield {
            "failed": f"it refuses record {number:,}" if number else "it is no template of Jinja, or one with chance"
        }


def _shape(chat: list[dict[str, str]], mark: str) -> tuple[list[dict[str, str]], dict[str, str]]:
    """A chat with placeholders in its contents, and what each placeholder is for."""
    contents, shape = dict[str, str](), list[dict[str, str]]()
    for message in chat:
        parts = THOUGHT.split(message["content"])
        for place, part in enumerate(parts):
            if part.strip() and not THOUGHT.fullmatch(part):
                placeholder = f"{mark}{len(contents):08d}"
                contents[placeholder] = part.strip()
                parts[place] = part.replace(part.strip(), placeholder)
        shape.append({**message, "content": "".join(parts)})
    return shape, contents


def bound_process(memory: int, seconds: int) -> None:
    """Bounds this process, where the system can: bytes of memory, and seconds of computing."""
    try:
        import resource
    except ImportError:  # Windows
        return
    for kind, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_CORE, 0)):
        try:
            resource.setrlimit(kind, (most, most))
        except (ValueError, OSError):  # a lower bound holds
            continue


def answer_request() -> None:
    """Reads the request, whose bounds are the arguments of the process, and writes a line of JSON for each chat."""
    memory, seconds, most = map(int, sys.argv[1:4])
    bound_process(memory, seconds)
    written = 0
    for answer in rendered_chats(json.load(sys.stdin.buffer)):
        line = json.dumps(answer)
        written += len(line)
        if written > most:
            line = json.dumps({"failed": "its texts are too long"})
        print(line)
        if written > most:
            break


if __name__ == "__main__":
    answer_request()
