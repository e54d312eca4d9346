"""`jaxaudit ks --challenge`: what the key of a blind challenge stands for among the options. Imports nothing heavy."""

from dataclasses import replace

from jaxaudit.cli.ks.options import KSData, KSOptions, Targets
from jaxaudit.errors import InputError

SETS = ("query", "holdout", "members", "groups", "holdout_groups", "members_groups")
ANSWERS = ("holdout_target", "members_target", "holdout_before")
"""Options that the key of a challenge stands for."""


def opened(options: KSOptions) -> KSOptions:
    """The options with the sets beside the key, and each target's one file of outputs for each of them."""
    path, data, target = options.data.challenge, options.data, options.target
    if path is None:
        return options
    from jaxaudit.data.challenge import read_key
    from jaxaudit.data.groups import COLUMN

    given = {f"--{name.replace('_', '-')}": value for part in (data, target) for name, value in _told(part).items()}
    twice = ", ".join(flag for flag, value in given.items() if value)
    if twice:
        raise InputError(f"--challenge names the sets and splits the outputs on them; leave out {twice}.")
    if not target.target:
        raise InputError("--challenge needs --target: the target's outputs on the challenge, in its order.")
    key = read_key(path)
    known, folder, whole = "members" in key.rows, path.parent, COLUMN if key.groups else None
    if not known and data.calibration is None:
        raise InputError("this challenge has no members, so --challenge needs --calibration, to train shadow models.")
    sets = {role: str(folder / f"{role}.npz") for role in key.rows}
    groups = {"groups": whole, "holdout_groups": whole, "members_groups": whole if known else None}
    answers = {"holdout_target": target.target, "members_target": target.target if known else ()}
    return replace(
        options,
        data=replace(data, **sets, **groups),
        target=replace(target, **answers, holdout_before=target.before),
    )


def as_given(options: KSOptions) -> KSOptions:
    """The options without what a challenge stands for: those of the command that repeats the run."""
    if options.data.challenge is None:
        return options
    return replace(
        options,
        data=replace(options.data, **dict.fromkeys(SETS)),
        target=replace(options.target, **dict.fromkeys(ANSWERS, ())),
    )


def _told(options: KSData | Targets) -> dict[str, object]:
    """The values of the options that a challenge stands for."""
    return {name: getattr(options, name) for name in (*SETS, *ANSWERS) if hasattr(options, name)}
