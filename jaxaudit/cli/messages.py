"""Messages of the library, which name arguments between backticks, in the flags of a command."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

NAMED = re.compile(r"(?<!field )`([a-z][a-z0-9_]*)`")
OTHER_NAMES = {
    "count": "workers",
    "directory": "out",
    "kind": "target_kind",
    "never": "shadow_models",
    "on_holdout": "holdout_target",
    "on_members": "members_target",
    "on_reference": "calibration_target",
    "rates": "leave_one_out",
    "targets": "target",
}
"""Arguments whose option has another name, where a command has none of the argument's own."""
ELSEWHERE = {name: f"--{name} of `jaxaudit shadows plan`" for name in ("coins", "outputs")}
"""Arguments that are an option of another command than those that speak of it."""


def as_flags(message: str, flags: Mapping[str, str]) -> str:
    """The message with each argument, a name between backticks, as its flag.

    Every other word stays as it is, a field of a file, too: names from untrusted files may contain backticks.

    >>> as_flags("give `members` or `half`; `members", {"members": "--members"})
    'give --members or `half`; `members'
    """
    return NAMED.sub(lambda found: flags.get(found[1], found[0]), message)


def flags_of(command: Any, words: Sequence[str]) -> dict[str, str]:
    """The flags, by argument, of the command that these words run; `command` is the whole, as Typer builds it."""
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    options = [each for each in command.params if each.param_type_name == "option"]
    named = {each.opts[0].removeprefix("--").replace("-", "_"): each.opts[0] for each in options}
    named |= {each.name: each.opts[0] for each in options}
    others = {argument: named[option] for argument, option in OTHER_NAMES.items() if option in named}
    return {**ELSEWHERE, **others, **named}
