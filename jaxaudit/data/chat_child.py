"""The process that renders chats by a model's chat template, which is another party's program.

Jinja's sandbox keeps a template from files and from Python, not from memory and time: `{{ "a" * 10**10 }}` and two
nested loops are lawful templates. So templates run here, in a process whose memory and time the system bounds, and
which has nothing but Jinja, one request on its standard input, and its standard output. The environment is that of
`transformers`: an immutable sandbox that trims blocks, `break` and `continue`, `{% generation %}`, and a `tojson` that
escapes no HTML. There is no clock: a template that insists on today's date gets `DATE`.

It is run as a file, and imports no module of this package.
"""

import json
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
    raise TemplateError(str(message))


def _as_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def rendered_chats(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The chats of a request by its template.

    Args:
        request: `template`; `variables`, further names that it knows; `chats`, lists of messages with `role` and
            `content`; `mark`, a text that stands in no chat.

    Yields:
        for each chat `whole`, its text, and `marked`, the same with the mark behind the last message's content. Or, as
        the last item, `refused`, the template's or Jinja's reason, or `failed`, a reason of this module.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _as_json
    environment.globals |= {"raise_exception": _raise, "namespace": _namespace, "dict": lambda **values: dict(**values)}
    if "strftime_now is defined" not in request["template"]:
        environment.globals["strftime_now"] = DATE.strftime
    try:
        template = environment.from_string(request["template"])
        for chat in request["chats"]:
            last = chat[-1]
            marked = [*chat[:-1], {**last, "content": last["content"] + request["mark"]}]
            whole_and_marked = (
                template.render(
                    messages=messages,
                    tools=None,
                    documents=None,
                    add_generation_prompt=False,
                    **request["variables"],
                )
                for messages in (chat, marked)
            )
            yield dict(zip(("whole", "marked"), whole_and_marked, strict=True))
    except MemoryError:
        yield {"failed": "it takes too much memory"}
    except Exception as error:
        yield {"refused": str(error) if isinstance(error, TemplateError) else type(error).__name__}


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
        sys.stdout.write(line + "\n")
        if written > most:
            break
    sys.stdout.flush()


if __name__ == "__main__":
    answer_request()
