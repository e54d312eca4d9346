"""Reads sets of texts as sequences of tokens of one length, and the groups of records that a command line names."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Shaped

from jaxaudit.cli.groups import TextNetwork
from jaxaudit.cli.parsers import TEXTS, is_texts, parse_template, parse_tokens
from jaxaudit.data import Examples
from jaxaudit.data.groups import groups_file, load_groups
from jaxaudit.data.paths import expanded
from jaxaudit.data.sequences import BYTES, padded, prompts_of, sequences, word_tokenizer
from jaxaudit.data.texts import read_texts
from jaxaudit.errors import InputError

if TYPE_CHECKING:
    from jaxaudit.models.adapters import Adapters


def text_reader(
    names: Sequence[str], network: TextNetwork, adapters: "Adapters | None" = None
) -> Callable[[str], Examples] | None:
    """A function that returns the texts of a file as sequences of one length; None if the sets are no texts.

    Args:
        names: of all sets, since the word vocabulary and the length are of all of them.
        network: how texts become tokens, and the template.
        adapters: of a base model, whose own tokenizer is then taken.

    Raises:
        InputError: only some sets are texts, an option of texts is given and none is, or a file cannot be read.
    """
    if not any(map(is_texts, names)):
        given = {"--tokens": network.tokens, "--template": network.template, "--lora": adapters}
        flag = next((name for name, value in given.items() if value is not None), None)
        if flag is not None:
            raise InputError(f"{flag} is for texts, and --query {names[0]} is none ({', '.join(TEXTS)}).")
        return None
    other = next((name for name in names if not is_texts(name)), None)
    if other is not None:
        raise InputError(
            f"{other}: is no file of texts ({', '.join(TEXTS)}), as another set is; give all sets as texts."
        )
    sets = [read_texts(expanded(Path(name))) for name in names]
    template = None if network.template is None else parse_template(network.template)
    if adapters is None:
        words = parse_tokens(network.tokens or "bytes")
        made = sequences(sets, BYTES if words is None else word_tokenizer(sets, words, template), template=template)
    else:
        from jaxaudit.models.language_model import LanguageModel

        base = LanguageModel(Path(adapters.folder))
        encoded = [base.encode(prompts_of(each, template), each.answers) for each in sets]
        made = padded(sets, encoded, base.end, base.positions)
    return dict(zip(names, made, strict=True)).__getitem__


def read_groups(text: str, data: str, records: int, of: str, data_dir: Path | None) -> Shaped[np.ndarray, " records"]:
    """As `load_groups`, and the values of a key of texts."""
    if not is_texts(data) or groups_file(text) is not None:
        return load_groups(text, data, records, of, data_dir)
    values = read_texts(expanded(Path(data))).column(text)
    if values is None:
        raise InputError(f"groups {text!r}: is neither a file nor a key of the texts of the {of}.")
    return np.array(values)
