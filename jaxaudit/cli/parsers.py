"""Parses single values of the command line, and checks combinations. Imports nothing heavy."""

import difflib
import os
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from jaxaudit.data.formats import TABLES
from jaxaudit.errors import InputError, check_ranges

EMBEDDED = ("digits",)
UNTRAINED = "untrained"
WORDS = 4096
TEXTS = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz", ".json", ".json.gz")
"""How names of files of texts end."""
HIGHEST_RANK = 4096
MOST = 1_000_000
"""The largest count that options accept: no machine can do more, so a larger number is a typing error."""
WIDEST = 65_536
SHARES = {
    "fraction": "(0, 1]",
    "members_share": "(0, 1)",
    "withdraw": "(0, 1)",
    "holdout_share": "(0, 1)",
    "learning_rate": "(0, inf)",
}
"""The numbers that these options accept, as an interval."""


def _parts(flag: str, text: str, pattern: str, form: str) -> Sequence[Any]:
    """The groups of the pattern that the whole text matches; else an `InputError` says which form it must have."""
    match = re.fullmatch(pattern, text)
    if not match:
        sign = "=" if flag.startswith("--recipe ") else " "
        raise InputError(f"{flag}{sign}{text} must be {form}.")
    return match.groups()


def parse_images(text: str) -> tuple[tuple[int, int] | None, bool]:
    """(height, width), or None where they stay, and whether images become gray, from `SIZE[,color]`.

    >>> parse_images("28x28"), parse_images("none,color")
    (((28, 28), True), (None, False))
    """
    form = "HEIGHTxWIDTH, such as 28x28, or none to keep the size; and ,color to keep colors"
    pattern = r"(?:none|(?!0+x)(\d{1,4})x(?!0+(?:,|$))(\d{1,4}))(,color)?"
    height, width, color = _parts("--images", text.lower(), pattern, form)
    return (int(height), int(width)) if height else None, not color


def parse_hidden(text: str) -> tuple[int, ...]:
    """Layer sizes, from `512,256,128`; an empty text means no hidden layer."""
    try:
        widths = tuple(int(width) for width in text.split(",") if width.strip())
    except ValueError:
        widths = (0,)
    if any(not 1 <= width <= WIDEST for width in widths):
        raise InputError(
            f"--recipe hidden={text} must be whole numbers from 1 to {WIDEST}, with commas, such as 512,256,128."
        )
    return widths


def parse_workers(text: str) -> tuple[int | None, str | None]:
    """The number of workers, and the cluster (`ray` or `ray://HOST:PORT`) whose they are; None of this machine.

    >>> parse_workers("8"), parse_workers("ray"), parse_workers("4@ray://head:10001")
    ((8, None), (None, 'ray'), (4, 'ray://head:10001'))
    """
    form = (
        "a number of processes, such as 4; or ray, or ray://HOST:PORT with the port of Ray's client server, after a "
        "number of workers and @ if all are too many, such as 4@ray"
    )
    pattern = r"([1-9]\d{0,5})|(?:([1-9]\d{0,5})@)?(ray(?:://[^/:\s]+:\d+)?)"
    count, of_cluster, cluster = _parts("--workers", text, pattern, form)
    count = count or of_cluster
    return int(count) if count else None, cluster


def parse_lora(text: str) -> tuple[int, float, tuple[str, ...]]:
    """The rank of adapters, their scale times the rank, and the names of the layers that have them (none: all), from
    `RANK[:ALPHA[:LAYERS]]`; the alpha may be empty.

    >>> parse_lora("8"), parse_lora("8:4:q_proj,v_proj")
    ((8, 16.0, ()), (8, 4.0, ('q_proj', 'v_proj')))
    """
    rank, _, rest = text.partition(":")
    alpha, _, layers = rest.partition(":")
    with suppress(ValueError):
        rows, scale = int(rank), float(alpha or 2 * int(rank))
        if 1 <= rows <= HIGHEST_RANK and 1e-6 <= scale <= 1e6:
            return rows, scale, tuple(filter(None, map(str.strip, layers.split(","))))
    raise InputError(
        f"--recipe lora={text} must be RANK[:ALPHA[:LAYERS]], such as 8, 8:16 or 8:16:q_proj,v_proj; the rank is from "
        f"1 to {HIGHEST_RANK}, alpha from 1e-6 to 1e6."
    )


def parse_reference(text: str) -> tuple[str, Path | None]:
    """The name and file of reference weights, from NAME=PATH; no file for `untrained`.

    >>> parse_reference("retrained=runs/a.safetensors"), parse_reference("untrained")
    (('retrained', PosixPath('runs/a.safetensors')), ('untrained', None))
    """
    if text == UNTRAINED:
        return text, None
    return _named_path("--reference", text, "NAME=PATH, or untrained")


def parse_outputs(text: str) -> tuple[str, Path]:
    """The name of a method, or of references, and the file of its models' outputs, from METHOD=FILE.npz.

    >>> parse_outputs("scrub=runs/scrub.npz")
    ('scrub', PosixPath('runs/scrub.npz'))
    """
    return _named_path("--outputs", text, "METHOD=FILE.npz, such as scrub=scrub.npz")


def _named_path(flag: str, text: str, form: str) -> tuple[str, Path]:
    name, path = _parts(flag, text, r"([^=]*[^=\s][^=]*)=(.+)", form)
    return name.strip(), Path(os.path.expanduser(path))


def share_check(name: str) -> Callable[[float], None]:
    """A function that refuses a number outside the interval of the option of this name, one of `SHARES`."""
    return lambda share: check_ranges(SHARES[name], **{name: share})


def parse_names(text: str, known_names: Sequence[str], option: str) -> tuple[str, ...]:
    """The names in a list such as `retraining,fisher`, each once, in the same order.

    >>> parse_names("distance, frequency", ("untargeted", "distance", "frequency"), "--attacks")
    ('distance', 'frequency')
    """
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in known_names:
            raise InputError(f"{option}: {name!r} is not known; {nearest(name.lower(), known_names)}")
    if not names:
        raise InputError(f"{option} is empty; choose from {', '.join(known_names)}.")
    return names


def nearest(name: str, known_names: Collection[str]) -> str:
    """What to do about an unknown name, in words: the most similar name, or else all of them."""
    near = difflib.get_close_matches(name, known_names, n=1)
    return f"did you mean {near[0]}?" if near else f"choose from {', '.join(known_names)}."


def groups_place(text: str) -> Path | None:
    """The file that `--groups` names; None if it is the name of an array or column."""
    # Imported here because NumPy takes a tenth of a second.
    from jaxaudit.data.groups import groups_file

    return groups_file(text)


def check_pair(query: str | None, calibration: str | None) -> None:
    """Rejects a query set without a calibration set, unless its other split can be used, and vice versa."""
    if query is None and calibration is not None:
        raise InputError("--calibration needs --query: shadow models are trained on both sets.")
    if query is not None and calibration is None and other_split(query) is None:
        raise InputError(
            "--query needs --calibration: shadow models are trained on both sets. Give data of the same domain with no "
            "record of the query set. `jaxaudit ks` needs none where --deal has a holdout, and --target outputs on it."
        )


def other_split(query: str) -> str | None:
    """The other of a named set's train and test splits, the default calibration set.

    None for anything but a whole split of a set that may have both: a path, an embedded set or a slice has none.

    >>> other_split("mnist"), other_split("mnist@test"), other_split("mnist@train[:100]"), other_split("q.npz")
    ('mnist@test', 'mnist@train', None, None)
    """
    source, _, split = query.rpartition("@") if "@" in query else (query, "", "train")
    other = {"train": "test", "test": "train"}.get(split)
    is_path = os.path.exists(query) or os.path.exists(source) or "." in source or os.sep in source.removeprefix("~")
    return None if not other or is_path or source in EMBEDDED else f"{source}@{other}"


def parse_tokens(text: str) -> int | None:
    """How texts become tokens: the number of words of `words` or `words:NUMBER`; None for `bytes`.

    >>> parse_tokens("words:500"), parse_tokens("bytes")
    (500, None)
    """
    form = "bytes, words, or words:NUMBER such as words:4096"
    (count,) = _parts("--recipe tokens", text, r"bytes|words(?::([1-9]\d{0,5}))?", form)
    return None if text == "bytes" else int(count or WORDS)


def parse_template(text: str) -> str:
    """The text before an answer, with `{}` for the prompt; a backslash and an n are a line break."""
    if text.count("{}") != 1:
        raise InputError(
            "`template` must have {} once, where the prompt or question goes, such as '[INST] {} [/INST]'."
        )
    return text.replace("\\n", "\n")


def is_of_sklearn(name: str | None) -> bool:
    """Whether the value of `--model` names an estimator of the installed scikit-learn, whose parameters are a recipe.

    >>> is_of_sklearn("sklearn.svm:SVC"), is_of_sklearn("sklearn.py:make"), is_of_sklearn("mine.py:make")
    (True, False, False)
    """
    return name is not None and name.startswith("sklearn.") and not name.startswith("sklearn.py:")


def is_table(name: str) -> bool:
    """Whether a set of this name, `PATH[@SPLIT]`, is a table with named columns; an existing path may contain an `@`.

    >>> is_table("a/b.CSV"), is_table("b.csv@train[:9]"), is_table("folder"), is_table("b.npz"), is_table("mnist@test")
    (True, True, False, False, False)
    """
    # Imported here because NumPy takes a tenth of a second.
    from jaxaudit.data.tfds import name_and_split

    return name_and_split(name)[0].lower().endswith(TABLES)


def is_texts(path: str | Path | None) -> bool:
    """Whether the name, if there is any, is that of a file of texts.

    >>> is_texts("a/b.JSONL"), is_texts("b.jsonl.gz"), is_texts("b.csv")
    (True, True, False)
    """
    return str(path).lower().endswith(TEXTS)
