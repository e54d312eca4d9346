"""Reads sets of texts as sequences of tokens of one length, and the groups of records that a command line names."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Shaped

from jaxaudit.cli.parsers import TEXTS, is_texts, parse_tokens
from jaxaudit.data import Examples
from jaxaudit.data.groups import groups_file, load_groups
from jaxaudit.data.paths import expanded
from jaxaudit.data.sequences import BYTES, padded, prompts_of, sequences, word_tokenizer
from jaxaudit.data.texts import read_texts
from jaxaudit.errors import InputError

if TYPE_CHECKING:
    from jaxaudit.models.adapters import Adapters


def text_reader(
    names: Sequence[str], tokens: str | None, adapters: "Adapters | None" = None
) -> Callable[[str], Examples] | None:
    """A function that returns the texts of a file as sequences of one length; None if the sets are no texts.

    Args:
        names: of all sets, since the word vocabulary and the length are of all of them.
        tokens: as for `--tokens`.
        adapters: of a base model, whose own tokenizer is then taken.

    Raises:
        InputError: only some sets are texts, `tokens` is given and none is, or a file cannot be read.
    """
    if not any(map(is_texts, names)):
        if tokens is not None or adapters is not None:
            flag = "--lora" if tokens is None else "--tokens"
            raise InputError(f"{flag} is for texts, and --query {names[0]} is none ({', '.join(TEXTS)}).")
        return None
    other = next((name for name in names if not is_texts(name)), None)
    if other is not None:
        raise InputError(
            f"{other}: is no file of texts ({', '.join(TEXTS)}), as another set is; give all sets as texts."
        )
    sets = [read_texts(expanded(Path(name))) for name in names]
    if adapters is None:
        words = parse_tokens(tokens or "bytes")
        made = sequences(sets, BYTES if words is None else word_tokenizer(sets, words))
    else:
        from jaxaudit.models.language_model import LanguageModel

        base = LanguageModel(Path(adapters.folder))
        made = padded(sets, [base.encode(prompts_of(each), each.answers) for each in sets], base.end, base.positions)
    return dict(zip(names, made, strict=True)).__getitem__


def read_groups(text: str, data: str, records: int, of: str, data_dir: Path | None) -> Shaped[np.ndarray, " records"]:
    """As `load_groups`, and the values of a key of texts."""
    if not is_texts(data) or groups_file(text) is not None:
        return load_groups(text, data, records, of, data_dir)
    values = read_texts(expanded(Path(data))).column(text)
    if values is None:
        raise InputError(f"groups {text!r}: is neither a file nor a key of the texts of the {of}.")
    return np.array(values)
